//! Help, completions and man pages come from the options that work.

mod user;

use user::User;

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
    let page = user.does("man cp").text();
    assert!(
        page.contains("DROPBEHIND_WINDOW") && page.contains("Exit codes"),
        "{page}"
    );
    std::fs::create_dir(user.file("pages")).unwrap();
    user.does("man --dir pages");
    assert!(user.file("pages/dropbehind.1").exists());
    assert!(user.file("pages/dropbehind-cp.1").exists());
    user.runs("man copy").fails(1, "there is no command copy");
    user.runs("man --dir missing").fails(1, "missing");
}
