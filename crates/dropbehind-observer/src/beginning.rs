//! When the observation began, by the clock that dates files.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The clock was set if it differs by more than this from one that nobody sets.
const SET: Duration = Duration::from_secs(1);

/// Tells files that were made since the observation began from those that were there.
///
/// A clock that is set forward, as on boards that learn the time from a server, may pass the dates
/// of files that were there all along. So once it was set, no date says anything any more.
#[derive(Debug)]
pub(crate) struct Beginning(Clocks);

/// Two clocks, read at the same moment.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    /// Since the epoch.
    date: Duration,
    /// Since the machine started, including the time it was suspended.
    uptime: Duration,
}

impl Beginning {
    /// Begins now.
    pub(crate) fn now() -> Beginning {
        Beginning(Clocks {
            // File systems date files by this one, which lags a little.
            date: time(ClockId::RealtimeCoarse),
            uptime: time(ClockId::Boottime),
        })
    }

    /// Returns whether a file with this date of birth was made since.
    pub(crate) fn is_before(&self, born: Duration) -> bool {
        let now = Clocks {
            date: time(ClockId::Realtime),
            uptime: time(ClockId::Boottime),
        };
        self.is_before_at(born, now)
    }

    fn is_before_at(&self, born: Duration, now: Clocks) -> bool {
        let Beginning(start) = self;
        let expected = start.date + now.uptime.saturating_sub(start.uptime);
        let was_set = expected.abs_diff(now.date) > SET;
        !was_set && (start.date..=now.date).contains(&born)
    }
}

fn time(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const START: Clocks = clocks(1000, 10);

    const fn clocks(date: u64, uptime: u64) -> Clocks {
        Clocks {
            date: Duration::from_secs(date),
            uptime: Duration::from_secs(uptime),
        }
    }

    fn made_since(born: u64, now: Clocks) -> bool {
        Beginning(START).is_before_at(Duration::from_secs(born), now)
    }

    #[test]
    fn a_file_counts_as_made_from_the_beginning_until_now() {
        let now = clocks(1100, 110);
        let made = [999, 1000, 1050, 1100, 1101].map(|born| made_since(born, now));
        assert_eq!(made, [false, true, true, true, false]);
    }

    #[test]
    fn once_the_clock_was_set_nothing_counts_as_made() {
        for now in [clocks(9000, 110), clocks(1102, 110), clocks(1098, 110)] {
            assert!(!made_since(1050, now), "{now:?}");
        }
        // What keeps clocks exact moves it by less.
        assert!(made_since(1050, clocks(1101, 110)));
    }

    #[test]
    fn what_is_made_now_counts() {
        let beginning = Beginning::now();
        let scratch = dropbehind_testbed::Scratch::new().unwrap();
        let file = std::fs::File::create_new(scratch.file("made")).unwrap();
        let stat = dropbehind_linux::file_stat(file.as_fd()).unwrap();
        assert!(stat.born.is_none_or(|born| beginning.is_before(born)));
    }
}
