//! File systems that are mounted while a watch runs.

use crate::files::{cached_mib, dd};
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::{Fs, MountedFs, Need, need};
use std::process::Command;
use std::time::Duration;

#[test]
fn what_is_mounted_later_is_looked_after_and_can_be_unmounted() {
    need!(Need::Cachestat);
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    user.writes(
        "rules",
        "[[rule]]\npath = \"dropbehindwatch/**\"\nmode = \"dontcache\"\n",
    );
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    let disk = MountedFs::new(Fs::Ext4, 128 << 20).unwrap();
    let folder = disk.path().join("dropbehindwatch");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("a");
    // The mount is noticed by the observer's next look at its events.
    let mut looks = 0;
    loop {
        dd(&file);
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        if cached_mib(&file) == 0 {
            break;
        }
        looks += 1;
        assert!(looks < 300, "{}", watch.log());
    }
    // What it has observed does not keep a disk from being removed.
    let unmount = || Command::new("umount").arg(disk.path()).output().unwrap();
    while !unmount().status.success() {
        looks += 1;
        assert!(looks < 300, "{:?}", unmount());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}
