//! A limit on the size of files.

use std::fs;
use std::path::Path;

use dropbehind_testbed::{Fs, MountedFs, need};

use crate::common::{self, FILE_VARIABLE, MIB};
use crate::twins::{Log, Side};

/// Runs with a limit on the size of files.
#[test]
#[ignore = "a part of another test"]
fn limited_file_size() {
    let path = std::env::var_os(FILE_VARIABLE).unwrap();
    let path = Path::new(&path);
    let limit = libc::rlimit {
        rlim_cur: MIB,
        rlim_max: MIB,
    };
    // SAFETY: the limit is a valid structure; ignoring a signal has no handler
    // that could do harm.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let write = |side: Side| {
        fs::File::create(path).unwrap();
        let mut file = side.open(path);
        let mut log = Log::default();
        let block = vec![3; 400 << 10];
        for _ in 0..5 {
            log.note("write", file.write(&block));
        }
        log.note_done("sync", file.sync_all());
        file.settle();
        assert_eq!(fs::metadata(path).unwrap().len(), MIB);
        log
    };
    let plain = write(Side::Plain);
    let short = plain.0.iter().any(|(_, result)| *result == Ok(224 << 10));
    assert!(short, "{plain:?}");
    let refused = Err(Some(libc::EFBIG));
    assert!(plain.0.iter().any(|(_, result)| *result == refused));
    for side in Side::ours() {
        assert_eq!(write(side), plain, "{side:?}");
    }
}

#[test]
fn a_limit_of_file_size_gives_the_same_short_write_and_error() {
    need!(all MountedFs::needs(Fs::Ext4));
    let disk = MountedFs::new(Fs::Ext4, 32 * MIB).unwrap();
    let status = common::part("size_limit::limited_file_size")
        .env(FILE_VARIABLE, disk.file("data"))
        .status()
        .unwrap();
    assert!(status.success());
}
