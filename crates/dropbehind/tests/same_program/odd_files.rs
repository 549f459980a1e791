//! More buffers than one call accepts, and files without pages.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::time::Duration;

use dropbehind::{File, Mode};
use dropbehind_testbed::{Fs, need, pattern};

use crate::common::{Kind, MIB, Place};

#[test]
fn more_buffers_than_the_kernel_takes_are_cut_as_ever() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), MIB);
    let data = pattern::filled(1, 0, 1500);
    let slices: Vec<IoSlice<'_>> = data.chunks(1).map(IoSlice::new).collect();
    let plain_path = place.path().with_extension("plain");
    let mut plain = fs::File::create(&plain_path).unwrap();
    let expected = plain.write_vectored(&slices).unwrap();
    let mut ours = File::create(place.path()).unwrap();
    assert_eq!(ours.write_vectored(&slices).unwrap(), expected);
    assert_eq!(ours.write_vectored_at(&slices, 7).unwrap(), expected);
    let (mut one, mut other) = ([0; 1500], [0; 1500]);
    let mut plain = fs::File::open(&plain_path).unwrap();
    let mut buffers: Vec<_> = one.chunks_mut(1).map(IoSliceMut::new).collect();
    let expected = plain.read_vectored(&mut buffers).unwrap();
    let mut ours = File::open(&plain_path).unwrap();
    let mut buffers: Vec<_> = other.chunks_mut(1).map(IoSliceMut::new).collect();
    assert_eq!(ours.read_vectored(&mut buffers).unwrap(), expected);
    assert_eq!(one, other);
}

#[test]
fn pipes_and_terminals_work_as_ever() {
    let (mut reader, writer) = io::pipe().unwrap();
    let writer = fs::File::from(std::os::fd::OwnedFd::from(writer));
    let mut ours = File::from_std(writer, Mode::DONTCACHE).unwrap();
    ours.write_all(b"through a pipe").unwrap();
    assert!(ours.settle(Duration::from_secs(1)).unwrap());
    let seek = ours.seek(SeekFrom::Start(1)).unwrap_err();
    assert_eq!(seek.raw_os_error(), Some(libc::ESPIPE));
    drop(ours);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(said, "through a pipe");
    let mut null = File::options().write(true).open("/dev/null").unwrap();
    null.write_all(&[0; 100]).unwrap();
}
