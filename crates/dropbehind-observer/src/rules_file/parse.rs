//! Turns the file's text into rules.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use dropbehind_config::values::{Mistakes, Section, Text, shown_value};
use dropbehind_config::{FILE_KEYS, Problem, read_disks, size};
use nix::unistd::User;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::cgroup::full_unit_name;
use super::condition::{Condition, Programs};
use super::patterns::{Patterns, is_glob, name_glob, path_glob, unit_glob};
use super::process_facts::NAME_BYTES;
use super::rule::Rule;
use super::{Keys, RulesFile};
use crate::glob::Glob;
use crate::in_time::in_time;
use crate::rules::{MAX_DIRTY_RANGE_BYTES, REQUEST_RANGE_BYTES, WINDOW_RANGE_BYTES};

const RULE_KEYS: [&str; 13] = [
    "name",
    "path",
    "size",
    "program",
    "user",
    "unit",
    "cgroup",
    "not",
    "mode",
    "window",
    "request",
    "max_dirty",
    "reads",
];
const CONDITION_KEYS: [&str; 6] = ["path", "size", "program", "user", "unit", "cgroup"];

/// Parses the text. All mistakes are listed, not only the first.
pub(super) fn parse(text: &str) -> Result<RulesFile, Vec<Problem>> {
    let mut mistakes = Mistakes::in_text(text);
    let table = mistakes.tables(text)?;
    let file = Section::new(table.get_ref(), "the file", &FILE_KEYS, &mut mistakes);
    let mut rules = read_rules(file.value("rule"), text, &mut mistakes);
    if let (Err(wrong), Some(value)) = (find_users(&mut rules), file.value("rule")) {
        mistakes.note(value.span().start, wrong);
    }
    let rules = RulesFile {
        defaults: keys_of(file, &mut mistakes),
        rules,
        disks: read_disks(file.value("disk"), &mut mistakes),
        drop_ins: Vec::new(),
    };
    match mistakes.sorted() {
        none if none.is_empty() => Ok(rules),
        some => Err(some),
    }
}

fn read_rules(
    value: Option<&Spanned<DeValue<'_>>>,
    text: &str,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Rule> {
    let Some(value) = value else {
        return Vec::new();
    };
    let tables = value.get_ref().as_array().map(|list| {
        let tables = list.iter();
        tables.map(|item| {
            item.get_ref()
                .as_table()
                .map(|table| (item.span().start, table))
        })
    });
    let tables = tables.and_then(|tables| tables.collect::<Option<Vec<_>>>());
    let Some(tables) = tables else {
        mistakes.note(
            value.span().start,
            "rule is not a list of rules; begin each rule with a line [[rule]]",
        );
        return Vec::new();
    };
    let (mut line, mut counted) = (1, 0);
    let rules = tables.into_iter();
    rules
        .filter_map(|(start, table)| {
            // Each line is counted once, since there may be thousands of rules.
            let between = text.get(counted..start).unwrap_or_default();
            line += between.matches('\n').count();
            counted = counted.max(start);
            read_rule(start, line, table, mistakes)
        })
        .collect()
}

fn read_rule(
    start: usize,
    line: usize,
    table: &DeTable<'_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Rule> {
    let rule = Section::new(table, "a rule", &RULE_KEYS, mistakes);
    let conditions = conditions(rule, mistakes);
    let exceptions = exceptions(rule, mistakes);
    let mut keys = CONDITION_KEYS.iter().chain(&["not"]);
    if keys.all(|key| rule.value(key).is_none()) {
        mistakes.note(
            start,
            format!(
                "this rule has no condition, so it is about every file. Give it one (the keys {} and \
                 not are conditions), or write its mode above the first rule, where it holds for all \
                 files that no rule matches",
                CONDITION_KEYS.join(", ")
            ),
        );
    }
    if rule.value("mode").is_none() {
        mistakes.note(
            start,
            "this rule has no mode; add mode = \"dontcache\", or another of buffered, noreuse, \
             write-behind, write-behind-any, write-through, auto, or a pair such as behind+drop",
        );
    }
    let keys = keys_of(rule, mistakes);
    Some(Rule {
        name: rule
            .text("name", mistakes)
            .map(|name| (*name.get_ref()).to_owned()),
        place: format!("line {line}"),
        conditions,
        exceptions,
        mode: keys.mode?,
        keys,
    })
}

fn keys_of(section: Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Keys {
    Keys {
        mode: section.mode(mistakes),
        window_bytes: section.size("window", &WINDOW_RANGE_BYTES, mistakes),
        request_bytes: section.size("request", &REQUEST_RANGE_BYTES, mistakes),
        max_dirty_bytes: section.size("max_dirty", &MAX_DIRTY_RANGE_BYTES, mistakes),
        reads: section.flag("reads", mistakes),
    }
}

/// The conditions of a rule, or of its key `not`, in the order of [`Condition`].
fn conditions(section: Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Vec<Condition> {
    let unit_globs = |unit: &str| Ok(vec![unit_glob(&full_unit_name(unit)?)?]);
    let all = [
        patterns(section, "path", path_globs, mistakes).map(Condition::Path),
        sizes(section, mistakes).map(Condition::Size),
        programs(section, mistakes).map(Condition::Program),
        users(section, mistakes).map(Condition::User),
        patterns(section, "unit", unit_globs, mistakes).map(Condition::Unit),
        patterns(section, "cgroup", path_globs, mistakes).map(Condition::Cgroup),
    ];
    all.into_iter().flatten().collect()
}

fn exceptions(rule: Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Vec<Condition> {
    let Some(value) = rule.value("not") else {
        return Vec::new();
    };
    let Some(table) = value.get_ref().as_table() else {
        let wrong = format!(
            "not is {}; it takes conditions, as in not.program = \"rsync\"",
            shown_value(value.get_ref())
        );
        mistakes.note(value.span().start, wrong);
        return Vec::new();
    };
    if table.is_empty() {
        mistakes.note(value.span().start, "not has no condition, so it excepts nothing; add one, as in not.program = \"rsync\", or leave it out");
    }
    let section = Section::new(table, "not", &CONDITION_KEYS, mistakes);
    conditions(section, mistakes)
}

/// The globs of a key.
fn patterns(
    section: Section<'_, '_>,
    key: &str,
    globs: impl Fn(&str) -> Result<Vec<Glob>, String>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Patterns> {
    let texts = section.texts(key, mistakes)?;
    read(key, &texts, globs, mistakes)
}

fn read(
    key: &str,
    texts: &[Text<'_>],
    globs: impl Fn(&str) -> Result<Vec<Glob>, String>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Patterns> {
    let mut all = Vec::new();
    for text in texts {
        let found = globs(text.get_ref()).map_err(|wrong| format!("{key} {wrong}"));
        all.extend(mistakes.take(text.span().start, found).unwrap_or_default());
    }
    let words = texts.iter().map(|text| (*text.get_ref()).to_owned());
    Some(Patterns::new(words.collect(), all))
}

fn programs(rule: Section<'_, '_>, mistakes: &mut Mistakes<'_>) -> Option<Programs> {
    let texts = rule.texts("program", mistakes)?;
    let (paths, names): (Vec<_>, Vec<_>) = texts
        .into_iter()
        .partition(|text| text.get_ref().contains('/'));
    Some(Programs {
        paths: read("program", &paths, path_globs, mistakes)?,
        names: read("program", &names, program_globs, mistakes)?,
    })
}

fn path_globs(path: &str) -> Result<Vec<Glob>, String> {
    Ok(vec![path_glob(path)?])
}

/// A name, and what the kernel keeps of a long one.
fn program_globs(name: &str) -> Result<Vec<Glob>, String> {
    let mut globs = vec![name_glob(name)?];
    if name.is_empty() {
        return Err("\"\" is no name of a program; leave the key out to match all".to_owned());
    }
    if !is_glob(name) && name.len() > NAME_BYTES && name.is_char_boundary(NAME_BYTES) {
        globs.push(name_glob(&name[..NAME_BYTES])?);
    }
    Ok(globs)
}

fn users(
    section: Section<'_, '_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<(String, Option<u32>)>> {
    let texts = section.texts("user", mistakes)?;
    let users = texts.iter().map(|text| {
        let name = *text.get_ref();
        (name.to_owned(), name.parse().ok())
    });
    Some(users.collect())
}

/// Finds the numbers of the users that are named, all at once: their names may come from a server,
/// which may hang.
fn find_users(rules: &mut [Rule]) -> Result<(), &'static str> {
    let conditions = rules.iter_mut();
    let conditions =
        conditions.flat_map(|rule| rule.conditions.iter_mut().chain(&mut rule.exceptions));
    let users = conditions.flat_map(Condition::users_mut);
    let unknown: Vec<_> = users.filter(|(_, number)| number.is_none()).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    let names: HashSet<String> = unknown.iter().map(|(name, _)| name.clone()).collect();
    let number = |name: &str| Some(User::from_name(name).ok()??.uid.as_raw());
    let ask = move || -> HashMap<String, Option<u32>> {
        let names = names.into_iter();
        names.map(|name| (name.clone(), number(&name))).collect()
    };
    let found = in_time(ask)
        .ok_or("nothing says which users the rules mean: whoever is to answer that does not")?;
    for (name, of) in unknown {
        *of = found.get(name).copied().flatten();
    }
    Ok(())
}

fn sizes(
    section: Section<'_, '_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Vec<(String, RangeInclusive<u64>)>> {
    let texts = section.texts("size", mistakes)?;
    let ranges = texts.iter().filter_map(|text| {
        let range = size_range(text.get_ref()).map_err(|wrong| format!("size {wrong}"));
        let range = mistakes.take(text.span().start, range)?;
        Some(((*text.get_ref()).to_owned(), range))
    });
    Some(ranges.collect())
}

/// The sizes that a text such as `>= 1GiB` is about.
fn size_range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let bytes = |of: &str| size::parse(of).ok();
    let range = match text.trim() {
        text if text.starts_with(">=") => bytes(&text[2..]).map(|least| least..=u64::MAX),
        text if text.starts_with("<=") => bytes(&text[2..]).map(|most| 0..=most),
        text if text.starts_with('>') => {
            bytes(&text[1..]).map(|below| below.saturating_add(1)..=u64::MAX)
        }
        text if text.starts_with('<') => {
            let above = bytes(&text[1..]).filter(|&above| above > 0);
            above.map(|above| 0..=above - 1)
        }
        _ => None,
    };
    range.ok_or_else(|| {
        format!(
            "is {text:?}; it takes <, <=, > or >= and then {}, as in \">= 1GiB\"",
            size::ALLOWED
        )
    })
}
