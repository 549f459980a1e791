//! `watch --check`: what the rules mean.

use super::super::print;
use crate::error::{Exit, shown};
use dropbehind_observer::rules_file::RulesFile;
use std::path::Path;

pub(super) fn run(path: &Path) -> Exit {
    let rules = match RulesFile::read(path) {
        Ok(rules) => rules,
        Err(error) => {
            eprintln!("{}", super::explained(&error));
            return Exit::Failed;
        }
    };
    let count = match rules.rule_count() {
        1 => "1 rule".to_owned(),
        count => format!("{count} rules"),
    };
    let exit = print(format!("{}: {count}, no mistake\n{rules}", shown(path)).as_bytes());
    for remark in rules.remarks() {
        eprintln!("note: {remark}");
    }
    exit
}
