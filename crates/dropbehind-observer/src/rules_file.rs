//! Rules from a file, for a whole machine.
//!
//! The file is TOML. `[[rule]]`s are tried in order, and the first that matches a file and its
//! opener decides. Files that no rule matches get the mode above the rules, which is `buffered`
//! (leave it alone) unless set. The rules of further files, in a folder beside it, come after its
//! own. The example in `packaging/dropbehind.toml` explains every key.

mod cgroup;
mod condition;
mod covering;
mod decision;
mod explanation;
mod parse;
mod patterns;
mod process_facts;
mod remarks;
mod rule;

use std::io;
use std::path::Path;
use std::sync::Arc;

use dropbehind_config::{ConfigText, Disks, read_texts};
use dropbehind_policy::Mode;

use crate::in_time::in_time;
use crate::rules::{self, Candidate, Settings};
use crate::shown;
use condition::Condition;
use process_facts::ProcessFacts;
use rule::Rule;

pub(crate) use cgroup::unit_or_group;
pub use dropbehind_config::{FileError as RulesFileError, Problem};

/// The rules of a file, and of those in its folder.
#[derive(Clone, Debug)]
pub struct RulesFile {
    /// What stands above the rules. The mode is for files that no rule matches; the others apply
    /// where nothing else sets them.
    defaults: Keys,
    rules: Vec<Rule>,
    disks: Disks,
    /// The names of the files in its folder.
    drop_ins: Vec<String>,
}

/// What a rule, a disk or the top of the file may set.
#[derive(Clone, Copy, Debug, Default)]
struct Keys {
    mode: Option<Mode>,
    window_bytes: Option<u64>,
    request_bytes: Option<u64>,
    max_dirty_bytes: Option<u64>,
    reads: Option<bool>,
}

impl Keys {
    fn or(self, further: Keys) -> Keys {
        Keys {
            mode: self.mode.or(further.mode),
            window_bytes: self.window_bytes.or(further.window_bytes),
            request_bytes: self.request_bytes.or(further.request_bytes),
            max_dirty_bytes: self.max_dirty_bytes.or(further.max_dirty_bytes),
            reads: self.reads.or(further.reads),
        }
    }
}

impl RulesFile {
    /// Reads a file, and those of its [folder](dropbehind_config::folder_of), for at most a
    /// second. A rule of a file in the folder comes after all before it; a key there goes before
    /// the same key of the files before it.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or has mistakes; all are listed, with their lines.
    pub fn read(path: &Path) -> Result<Self, RulesFileError> {
        let owned = path.to_owned();
        let late = || {
            let error = io::Error::new(io::ErrorKind::TimedOut, "nothing comes");
            RulesFileError::Unreadable(path.to_owned(), error)
        };
        // Thousands of rules take longer than that to understand.
        let texts = in_time(move || read_texts(&owned)).ok_or_else(late)??;
        Self::of_texts(&texts)
    }

    fn of_texts(texts: &[ConfigText]) -> Result<Self, RulesFileError> {
        let mut files = RulesFileError::of_each(texts, Self::parse)?.into_iter();
        let mut all = files.next().expect("there is a first file");
        for (file, ConfigText { path, .. }) in files.zip(&texts[1..]) {
            let name = shown(path.file_name().unwrap_or_default());
            all.add(file, &name);
            all.drop_ins.push(name);
        }
        Ok(all)
    }

    /// Adds what a later file says.
    fn add(&mut self, later: Self, name: &str) {
        self.rules.extend(later.rules.into_iter().map(|mut rule| {
            rule.place.push_str(" of ");
            rule.place.push_str(name);
            rule
        }));
        self.disks.add(later.disks);
        self.defaults = later.defaults.or(self.defaults);
    }

    /// Parses a text.
    ///
    /// # Errors
    ///
    /// All its mistakes, in the order of its lines.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        parse::parse(text)
    }

    /// The names of the files in its folder, in the order in which they were read.
    #[must_use]
    pub fn drop_ins(&self) -> &[String] {
        &self.drop_ins
    }

    /// The number of rules, not counting the mode for all other files.
    #[must_use]
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Returns whether every file is left alone.
    #[must_use]
    pub fn leaves_all_alone(&self) -> bool {
        self.modes().all(Mode::is_buffered)
    }

    fn modes(&self) -> impl Iterator<Item = Mode> + '_ {
        let disks = self.disks.iter().filter_map(|(_, disk)| disk.mode);
        let rules = self.rules.iter().map(|rule| rule.mode);
        rules.chain(disks).chain([self.other_mode()])
    }

    fn other_mode(&self) -> Mode {
        self.defaults.mode.unwrap_or(Mode::BUFFERED)
    }

    fn is_off(&self, disk: &str) -> bool {
        self.disks.get(disk).is_some_and(|disk| !disk.enabled)
    }

    /// Each setting comes from the nearest place that has it: rule, disk, top of the file. A rule
    /// comes with its index.
    fn settings(&self, rule: Option<(usize, &Rule)>, disk: &str) -> Option<Settings> {
        let of_rule = rule.map(|(_, rule)| rule.keys).unwrap_or_default();
        let disk = self.disks.get(disk).cloned().unwrap_or_default();
        let of_disk = Keys {
            mode: disk.mode,
            window_bytes: disk.window_bytes,
            request_bytes: disk.request_bytes,
            max_dirty_bytes: disk.max_dirty_bytes,
            reads: None,
        };
        let keys = of_rule.or(of_disk).or(self.defaults);
        let mode = keys.mode.unwrap_or(Mode::BUFFERED);
        (!mode.is_buffered()).then_some(Settings {
            mode,
            window_bytes: keys.window_bytes,
            request_bytes: keys.request_bytes,
            max_dirty_bytes: keys.max_dirty_bytes,
            reads: keys.reads.unwrap_or(true),
            rule: rule.map_or(0, |(index, _)| index + 1),
        })
    }
}

impl rules::Rules for RulesFile {
    fn settings_for(&self, candidate: Candidate<'_>) -> Option<Settings> {
        if self.is_off(candidate.disk) {
            return None;
        }
        let process = ProcessFacts::of(candidate.process, candidate.name);
        let mut rules = self.rules.iter().enumerate();
        let rule = rules.find(|(_, rule)| rule.matches(candidate, &process) == Some(true));
        self.settings(rule, candidate.disk)
    }

    fn rule_name(&self, number: usize) -> Option<Arc<str>> {
        let Some(index) = number.checked_sub(1) else {
            return Some("others".into());
        };
        let rule = self.rules.get(index)?;
        let number = || number.to_string();
        Some(rule.name.clone().unwrap_or_else(number).into())
    }

    fn want_any(&self) -> bool {
        !self.leaves_all_alone()
    }

    fn have_mode(&self, of: fn(Mode) -> bool) -> bool {
        self.modes().any(of)
    }

    fn name(&self, folder: &Path) -> bool {
        let wanting = self.rules.iter().filter(|rule| !rule.mode.is_buffered());
        let conditions = wanting.flat_map(|rule| &rule.conditions);
        let mut paths = conditions.filter_map(Condition::paths);
        paths.any(|paths| paths.name(folder))
    }

    fn ask_for_sizes(&self) -> bool {
        let rules = self.rules.iter();
        let mut conditions = rules.flat_map(|rule| rule.conditions.iter().chain(&rule.exceptions));
        conditions.any(|condition| matches!(condition, Condition::Size(_)))
    }
}
