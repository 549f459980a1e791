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

/// The kernel writes back there, and nothing holds writers.
#[test]
fn check_says_where_a_limit_has_no_effect() {
    let user = User::new();
    let rule = "[[rule]]\npath = \"*.a\"\nmax_dirty = \"32MiB\"\n";
    user.writes("rules", &format!("{rule}mode = \"noreuse\"\n"));
    let said = finish(&mut user.watch("--check --config rules"));
    let note = "note: line 1: max_dirty has no effect in the mode noreuse, ";
    assert!(said.stderr.contains(note), "{}", said.stderr);
    assert!(!said.text().contains("32 MiB"), "{}", said.text());
    user.writes("rules", &format!("{rule}mode = \"dontcache\"\n"));
    let said = finish(&mut user.watch("--check --config rules"));
    assert_eq!(said.stderr, "");
    assert!(
        said.text().contains("at most dirty 32 MiB"),
        "{}",
        said.text()
    );
}

/// A slash at the end means all that is in a folder, also in that of all.
#[test]
fn check_finds_nothing_odd_in_a_rule_for_all_paths() {
    let user = User::new();
    user.writes("rules", "[[rule]]\npath = \"/\"\nmode = \"dontcache\"\n");
    let said = finish(&mut user.watch("--check --config rules"));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
}

#[test]
fn check_guesses_the_mode_and_names_the_key_that_is_there_twice() {
    let user = User::new();
    let rule = "[[rule]]\npath = \"/\"\nmode = \"dontcahe\"\n";
    user.writes("rules", rule);
    let said = finish(&mut user.watch("--check --config rules"));
    said.fails(1, "rules:3:8: \"dontcahe\" is not a mode;");
    said.fails(1, "Did you mean \"dontcache\"?");
    user.writes("rules", &rule.replace("dontcahe", "nonsense"));
    let said = finish(&mut user.watch("--check --config rules"));
    assert!(!said.stderr.contains("Did you mean"), "{}", said.stderr);
    user.writes("rules", &format!("{rule}mode = \"auto\"\n"));
    finish(&mut user.watch("--check --config rules"))
        .fails(1, "rules:4:1: mode is given a second time here; ");
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
    std::fs::remove_dir(user.file("rules.d")).unwrap();
    std::os::unix::fs::symlink("/etc", user.file("rules.d")).unwrap();
    let id = Some(65534);
    std::os::unix::fs::lchown(user.file("rules.d"), id, id).unwrap();
    let said = finish(&mut user.watch("--check --config rules.toml"));
    said.fails(1, "rules.d: cannot be read: it belongs to another user");
}

#[test]
fn a_folder_that_everybody_may_write_to_adds_nothing() {
    let user = User::new();
    user.writes("rules.toml", RULES);
    std::fs::create_dir(user.file("rules.d")).unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(user.file("rules.d"), everybody).unwrap();
    let said = finish(&mut user.watch("--check --config rules.toml"));
    said.fails(1, "rules.d: cannot be read: everybody may write to it");
}

/// An editor leaves such a link where a file is being changed.
#[test]
fn hidden_files_in_the_folder_are_left_alone() {
    let user = User::new();
    user.writes("rules.toml", RULES);
    std::fs::create_dir(user.file("rules.d")).unwrap();
    std::os::unix::fs::symlink("nobody@nowhere", user.file("rules.d/.#a.toml")).unwrap();
    let said = finish(&mut user.watch("--check --config rules.toml"));
    assert_eq!(said.code, 0, "{said:?}");
}

#[test]
fn the_rule_that_decides_about_a_file_is_explained() {
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let path = home.display();
    let rules = format!(
        "[[rule]]\nname = \"hot\"\npath = \"{path}/hot/\"\nmode = \"buffered\"\n\
         [[rule]]\nunit = \"backup-*\"\nnot.user = \"nobody\"\nmode = \"noreuse\"\n\
         [[rule]]\nprogram = [\"rsync\", \"/opt/*\"]\nmode = \"write-through\"\n\
         [[rule]]\npath = \"*.iso\"\nsize = \">= 1k\"\nnot.program = \"cp\"\n\
         mode = \"dontcache\"\nwindow = \"32MiB\"\n"
    );
    user.writes("rules", &rules);
    user.writes("small.iso", "");
    user.writes("large.iso", &"x".repeat(4096));
    std::fs::create_dir(user.file("hot")).unwrap();
    std::os::unix::fs::symlink("large.iso", user.file("link")).unwrap();
    let of = |words: &str| {
        let said = finish(&mut user.watch(&format!("--config rules --explain {words}")));
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{words}");
        said.text()
    };
    let hot = of("hot/new");
    let start = format!("{path}/hot/new (disk ");
    assert!(
        hot.starts_with(&start) && hot.contains("; not there yet"),
        "{hot}"
    );
    assert!(
        hot.ends_with(")\n1. \"hot\" (line 1): yes, left alone\n"),
        "{hot}"
    );
    let maybe = "2. (line 5): noreuse, if the unit is backup-* and unless the user is nobody\n";
    let large = of("link --program dd");
    let expected = [
        &format!("; 4.0 KiB)\n1. \"hot\" (line 1): no, the path is not {path}/hot/\n"),
        maybe,
        "3. (line 9): write-through, if the program is rsync or /opt/*\n",
        "4. (line 12): yes, dontcache\n   written back as soon as a batch is there; what reads and \
         writes brought in is dropped once clean\n   window 32 MiB\n",
    ];
    assert!(
        large.starts_with(&format!("{path}/large.iso (disk ")),
        "{large}"
    );
    assert!(large.ends_with(&expected.concat()), "{large}");
    let rsync = of("large.iso --program /usr/bin/rsync");
    assert!(rsync.ends_with(
        "3. (line 9): yes, write-through\n   written back as soon as a batch is there; pages stay\n"
    ));
    let cp = of("large.iso --program /bin/cp");
    let expected = [
        "3. (line 9): no, the program is not rsync or /opt/*\n",
        "4. (line 12): no, the program is cp\nall other files: left alone\n",
    ];
    assert!(cp.ends_with(&expected.concat()), "{cp}");
    assert!(of("small.iso").contains("4. (line 12): no, the size is not >= 1k\n"));
    assert!(of("/proc/version").contains("left alone: /proc (proc) has no disk\n"));
    let explain = |words: &str| finish(&mut user.watch(&format!("--config {words}")));
    explain("rules --explain hot").fails(1, "hot is a folder");
    explain("rules --explain /dev/null").fails(1, "neither a file nor");
    explain("rules --program dd").fails(2, "--explain");
    explain("missing --explain hot").fails(1, "missing");
}

/// To understand them takes longer than a file's server may take to answer.
#[test]
fn thousands_of_rules_are_read() {
    let user = User::new();
    let rule = |name| format!("[[rule]]\npath = \"*.a{name}\"\nmode = \"auto\"\n");
    let rules: Vec<String> = (0..20_000).map(rule).collect();
    user.writes("rules", &rules.concat());
    let said = finish(&mut user.watch("--check --config rules"));
    let text = said.text();
    assert!(
        text.starts_with("rules: 20000 rules, no mistake\n"),
        "{}",
        said.stderr
    );
    assert!(text.contains("\n20000. (line 59998): "));
}
