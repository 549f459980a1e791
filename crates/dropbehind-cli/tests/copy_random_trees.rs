//! `dropbehind cp -a` of random trees, on and between file systems. rsync says what differs.
//!
//! `DROPBEHIND_SEEDS=n` copies so many trees, `DROPBEHIND_SEED=n` that one.

mod user;

use dropbehind_testbed::{Fs, MountedFs, Need, need};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, SeekFrom, Timespec, Timestamps, Uid};
use rustix::fs::{XattrFlags, makedev};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use user::{User, finish};

/// Trees of a usual run: each pair of file systems at least once.
const SEEDS: u64 = 12;
const DISK_BYTES: u64 = 512 << 20;
const HOLE_ALIGNMENT: u64 = 64 << 10;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Numbers that look random (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.next().to_le_bytes()[0]).collect()
    }

    /// A name that no other has in this tree.
    fn name(&mut self, number: usize) -> OsString {
        let mut name = match self.below(8) {
            0 => b"-rf".to_vec(),
            1 => b"line\nend\t\x1b[31m".to_vec(),
            2 => vec![0xff, 0xfe, 0x80, b'?'],
            3 => b" * $(true) \\'\"".to_vec(),
            4 => "naïve \u{202e}".into(),
            5 => vec![b'n'; 240],
            _ => b"plain".to_vec(),
        };
        name.extend(format!("{number}").into_bytes());
        OsString::from_vec(name)
    }
}

/// Makes a tree of all that a file system can hold.
fn grow(random: &mut Random, top: &Path) {
    fs::create_dir(top).unwrap();
    let mut directories = vec![top.to_owned()];
    let mut all: Vec<PathBuf> = Vec::new();
    let entries = 20 + random.below(100) as usize;
    for number in 0..entries {
        // The deepest is often taken, so that trees are deep as well as wide.
        let at = match random.one_in(3) {
            true => directories.len() - 1,
            false => random.below(directories.len() as u64) as usize,
        };
        let path = directories[at].join(random.name(number));
        match random.below(10) {
            0 | 1 => {
                fs::create_dir(&path).unwrap();
                directories.push(path.clone());
            }
            2 => symlink(OsString::from_vec(random_target(random)), &path).unwrap(),
            3 => {
                let linked = all.get(random.below(all.len().max(1) as u64) as usize);
                match linked.filter(|path| !path.is_dir() || path.is_symlink()) {
                    Some(to) => fs::hard_link(to, &path).unwrap(),
                    None => drop(File::create(&path).unwrap()),
                }
            }
            4 => {
                let (kind, device) = match random.below(4) {
                    0 => (FileType::Fifo, 0),
                    1 => (FileType::Socket, 0),
                    2 => (FileType::CharacterDevice, makedev(1, 3)),
                    _ => (FileType::BlockDevice, makedev(7, 200)),
                };
                rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(0o640), device).unwrap();
            }
            5 => with_holes(random, &path),
            _ => {
                let most_bits = 1 + random.below(18);
                let len = random.below(1 << most_bits);
                fs::write(&path, random.bytes(len)).unwrap();
            }
        }
        all.push(path);
    }
    all.push(top.to_owned());
    // Directories last: what is made in them changes their times.
    for path in all.iter().rev() {
        decorate(random, path);
    }
}

fn random_target(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => b"..".to_vec(),
        1 => b"nowhere\n\xff".to_vec(),
        _ => vec![b'a'; 1 + random.below(1000) as usize],
    }
}

fn with_holes(random: &mut Random, path: &Path) {
    let file = File::create(path).unwrap();
    let blocks = 1 + random.below(30);
    for block in 0..blocks {
        if random.one_in(3) {
            let data = random.bytes(HOLE_ALIGNMENT);
            file.write_all_at(&data, block * HOLE_ALIGNMENT).unwrap();
        }
    }
    file.set_len(blocks * HOLE_ALIGNMENT + random.below(2) * 4097)
        .unwrap();
}

/// Gives something an owner, permissions, lists, attributes and times.
fn decorate(random: &mut Random, path: &Path) {
    let kind = path.symlink_metadata().unwrap().file_type();
    if random.one_in(2) {
        let (user, group) = (random.below(3) as u32 * 1000, random.below(3) as u32 * 100);
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(CWD, path, Some(user), Some(group), flags).unwrap();
    }
    if !kind.is_symlink() {
        let bits = random.below(0o10000) as u32;
        fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
        if random.one_in(4) {
            set(path, "system.posix_acl_access", &acl(random));
        }
        if kind.is_dir() && random.one_in(4) {
            set(path, "system.posix_acl_default", &acl(random));
        }
    }
    if kind.is_file() || kind.is_dir() {
        for number in 0..random.below(3) {
            let len = random.below(200);
            set(path, &format!("user.name{number}"), &random.bytes(len));
        }
    }
    if kind.is_file() && random.one_in(5) {
        // cap_net_raw+ep, in version 2.
        let mut capability = vec![1, 0, 0, 2, 0, 0x20];
        capability.resize(20, 0);
        set(path, "security.capability", &capability);
    }
    if !kind.is_socket() && random.one_in(4) {
        rustix::fs::lsetxattr(path, "trusted.name", b"value", XattrFlags::empty()).unwrap();
    }
    let mut time = || Timespec {
        tv_sec: random.below(1 << 31) as i64,
        tv_nsec: random.below(1_000_000_000) as _,
    };
    let times = Timestamps {
        last_access: time(),
        last_modification: time(),
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// A list with a named user and a mask.
fn acl(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, id) in [
        (0x01_u16, u32::MAX),
        (0x02, 1000),
        (0x04, u32::MAX),
        (0x10, u32::MAX),
        (0x20, u32::MAX),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend((random.below(8) as u16).to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// What rsync would still change.
fn differences(from: &Path, to: &Path) -> String {
    let mut rsync = Command::new("rsync");
    rsync
        .args(["-aHAXn", "--checksum", "--delete", "-i"])
        // Where xfs keeps its access control lists.
        .arg("--filter=-x trusted.SGI_*")
        .arg(from.join(""))
        .arg(to.join(""));
    let said = finish(&mut rsync);
    format!("{}{}", said.text(), said.stderr)
}

/// Where the data of a file is.
fn data_ranges(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Ok(start) = rustix::fs::seek(&file, SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, SeekFrom::Hole(start)).unwrap();
        ranges.push((start, at));
    }
    ranges
}

/// That files with holes have the same ones.
fn same_holes(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            same_holes(&path, &copy);
        } else if metadata.is_file() && metadata.blocks() * 512 < metadata.len() {
            assert_eq!(data_ranges(&path), data_ranges(&copy), "{}", path.display());
        }
    }
}

#[test]
fn a_random_tree_arrives_as_it_is() {
    need!(Need::Root, Need::Tool("rsync"));
    let kinds = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];
    for kind in kinds {
        need!(all MountedFs::needs(kind));
    }
    let user = User::new();
    let disks = kinds.map(|kind| MountedFs::new(kind, DISK_BYTES).unwrap());
    let seeds = match number("DROPBEHIND_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("DROPBEHIND_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let (from, to) = (&disks[seed as usize % 3], &disks[seed as usize / 3 % 3]);
        let between = format!(
            "seed {seed}, {:?} to {:?}",
            from.filesystem(),
            to.filesystem()
        );
        let mut random = Random(seed);
        let (tree, copy) = (from.file("tree"), to.file("copy"));
        grow(&mut random, &tree);
        let block = ["512", "64k", "1M"][random.below(3) as usize];
        // A copy over a copy changes nothing.
        for _ in 0..=random.below(2) {
            let mut command = user.dropbehind(["cp", "-aT", "--block-size", block]);
            let said = finish(command.arg(&tree).arg(&copy));
            assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{between}");
        }
        let found = differences(&tree, &copy);
        assert!(found.is_empty(), "{between}:\n{found}");
        // xfs takes blocks that it allocated ahead for data.
        if ![from, to].iter().any(|disk| disk.filesystem() == Fs::Xfs) {
            same_holes(&tree, &copy);
        }
        fs::remove_dir_all(&tree).unwrap();
        fs::remove_dir_all(&copy).unwrap();
    }
}
