//! Rules are read, and said to be understood or not.

use crate::commands::RULES;
use crate::user::{User, finish};

#[test]
fn check_tells_what_rules_mean() {
    let user = User::new();
    user.writes("rules", RULES);
    let said = finish(&mut user.watch("--check --config rules"));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let text = said.text();
    assert!(
        text.starts_with("rules: 1 rule, no mistake\n1. \"all\" (line 1): dontcache\n"),
        "{text}"
    );
    assert!(text.contains("all other files: left alone"), "{text}");

    user.writes(
        "rules",
        "mode = \"write-behind\"\n[disk.nosuch]\nwindow = \"1M\"\n",
    );
    let said = finish(&mut user.watch("--check --config rules"));
    assert_eq!(said.code, 0);
    assert!(
        said.stderr.contains("note: there is no disk nosuch"),
        "{}",
        said.stderr
    );
    // Also from a variable, and nothing but the file is needed.
    let said = finish(
        user.watch("--check")
            .env("DROPBEHIND_CONFIG", user.file("rules")),
    );
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn check_names_each_wrong_line() {
    let user = User::new();
    user.writes("rules", "mode = \"all\"\n\nwindow = 3\n");
    let said = finish(&mut user.watch("--check --config rules"));
    said.fails(1, "rules:1:8: ");
    said.fails(1, "\nrules:3:10: ");
    finish(&mut user.watch("--check --config missing")).fails(1, "missing");
    // Not only in --check.
    finish(&mut user.watch("--config rules")).fails(1, "rules:3:10: ");
    finish(&mut user.watch("--config missing")).fails(1, "--config");
}
