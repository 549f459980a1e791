//! The events in a group's queue.

use std::io;
use std::ops::BitOr;
use std::os::fd::{FromRawFd, OwnedFd};

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct EventMask(pub(super) u64);

impl EventMask {
    /// No events.
    pub const EMPTY: Self = Self(0);
    /// A file was opened, also by exec or when it was open already.
    pub const OPEN: Self = Self(libc::FAN_OPEN);
    /// A description that was open for writing was closed for good.
    pub const CLOSE_WRITE: Self = Self(libc::FAN_CLOSE_WRITE);
    /// A description that was not open for writing was closed for good.
    pub const CLOSE_NOWRITE: Self = Self(libc::FAN_CLOSE_NOWRITE);
    /// A call wrote data or changed the size; writes through a mapping don't count.
    pub const MODIFY: Self = Self(libc::FAN_MODIFY);
    /// A call read data; reads through a mapping don't count.
    pub const ACCESS: Self = Self(libc::FAN_ACCESS);
    /// Asks for events on directories, too, or says that this is one.
    pub const ON_DIR: Self = Self(libc::FAN_ONDIR);

    /// Whether all of `other`'s events are included.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other`'s events is included.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The events of both; like `|`, but usable in constants.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for EventMask {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

/// Something that happened to a file.
#[derive(Debug)]
pub struct Event {
    /// What happened. The kernel merges notifications in the queue if they are for the same
    /// process and file.
    pub mask: EventMask,
    /// The process whose thread did it, as numbered in the reader's pid namespace; 0 if it
    /// has no number there. It may have ended since, and another process may have the number.
    pub process: i32,
    /// The file.
    pub file: Option<OwnedFd>,
    /// Why the file could not be opened (since Linux 6.13), such as `EWOULDBLOCK` if another
    /// process has a lease on it.
    pub error: Option<io::Error>,
    /// Events were lost because the kernel had no memory for them. This event reports nothing
    /// else.
    pub overflow: bool,
}

const METADATA_BYTES: usize = size_of::<libc::fanotify_event_metadata>();

/// Room for the events of one read.
#[derive(Debug)]
pub struct EventBuffer {
    // Words of eight bytes, to align the kernel's struct.
    words: Vec<u64>,
}

impl EventBuffer {
    /// Room for this many events, at least one.
    #[must_use]
    pub fn new(events: usize) -> Self {
        Self {
            words: vec![0; events.max(1) * METADATA_BYTES.div_ceil(8)],
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let len = size_of_val(&*self.words);
        // SAFETY: the same memory, all of it initialised; any byte is valid
        // in both types.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), len) }
    }
}

/// The events of one read, oldest first.
///
/// Dropping it closes the files of events that were not taken.
#[derive(Debug)]
pub struct Events<'a>(pub(super) &'a [u8]);

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let metadata = next_metadata(&mut self.0)?;
        // SAFETY: the kernel made this descriptor for this event, nobody else
        // owns it, and the buffer's bytes are passed once.
        let file = (metadata.fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(metadata.fd) });
        let overflow = metadata.mask & libc::FAN_Q_OVERFLOW != 0;
        let failed = file.is_none() && !overflow;
        Some(Event {
            mask: EventMask(metadata.mask & !libc::FAN_Q_OVERFLOW),
            process: metadata.pid,
            file,
            error: failed.then(|| io::Error::from_raw_os_error(metadata.fd.wrapping_neg())),
            overflow,
        })
    }
}

/// Takes the first record off `rest`. After a record of an unknown layout, all the rest is
/// lost.
fn next_metadata(rest: &mut &[u8]) -> Option<libc::fanotify_event_metadata> {
    if rest.len() < METADATA_BYTES {
        return None;
    }
    // SAFETY: the bytes are there, and the struct is made of integers.
    let metadata: libc::fanotify_event_metadata =
        unsafe { std::ptr::read_unaligned(rest.as_ptr().cast()) };
    let len = metadata.event_len as usize;
    *rest = rest.get(len.max(METADATA_BYTES)..).unwrap_or_default();
    // The layout is checked as the manual asks for; there has been no
    // other version since Linux 2.6.37.
    if metadata.vers != libc::FANOTIFY_METADATA_VERSION {
        *rest = &[];
        return None;
    }
    Some(metadata)
}

impl Drop for Events<'_> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_records_are_taken_one_by_one_to_their_end() {
        dropbehind_testbed::fuzz("tests/corpus/fanotify", |bytes| {
            let mut rest = bytes;
            while let Some(metadata) = next_metadata(&mut rest) {
                // What has been taken so far ends where this record does.
                let taken = bytes.len() - rest.len();
                let len = (metadata.event_len as usize).max(METADATA_BYTES);
                assert!(taken >= METADATA_BYTES && (rest.is_empty() || len <= taken));
                assert_eq!(metadata.vers, libc::FANOTIFY_METADATA_VERSION);
            }
            assert!(rest.len() < METADATA_BYTES);
        });
    }
}
