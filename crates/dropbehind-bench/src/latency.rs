//! How long calls took: a histogram, and what is kept of it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Latencies of a role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean, in nanoseconds.
    pub mean_ns: u64,
    /// Half of the calls took at most this.
    pub p50_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// 99.9 % took at most this.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Points of the curve: percentile, and nanoseconds.
    pub curve: Vec<(f64, u64)>,
}

/// Percentiles that are kept, each further step as far as the last.
const CURVE: [f64; 16] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9, 99.95, 99.99, 99.999,
    100.0,
];

/// A histogram that grows as needed, with three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        // The bounds are valid for every machine: an hour fits.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        Self(histogram.unwrap_or_else(|error| unreachable!("fixed bounds: {error}")))
    }

    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Values and counts, for another process.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        self.0
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
            .collect()
    }

    pub(crate) fn add_counts(&mut self, counts: &[(u64, u64)]) {
        for &(value, count) in counts {
            self.0.saturating_record_n(value, count);
        }
    }

    pub(crate) fn summary(&self) -> Latency {
        let at = |percentile| self.0.value_at_percentile(percentile);
        Latency {
            mean_ns: self.0.mean() as u64,
            p50_ns: at(50.0),
            p99_ns: at(99.0),
            p999_ns: at(99.9),
            max_ns: self.0.max(),
            curve: CURVE.iter().map(|&point| (point, at(point))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_travel_without_loss() {
        let mut here = Latencies::new();
        for value in 1..=10_000 {
            here.record(value * 1000);
        }
        let mut there = Latencies::new();
        there.add_counts(&here.counts());
        assert_eq!(there.summary(), here.summary());
        let summary = here.summary();
        let close = |value: u64, wanted: u64| value.abs_diff(wanted) * 1000 <= wanted * 2;
        assert!(close(summary.p50_ns, 5_000_000), "{summary:?}");
        assert!(close(summary.p999_ns, 9_990_000), "{summary:?}");
        assert!(close(summary.max_ns, 10_000_000), "{summary:?}");
    }
}
