//! What one key of a rule asks.

use std::ops::RangeInclusive;

use super::cgroup::{is_of_unit, is_within};
use super::patterns::Patterns;
use super::process_facts::ProcessFacts;
use crate::rules::Candidate;

/// Programs by name or by path; one has to match.
#[derive(Clone, Debug)]
pub(super) struct Programs {
    /// Globs without a slash, over the process's name and its program's file name.
    pub(super) names: Patterns,
    /// Globs with one, over the path of the program's file.
    pub(super) paths: Patterns,
}

/// A condition. In the order in which they are tried: what the event tells comes first, while
/// the process must be looked up.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    Path(Patterns),
    /// In bytes, as written and as ranges.
    Size(Vec<(String, RangeInclusive<u64>)>),
    Program(Programs),
    /// By name or number as written, each with its number, if there is such a user.
    User(Vec<(String, Option<u32>)>),
    Unit(Patterns),
    Cgroup(Patterns),
}

impl Programs {
    fn holds(&self, process: &ProcessFacts<'_>) -> Option<bool> {
        if process
            .name()
            .is_some_and(|name| self.names.match_name(name.as_ref()))
        {
            return Some(true);
        }
        let path = process.executable()?;
        let mut names = path.file_name().into_iter();
        if self.paths.matches(path) || names.any(|name| self.names.match_name(name)) {
            return Some(true);
        }
        // Somebody asks about a program and has not said where it is.
        let is_known = path.is_absolute() || self.paths.texts().is_empty();
        is_known.then_some(false)
    }
}

impl Condition {
    /// Its key in the file.
    pub(super) fn key(&self) -> &'static str {
        match self {
            Self::Path(_) => "path",
            Self::Size(_) => "size",
            Self::Program(_) => "program",
            Self::User(_) => "user",
            Self::Unit(_) => "unit",
            Self::Cgroup(_) => "cgroup",
        }
    }

    /// What it asks for, as in "A or B".
    pub(super) fn alternatives(&self) -> String {
        let texts = match self {
            Self::Path(patterns) | Self::Unit(patterns) | Self::Cgroup(patterns) => {
                patterns.texts().to_vec()
            }
            Self::Size(sizes) => sizes.iter().map(|(text, _)| text.clone()).collect(),
            Self::Program(programs) => [programs.names.texts(), programs.paths.texts()].concat(),
            Self::User(users) => users.iter().map(|(text, _)| text.clone()).collect(),
        };
        texts.join(" or ")
    }

    /// The patterns of a path.
    pub(super) fn paths(&self) -> Option<&Patterns> {
        match self {
            Self::Path(paths) => Some(paths),
            _ => None,
        }
    }

    /// The users that it names, and their numbers.
    pub(super) fn users_mut(&mut self) -> &mut [(String, Option<u32>)] {
        match self {
            Self::User(users) => users,
            _ => &mut [],
        }
    }

    /// The names of users that there are not.
    pub(super) fn unknown_users(&self) -> impl Iterator<Item = &str> {
        let known = match self {
            Self::User(users) => users.as_slice(),
            _ => &[],
        };
        let unknown = known.iter().filter(|(_, number)| number.is_none());
        unknown.map(|(name, _)| name.as_str())
    }

    /// Returns whether it holds; `None` if that is not known.
    pub(super) fn holds(
        &self,
        candidate: Candidate<'_>,
        process: &ProcessFacts<'_>,
    ) -> Option<bool> {
        let any_group = |of: fn(&_, &Patterns) -> bool, wanted| {
            let mut groups = process.groups()?.iter();
            Some(groups.any(|group| of(group, wanted)))
        };
        match self {
            Self::Path(paths) => Some(paths.matches(candidate.path)),
            Self::Size(sizes) => candidate.size_bytes.map(|bytes| {
                let mut sizes = sizes.iter();
                sizes.any(|(_, range)| range.contains(&bytes))
            }),
            Self::Program(programs) => programs.holds(process),
            Self::User(users) => process.user().map(|user| {
                let mut users = users.iter();
                users.any(|(_, known)| *known == Some(user))
            }),
            Self::Unit(units) => any_group(is_of_unit, units),
            Self::Cgroup(groups) => any_group(is_within, groups),
        }
    }
}
