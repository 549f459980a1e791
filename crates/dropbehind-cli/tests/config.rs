//! The configuration file's disks, for all commands but `watch`, whose tests have their own.

mod user;

use dropbehind_testbed::{Need, need, residency};
use std::os::fd::AsFd;
use user::{Said, User, finish};

const MIB: u64 = 1 << 20;

/// A user with a source of 8 MiB, and a file of settings for the disk that it is on.
fn user(settings: &str) -> User {
    let user = User::new();
    let source = user.has("source", 8 << 20);
    let source = std::fs::File::open(source).unwrap();
    let disk = dropbehind_linux::disk_of(source.as_fd()).unwrap().name;
    let text = format!("[disk.\"none\"]\nenabled = false\n[disk.\"{disk}\"]\n{settings}\n");
    std::fs::write(user.file("disks.toml"), text).unwrap();
    user
}

fn cached_bytes(user: &User, name: &str) -> u64 {
    let cached = residency::cached(&user.file(name)).unwrap();
    cached.cached_pages * residency::page_bytes()
}

fn with_variable(user: &User, line: &str) -> Said {
    let mut command = user.dropbehind(line.split(' '));
    finish(command.env("DROPBEHIND_CONFIG", "disks.toml"))
}

#[test]
fn a_disk_has_a_mode_of_its_own_unless_one_is_set() {
    need!(Need::Cachestat);
    let user = user("mode = \"write-through\"");
    let stays = |name| assert!(cached_bytes(&user, name) > 4 * MIB, "{name}");
    let goes = |name| assert_eq!(cached_bytes(&user, name), 0, "{name}");
    user.does("cp --config disks.toml source a");
    stays("a");
    assert_eq!(with_variable(&user, "cp source b").code, 0);
    stays("b");
    let said = with_variable(&user, "cp --config other.toml source c");
    said.fails(1, "other.toml: cannot be read");
    assert!(!user.file("c").exists());
    user.does("cp --config disks.toml --mode dontcache source d");
    goes("d");
    assert_eq!(with_variable(&user, "cp --config  source e").code, 0);
    goes("e");
    let said = user.sh("dropbehind write --config disks.toml f < source");
    assert_eq!(said.code, 0, "{}", said.stderr);
    stays("f");
    // A file in the folder beside it goes before it.
    std::fs::create_dir(user.file("disks.d")).unwrap();
    let table = std::fs::read_to_string(user.file("disks.toml")).unwrap();
    let table = table.replace("write-through", "dontcache");
    std::fs::write(user.file("disks.d/fast.toml"), table).unwrap();
    user.does("cp --config disks.toml source i");
    goes("i");
    // Which need not be there.
    std::fs::rename(user.file("disks.toml"), user.file("elsewhere")).unwrap();
    user.does("cp --config disks.toml source j");
    std::fs::rename(user.file("elsewhere"), user.file("disks.toml")).unwrap();
    std::fs::remove_dir_all(user.file("disks.d")).unwrap();
    need!(Need::Root);
    user.does("run --config disks.toml cp source g");
    stays("g");
    user.does("run --config disks.toml --mode dontcache cp source h");
    goes("h");
}

#[test]
fn a_disk_has_requests_of_its_own_unless_they_are_set() {
    let user = user("request = \"64KiB\"\nwindow = \"1MiB\"");
    let longest = |line: &str| -> u64 {
        user.does(line);
        let text = std::fs::read_to_string(user.file("trace")).unwrap();
        let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let writebacks = records.filter(|record: &serde_json::Value| {
            record["event"] == "writeback" && record["bytes"] != 0
        });
        writebacks
            .map(|record| record["length"].as_u64().unwrap())
            .max()
            .unwrap()
    };
    assert_eq!(
        longest("cp --config disks.toml --trace trace source a"),
        64 << 10
    );
    let line = "cp --config disks.toml --request 128KiB --trace trace source b";
    assert_eq!(longest(line), 128 << 10);
}

#[test]
fn a_disk_that_is_off_is_left_alone_whatever_is_asked_for() {
    need!(Need::Cachestat);
    let user = user("enabled = false\nmode = \"dontcache\"");
    let mut lines = vec!["cp --config disks.toml --mode dontcache --trace trace source copy"];
    if rustix::process::geteuid().is_root() {
        lines.push("run --config disks.toml --mode dontcache --trace trace cp source copy");
    }
    for line in lines {
        let _ = std::fs::remove_file(user.file("copy"));
        user.does(line);
        assert!(cached_bytes(&user, "copy") > 4 * MIB, "{line}");
        let text = std::fs::read_to_string(user.file("trace")).unwrap();
        let done = text
            .lines()
            .filter(|line| line.contains("dontcache") || line.contains("done"));
        assert_eq!(done.count(), 0, "{line}: {text}");
    }
}

#[test]
fn a_mistake_is_named_with_its_line_and_changes_nothing() {
    let user = user("windows = \"1MiB\"");
    let mut lines = vec!["cp --config disks.toml source copy"];
    if rustix::process::geteuid().is_root() {
        lines.push("run --config disks.toml cp source copy");
    }
    for line in lines {
        let said = user.runs(line);
        assert_ne!(said.code, 0);
        for word in [
            "disks.toml:4:1: ",
            "did you mean \"window\"?",
            "Correct the file",
        ] {
            assert!(said.stderr.contains(word), "{word}: {}", said.stderr);
        }
        assert!(!user.file("copy").exists());
    }
}
