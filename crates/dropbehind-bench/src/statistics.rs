//! Medians and spreads of few values.

use serde::{Deserialize, Serialize};

/// What some runs have in common.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// How many there were.
    pub count: usize,
}

impl Spread {
    /// Of any number of values but none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|one| one.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (&low, &high) = (values.first()?, values.last()?);
        let median = f64::midpoint(values[(count - 1) / 2], values[count / 2]);
        Some(Self {
            median,
            low,
            high,
            count,
        })
    }

    /// Whether no value of the one is within the range of the other: what a
    /// difference must be before it is called one.
    #[must_use]
    pub fn is_apart(&self, other: &Self) -> bool {
        self.high < other.low || other.high < self.low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_numbers() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.low, spread.median, spread.high), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of([7.0]).unwrap().median, 7.0);
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN, 5.0]).unwrap().count, 1);
    }

    #[test]
    fn ranges_that_touch_are_not_apart() {
        let spread = |low, high| Spread::of([low, high]).unwrap();
        assert!(spread(1.0, 2.0).is_apart(&spread(2.5, 3.0)));
        assert!(spread(2.5, 3.0).is_apart(&spread(1.0, 2.0)));
        assert!(!spread(1.0, 2.0).is_apart(&spread(2.0, 3.0)));
        assert!(!spread(1.0, 5.0).is_apart(&spread(2.0, 3.0)));
    }
}
