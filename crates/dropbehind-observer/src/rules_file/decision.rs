//! Which rule decides about a file, and why: for `watch --explain`.

use std::fmt::Write;

use super::RulesFile;
use super::condition::Condition;
use super::explanation::{consequence, mode_name};
use super::process_facts::ProcessFacts;
use super::rule::Rule;
use crate::rules::Candidate;
use crate::shown;

impl RulesFile {
    /// Tells in words which rule decides about a file that this program opens, and why those
    /// before it do not. A program is the path of a file, or its name. What depends on anything
    /// else that the candidate's process would show is said to.
    #[must_use]
    pub fn explain(&self, file: Candidate<'_>, program: Option<&str>) -> String {
        let disk = shown(file.disk);
        if self.is_off(file.disk) {
            return format!("disk {disk} is off: all its files are left alone\n");
        }
        let process = ProcessFacts::of_program(program);
        let mut text = String::new();
        let mut decides = None;
        for (number, rule) in self.rules.iter().enumerate() {
            let title = rule.title(number + 1);
            let mode = mode_name(rule.mode);
            let matches = rule.matches(file, &process);
            let answer = match matches {
                Some(false) => format!("no, {}", rule.refusal(file, &process)),
                None => format!("{mode}, {}", rule.open_questions(file, &process)),
                Some(true) => format!("yes, {mode}"),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{title}: {}", shown(answer));
            if matches == Some(true) {
                decides = Some((number, rule));
                break;
            }
        }
        let settings = self.settings(decides, file.disk);
        if decides.is_none() {
            let of_disk = self.disks.get(file.disk).and_then(|disk| disk.mode);
            let place = match of_disk {
                Some(_) => format!("other files on disk {disk}"),
                None => "all other files".to_owned(),
            };
            let mode = mode_name(of_disk.unwrap_or(self.other_mode()));
            let _ = writeln!(text, "{place}: {mode}");
        }
        let _ = consequence(&mut text, settings);
        text
    }
}

impl Rule {
    /// Why it does not match.
    fn refusal(&self, file: Candidate<'_>, process: &ProcessFacts<'_>) -> String {
        let is = |holds| move |it: &&Condition| it.holds(file, process) == Some(holds);
        let failed = self.conditions.iter().find(is(false));
        let failed = failed.map(|it| format!("the {} is not {}", it.key(), it.alternatives()));
        let spared = || {
            let spared = self.exceptions.iter().find(is(true));
            spared.map(|it| format!("the {} is {}", it.key(), it.alternatives()))
        };
        failed.or_else(spared).unwrap_or_default()
    }

    /// What is to be known before it is clear whether it matches.
    fn open_questions(&self, file: Candidate<'_>, process: &ProcessFacts<'_>) -> String {
        let open = |word: &'static str| {
            move |it: &Condition| {
                let is_open = it.holds(file, process).is_none();
                is_open.then(|| format!("{word} the {} is {}", it.key(), it.alternatives()))
            }
        };
        let conditions = self.conditions.iter().filter_map(open("if"));
        let exceptions = self.exceptions.iter().filter_map(open("unless"));
        conditions
            .chain(exceptions)
            .collect::<Vec<_>>()
            .join(" and ")
    }
}
