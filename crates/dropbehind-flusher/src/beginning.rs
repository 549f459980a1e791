//! A moment, by the clock that dates files: which files are younger?

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The clock was set if it differs by more than this from one that nobody sets.
const SET: Duration = Duration::from_secs(1);

/// Tells files that were made since a moment, such as when an observation began, from those that
/// were there.
///
/// A clock that is set forward, as on boards that learn the time from a server, may pass the dates
/// of files that were there all along. So once it was set, no date says anything any more.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// Since the epoch.
    date: Duration,
    /// Since the machine started, including the time it was suspended.
    uptime: Duration,
}

impl Beginning {
    /// Begins now, or a few milliseconds ago: what is made from now on was made since.
    #[must_use]
    pub fn now() -> Beginning {
        // File systems date files by this one, which lags a little.
        Self::by(ClockId::RealtimeCoarse)
    }

    /// Begins now, or a few milliseconds later: what was made before was not made since.
    pub(crate) fn by_now() -> Beginning {
        Self::by(ClockId::Realtime)
    }

    fn by(clock: ClockId) -> Beginning {
        Beginning {
            date: time(clock),
            uptime: time(ClockId::Boottime),
        }
    }

    /// Returns whether a file with this date of birth was made since. One without a date was not,
    /// as far as is known.
    #[must_use]
    pub fn is_before(&self, born: Option<Duration>) -> bool {
        let (date, uptime) = (ClockId::Realtime, ClockId::Boottime);
        born.is_some_and(|born| self.is_before_at(born, time(date), time(uptime)))
    }

    fn is_before_at(&self, born: Duration, date: Duration, uptime: Duration) -> bool {
        let expected = self.date + uptime.saturating_sub(self.uptime);
        let was_set = expected.abs_diff(date) > SET;
        !was_set && (self.date..=date).contains(&born)
    }
}

fn time(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const START: Beginning = Beginning {
        date: Duration::from_secs(1000),
        uptime: Duration::from_secs(10),
    };

    fn made_since(born: u64, (date, uptime): (u64, u64)) -> bool {
        let [born, date, uptime] = [born, date, uptime].map(Duration::from_secs);
        START.is_before_at(born, date, uptime)
    }

    #[test]
    fn a_file_counts_as_made_from_the_beginning_until_now() {
        let now = (1100, 110);
        let made = [999, 1000, 1050, 1100, 1101].map(|born| made_since(born, now));
        assert_eq!(made, [false, true, true, true, false]);
    }

    #[test]
    fn once_the_clock_was_set_nothing_counts_as_made() {
        for now in [(9000, 110), (1102, 110), (1098, 110)] {
            assert!(!made_since(1050, now), "{now:?}");
        }
        // What keeps clocks exact moves it by less.
        assert!(made_since(1050, (1101, 110)));
    }

    #[test]
    fn what_is_made_now_counts() {
        let beginning = Beginning::now();
        let scratch = dropbehind_testbed::Scratch::new().unwrap();
        let file = std::fs::File::create_new(scratch.file("made")).unwrap();
        let stat = dropbehind_linux::file_stat(file.as_fd()).unwrap();
        assert!(!Beginning::by_now().is_before(stat.born));
        assert!(stat.born.is_none() || beginning.is_before(stat.born));
    }
}
