//! `dropbehind cp -r` where links, pipes and files are in the way: nothing is read
//! or written outside of the trees.

mod user;

use user::User;

/// Copies with a secret outside, which must stay as it is.
fn refused(prepare: &str, line: &str, saying: &str) -> User {
    let user = User::new();
    let said = user.sh(&format!(
        "mkdir outside; echo secret > outside/file; {prepare}"
    ));
    assert_eq!(said.code, 0, "{}", said.stderr);
    user.runs(line).fails(1, saying);
    assert_eq!(
        user.sh("ls outside; cat outside/file").text(),
        "file\nsecret\n",
        "{line} after {prepare}"
    );
    user
}

#[test]
fn a_link_just_made_is_not_written_through() {
    for (kind, link, one_name, merged) in [
        (
            "mkdir y/a; echo 1 > y/a/file",
            "../outside",
            "a link of that name",
            "a link of that name",
        ),
        (
            "echo 1 > y/a",
            "../outside/file",
            "copy of another source just made",
            "it is a symbolic link",
        ),
    ] {
        // Two sources of one name.
        refused(
            &format!("mkdir x y d; ln -s {link} x/a; {kind}"),
            "cp -r x/a y/a d",
            one_name,
        );
        // Two trees that are merged.
        refused(
            &format!("mkdir x y d; ln -s ../{link} x/a; {kind}; mkdir p q; mv x p/t; mv y q/t"),
            "cp -r p/t q/t d",
            merged,
        );
        refused(
            &format!("mkdir x y d; ln -s {link} x/a; {kind}"),
            "cp -r x/. y/. d",
            merged,
        );
    }
}

#[test]
fn a_link_in_the_destination_is_not_written_through() {
    refused(
        "mkdir -p x/t d; echo 1 > x/t/file; ln -s ../outside d/t",
        "cp -r x/t d",
        "a link of that name",
    );
    refused(
        "mkdir -p x/t/s d/t; echo 1 > x/t/s/file; ln -s ../../outside d/t/s",
        "cp -r x/t d",
        "a link of that name",
    );
    refused(
        "mkdir -p x/t; echo 1 > x/t/file; ln -s nowhere new",
        "cp -r x/t new",
        "a link of that name",
    );
    for line in ["cp -r x/t d", "cp -r x/t/. d/t", "cp -r x/t/file d/t"] {
        let user = refused(
            "mkdir -p x/t d/t; echo 1 > x/t/file; ln -s ../../outside/file d/t/file",
            line,
            "it is a symbolic link",
        );
        // With -f the link is replaced.
        user.does(&line.replace("-r", "-rf"));
        assert_eq!(user.sh("cat d/t/file outside/file").text(), "1\nsecret\n");
        assert!(!user.file("d/t/file").is_symlink());
    }
}

#[test]
fn a_link_that_the_user_typed_is_the_directory_behind_it() {
    let user = User::new();
    user.sh("mkdir x real; echo 1 > x/a; ln -s real link; ln -s x source");
    user.does("cp -r x link");
    user.does("cp -r source/ link/again");
    user.does("cp -r source copy");
    assert_eq!(user.sh("cat real/x/a real/again/a").text(), "1\n1\n");
    assert_eq!(
        std::fs::read_link(user.file("copy")).unwrap().to_str(),
        Some("x")
    );
}

#[test]
fn directories_and_others_do_not_replace_each_other() {
    for (source, target, saying) in [
        (
            "mkdir x/t/n",
            "echo 2 > d/t/n",
            "a file or a link of that name",
        ),
        ("echo 1 > x/t/n", "mkdir d/t/n", "Is a directory"),
        ("ln -s q x/t/n", "mkdir d/t/n", "Is a directory"),
        ("mkfifo x/t/n", "mkdir d/t/n", "Is a directory"),
        // Neither written to nor waited for.
        ("echo 1 > x/t/n", "mkfifo d/t/n", "it is no regular file"),
    ] {
        let user = User::new();
        user.sh(&format!("mkdir -p x/t d/t; {source}; {target}"));
        let kind = "stat -c %F d/t/n";
        let before = user.sh(kind).text();
        user.runs("cp -r x/t d").fails(1, saying);
        assert_eq!(user.sh(kind).text(), before, "{source}, {target}");
    }
}

#[test]
fn names_cannot_write_to_the_terminal() {
    let user = User::new();
    user.sh("mkdir -p $'x/a\\n\\e[31mb' d; mkdir -p d/x; echo 2 > $'d/x/a\\n\\e[31mb'");
    let said = user.runs("cp -r x d");
    said.fails(1, r"d/x/a\n\u{1b}[31mb");
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
}

#[test]
fn deeper_than_descriptors_and_paths() {
    let user = User::new();
    // 300 names of 100 bytes are seven times the longest path.
    let script = "name=$(printf 'n%.0s' $(seq 100)); mkdir tree; cd tree
        for i in $(seq 300); do mkdir $name; cd $name; done; echo deep > file";
    assert_eq!(user.sh(script).code, 0);
    let said = user.sh("ulimit -n 40; dropbehind cp -rp tree copy");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let found = user.sh("name=$(printf 'n%.0s' $(seq 100)); cd copy
        for i in $(seq 300); do cd -P ./$name; done; cat file");
    assert_eq!(found.text(), "deep\n", "{}", found.stderr);
    // What is as deep on both sides is merged, too.
    assert_eq!(user.sh("dropbehind cp -r tree/. copy").code, 0);
    user.sh("rm -rf tree copy");
}

#[test]
fn a_directory_ends_with_the_permissions_that_mkdir_would_give() {
    let user = User::new();
    for mode in ["755", "777", "500", "070"] {
        for umask in ["022", "077", "000"] {
            let said = user.sh(&format!(
                "rm -rf tree d plain; umask {umask}; mkdir -p tree/s plain d
                 touch tree/s/f; chmod {mode} tree/s
                 cp -r tree plain && dropbehind cp -r tree d
                 stat -c %a plain/tree/s d/tree/s | uniq | wc -l"
            ));
            assert_eq!(said.text(), "1\n", "{mode} {umask}: {}", said.stderr);
        }
    }
    // A directory with the set-group-ID bit hands it down.
    let said = user.sh("mkdir -p g a/b; chmod 2775 g; dropbehind cp -r a g; stat -c %A g/a/b");
    assert!(said.text().contains('s'), "{}", said.text());
}
