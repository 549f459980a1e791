//! Commands where cachestat(2) is missing, as before Linux 6.5, or sees nothing, as on
//! overlayfs: they leave the same pages, counted by mincore(2).

use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{self, fincore, warm};
use dropbehind_testbed::{CallFilter, FailNth, Fs, MountedFs, Need, need, pattern};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const DROPBEHIND: &str = env!("CARGO_BIN_EXE_dropbehind");
const MIB: u64 = 1 << 20;
const ALL: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];

/// Runs the command without cachestat, and returns what it printed to both streams.
fn does(line: &str) -> String {
    let calls = [CallFilter::new("cachestat").unwrap()];
    let outcome = FailNth::every(calls, nix::libc::ENOSYS)
        .timeout(Duration::from_secs(300))
        .run(command(line))
        .unwrap();
    assert!(outcome.status.success(), "{line}: {outcome:?}");
    String::from_utf8_lossy(&[outcome.stdout, outcome.stderr].concat()).into_owned()
}

/// Runs the command as it is.
fn does_plainly(line: &str) -> String {
    let output = command(line).output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

fn command(line: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec {DROPBEHIND} {line}")]);
    command.stdin(Stdio::null());
    command
}

fn cached_bytes(path: &Path) -> u64 {
    fincore(path).unwrap() * residency::page_bytes()
}

/// A file of 32 MiB, on the disk and not cached.
fn cold(path: PathBuf) -> PathBuf {
    let mut data = vec![0; 32 << 20];
    pattern::fill(1, 0, &mut data);
    fs::write(&path, data).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    residency::evict(&path);
    path
}

/// Does something with files of which parts are cached, until the kernel has reclaimed none
/// of these meanwhile.
fn keeps(warmed: &[(&Path, Range<u64>)], what: impl Fn() -> String) {
    in_some_attempt(|reclaim| {
        for (path, range) in warmed {
            residency::evict(path);
            warm(path, range.clone());
        }
        let before_bytes: u64 = warmed.iter().map(|(path, _)| cached_bytes(path)).sum();
        let said = what();
        let mut after_bytes = 0;
        let mut taken_bytes = 0;
        for (path, _) in warmed {
            after_bytes += cached_bytes(path);
            taken_bytes += reclaim.bytes_of(path).unwrap();
        }
        let figures = format!("{after_bytes} of {before_bytes}: {said}");
        assert!(after_bytes <= before_bytes, "{figures}");
        match after_bytes + taken_bytes >= before_bytes {
            true => Ok(()),
            false => Err(figures),
        }
    });
}

#[test]
fn run_leaves_nothing() {
    need!(Need::Root, Need::Tool("fincore"));
    for filesystem in ALL {
        need!(all MountedFs::needs(filesystem));
        let bed = MountedFs::new(filesystem, 512 << 20).unwrap();
        let (source, copy) = (cold(bed.file("source")), bed.file("copy"));
        let (from, to) = (source.display(), copy.display());
        let said = does(&format!("run -v -- cp --reflink=never {from} {to}"));
        assert_eq!(cached_bytes(&copy), 0, "{filesystem:?}: {said}");
        assert_eq!(cached_bytes(&source), 0, "{filesystem:?}: {said}");
        assert!(fs::read(&copy).unwrap() == fs::read(&source).unwrap());
        let warmed = [(&*source, 0..8 * MIB), (&*copy, 8 * MIB..16 * MIB)];
        // The default mode may keep what it takes for used again.
        let overwrite = format!("run -v -m dontcache -- dd if={from} of={to} bs=64k conv=notrunc");
        keeps(&warmed, || does(&overwrite));
        does(&format!(
            "run -m write-behind -- dd if={from} of={to} bs=1M"
        ));
        assert_eq!(cached_bytes(&copy), 32 * MIB, "{filesystem:?}");
    }
}

/// mincore takes half a minute for a terabyte.
#[test]
fn holes_of_huge_files_are_not_counted() {
    need!(Need::Root, Need::Tool("fincore"));
    for filesystem in [Fs::Ext4, Fs::Xfs] {
        need!(all MountedFs::needs(filesystem));
        let bed = MountedFs::new(filesystem, 512 << 20).unwrap();
        let path = bed.file("sparse");
        let file = fs::File::create_new(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let cached = || residency::cached(&path).unwrap().cached_pages;
        let to = path.display();
        let said = does(&format!(
            "run -v -- dd if=/dev/zero of={to} bs=1M seek=500000 count=32 conv=notrunc"
        ));
        assert!(said.contains("wrote 32 MiB"), "{filesystem:?}: {said}");
        assert_eq!(cached(), 0, "{filesystem:?}: {said}");
        warm(&path, 500_000 * MIB..500_016 * MIB);
        let pages = cached();
        let said = does(&format!("stat --json {to}"));
        let state: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(
            state[0]["cached_bytes"],
            pages * residency::page_bytes(),
            "{said}"
        );
        let said = does(&format!("drop {to}"));
        assert_eq!(cached(), 0, "{filesystem:?}: {said}");
    }
}

#[test]
fn the_other_commands_leave_and_count_the_same() {
    for filesystem in ALL {
        need!(all MountedFs::needs(filesystem));
        need!(Need::Tool("fincore"));
        let bed = MountedFs::new(filesystem, 512 << 20).unwrap();
        leave_and_count_the_same(&cold(bed.file("source")), &bed.file("copy"), does);
    }
}

#[test]
fn so_they_do_on_overlayfs() {
    for filesystem in ALL {
        need!(all MountedFs::needs(filesystem));
        need!(Need::Filesystem("overlay"), Need::Tool("fincore"));
        let bed = MountedFs::new(filesystem, 512 << 20).unwrap();
        for folder in ["lower", "upper", "work", "merged"] {
            fs::create_dir(bed.file(folder)).unwrap();
        }
        cold(bed.file("lower/source"));
        let root = bed.path().display();
        let options = format!("lowerdir={root}/lower,upperdir={root}/upper,workdir={root}/work");
        let merged = bed.file("merged");
        let mount = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(&merged)
            .status();
        assert!(mount.unwrap().success());
        let (source, copy) = (merged.join("source"), merged.join("copy"));
        leave_and_count_the_same(&source, &copy, does_plainly);
        // An observer of the whole machine may have a file open for a moment.
        let unmount = Command::new("umount").arg("-l").arg(&merged).status();
        assert!(unmount.unwrap().success(), "{filesystem:?}");
    }
}

fn leave_and_count_the_same(source: &Path, copy: &Path, does: fn(&str) -> String) {
    let (from, to) = (source.display(), copy.display());
    for command in [
        format!("cp {from} {to}"),
        format!("write {to} <{from}"),
        format!("read {from} >/dev/null"),
    ] {
        residency::evict(source);
        let said = does(&command);
        if command.starts_with("write") {
            residency::evict(source);
        }
        assert_eq!(cached_bytes(source), 0, "{command}: {said}");
        assert_eq!(cached_bytes(copy), 0, "{command}: {said}");
        assert!(fs::read(copy).unwrap() == fs::read(source).unwrap());
        residency::evict(copy);
    }
    let warmed = [(source, 8 * MIB..16 * MIB), (copy, 0..8 * MIB)];
    let overwrite = format!("cp {from} {to}");
    keeps(&warmed[..1], || does(&overwrite));
    residency::evict(source);
    let read = format!("read {to} >/dev/null");
    keeps(&warmed[1..], || does(&read));

    let said = does(&format!("stat --json {to}"));
    let state: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(state[0]["cached_bytes"], cached_bytes(copy), "{said}");
    let said = does(&format!("drop {to}"));
    assert_eq!(cached_bytes(copy), 0, "{said}");
    assert!(
        said.ends_with("MiB\n") && !said.contains("stayed"),
        "{said}"
    );
}
