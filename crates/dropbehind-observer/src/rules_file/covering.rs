//! Rules that leave nothing to others.
//!
//! What is said to cover something does. The opposite is not sure: patterns of other forms may
//! match the same names.

use std::ops::RangeInclusive;

use super::condition::Condition;
use super::patterns::{Patterns, is_glob};
use super::rule::Rule;

impl Rule {
    /// Returns whether it matches all that `other` does.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let covers = |mine: &Condition| other.conditions.iter().any(|its| mine.covers(its));
        self.exceptions.is_empty() && self.conditions.iter().all(covers)
    }
}

impl Condition {
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Path(mine), Self::Path(its))
            | (Self::Unit(mine), Self::Unit(its))
            | (Self::Cgroup(mine), Self::Cgroup(its)) => mine.cover(its),
            (Self::Size(mine), Self::Size(its)) => {
                let is_covered = |its: &RangeInclusive<u64>| {
                    let mut mine = mine.iter();
                    mine.any(|(_, mine)| mine.contains(its.start()) && mine.contains(its.end()))
                };
                its.iter().all(|(_, its)| is_covered(its))
            }
            (Self::Program(mine), Self::Program(its)) => {
                mine.names.cover(&its.names) && mine.paths.cover(&its.paths)
            }
            (Self::User(mine), Self::User(its)) => its.iter().all(|its| mine.contains(its)),
            _ => false,
        }
    }
}

impl Patterns {
    fn cover(&self, others: &Self) -> bool {
        let mine = self.texts();
        others.texts().iter().all(|its| {
            mine.contains(its)
                || !is_glob(its) && self.matches(its)
                || mine.iter().any(|mine| is_in_folder(its, mine))
        })
    }
}

/// Returns whether a pattern matches nothing outside of the folder that another one is about.
fn is_in_folder(pattern: &str, folder: &str) -> bool {
    let root = folder.strip_suffix("**").unwrap_or(folder);
    root.starts_with('/') && root.ends_with('/') && !is_glob(root) && pattern.starts_with(root)
}
