//! One rule.

use dropbehind_policy::Mode;

use super::Keys;
use super::condition::Condition;
use super::process_facts::ProcessFacts;
use crate::rules::Candidate;

/// Conditions on a file and its opener, and what is done if they hold.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// For people; may be missing.
    pub(super) name: Option<String>,
    /// Where it stands: "line 7", or "line 7 of 10-backup.toml".
    pub(super) place: String,
    /// All of these have to hold.
    pub(super) conditions: Vec<Condition>,
    /// None of these may hold.
    pub(super) exceptions: Vec<Condition>,
    pub(super) mode: Mode,
    pub(super) keys: Keys,
}

impl Rule {
    /// Returns whether it matches; `None` if that depends on what is not known.
    pub(super) fn matches(
        &self,
        candidate: Candidate<'_>,
        process: &ProcessFacts<'_>,
    ) -> Option<bool> {
        let holds = |condition: &Condition| condition.holds(candidate, process);
        let is_spared = |condition: &Condition| holds(condition).map(|holds| !holds);
        let conditions = self.conditions.iter().map(holds);
        let mut matches = Some(true);
        for met in conditions.chain(self.exceptions.iter().map(is_spared)) {
            match met {
                Some(true) => {}
                Some(false) => return Some(false),
                None => matches = None,
            }
        }
        matches
    }

    /// What to call it in a list of rules.
    pub(super) fn title(&self, number: usize) -> String {
        let name = self.name.as_ref();
        let name = name.map_or_else(String::new, |name| format!(" {name:?}"));
        format!("{number}.{name} ({})", self.place)
    }

    /// The patterns of the paths that it is about.
    pub(super) fn path_texts(&self) -> impl Iterator<Item = &str> {
        let paths = self.conditions.iter().filter_map(Condition::paths);
        paths.flat_map(|paths| paths.texts().iter().map(String::as_str))
    }
}
