//! What a flusher's threads need for themselves: descriptions of files, a descriptor table,
//! an I/O priority.

use super::support::Support;
use crate::descriptor_table::unshare_descriptor_table;
use crate::file::FileId;
use crate::io_priority::{IoPriority, set_thread_io_priority};
use crate::reopen::{Sharing, reopen};
use std::os::fd::{AsRawFd, BorrowedFd};

pub(super) fn own_description(fd: BorrowedFd<'_>, id: FileId) -> Support {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    match reopen(thread, fd.as_raw_fd(), id) {
        Ok((_, Sharing::Own)) => Support::Works,
        Ok((_, Sharing::Shared)) => {
            Support::ineffective("only a copy of the program's own description")
        }
        Err(error) => Support::missing(&error),
    }
}

/// Runs `run` in a short-lived thread.
fn in_a_thread(run: impl FnOnce() -> Support + Send) -> Support {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .spawn_scoped(scope, run)
            .map_or_else(
                |error| Support::untested(format!("no thread: {error}")),
                |thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Support::untested("the thread panicked"))
                },
            )
    })
}

pub(super) fn descriptor_table(open_here: BorrowedFd<'_>) -> Support {
    let fd = open_here.as_raw_fd();
    in_a_thread(move || {
        if let Err(error) = unshare_descriptor_table() {
            return Support::missing(&error);
        }
        // SAFETY: this only checks whether the number is open, and uses it for nothing else.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if fd > 2 && flags >= 0 {
            Support::ineffective("the program's descriptors are still open there")
        } else {
            Support::Works
        }
    })
}

pub(super) fn io_priority() -> Support {
    in_a_thread(|| Support::of(set_thread_io_priority(IoPriority::Idle)))
}
