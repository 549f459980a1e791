//! Help, completions and man pages come from the options that work.

mod user;

use std::path::Path;
use user::{User, finish};

#[test]
fn help_documents_sizes_variables_and_exit_codes() {
    let user = User::new();
    for command in ["cp", "write", "read"] {
        let text = user.does(&format!("{command} --help")).text();
        for word in [
            "Exit codes:",
            "not possible here",
            "kB is 1000",
            "DROPBEHIND_MODE",
            "DROPBEHIND_IO_PRIORITY",
            "[default: dontcache]",
            "[default: 1MiB]",
        ] {
            assert!(text.contains(word), "{command}: {word}\n{text}");
        }
        assert_eq!(text.contains("--no-sync"), command != "read");
    }
    user.does("--version");
    user.runs("").fails(2, "Usage");
}

#[test]
fn every_shell_gets_completions() {
    let user = User::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = user.does(&format!("completions {shell}")).text();
        assert!(text.contains("block-size"), "{shell}");
    }
    let said = user.sh("dropbehind completions bash > c && bash -n c");
    assert_eq!(said.code, 0, "{}", said.stderr);
    user.runs("completions tcsh").fails(2, "zsh");
}

#[test]
fn man_pages_are_made() {
    let user = User::new();
    assert!(user.does("man").text().contains(".TH dropbehind 1"));
    // With --json alone, it goes on.
    let top = user.does("man top").text();
    assert!(
        top.contains("\ndropbehind top \\-\\-once \\-\\-json\n"),
        "{top}"
    );
    let page = user.does("man cp").text();
    assert!(
        page.contains("DROPBEHIND_WINDOW") && page.contains("Exit codes"),
        "{page}"
    );
    std::fs::create_dir(user.file("pages")).unwrap();
    let synopsis = ".SH SYNOPSIS\ndropbehind cp [OPTIONS] SRC... DST\n";
    assert!(page.contains(synopsis), "{page}");
    user.does("man --dir pages");
    assert!(user.file("pages/dropbehind.1").exists());
    assert!(user.file("pages/dropbehind-cp.1").exists());
    let bench = std::fs::read_to_string(user.file("pages/dropbehind-bench-list.1")).unwrap();
    for section in [".SH EXAMPLES", ".SH \"SEE ALSO\""] {
        assert!(bench.contains(section), "{section}: {bench}");
    }
    assert!(!user.file("pages/dropbehind-stand-by.1").exists());
    user.runs("man copy").fails(1, "there is no command copy");
    user.runs("man --dir missing").fails(1, "missing");
}

/// dropbehind.toml(5) is written by hand: what it shows must be rules, and no key may be missing.
#[test]
fn the_page_of_the_rules_is_true() {
    let user = User::new();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let page = std::fs::read_to_string(packaging.join("dropbehind.toml.5")).unwrap();
    let mut examples = page.split("\n.nf\n").skip(1).peekable();
    assert!(examples.peek().is_some());
    for example in examples {
        let rules = example.split("\n.fi\n").next().unwrap();
        std::fs::write(user.file("rules.toml"), rules).unwrap();
        user.does("watch --check --config rules.toml");
    }
    let rules = std::fs::read_to_string(packaging.join("dropbehind.toml")).unwrap();
    let keys = rules
        .lines()
        .filter_map(|line| line.strip_prefix('#')?.split_once(" = "));
    let keys: Vec<&str> = keys.map(|(key, _)| key).collect();
    assert!(keys.contains(&"max_dirty"), "{keys:?}");
    for key in keys {
        assert!(page.contains(&format!(".BR {key} ")), "{key}");
    }
}

/// Arguments come from names of files, which anybody may have chosen.
#[test]
fn wrong_arguments_are_not_printed_raw() {
    let user = User::new();
    let odd = "\u{1b}]0;title\u{7}\u{9b}2J\u{202e}\n\u{1b}[31m";
    let seen = "\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{202e}\\n\\u{1b}[31m";
    let wrong = [
        vec![format!("--{odd}")],
        vec![format!("c{odd}p")],
        vec!["cp".to_owned(), format!("--{odd}")],
        vec!["cp".to_owned(), format!("--mode={odd}")],
        vec!["cp".to_owned(), format!("--recursive={odd}")],
        vec!["top".to_owned(), odd.to_owned()],
        vec!["completions".to_owned(), odd.to_owned()],
        vec!["bench".to_owned(), odd.to_owned()],
    ];
    for args in wrong {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = finish(&mut user.dropbehind(args.clone()));
        assert_eq!(said.code, 2, "{args:?}: {}", said.stderr);
        let raw = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!said.stderr.contains(raw), "{args:?}: {:?}", said.stderr);
        assert!(said.stderr.contains(seen), "{args:?}: {:?}", said.stderr);
    }
    let mut command = user.dropbehind(["cp", "a", "b"]);
    let said = finish(command.env("DROPBEHIND_MODE", odd));
    assert_eq!(said.code, 2, "{}", said.stderr);
    assert!(said.stderr.contains(seen), "{:?}", said.stderr);
    // As on a terminal, clap's own colours stay.
    let mut command = user.dropbehind(["cp", &format!("--{odd}")]);
    let said = finish(command.env("CLICOLOR_FORCE", "1"));
    assert!(said.stderr.contains("\u{1b}[1m"), "{:?}", said.stderr);
    assert!(!said.stderr.contains("\u{1b}]"), "{:?}", said.stderr);
    assert!(said.stderr.contains(seen), "{:?}", said.stderr);
}
