//! A strict reader of Prometheus' text format, version 0.0.4.
//!
//! Stricter than Prometheus itself: a family is in one piece, has HELP and
//! TYPE, both before its samples; counters end in `_total`; no series stands
//! there twice.

use std::collections::{BTreeMap, BTreeSet};

/// Name, labels and value of every sample.
pub(crate) type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

/// Reads a text, or says which line is wrong.
pub(crate) fn read(text: &str) -> Result<Samples, String> {
    let mut samples = Samples::new();
    let mut seen = BTreeSet::new();
    let mut family: Option<(String, Option<String>)> = None;
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    for line in text.split_terminator('\n') {
        let wrong = |why: &str| Err(format!("{why}: {line:?}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let Some((name, help)) = rest.split_once(' ') else {
                return wrong("no help");
            };
            if !is_name(name) || help.is_empty() {
                return wrong("not a metric with help");
            }
            if !seen.insert(name.to_owned()) {
                return wrong("this family is there twice");
            }
            family = Some((name.to_owned(), None));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = rest.split_once(' ') else {
                return wrong("no type");
            };
            match &mut family {
                Some((current, missing @ None)) if current == name => {
                    *missing = Some(kind.to_owned());
                }
                _ => return wrong("not after its HELP"),
            }
            if !["counter", "gauge", "histogram"].contains(&kind) {
                return wrong("not a type that is used here");
            }
            if name.ends_with("_total") != (kind == "counter") {
                return wrong("counters end in _total, and nothing else does");
            }
        } else if line.starts_with('#') || line.is_empty() {
            return wrong("neither HELP, TYPE nor a sample");
        } else {
            let Some((name, labels, value)) = sample(line) else {
                return wrong("not a sample");
            };
            match &family {
                Some((current, Some(kind))) if is_of(&name, current, kind) => {
                    if kind == "counter" && value < 0.0 {
                        return wrong("a counter below zero");
                    }
                }
                _ => return wrong("not in its family"),
            }
            if samples.insert((name, labels), value).is_some() {
                return wrong("this series is there twice");
            }
        }
    }
    Ok(samples)
}

/// Whether a sample belongs to this family.
fn is_of(sample: &str, family: &str, kind: &str) -> bool {
    match (sample.strip_prefix(family), kind) {
        (Some("_bucket" | "_sum" | "_count"), "histogram") => true,
        (Some(""), kind) => kind != "histogram",
        _ => false,
    }
}

fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || "_:".contains(first))
        && letters.all(|letter| letter.is_ascii_alphanumeric() || "_:".contains(letter))
}

fn sample(line: &str) -> Option<(String, BTreeMap<String, String>, f64)> {
    let (name, mut rest) = line.split_once('{')?;
    if !is_name(name) {
        return None;
    }
    let mut labels = BTreeMap::new();
    loop {
        let (label, after) = rest.split_once("=\"")?;
        if !is_name(label) || label.contains(':') {
            return None;
        }
        let (value, after) = quoted(after)?;
        if labels.insert(label.to_owned(), value).is_some() {
            return None;
        }
        match after.split_at_checked(1)? {
            (",", after) => rest = after,
            ("}", after) => {
                let value = after.strip_prefix(' ')?.parse().ok()?;
                return Some((name.to_owned(), labels, value));
            }
            _ => return None,
        }
    }
}

/// A value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    loop {
        match letters.next()? {
            (end, '"') => return Some((value, &text[end + 1..])),
            (_, '\\') => value.push(match letters.next()?.1 {
                '\\' => '\\',
                '"' => '"',
                'n' => '\n',
                _ => return None,
            }),
            (_, letter) => value.push(letter),
        }
    }
}
