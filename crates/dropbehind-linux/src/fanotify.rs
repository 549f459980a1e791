//! Being told of what programs do with files: fanotify(7).
//!
//! A group needs `CAP_SYS_ADMIN` in the initial user namespace for what is done
//! with it here: marks of mounts and file systems, events that bring their own
//! descriptor, and permission events.
//!
//! # The descriptors of events
//!
//! They are opened by the kernel, read-only, and marked so that whatever is
//! done *through them* makes no event (`FMODE_NONOTIFY`). Opening the file
//! again, by its path or through `/proc/self/fd`, does make one, for our own
//! group as well: of permission events that deadlocks the thread that answers
//! them. So: work with the descriptor that came with the event, or let another
//! thread open the file.
//!
//! A descriptor keeps its mount busy (`umount` answers `EBUSY`) and a removed
//! file's data on the disk while it is open.
//!
//! Sources: `fanotify_init(2)`, `fanotify_mark(2)`, `fanotify(7)`,
//! `fs/notify/fanotify/`.

mod events;
mod mark;

pub use events::{Event, EventBuffer, EventMask, Events};
pub use mark::{MarkLife, MarkTarget};

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What a group may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupClass {
    /// To be told afterwards.
    Notification,
    /// To be asked before, too: [`EventMask::OPEN_PERM`]. Such a group hears of
    /// an event before groups of the other class do.
    Content,
}

/// A fanotify group: a queue of events and the marks that fill it.
///
/// Dropping it removes its marks and lets go every program that waits for an
/// answer to a permission event. So does the end of the process, however it
/// ends.
#[derive(Debug)]
pub struct Fanotify {
    fd: OwnedFd,
}

impl Fanotify {
    /// Makes a group. Queue and number of marks are unlimited; reading does not
    /// block; events' descriptors are close-on-exec, work on files of any size
    /// and leave the access time alone.
    ///
    /// # Errors
    ///
    /// - `EPERM`: without `CAP_SYS_ADMIN` in the initial user namespace.
    /// - `ENOSYS`: the kernel was built without fanotify. Whether it was built
    ///   with permission events shows when they are asked for.
    /// - `EMFILE`: more than `fs.fanotify.max_user_groups` groups (128 by
    ///   default), or out of descriptors.
    pub fn new(class: GroupClass) -> io::Result<Self> {
        Self::with_queue(class, libc::FAN_UNLIMITED_QUEUE)
    }

    /// Like [`Fanotify::new`], with a queue of the kernel's length
    /// (`fs.fanotify.max_queued_events`, 16384 by default). What does not fit is
    /// lost, and an event with [`Event::overflow`] says so.
    ///
    /// # Errors
    ///
    /// As [`Fanotify::new`].
    pub fn with_bounded_queue(class: GroupClass) -> io::Result<Self> {
        Self::with_queue(class, 0)
    }

    fn with_queue(class: GroupClass, queue: libc::c_uint) -> io::Result<Self> {
        let class = match class {
            GroupClass::Notification => libc::FAN_CLASS_NOTIF,
            GroupClass::Content => libc::FAN_CLASS_CONTENT,
        };
        let flags =
            class | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | queue | libc::FAN_UNLIMITED_MARKS;
        // Not blocking: a FIFO would be waited for until it has a writer.
        let event_flags = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NONBLOCK;
        match init(flags, event_flags | libc::O_NOATIME) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => init(flags, event_flags),
            result => result,
        }
        .map(|fd| Self { fd })
    }

    /// Reads what is in the queue, as much as the buffer takes.
    ///
    /// Each event's file is opened by this call in this process, so a buffer
    /// must be small against the limit on descriptors.
    ///
    /// # Errors
    ///
    /// - [`io::ErrorKind::WouldBlock`]: nothing is there, or somebody has a lease on the file
    ///   of the first event (fcntl(2) `F_SETLEASE`), which is lost then. Polling tells.
    /// - `EINTR`: a signal came first.
    /// - Any other one concerns the first event alone, whose file could not be
    ///   opened: `EMFILE`, `ENFILE`, `ENOMEM`, `EACCES`, `ENXIO`, `ESTALE`, ….
    ///   It is lost (a permission event is answered with "deny" by the
    ///   kernel), and reading on brings the next ones. On `EMFILE`, close some
    ///   descriptors first, else they are lost one by one.
    pub fn read<'a>(&'a self, buffer: &'a mut EventBuffer) -> io::Result<Events<'a>> {
        let filled = rustix::io::read(&self.fd, buffer.bytes_mut())?;
        Ok(Events::new(self, buffer.filled(filled)))
    }

    /// Lets the program go on that waits for an answer about this file.
    ///
    /// The descriptor is the event's own, which tells the kernel the event; it
    /// can be closed then.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: no event with this descriptor waits for an answer.
    /// - `EINVAL`: the group is not of [`GroupClass::Content`].
    pub fn allow(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let response = libc::fanotify_response {
            fd: file.as_raw_fd(),
            response: libc::FAN_ALLOW,
        };
        // SAFETY: the struct is initialised, has no padding, and outlives the
        // slice.
        let bytes = unsafe {
            std::slice::from_raw_parts(
                (&raw const response).cast::<u8>(),
                size_of::<libc::fanotify_response>(),
            )
        };
        rustix::io::write(&self.fd, bytes)?;
        Ok(())
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
