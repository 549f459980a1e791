//! What programs that use `std::fs::File` call compiles and does the same with ours.

use std::fs::{FileTimes, Permissions, TryLockError};
use std::io::{self, Seek, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, SystemTime};

use dropbehind::{File, OpenOptions};
use dropbehind_testbed::{Scratch, residency};

/// Code that knows nothing of us.
fn in_place(file: &impl FileExt) -> io::Result<[u8; 4]> {
    file.write_all_at(b"abcdef", 2)?;
    let mut read = [0; 4];
    file.read_exact_at(&mut read, 2)?;
    Ok(read)
}

fn made(options: &mut impl OpenOptionsExt) {
    options.mode(0o640).custom_flags(libc::O_NOATIME);
}

#[test]
fn positioned_io_by_the_trait() {
    let home = Scratch::new().unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    made(&mut options);
    let mut file = options.open(home.file("file")).unwrap();
    assert_eq!(&in_place(&file).unwrap(), b"abcd");
    assert_eq!(file.stream_position().unwrap(), 0);
    assert_eq!(file.stats().bytes_written, 6);
    assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o640);
    let again = options.open(home.file("file")).unwrap_err();
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
}

#[test]
fn a_read_beyond_all_files_after_a_stream() {
    let home = Scratch::new().unwrap();
    let path = home.file("file");
    std::fs::write(&path, vec![1; 32 << 20]).unwrap();
    residency::evict(&path);
    let file = File::open(&path).unwrap();
    let mut data = vec![0; 1 << 20];
    for at in 0..16 {
        file.read_exact_at(&mut data, at << 20).unwrap();
    }
    let plain = std::fs::File::open(&path).unwrap();
    let error = |read: io::Result<usize>| read.unwrap_err().raw_os_error();
    let expected = error(plain.read_at(&mut data, u64::MAX));
    assert_eq!(error(file.read_at(&mut data, u64::MAX)), expected);
}

#[test]
fn permissions_and_times() {
    let home = Scratch::new().unwrap();
    let file = File::create(home.file("file")).unwrap();
    file.set_permissions(Permissions::from_mode(0o604)).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    file.set_times(FileTimes::new().set_accessed(then)).unwrap();
    file.set_modified(then).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o604);
    assert_eq!(metadata.accessed().unwrap(), then);
    assert_eq!(metadata.modified().unwrap(), then);
}

#[test]
fn locks_exclude_other_open_files() {
    let home = Scratch::new().unwrap();
    let first = File::create(home.file("file")).unwrap();
    let second = File::open(home.file("file")).unwrap();
    first.lock().unwrap();
    let refused = second.try_lock_shared();
    assert!(matches!(refused, Err(TryLockError::WouldBlock)));
    first.unlock().unwrap();
    second.lock_shared().unwrap();
    first.try_lock_shared().unwrap();
    let refused = first.try_lock();
    assert!(matches!(refused, Err(TryLockError::WouldBlock)));
}

#[test]
fn a_file_becomes_a_childs_output_or_a_descriptor() {
    let home = Scratch::new().unwrap();
    let path = home.file("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"ours, ").unwrap();
    let status = Command::new("echo").arg("theirs").stdout(file).status();
    assert!(status.unwrap().success());
    let owned = OwnedFd::from(File::open(&path).unwrap());
    let raw = File::from_std(owned.into(), dropbehind::Mode::DONTCACHE)
        .unwrap()
        .into_raw_fd();
    let text = std::fs::read_to_string(format!("/proc/self/fd/{raw}")).unwrap();
    assert_eq!(text, "ours, theirs\n");
}
