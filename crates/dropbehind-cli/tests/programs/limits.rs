//! Programs that write faster than the disk.

use crate::shell::{Left, RUN, bash, lives};
use crate::user::User;
use dropbehind_testbed::attempts::in_some_attempt;
use dropbehind_testbed::residency::{page_bytes, sample};
use dropbehind_testbed::slow_disk::{SlowDisk, SlowDiskOptions};
use dropbehind_testbed::{Fs, MountedFs, Need, need};
use std::fs::File;
use std::process::Stdio;

const MIB: u64 = 1 << 20;

/// Most that was dirty or on its way at once of what a program writes, 400 MiB.
fn peak_dirty(disk: &MountedFs, max_dirty: &str) -> u64 {
    let user = User::new();
    let run = format!("{RUN} --max-dirty {max_dirty} --settle 60");
    let folder = disk.file("");
    let path = disk.file("data");
    File::create(&path).unwrap();
    let script = "exec $RUN dd if=/dev/zero of=data bs=1M count=400 conv=notrunc status=none";
    let mut command = bash(&user, &run, script);
    command.current_dir(folder).stderr(Stdio::piped());
    let running = command.spawn().expect("the command");
    let file = File::open(&path).unwrap();
    let mut peak = 0;
    while lives(running.id()) {
        let counts = sample(&file).unwrap();
        peak = peak.max((counts.dirty_pages + counts.writeback_pages) * page_bytes());
    }
    let left = Left::from(running.wait_with_output().expect("its end"));
    assert_eq!((left.code, left.stderr.as_str()), (Some(0), ""));
    assert_eq!(file.metadata().unwrap().len(), 400 * MIB);
    std::fs::remove_file(&path).unwrap();
    peak
}

/// Nothing but the disk bounds what a program dirties, unless it is held.
#[test]
fn writers_wait_for_a_slow_disk() {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    for filesystem in [Fs::Ext4, Fs::Xfs] {
        need!(all filesystem.needs());
        let disk = SlowDisk::new(SlowDiskOptions {
            size_bytes: 1024 * MIB,
            write_bytes_per_second: Some(150 * MIB),
            ..SlowDiskOptions::default()
        })
        .unwrap();
        let disk = disk.mount(filesystem).unwrap();
        // On a busy machine a look may come too late.
        in_some_attempt(|| {
            let bounded = peak_dirty(&disk, "32MiB") / MIB;
            let unbounded = peak_dirty(&disk, "1TiB") / MIB;
            let found = format!("{filesystem:?}: {bounded} MiB, {unbounded} MiB unbounded");
            println!("{found}");
            if bounded < 150 && unbounded > 200 {
                return Ok(());
            }
            Err(found)
        });
    }
}
