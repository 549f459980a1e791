//! Who consumes a writeback error, on a disk that fails.

use crate::setup::{MIB, Mounted, directory, is_root, output, skip, wait_for};
use dropbehind_linux::{
    Sharing, cachestat, drop_clean, file_info, reopen, start_writeback, write_and_wait,
};
use dropbehind_testbed::{Need, need};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

/// A file with more data than the disk below its file system can take: a loop
/// device over a sparse image on a tmpfs that is too small for it.
fn doomed_file(mounted: &Path) -> File {
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(mounted.join("doomed"))
        .unwrap();
    let chunk = vec![1; 1 << 20];
    for _ in 0..64 {
        file.write_all(&chunk).unwrap();
    }
    file
}

/// Whether fdatasync reports the failure of the data. That of the metadata,
/// which it writes itself each time, is EIO.
fn reports_lost_data(file: &File) -> bool {
    let error = file.sync_data().err();
    error.and_then(|error| error.raw_os_error()) == Some(libc::ENOSPC)
}

#[test]
fn only_the_waiting_call_consumes_errors() {
    need!(Need::Cachestat);
    if !is_root() {
        skip!("only_the_waiting_call_consumes_errors", "needs root");
    }
    let directory = directory();
    let small = directory.path().join("small");
    let Some(_small) = Mounted::new(&["-t", "tmpfs", "-o", "size=16m", "none"], &small) else {
        skip!(
            "only_the_waiting_call_consumes_errors",
            "cannot mount tmpfs"
        );
    };
    let image = small.join("image");
    File::create(&image).unwrap().set_len(512 * MIB).unwrap();
    let image = image.to_str().unwrap();
    let options = ["-q", "-O", "^has_journal", "-E", "nodiscard", image];
    if output("mkfs.ext4", &options).is_none() {
        skip!("only_the_waiting_call_consumes_errors", "no mkfs.ext4");
    }
    let failing = directory.path().join("failing");
    let mount = ["-t", "ext4", "-o", "loop,errors=continue", image];
    let Some(failing) = Mounted::new(&mount, &failing) else {
        skip!(
            "only_the_waiting_call_consumes_errors",
            "cannot mount a loop"
        );
    };

    // Starting, counting and dropping leave the error to the program.
    let file = doomed_file(&failing.0);
    let fd = file.as_fd();
    wait_for("failed and clean", || {
        let _ = start_writeback(fd, 0, 0);
        cachestat(fd, 0, 0).unwrap().is_clean()
    });
    drop_clean(fd, 0, 0).unwrap();
    start_writeback(fd, 0, 0).unwrap();
    assert!(reports_lost_data(&file), "fsync must report the failure");
    assert!(!reports_lost_data(&file), "and only once");

    // Waiting on a description of our own leaves it to the program's.
    let file = doomed_file(&failing.0);
    let id = file_info(file.as_fd()).unwrap().id;
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let (own, sharing) = reopen(thread, file.as_raw_fd(), id).unwrap();
    assert_eq!(sharing, Sharing::Own);
    let error = write_and_wait(own.as_fd(), 0, 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    assert!(reports_lost_data(&file));

    // Waiting on the program's own takes it away: never to be done.
    let file = doomed_file(&failing.0);
    write_and_wait(file.as_fd(), 0, 0).unwrap_err();
    // The kernel's own writeback may fail later than what this has waited for.
    let fd = file.as_fd();
    wait_for("failed and clean", || {
        let _ = write_and_wait(fd, 0, 0);
        cachestat(fd, 0, 0).unwrap().is_clean()
    });
    assert!(!reports_lost_data(&file));
}
