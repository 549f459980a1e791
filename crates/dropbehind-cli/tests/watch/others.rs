//! Programs that a watch leaves alone.

use crate::files::cached_mib;
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::slow_disk::{SlowDisk, SlowDiskOptions};
use dropbehind_testbed::{Fs, Need, need, residency};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A rule for a program drops what that program reads, and not what others read of
/// the same file, who have it open before or open it meanwhile.
#[test]
fn what_other_programs_read_of_a_file_stays() {
    need!(Need::Root, Need::Cachestat);
    in_some_attempt(|reclaim| {
        let user = User::new();
        let home = std::fs::canonicalize(user.file("")).unwrap();
        user.writes(
            "rules",
            "[[rule]]\nprogram = \"dropbehindtest\"\nmode = \"dontcache\"\n",
        );
        let reader = home.join("dropbehindtest");
        let dd_path = user.sh("command -v dd").text();
        std::fs::copy(dd_path.trim(), &reader).unwrap();
        let [alone, before, meanwhile] =
            ["alone", "before", "meanwhile"].map(|name| home.join(name));
        for path in [&alone, &before, &meanwhile] {
            std::fs::write(path, vec![1; 64 << 20]).unwrap();
        }
        for path in [&alone, &before, &meanwhile] {
            residency::evict(path);
        }
        let mut watch = RunningWatch::by_rules(&user);
        let reads = |path: &Path, others: &mut dyn FnMut()| {
            let mut reading = Command::new(&reader)
                .arg(format!("if={}", path.display()))
                .args(["bs=1M", "status=none"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut output = reading.stdout.take().unwrap();
            let mut half = vec![0; 32 << 20];
            output.read_exact(&mut half).unwrap();
            // Events of this are read by then, or the file is looked at too late.
            std::thread::sleep(Duration::from_millis(300));
            others();
            output.read_exact(&mut half).unwrap();
            assert!(reading.wait().unwrap().success());
        };
        let mut block = vec![0; 16 << 20];
        reads(&alone, &mut || {});
        let file = File::open(&before).unwrap();
        reads(&before, &mut || {
            file.read_exact_at(&mut block, 48 << 20).unwrap();
        });
        let mut file = None;
        reads(&meanwhile, &mut || {
            let opened = file.insert(File::open(&meanwhile).unwrap());
            opened.read_exact_at(&mut block, 48 << 20).unwrap();
        });
        assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
        if cached_mib(&alone) > 0 {
            let cached = cached_mib(&alone);
            return Err(format!("{cached} MiB are kept\n{}", watch.log()));
        }
        for path in [&before, &meanwhile] {
            let map = residency::resident_map(path).unwrap();
            let last = map.len() / 4 * 3;
            let cached = map[last..].iter().filter(|&&page| page).count() as u64;
            reclaim.stays(path, cached * residency::page_bytes(), 16 << 20)?;
        }
        Ok(())
    });
}

/// Whether a process has this file open.
fn holds(process: u32, path: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .any(|link| link == path)
}

/// Whether a process has a file of this name open that was deleted.
fn holds_deleted(process: u32, path: &Path) -> bool {
    holds(process, Path::new(&format!("{} (deleted)", path.display())))
}

#[test]
fn who_read_a_file_does_not_keep_it_from_being_deleted() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let rule = format!(
        "[[rule]]\npath = \"{}/data/**\"\nmode = \"dontcache\"\n",
        home.display()
    );
    user.writes("rules", &rule);
    std::fs::create_dir(home.join("data")).unwrap();
    let mut watch = RunningWatch::by_rules(&user);
    let process = watch.child.id();
    let (mut looks, pause) = (0, Duration::from_millis(10));
    let mut until = |done: &dyn Fn() -> bool| {
        while !done() {
            looks += 1;
            assert!(looks < 12_000, "{}", watch.log());
            std::thread::sleep(pause);
        }
    };
    let read: Vec<_> = (0..4)
        .map(|number| home.join(format!("data/read{number}")))
        .collect();
    for (slow, path) in read.iter().enumerate() {
        std::fs::write(path, [1; 4096]).unwrap();
        // Writer and reader are told of one after the other.
        until(&|| holds(process, path));
        let mut file = std::fs::File::open(path).unwrap();
        std::io::copy(&mut file, &mut std::io::sink()).unwrap();
        std::thread::sleep(pause * 5 * u32::try_from(slow).unwrap());
        drop(file);
        std::thread::sleep(pause * 5);
        std::fs::remove_file(path).unwrap();
    }
    // They wait for their grace; where events were merged, a close is found by a look
    // for users.
    until(&|| read.iter().all(|path| !holds_deleted(process, path)));
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

const MIB: u64 = 1 << 20;

/// The rule limits what its program writes. Anybody may give a program that name, and have
/// it read what others write: they are not to wait for that. One that writes is held.
#[test]
fn writers_are_held_for_a_rule_that_knows_a_writer() {
    need!(Need::Root, Need::Cachestat);
    need!(all SlowDisk::needs());
    need!(all Fs::Ext4.needs());
    let disk = SlowDisk::new(SlowDiskOptions {
        write_bytes_per_second: Some(50 * MIB),
        ..SlowDiskOptions::default()
    });
    let disk = disk.unwrap().mount(Fs::Ext4).unwrap();
    // On a busy machine the writer may have been found too late.
    in_some_attempt(|_| {
        let user = User::new();
        user.writes(
            "rules",
            "[[rule]]\nprogram = \"dropbehindtest\"\nmode = \"dontcache\"\nmax_dirty = \"16MiB\"\n",
        );
        let own = user.file("dropbehindtest");
        let dd = user.sh("command -v dd").text();
        std::fs::copy(dd.trim(), &own).unwrap();
        let path = disk.file("shared");
        std::fs::write(&path, vec![1; 64 << 20]).unwrap();
        residency::evict(&path);
        let mut watch = RunningWatch::by_rules(&user);
        let mut reader = Command::new(&own)
            .arg(format!("if={}", path.display()))
            .args(["bs=1M", "status=none"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = reader.stdout.take().unwrap();
        output.read_exact(&mut vec![0; 16 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        let unwritten_after = |program: &Path| {
            // It reads from a pipe, so that the watch has the time to see it.
            let script = format!(
                "(dd if=/dev/zero bs=1M count=16 status=none; sleep 1; \
                 dd if=/dev/zero bs=1M count=240 status=none) | \
                 {} of={} bs=1M iflag=fullblock conv=notrunc status=none",
                program.display(),
                path.display()
            );
            let status = Command::new("sh").args(["-c", &script]).status();
            assert!(status.unwrap().success());
            let counts = residency::sample(&file).unwrap();
            (counts.dirty_pages + counts.writeback_pages) * residency::page_bytes() / MIB
        };
        let others = unwritten_after(Path::new(dd.trim()));
        let held = unwritten_after(&own);
        drop(output);
        let _ = reader.wait();
        assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
        std::fs::remove_file(&path).unwrap();
        let found = format!("{others} MiB of others, {held} MiB of the program's own");
        println!("{found}");
        match others > 140 && held < 100 {
            true => Ok(()),
            false => Err(found),
        }
    });
}
