//! What becomes of a file whose writers could not be held.

use std::io;
use std::time::{Duration, Instant};

/// So many failures in a row, and its writers are not held any more.
const MOST: u32 = 4;
/// So long nobody is held after the first one, and longer after each other: the
/// program is to get to where it learns of a disk that fails.
const PAUSE: Duration = Duration::from_millis(250);

/// Failures since writers were held last.
#[derive(Debug, Default)]
pub(super) struct HoldFailures {
    in_a_row: u32,
    again_from: Option<Instant>,
}

impl HoldFailures {
    /// True when it is not too early for another try.
    pub(super) fn may_try(&self) -> bool {
        self.again_from.is_none_or(|time| Instant::now() >= time)
    }

    pub(super) fn succeeded(&mut self) {
        self.in_a_row = 0;
    }

    /// Counts one more; true when there is to be no other try.
    ///
    /// `EIO` is an error of the disk, or a page that was written through a mapping in
    /// the wrong moment. Either passes: pages that could not be written are clean
    /// afterwards, and the program's fsync fails as it would have. With `ENOSPC` and
    /// others it will fail again.
    pub(super) fn is_final(&mut self, error: &io::Error) -> bool {
        self.in_a_row += 1;
        self.again_from = Some(Instant::now() + PAUSE * self.in_a_row);
        let passes = matches!(
            error.raw_os_error(),
            Some(
                libc::EIO | libc::ENOMEM | libc::EAGAIN | libc::EINTR | libc::EMFILE | libc::ENFILE
            )
        );
        !passes || self.in_a_row >= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    #[test]
    fn what_may_pass_is_tried_again_a_few_times() {
        let mut failures = HoldFailures::default();
        assert!(failures.may_try());
        for _ in 0..10 {
            for errno in [libc::EIO, libc::ENOMEM, libc::EAGAIN] {
                assert!(!failures.is_final(&error(errno)));
                assert!(!failures.may_try());
            }
            failures.succeeded();
        }
        let given_up = (0..MOST).map(|_| failures.is_final(&error(libc::EIO)));
        assert_eq!(given_up.collect::<Vec<_>>(), [false, false, false, true]);
    }

    #[test]
    fn what_does_not_pass_is_not() {
        for errno in [libc::ENOSPC, libc::EDQUOT, libc::EOPNOTSUPP, libc::EINVAL] {
            assert!(HoldFailures::default().is_final(&error(errno)));
        }
    }
}
