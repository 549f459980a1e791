//! `watch --check`: what the rules mean.

use super::super::print;
use super::super::probe::WITHOUT_USES;
use crate::error::{Exit, shown};
use dropbehind::Mode;
use dropbehind_linux::{CacheTraceError, CacheUses};
use dropbehind_observer::rules::Rules;
use dropbehind_observer::rules_file::RulesFile;
use std::path::Path;

pub(super) fn run(path: &Path) -> Exit {
    let rules = match read(path) {
        Ok(rules) => rules,
        Err(exit) => return exit,
    };
    let count = match rules.rule_count() {
        1 => "1 rule".to_owned(),
        count => format!("{count} rules"),
    };
    let mut files: Vec<String> = path.exists().then(|| shown(path)).into_iter().collect();
    files.extend_from_slice(rules.drop_ins());
    let files = files.join(", ");
    let exit = print(format!("{files}: {count}, no mistake\n{rules}").as_bytes());
    if rules.have_mode(Mode::keeps_reused)
        && matches!(CacheUses::open(), Err(CacheTraceError::NoTracepoint(_)))
    {
        complain!("note: {WITHOUT_USES}");
    }
    for remark in rules.remarks() {
        complain!("note: {remark}");
    }
    exit
}

/// Reads the rules, or tells each mistake.
pub(super) fn read(path: &Path) -> Result<RulesFile, Exit> {
    RulesFile::read(path).map_err(|error| {
        complain!("{}", super::explained(&error));
        Exit::Failed
    })
}
