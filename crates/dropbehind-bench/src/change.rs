//! A figure before and after, and how the difference is said.

use crate::metric::{Better, Metric, shown};
use crate::statistics::Spread;

/// From this factor on a change is told as one: percents of it say little.
const FACTOR: f64 = 3.0;
/// A change by less is none.
const SMALLEST_PERCENT: f64 = 0.5;

/// A figure before and after.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) metric: &'static Metric,
    pub(crate) before: Spread,
    pub(crate) after: Spread,
}

impl Change {
    /// Whether one of the two is of a single run, which proves nothing.
    pub(crate) fn is_single(&self) -> bool {
        self.before.count.min(self.after.count) < 2
    }

    /// More than chance: no run of the one is within the range of the other.
    pub(crate) fn is_apart(&self) -> bool {
        self.before.is_apart(&self.after) && !self.is_single()
    }

    pub(crate) fn is_better(&self) -> bool {
        match self.metric.better {
            Better::Higher => self.after.median > self.before.median,
            Better::Lower => self.after.median < self.before.median,
        }
    }

    fn percent(&self) -> f64 {
        (self.after.median / self.before.median - 1.0) * 100.0
    }

    /// Whether the medians are as good as the same.
    pub(crate) fn is_none(&self) -> bool {
        self.before.median == self.after.median || self.percent().abs() < SMALLEST_PERCENT
    }

    /// How much: `+35 %`, `14× the time`, `1/14 the time`.
    pub(crate) fn size(&self) -> String {
        let (before, after) = (self.before.median, self.after.median);
        let ratio = after / before;
        let short = |factor: f64| match factor {
            factor if factor < 9.95 => format!("{factor:.1}"),
            factor => format!("{factor:.0}"),
        };
        let what = self.metric.multiple();
        if self.is_none() {
            "=".to_owned()
        } else if shown(before) == "0" {
            "from 0".to_owned()
        } else if shown(after) == "0" {
            "to 0".to_owned()
        } else if ratio >= FACTOR {
            format!("{}× {what}", short(ratio))
        } else if ratio <= 1.0 / FACTOR {
            format!("1/{} {what}", short(1.0 / ratio))
        } else {
            format!("{:+.0} %", self.percent()).replace('-', "−")
        }
    }

    /// The same, and what to think of it; `≈` where it may be chance.
    pub(crate) fn words(&self) -> String {
        let size = self.size();
        if self.is_none() || self.is_single() {
            size
        } else if !self.is_apart() {
            format!("≈ {size}")
        } else if self.is_better() {
            format!("{size}, better")
        } else {
            format!("{size}, worse")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(key: &str, before: &[f64], after: &[f64]) -> String {
        let spread = |values: &[f64]| Spread::of(values.iter().copied()).unwrap();
        let change = Change {
            metric: Metric::named(key).unwrap(),
            before: spread(before),
            after: spread(after),
        };
        change.words()
    }

    #[test]
    fn large_changes_are_factors() {
        let (two, three) = (&[100.0, 100.0], &[300.0, 301.0]);
        assert_eq!(words("p99", two, &[1400.0, 1400.0]), "14× the time, worse");
        assert_eq!(words("p99", &[1400.0; 2], two), "1/14 the time, better");
        assert_eq!(words("speed", two, three), "3.0× the speed, better");
        assert_eq!(
            words("cpu_flusher", &[0.001; 2], &[0.1567; 2]),
            "157× the CPU time, worse"
        );
        assert_eq!(
            words("peak_dirty", &[247.0; 2], &[17.0; 2]),
            "1/15 as much, better"
        );
        assert_eq!(
            words("extents", &[2.0; 2], &[9.0; 2]),
            "4.5× as many, worse"
        );
    }

    #[test]
    fn small_ones_are_percents() {
        assert_eq!(words("p99", &[100.0; 2], &[299.0; 2]), "+199 %, worse");
        assert_eq!(words("speed", &[100.0; 2], &[60.0; 2]), "−40 %, worse");
        assert_eq!(words("speed", &[100.0, 140.0], &[120.0, 160.0]), "≈ +17 %");
        assert_eq!(words("speed", &[100.0], &[60.0]), "−40 %");
        assert_eq!(words("speed", &[1000.0; 2], &[1004.0; 2]), "=");
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        assert_eq!(words("left_cached", &[0.0; 2], &[5.0; 2]), "from 0, worse");
        assert_eq!(words("left_cached", &[5.0; 2], &[0.0; 2]), "to 0, better");
        assert_eq!(words("left_cached", &[0.0; 2], &[0.0; 2]), "=");
    }
}
