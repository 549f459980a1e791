//! What the tests of `bench` share: its results, and a look at its HTML.

// Each test program uses its share of this.
#![allow(dead_code)]

use serde_json::Value;
use std::path::Path;

/// A result file.
pub(crate) fn results(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("the results");
    serde_json::from_str(&text).expect("JSON")
}

/// A scenario's results.
#[track_caller]
pub(crate) fn scenario<'a>(results: &'a Value, name: &str) -> &'a Value {
    let mut scenarios = results["scenarios"].as_array().expect("scenarios").iter();
    scenarios
        .find(|scenario| scenario["name"] == name)
        .unwrap_or_else(|| panic!("no {name}"))
}

/// A mode's results in a scenario.
#[track_caller]
pub(crate) fn mode<'a>(results: &'a Value, name: &str, mode: &str) -> &'a Value {
    let mut modes = scenario(results, name)["modes"]
        .as_array()
        .expect("modes")
        .iter();
    modes
        .find(|one| one["mode"] == mode)
        .unwrap_or_else(|| panic!("no {mode} in {name}"))
}

/// Its runs.
#[track_caller]
pub(crate) fn runs<'a>(results: &'a Value, name: &str, mode_: &str) -> &'a [Value] {
    let mode = mode(results, name, mode_);
    assert_eq!(mode["failed"], Value::Null, "{name} {mode_}");
    assert_eq!(mode["unavailable"], Value::Null, "{name} {mode_}");
    mode["runs"].as_array().expect("runs")
}

/// That no folder, mount or loop device of a benchmark is left.
#[track_caller]
pub(crate) fn nothing_is_left(folder: &Path) {
    let left: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder")
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_string_lossy()
                .contains("dropbehind-bench")
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let shown = folder.display().to_string();
    assert!(!mounts.contains(&shown), "{mounts}");
}

/// Elements that have no end tag.
const VOID: [&str; 4] = ["meta", "br", "input", "link"];

/// That every element is closed in its turn, identifiers are unique, and links
/// within the page lead somewhere.
#[track_caller]
pub(crate) fn is_well_formed(html: &str) {
    let mut open: Vec<String> = Vec::new();
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("an end of the tag");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "</{name}>");
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap_or("").to_owned();
        assert!(
            name.chars().all(|c| c.is_ascii_alphanumeric()) && !name.is_empty(),
            "<{tag}>"
        );
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        if name == "style" || name == "script" {
            let end = format!("</{name}>");
            rest = &rest[rest.find(&end).expect("its end") + end.len()..];
        } else if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    let values = |attribute: &str| -> Vec<String> {
        html.split(&format!(" {attribute}=\""))
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
            .collect()
    };
    let ids = values("id");
    for id in &ids {
        assert_eq!(ids.iter().filter(|one| one == &id).count(), 1, "{id}");
    }
    for target in values("href") {
        let id = target.strip_prefix('#').expect("a place in the page");
        assert!(ids.iter().any(|one| one == id), "{target}");
    }
    for network in ["http://", "https://", "//cdn", "@import", "url("] {
        assert!(!html.contains(network), "{network}");
    }
}
