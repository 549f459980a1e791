//! Who is at work on a disk sees the others.

use crate::setup::Loop;
use dropbehind_linux::{DiskInfo, Presence};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const ALWAYS: Duration = Duration::from_secs(3600);

#[test]
fn those_who_are_there_are_counted() {
    let Some(device) = Loop::new("those_who_are_there_are_counted", 16 << 20) else {
        return;
    };
    let number = std::fs::metadata(&device.device).unwrap().rdev();
    let disk = DiskInfo::from_device(number).unwrap();
    let mut own = Presence::new(&disk).unwrap();
    assert_eq!(own.others(10, ALWAYS).unwrap(), 0);
    own.enter().unwrap();
    own.enter().unwrap();
    assert_eq!(own.others(10, ALWAYS).unwrap(), 0, "nobody sees himself");

    let others: Vec<_> = (0..5)
        .map(|_| {
            let disk = disk.clone();
            let (entered, has_entered) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let thread = thread::spawn(move || {
                let mut presence = Presence::new(&disk).unwrap();
                presence.enter().unwrap();
                entered.send(presence.others(10, ALWAYS).unwrap()).unwrap();
                let _ = ended.recv();
            });
            let seen = has_entered.recv().unwrap();
            (thread, end, seen)
        })
        .collect();
    let seen: Vec<u64> = others.iter().map(|&(_, _, seen)| seen).collect();
    assert_eq!(seen, [1, 2, 3, 4, 5]);
    assert_eq!(own.others(10, ALWAYS).unwrap(), 5);
    assert_eq!(own.others(3, ALWAYS).unwrap(), 3);
    own.leave();
    assert_eq!(own.others(10, ALWAYS).unwrap(), 5);

    for (left, (thread, end, _)) in (0..5).rev().zip(others) {
        drop(end);
        thread.join().unwrap();
        // A child of another test has the descriptor, too, until its exec.
        let mut looks = 0;
        while own.others(10, ALWAYS).unwrap() != left {
            looks += 1;
            assert!(looks < 2000, "{left} are left");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// One read lock on all bytes, which anybody can take, would hide all others.
#[test]
fn a_lock_on_many_bytes_hides_nobody() {
    let Some(device) = Loop::new("a_lock_on_many_bytes_hides_nobody", 16 << 20) else {
        return;
    };
    let number = std::fs::metadata(&device.device).unwrap().rdev();
    let disk = DiskInfo::from_device(number).unwrap();
    let own = Presence::new(&disk).unwrap();
    let stat = std::fs::File::open(format!("/sys/dev/block/{}/stat", disk.id)).unwrap();
    rustix::fs::fcntl_lock(&stat, rustix::fs::FlockOperation::LockShared).unwrap();
    assert_eq!(own.others(10, ALWAYS).unwrap(), 10);
    assert_eq!(own.others(0, ALWAYS).unwrap(), 0);
}
