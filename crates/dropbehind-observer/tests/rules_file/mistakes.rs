//! Each mistake is found, with its line, its word and what would be right.

use std::path::Path;

use dropbehind_observer::rules_file::{RulesFile, RulesFileError};
use dropbehind_testbed::Scratch;

/// The mistakes of a text, each `LINE:COLUMN: MESSAGE`.
fn mistakes(text: &str) -> Vec<String> {
    let problems = RulesFile::parse(text).expect_err(text);
    let shown = problems.iter();
    shown
        .map(|problem| format!("{}:{}: {}", problem.line, problem.column, problem.message))
        .collect()
}

/// That a text has this mistake and no other, and that the message has all
/// these words.
#[track_caller]
fn is_wrong(text: &str, at: &str, words: &[&str]) {
    let found = mistakes(text);
    assert_eq!(found.len(), 1, "{text}\n{found:#?}");
    let start = format!("{at}: ");
    assert!(
        found[0].starts_with(&start),
        "{text}\n{found:?}, not at {at}"
    );
    for word in words {
        assert!(found[0].contains(word), "{text}\n{found:?} lacks {word:?}");
    }
}

/// A rule that is right, with this in place of its condition.
fn rule(condition: &str) -> String {
    format!("[[rule]]\nmode = \"dontcache\"\n{condition}\n")
}

#[test]
fn unknown_keys() {
    is_wrong(
        "windw = \"1MiB\"",
        "1:1",
        &[
            "windw",
            "did you mean \"window\"?",
            "request, max_dirty, reads",
        ],
    );
    is_wrong(
        "# é\n[[rule]]\npath='/a'\nmode='noreuse'\n  paths = 1",
        "5:3",
        &["\"path\"?", "cgroup"],
    );
    is_wrong(
        "[disk.sda]\nreads = true",
        "2:1",
        &["a disk", "enabled, mode, window, request"],
    );
    is_wrong("\"é\".x = 1", "1:1", &["no key \"é\". The keys"]);
    is_wrong("[rules]", "1:2", &["did you mean \"rule\"?"]);
}

#[test]
fn unknown_modes() {
    is_wrong(
        "mode = \"writebehind\"",
        "1:8",
        &[
            "\"writebehind\"",
            "dontcache",
            "write-behind-any",
            "behind+drop",
        ],
    );
    is_wrong("mode = \"behind+dorp\"", "1:8", &["behind+dorp"]);
    is_wrong("mode = 1", "1:8", &["mode is 1", "text in quotes"]);
    is_wrong(
        "[[rule]]\npath = '/a'\nmode = ''",
        "3:8",
        &["\"\" is not a mode"],
    );
}

#[test]
fn bad_sizes_and_impossible_ranges() {
    is_wrong("window = \"16 Mbit\"", "1:10", &["\"16 Mbit\"", "16MiB"]);
    is_wrong("window = \"1k\"", "1:10", &["\"1k\"", "64 KiB", "64 GiB"]);
    is_wrong("window = 1", "1:10", &["is 1;", "64 KiB"]);
    is_wrong("window = -1", "1:10", &["is -1", "16MiB"]);
    is_wrong("window = 1.5", "1:10", &["1.5"]);
    is_wrong("window = []", "1:10", &["a list"]);
    is_wrong("window = \"65G\"", "1:10", &["64 GiB"]);
    is_wrong(
        "\n\nrequest = \"2GiB\"",
        "3:11",
        &["\"2GiB\"", "4.0 KiB", "1.0 GiB"],
    );
    is_wrong("[disk.sda]\nrequest = \"512\"", "2:11", &["4.0 KiB"]);
    is_wrong(&rule("path='/a'\nwindow=\"0\""), "4:8", &["\"0\""]);
}

#[test]
fn values_of_another_kind() {
    is_wrong("reads = \"no\"", "1:9", &["\"no\"", "true or false"]);
    is_wrong("rule = 3", "1:8", &["[[rule]]"]);
    is_wrong("[rule]\nmode = \"noreuse\"", "1:1", &["[[rule]]"]);
    is_wrong("disk = \"sda\"", "1:8", &["[disk.\"sda\"]"]);
    is_wrong("[disk]\nsda = false", "2:1", &["disk.sda is false"]);
    is_wrong("[disk.\"/dev/sda\"]", "1:7", &["/sys/block"]);
    is_wrong("[disk.sda]\nenabled = 0", "2:11", &["true or false"]);
    is_wrong(
        &rule("path = [\"/a\", 7]"),
        "3:15",
        &["7", "texts in quotes"],
    );
    is_wrong(&rule("path = []"), "3:8", &["empty list"]);
}

#[test]
fn bad_globs() {
    is_wrong(&rule("path = \"/a[\""), "3:8", &["\"/a[\"", "missing ']'"]);
    is_wrong(
        &rule("path = ['/a', '/{b']"),
        "3:15",
        &["/{b", "missing '}'"],
    );
    is_wrong(
        &rule("path = \"/a/b**\""),
        "3:8",
        &["\"/a/b**\"", "whole folders"],
    );
    is_wrong(&rule("path = \"../a\""), "3:8", &["not resolved"]);
    is_wrong(&rule("path = \"\""), "3:8", &["such as"]);
    is_wrong(&rule("cgroup = \"{x\""), "3:10", &["\"{x\""]);
    is_wrong(&rule("program = \"a[\""), "3:11", &["\"a[\""]);
    is_wrong(&rule("program = \"\""), "3:11", &["no name"]);
    is_wrong(
        &rule("unit = \"nightly.timer\""),
        "3:8",
        &["timer has no processes", ".service"],
    );
    is_wrong(&rule("unit = \"/system.slice\""), "3:8", &["cgroup"]);
}

#[test]
fn bad_comparisons_and_exceptions() {
    for size in ["1GiB", ">= ", "< 0", "> 1 Mbit", "= 1"] {
        is_wrong(
            &rule(&format!("size = {size:?}")),
            "3:8",
            &[size, ">= 1GiB"],
        );
    }
    is_wrong(&rule("size = 7"), "3:8", &["text in quotes"]);
    is_wrong(
        &rule("path='/a'\nnot = 'x'"),
        "4:7",
        &["\"x\"", "not.program"],
    );
    is_wrong(&rule("path='/a'\nnot = {}"), "4:7", &["leave it out"]);
    is_wrong(
        &rule("not.mode = 'noreuse'"),
        "3:5",
        &["not has no key", "cgroup"],
    );
    is_wrong(&rule("not.path = '/a['"), "3:12", &["missing ']'"]);
}

#[test]
fn incomplete_rules() {
    is_wrong(
        "\n[[rule]]\npath = \"/a\"",
        "2:1",
        &["no mode", "dontcache"],
    );
    is_wrong(
        "[[rule]]\nmode = \"noreuse\"",
        "1:1",
        &["every file", "path, size, program"],
    );
}

#[test]
fn what_is_no_toml() {
    // The rest is not looked at.
    is_wrong("é.x = 1\nmode = 1", "1:1", &["invalid unquoted key"]);
    is_wrong("mode = \"noreuse", "1:16", &["invalid basic string"]);
    is_wrong(
        "mode = \"noreuse\"\nmode = \"noreuse\"",
        "2:1",
        &["mode is given a second time"],
    );
}

#[test]
fn all_are_told_in_their_order() {
    let text = "[disk.sda]\nwindow = \"x\"\n[[rule]]\npath = \"a[\"\nmode = \"b\"\nread = 1\n";
    let found = mistakes(text);
    let lines: Vec<_> = found.iter().map(|line| &line[..2]).collect();
    assert_eq!(lines, ["2:", "4:", "5:", "6:"], "{found:#?}");
}

#[test]
fn errors_name_the_file() {
    let home = Scratch::new().unwrap();
    let path = home.file("rules.toml");
    std::fs::write(&path, "mode = 1\nread = 2\n").unwrap();
    let error = RulesFile::read(&path).unwrap_err();
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 2, "{error}");
    for (line, place) in lines.iter().zip(["1:8", "2:1"]) {
        assert!(
            line.starts_with(&format!("{}:{place}: ", path.display())),
            "{line}"
        );
    }

    let missing = home.file("missing.toml");
    let error = RulesFile::read(&missing).unwrap_err();
    assert!(matches!(error, RulesFileError::Unreadable(..)), "{error}");
    assert!(error.to_string().contains("missing.toml"), "{error}");
    // Neither a folder nor bytes that are no text are rules.
    RulesFile::read(Path::new("/")).unwrap_err();
    std::fs::write(&path, b"mode = \"\xff\"").unwrap();
    RulesFile::read(&path).unwrap_err();
}

#[test]
fn one_mistake_is_said_once_however_deep_it_is() {
    let text = format!("a = {}\n", "[".repeat(200));
    let problems = RulesFile::parse(&text).unwrap_err();
    let columns: Vec<usize> = problems.iter().map(|problem| problem.column).collect();
    assert_eq!(columns, [85, 205], "{problems:?}");
}
