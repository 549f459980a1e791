//! Clocks: times that processes share, and CPU time.

use rustix::time::{ClockId, clock_gettime};

/// Length of a step of the series over time.
pub(crate) const SERIES_STEP_NS: u64 = 100_000_000;

fn read_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The monotonic clock, the same in all processes.
pub(crate) fn now_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    read_ns(ClockId::ThreadCPUTime)
}

/// CPU time of this process.
pub(crate) fn process_cpu_ns() -> u64 {
    read_ns(ClockId::ProcessCPUTime)
}

/// A short pause.
pub(crate) fn pause_ms(milliseconds: u64) {
    std::thread::sleep(std::time::Duration::from_millis(milliseconds));
}

/// A day of the proleptic Gregorian calendar, by the usual arithmetic with
/// years that begin in March.
pub(crate) fn date(seconds: u64) -> String {
    let days = i64::try_from(seconds / 86_400).unwrap_or(0) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(1_795_219_200), "2026-11-21");
    }
}
