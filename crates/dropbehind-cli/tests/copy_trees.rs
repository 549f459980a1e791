//! `dropbehind cp -r`, from a user's chair.

mod user;

use user::User;

#[test]
fn a_directory_is_copied_only_when_asked_for() {
    let user = User::new();
    user.sh("mkdir -p tree/sub; echo 1 > tree/sub/a; ln -s sub/a tree/link; mkfifo tree/pipe");
    user.runs("cp tree copy")
        .fails(1, "Use -r to copy directories");
    assert!(!user.file("copy").exists());
    user.does("cp -r tree copy");
    user.does("cp -r tree copy");
    let compared = user.sh("diff -r --no-dereference tree copy/tree && test -p copy/pipe");
    // diff says that it does not compare pipes, which is true.
    assert!(compared.stderr.is_empty(), "{}", compared.stderr);
    assert_eq!(
        std::fs::read_link(user.file("copy/link")).unwrap().to_str(),
        Some("sub/a")
    );
    assert_eq!(std::fs::read(user.file("copy/sub/a")).unwrap(), b"1\n");
    // The contents alone, as with plain cp.
    user.sh("mkdir flat");
    user.does("cp -r tree/. flat");
    assert_eq!(std::fs::read(user.file("flat/sub/a")).unwrap(), b"1\n");
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let user = User::new();
    user.sh("mkdir -p tree/sub; echo 1 > tree/a");
    for line in [
        "cp -r tree tree/sub",
        "cp -r tree tree/new",
        "cp -r . tree",
        "cp -r tree tree",
    ] {
        user.runs(line).fails(1, "into itself");
    }
    assert!(!user.file("tree/new").exists());
    assert!(!user.file("tree/sub/tree").exists());
}

#[test]
fn a_tree_of_many_small_files_arrives_whole() {
    let user = User::new();
    user.sh("mkdir tree; for i in $(seq 700); do head -c $((i * 37)) /dev/urandom > tree/$i; done");
    user.sh("mkdir -m 555 tree/locked-away; ln -s 1 tree/link; chmod 750 tree");
    user.sh("touch -h -d 2001-02-03T04:05:06.789 tree tree/link tree/7 tree/locked-away");
    let said = user.does("cp -rp --stats - tree copy");
    assert_eq!(user.sh("diff -r tree copy").code, 0);
    // A batch fits any limit on open files.
    assert_eq!(user.sh("ulimit -n 40; dropbehind cp -r tree few").code, 0);
    let list = |folder| {
        user.sh(&format!(
            "cd {folder}; find . -printf '%p %m %T@\\n' | sort"
        ))
        .text()
    };
    assert_eq!(list("copy"), list("tree"));
    assert!(
        list("copy").contains("./locked-away 555 981"),
        "{}",
        list("copy")
    );
    let stats: serde_json::Value = serde_json::from_str(&said.stderr).unwrap();
    assert_eq!(stats["bytes_written"], 37 * 700 * 701 / 2);
    assert_eq!(stats["left_bytes"], 0);
}

#[test]
fn merged_trees_end_as_with_plain_cp() {
    let user = User::new();
    // The later file or link wins; one file that has two names is not two copies.
    let trees =
        "mkdir -p p/t q/t d e; echo 1 > p/t/a; echo 22 > q/t/a; ln -s 1 p/t/b; ln -s 2 q/t/b
        mkdir h; echo 3 > h/a; ln h/a h/b; cp -a h linked; cp -a h linked-e";
    assert_eq!(user.sh(trees).code, 0);
    assert_eq!(user.sh("cp -r p/t q/t e; cp -r h/. linked-e").code, 0);
    user.does("cp -r p/t q/t d");
    user.does("cp -r h/. linked");
    let compared = user.sh("diff -r --no-dereference d e && diff -r linked linked-e");
    assert_eq!(compared.code, 0, "{}", compared.text());
}
