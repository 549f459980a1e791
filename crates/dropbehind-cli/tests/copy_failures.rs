//! `dropbehind cp` that fails: what is left looks like what it is.

mod user;

use dropbehind_testbed::{CallFilter, FailNth, Fs, MountedFs, Need, need};
use std::time::Duration;
use user::{User, finish};

/// More than the disks of these tests take.
const TOO_MUCH: usize = 30 << 20;
const DISK_BYTES: u64 = 24 << 20;

/// The names in a directory, but for what the file system itself makes.
fn names(disk: &MountedFs, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(disk.file(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != "lost+found").collect();
    names.sort();
    names
}

#[test]
fn no_name_leads_to_a_file_that_the_disk_had_no_room_for() {
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    std::fs::create_dir(user.file("tree")).unwrap();
    let large = user.has("tree/large", TOO_MUCH);
    // Another name of it must not become a name of the half copy.
    std::fs::hard_link(&large, user.file("tree/linked")).unwrap();
    for options in ["-r", "-a", "-a --atomic"] {
        let disk = MountedFs::new(Fs::Ext4, DISK_BYTES).unwrap();
        let copy = disk.file("copy");
        let said = user.runs(&format!("cp {options} tree {}", copy.display()));
        said.fails(1, "No space left on device");
        assert!(!said.stderr.contains("somebody"), "{}", said.stderr);
        assert_eq!(names(&disk, "copy"), [""; 0], "{options}: {}", said.stderr);
    }
}

/// As under a service whose log is full.
#[test]
fn a_message_that_nobody_can_read_keeps_no_file_from_being_copied() {
    let user = User::new();
    user.sh("mkdir to; echo 1 > from");
    let full = std::fs::File::options().write(true).open("/dev/full");
    let status = user
        .dropbehind(["cp", "missing", "from", "to"])
        .stderr(full.unwrap())
        .status();
    assert_eq!(status.unwrap().code(), Some(1));
    assert_eq!(user.sh("cat to/from").text(), "1\n");
}

#[test]
fn a_small_file_without_room_is_removed() {
    let user = User::new();
    user.sh("mkdir tree; echo 1 > tree/a");
    const ENOSPC: i32 = 28;
    let plan = FailNth::once([CallFilter::new("write").unwrap()], 1, ENOSPC);
    let command = user.dropbehind(["cp", "-r", "tree", "copy"]);
    let outcome = plan
        .timeout(Duration::from_secs(30))
        .run(command)
        .expect("a run under supervision");
    let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert_eq!(outcome.status.code(), Some(1), "{told}");
    assert_eq!(user.sh("ls -A copy").text(), "", "{told}");
}

#[test]
fn a_failed_copy_gives_the_backup_its_name_back() {
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    let from = user.has("from", TOO_MUCH);
    for option in ["-b", "--backup=numbered"] {
        let disk = MountedFs::new(Fs::Ext4, DISK_BYTES).unwrap();
        std::fs::write(disk.file("to"), "old").unwrap();
        let mut command = user.dropbehind(["cp", option]);
        let said = finish(command.arg(&from).arg(disk.file("to")));
        said.fails(1, "No space left on device");
        assert_eq!(names(&disk, ""), ["to"], "{option}");
        assert_eq!(std::fs::read(disk.file("to")).unwrap(), b"old");
    }
}

#[test]
fn an_attribute_that_may_be_lost_does_not_hide_another() {
    need!(all MountedFs::needs(Fs::Ext4));
    need!(
        Need::Tool("setfattr"),
        Need::Tool("setcap"),
        Need::Tool("setpriv")
    );
    let user = User::new();
    // Small disks have blocks of 1 KiB, and attributes must fit into one.
    let disk = MountedFs::new(Fs::Ext4, DISK_BYTES).unwrap();
    let to = disk.path().display();
    let said = user.sh(&format!(
        "set -e; chmod 755 .; echo 1 > a; setcap cap_net_raw+ep a
         setfattr -n user.large -v $(head -c 3000 /dev/zero | tr '\\0' x) a; chmod 1777 {to}
         umask 022; ! setpriv --reuid=65534 --clear-groups dropbehind cp -a a {to}/a"
    ));
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stderr.contains("No space left"), "{}", said.stderr);
}

#[test]
fn whoever_waits_for_a_pipe_after_a_question_is_stopped_at_once() {
    let user = User::new();
    let said = user.sh("mkfifo pipe; echo old > out; exec 3<>pipe
         echo y | dropbehind cp -i pipe out 2>/dev/null & until [ ! -s out ]; do :; done
         kill -TERM $!; wait $!; echo $?");
    assert_eq!(said.text(), "143\n");
}
