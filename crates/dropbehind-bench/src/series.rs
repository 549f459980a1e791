//! Series over time, in steps fit to be looked at.

use crate::clock::SERIES_STEP_NS;

/// Tenths in a second.
const TENTHS: usize = (1_000_000_000 / SERIES_STEP_NS) as usize;
/// Seconds from which on whole seconds are shown.
const LONG: usize = 5;

/// A series in steps of one length.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Steps {
    /// Length of a step.
    pub(crate) seconds: f64,
    /// Bytes in each step.
    pub(crate) bytes: Vec<u64>,
}

impl Steps {
    /// Speed in each step.
    pub(crate) fn mb_per_s(&self) -> Vec<f64> {
        let speed = |&bytes: &u64| bytes as f64 / 1e6 / self.seconds;
        self.bytes.iter().map(speed).collect()
    }
}

/// Whole seconds, or tenths in short runs; the last, incomplete one left out.
pub(crate) fn steady(tenths: &[u64]) -> Steps {
    let whole = &tenths[..tenths.len().saturating_sub(1)];
    if whole.len() < LONG * TENTHS {
        return Steps {
            seconds: 1.0 / TENTHS as f64,
            bytes: whole.to_vec(),
        };
    }
    Steps {
        seconds: 1.0,
        bytes: whole
            .chunks_exact(TENTHS)
            .map(|second| second.iter().sum())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_are_in_seconds() {
        let steps = steady(&[1; 75]);
        assert_eq!((steps.seconds, steps.bytes), (1.0, vec![10; 7]));
        let steps = steady(&[1_000_000; 20]);
        assert_eq!(steps.bytes.len(), 19);
        assert_eq!(steps.mb_per_s()[0], 10.0);
        assert_eq!(steady(&[]).bytes, [0_u64; 0]);
    }
}
