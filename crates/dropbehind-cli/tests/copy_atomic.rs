//! `dropbehind cp --atomic`: a name leads to the old file or to the whole new one.

mod user;

use dropbehind_testbed::{CallFilter, FailNth, Fs, MountedFs, Need, need};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use user::{User, finish, holds};

const BYTES: usize = 64 << 20;

#[test]
fn an_atomic_copy_ends_like_any_other() {
    let user = User::new();
    user.has("a", 300_001);
    user.sh(
        "echo old > b; mkdir -p tree/sub d; echo 1 > tree/sub/f; ln tree/sub/f tree/g
        touch -d 2001-02-03 tree tree/sub tree/sub/f; ln -s b link",
    );
    for line in [
        "cp --atomic a b",
        "cp --atomic a new",
        "cp --atomic a link",
        "cp --atomic a d",
    ] {
        user.does(line);
    }
    for name in ["b", "new", "link", "d/a"] {
        holds(&user.file(name), 300_001);
    }
    assert!(!user.file("link").is_symlink());
    // Over nothing, and over itself.
    for _ in 0..2 {
        user.does("cp -aT --atomic tree copy");
        let found = user.sh("rsync -aHAXn --checksum --delete -i tree/ copy/");
        assert_eq!((found.text(), found.stderr), (String::new(), String::new()));
    }
    assert_eq!(user.sh("ls -A . d copy | grep dropbehind-").text(), "");
}

#[test]
fn what_is_there_stays_until_the_copy_is_on_the_disk() {
    let user = User::new();
    user.has("a", BYTES);
    user.sh("echo old > out");
    // Killed while it copies: the old file, and nothing else.
    let mut command = user.dropbehind(["cp", "--atomic", "--block-size", "512", "a", "out"]);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
    let has_begun = || {
        let written = status();
        let line = written.lines().find(|line| line.starts_with("wchar: "));
        line.is_some_and(|line| line[7..].parse::<usize>().unwrap() > 1 << 20)
    };
    while !has_begun() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(user.sh("cat out; ls -A").text(), "old\na\nout\n");
    // A sync that fails leaves the old file, too.
    let plan = FailNth::once([CallFilter::new("fsync").unwrap()], 1, 5);
    let command = user.dropbehind(["cp", "--atomic", "a", "out"]);
    let outcome = plan.run(command).unwrap();
    assert_eq!(outcome.status.code(), Some(1));
    assert_eq!(user.sh("cat out; ls -A").text(), "old\na\nout\n");
}

#[test]
fn a_full_disk_leaves_what_was_there() {
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    let from = user.has("a", 30 << 20);
    let disk = MountedFs::new(Fs::Ext4, 24 << 20).unwrap();
    let to = disk.file("out");
    std::fs::write(&to, "old").unwrap();
    let inode = to.metadata().unwrap().ino();
    let mut command = user.dropbehind(["cp", "--atomic"]);
    finish(command.arg(&from).arg(&to)).fails(1, "No space left on device");
    assert_eq!(std::fs::read(&to).unwrap(), b"old");
    assert_eq!(to.metadata().unwrap().ino(), inode);
    let names = std::fs::read_dir(disk.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names
            .iter()
            .all(|name| name == "out" || name == "lost+found"),
        "{names:?}"
    );
}

#[test]
fn the_new_file_is_like_the_old_one_but_for_its_data() {
    need!(
        Need::Root,
        Need::Tool("setfattr"),
        Need::Tool("setfacl"),
        Need::Tool("setcap")
    );
    let user = User::new();
    let said = user.sh(
        "echo new > new; chmod 644 new
         for f in plain ours; do
             echo old > $f; chown 65534:3 $f; chmod 2640 $f; setfacl -m u:1:r $f
             setfattr -n user.x -v y $f; setcap cap_net_raw+ep $f
         done
         cp new plain; dropbehind cp --atomic new ours
         for f in plain ours; do
             cat $f; stat -c '%a %u %g' $f; getfacl -cn $f; getfattr -dm - --only-values $f; getcap $f
         done",
    );
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let all = said.text();
    let (plain, ours) = all.split_at(all.len() / 2);
    assert_eq!(ours, plain);
    assert!(ours.contains("2640 65534 3"), "{ours}");
}

#[test]
fn directories_on_the_way_keep_their_times() {
    let user = User::new();
    user.sh("mkdir -p a/b to; echo 1 > a/b/f; touch -d 2001-02-03 a/b a");
    for options in ["-p --parents --atomic", "-rp --parents --atomic"] {
        user.does(&format!("cp {options} a/b/f to"));
        let times = user.sh("stat -c %Y a/b to/a to/a/b | uniq | wc -l; rm -r to/a");
        assert_eq!(times.text(), "1\n", "{options}");
    }
}

#[test]
fn atomic_copies_cannot_be_made_of_links_and_backups() {
    let user = User::new();
    user.has("a", 10);
    for option in ["-b", "-l", "-s", "--no-sync", "--remove-destination"] {
        user.runs(&format!("cp --atomic {option} a b"))
            .fails(2, "cannot be combined");
        assert!(!user.file("b").exists());
    }
}
