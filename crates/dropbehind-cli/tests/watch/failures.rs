//! Disks that do not take what is written.

use crate::files::{cached_mib, dd};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::{FailingDisk, Fs, need};
use std::fs::File;
use std::io::{Read, copy, repeat};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not {what}");
}

/// File systems give the number of a deleted file's inode to the next file that is made.
#[test]
fn a_file_with_the_number_of_one_that_failed_and_was_deleted_is_dropped() {
    need!(all FailingDisk::needs(Some(Fs::Ext4NoJournal)));
    let disk = FailingDisk::new().unwrap();
    let user = User::new();
    let folder = disk.path().display();
    let rules = format!("[[rule]]\npath = \"{folder}/\"\nmode = \"dontcache\"\n");
    std::fs::write(user.file("rules"), rules).unwrap();
    let mut watch = RunningWatch::by_rules(&user);

    let failed = disk.file("failed");
    let mut file = File::create(&failed).unwrap();
    let mut zeros = repeat(0).take(FailingDisk::TOO_MUCH_BYTES);
    copy(&mut zeros, &mut file).unwrap();
    file.sync_all().unwrap_err();
    until("told", || watch.log().contains("its pages stay cached"));
    let number = file.metadata().unwrap().ino();
    drop(file);
    std::fs::remove_file(&failed).unwrap();
    disk.heal().unwrap();

    let made = disk.file("made");
    until("another file has the number", || {
        let file = File::create(&made).unwrap();
        let has_it = file.metadata().unwrap().ino() == number;
        if !has_it {
            std::fs::remove_file(&made).unwrap();
        }
        has_it
    });
    dd(&made);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_eq!(cached_mib(&made), 0, "{}", watch.log());
    assert!(!watch.log().contains("made failed"), "{}", watch.log());
}
