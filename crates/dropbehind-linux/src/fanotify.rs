//! Events about what programs do with files: fanotify(7).
//!
//! A group needs `CAP_SYS_ADMIN` in the initial user namespace for the features used here:
//! marks on mounts and file systems, and events with descriptors.
//!
//! # The descriptors of events
//!
//! The kernel opens them read-only, and marks them so that nothing done *through them* makes
//! an event (`FMODE_NONOTIFY`). Opening the file again, by its path or through
//! `/proc/self/fd`, does make one, for our own group as well.
//!
//! While it is open, a descriptor keeps its mount busy (`umount` fails with `EBUSY`) and a
//! deleted file's data on the disk.
//!
//! Sources: `fanotify_init(2)`, `fanotify_mark(2)`, `fanotify(7)`,
//! `fs/notify/fanotify/`.

mod events;
mod mark;

pub use events::{Event, EventBuffer, EventMask, Events};
pub use mark::{MarkLife, MarkTarget};

use crate::deferred_close::close_deferred;
use crate::{Interest, PollEntry, poll};
use rustix::io::Errno;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// `FAN_REPORT_FD_ERROR` of include/uapi/linux/fanotify.h, since Linux 6.13.
const REPORT_FD_ERROR: libc::c_uint = 0x2000;

/// The events that a group still has at its end are read this many at a time.
const LAST_EVENTS: usize = 16;
/// At most so many times, which takes some milliseconds.
const LAST_READS: usize = 16;

/// A fanotify group: a queue of events and the marks that fill it.
///
/// Dropping it removes its marks and lets go of the files in its queue. So does the end of the
/// process, however it ends. No program ever waits for it: there are no permission events.
#[derive(Debug)]
pub struct Fanotify {
    fd: ManuallyDrop<OwnedFd>,
    /// Whether an event says why its file could not be opened.
    reports_errors: bool,
}

impl Fanotify {
    /// Creates a group with an unlimited queue and unlimited marks. Reads don't block. The
    /// events' descriptors are close-on-exec, support files of any size and don't update the
    /// access time.
    ///
    /// # Errors
    ///
    /// - `EPERM`: without `CAP_SYS_ADMIN` in the initial user namespace.
    /// - `ENOSYS`: the kernel was built without fanotify.
    /// - `EMFILE`: more than `fs.fanotify.max_user_groups` groups (128 by
    ///   default), or out of descriptors.
    pub fn new() -> io::Result<Self> {
        Self::with_queue(libc::FAN_UNLIMITED_QUEUE)
    }

    /// Like [`Fanotify::new`], with a queue of the kernel's default length
    /// (`fs.fanotify.max_queued_events`, 16384 by default). Events that don't fit are lost,
    /// and one with [`Event::overflow`] reports that.
    ///
    /// # Errors
    ///
    /// Those of [`Fanotify::new`].
    pub fn with_bounded_queue() -> io::Result<Self> {
        Self::with_queue(0)
    }

    fn with_queue(queue: libc::c_uint) -> io::Result<Self> {
        // The kernel refuses flags that it does not know.
        Self::with_flags(queue | REPORT_FD_ERROR).or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Self::with_flags(queue),
            _ => Err(error),
        })
    }

    fn with_flags(more: libc::c_uint) -> io::Result<Self> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_CLOEXEC
            | libc::FAN_NONBLOCK
            | libc::FAN_UNLIMITED_MARKS
            | more;
        // Non-blocking: opening a FIFO would wait for a writer.
        let event_flags = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NONBLOCK;
        match init(flags, event_flags | libc::O_NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => init(flags, event_flags),
            result => result,
        }
        .map(|fd| Self {
            fd: ManuallyDrop::new(fd),
            reports_errors: more & REPORT_FD_ERROR != 0,
        })
    }

    /// Reads events from the queue, as many as fit in the buffer.
    ///
    /// This call opens each event's file in this process, so a buffer must be small compared
    /// to the descriptor limit.
    ///
    /// # Errors
    ///
    /// - [`io::ErrorKind::WouldBlock`]: the queue is empty.
    /// - `EINTR`: a signal came first.
    ///
    /// Before Linux 6.13, an event has no [error](Event::error). If its file cannot be opened,
    /// it is lost. The call fails with its error if it is the first event: `EMFILE`, `ENFILE`, `ENOMEM`, `EACCES`, `ENXIO`,
    /// `ESTALE`, …, and `EBUSY` if another process has a lease on the file (fcntl(2)
    /// `F_SETLEASE`). The next read gets the following events.
    pub fn read<'a>(&self, buffer: &'a mut EventBuffer) -> io::Result<Events<'a>> {
        // Then the kernel's answer is the same for a lease and for an empty queue.
        let had_events = !self.reports_errors && self.has_events();
        match rustix::io::read(&*self.fd, buffer.bytes_mut()) {
            Ok(filled) => Ok(Events(&buffer.bytes_mut()[..filled])),
            Err(Errno::AGAIN) if had_events => Err(Errno::BUSY.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn has_events(&self) -> bool {
        let mut queue = [PollEntry::new(self.fd.as_fd(), Interest::Readable)];
        poll(&mut queue, Some(Duration::ZERO)).is_ok_and(|ready| ready > 0)
    }
}

impl Drop for Fanotify {
    /// The last close of a group waits until no processor can be using one of its marks any more,
    /// for 10 to 20 ms (`fsnotify_wait_marks_destroyed`), and an ending process waits with it.
    /// Nothing needs that wait: once the marks are gone and the queue is empty, as it mostly is,
    /// the group holds no file and no mount.
    fn drop(&mut self) {
        self.flush_marks();
        let mut buffer = EventBuffer::new(LAST_EVENTS);
        // Reading opens each file. Of a long queue, the close lets go.
        for _ in 0..LAST_READS {
            if !self.has_events() {
                break;
            }
            // An error takes its event off the queue, too.
            let _ = self.read(&mut buffer);
        }
        // SAFETY: nobody uses it after this.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        close_deferred(vec![fd]);
    }
}

impl AsFd for Fanotify {
    /// For polling: readable when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn init(flags: libc::c_uint, event_flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: two integers.
    let fd = unsafe { libc::fanotify_init(flags, event_flags as libc::c_uint) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else knows of.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
