//! One rule.

use dropbehind_policy::Mode;

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

impl Programs {
    fn matches(&self, process: &ProcessFacts<'_>) -> bool {
        if process.name().is_some_and(|name| self.names.matches(name)) {
            return true;
        }
        process.executable().is_some_and(|path| {
            self.paths.matches(path) || path.file_name().is_some_and(|it| self.names.matches(it))
        })
    }
}

/// Conditions on a file and its opener, and what is done if all of them hold.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// For people; may be missing.
    pub(super) name: Option<String>,
    /// Where it stands: "line 7", or "line 7 of 10-backup.toml".
    pub(super) place: String,
    pub(super) paths: Option<Patterns>,
    pub(super) programs: Option<Programs>,
    pub(super) units: Option<Patterns>,
    pub(super) groups: Option<Patterns>,
    pub(super) mode: Mode,
    pub(super) window_bytes: Option<u64>,
    pub(super) max_dirty_bytes: Option<u64>,
    pub(super) request_bytes: Option<u64>,
    pub(super) reads: Option<bool>,
}

impl Rule {
    /// Tries the path first: it is at hand, while the process must be looked up.
    pub(super) fn matches(&self, candidate: Candidate<'_>, process: &ProcessFacts<'_>) -> bool {
        let group = |wanted: &Option<Patterns>, of: fn(&_, &Patterns) -> bool| {
            let wanted = wanted.as_ref();
            wanted.is_none_or(|wanted| process.groups().iter().any(|it| of(it, wanted)))
        };
        let programs = self.programs.as_ref();
        let paths = self.paths.as_ref();
        paths.is_none_or(|paths| paths.matches(candidate.path))
            && programs.is_none_or(|programs| programs.matches(process))
            && group(&self.units, is_of_unit)
            && group(&self.groups, is_within)
    }
}
