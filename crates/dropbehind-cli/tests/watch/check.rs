//! Rules are read, and said to be understood or not.

use crate::commands::RULES;
use crate::user::{User, finish};
use dropbehind_testbed::{Need, need};

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

/// Packages and tools put their rules beside the administrator's.
#[test]
fn a_folder_of_files_adds_to_the_rules() {
    let user = User::new();
    let rule = |name: &str| format!("[[rule]]\nname = \"{name}\"\npath = \"*.{name}\"\n");
    let dropped = |name: &str| rule(name) + "mode = \"dontcache\"\n";
    let main = "mode = \"write-behind\"\nwindow = \"1MiB\"\n".to_owned() + &dropped("main");
    user.writes("rules.toml", &main);
    std::fs::create_dir(user.file("rules.d")).unwrap();
    let first = "[disk.nosuch]\nenabled = false\n".to_owned() + &dropped("first");
    user.writes("rules.d/10-first.toml", &first);
    let last = "window = \"2MiB\"\n[disk.nosuch]\nwindow = \"4MiB\"\n".to_owned();
    user.writes("rules.d/20-last.toml", &(last + &dropped("last")));
    user.writes("rules.d/15-old.toml.dpkg-old", "no rules\n");
    user.writes("rules.d/.toml", "no rules\n");
    let said = finish(&mut user.watch("--check --config rules.toml"));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let text = said.text();
    for part in [
        "rules.toml, 10-first.toml, 20-last.toml: 3 rules, no mistake\n1. \"main\" (line 3): ",
        "\n2. \"first\" (line 3 of 10-first.toml): ",
        "\n3. \"last\" (line 4 of 20-last.toml): ",
        "\nall other files: write-behind\n",
        "\n   window 2.0 MiB\n",
        "\ndisk nosuch: off",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    // Each mistake names its file, and those of all files are told.
    user.writes("rules.d/10-first.toml", &rule("first"));
    user.writes("rules.d/20-last.toml", "mode = 1\n");
    let said = finish(&mut user.watch("--check --config rules.toml"));
    said.fails(1, "rules.d/10-first.toml:1:1: this rule has no mode");
    said.fails(1, "\nrules.d/20-last.toml:1:8: mode is 1");
    assert!(!said.stderr.contains("rules.toml:"), "{}", said.stderr);
    std::fs::remove_file(user.file("rules.d/20-last.toml")).unwrap();
    std::fs::create_dir(user.file("rules.d/20-last.toml")).unwrap();
    let said = finish(&mut user.watch("--check --config rules.toml"));
    said.fails(1, "rules.d/20-last.toml: cannot be read");
}

/// In a folder such as /tmp, anybody could have made it.
#[test]
fn a_folder_of_another_user_adds_nothing() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules.toml", RULES);
    std::fs::create_dir(user.file("rules.d")).unwrap();
    std::os::unix::fs::chown(user.file("rules.d"), Some(65534), None).unwrap();
    let said = finish(&mut user.watch("--check --config rules.toml"));
    said.fails(1, "rules.d: cannot be read: it belongs to another user");
}
