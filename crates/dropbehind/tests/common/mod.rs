//! What the library's tests share: places to do I/O in, recognisable data, and this program
//! run again as a child process.

#![allow(dead_code, reason = "each test program uses its own part of it")]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dropbehind_testbed::{Fs, LoopDisk, MountedFs, Need, pattern, residency};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// Longer than any step takes: beyond this it's a hang, not a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a test's file is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mounted(Fs),
    RawDevice,
}

impl Kind {
    pub(crate) fn needs(self) -> Vec<Need> {
        let mut needs = match self {
            Kind::Mounted(filesystem) => MountedFs::needs(filesystem),
            Kind::RawDevice => LoopDisk::needs(),
        };
        needs.push(Need::Cachestat);
        needs
    }
}

#[derive(Debug)]
enum Bed {
    Mounted(MountedFs),
    RawDevice(LoopDisk),
}

/// A file on a disk of its own, or a whole raw device, of a known size.
#[derive(Debug)]
pub(crate) struct Place {
    bed: Bed,
    size_bytes: u64,
}

impl Place {
    /// A raw device has exactly `size_bytes`; a file system has room for
    /// several files of that size.
    pub(crate) fn new(kind: Kind, size_bytes: u64) -> Place {
        let bed = match kind {
            Kind::Mounted(filesystem) => {
                let disk_bytes = (3 * size_bytes).max(256 * MIB);
                Bed::Mounted(MountedFs::new(filesystem, disk_bytes).unwrap())
            }
            // It stays open in there: a device loses its cache at its last close, and then
            // every test would pass for the wrong reason.
            Kind::RawDevice => Bed::RawDevice(LoopDisk::new(size_bytes).unwrap()),
        };
        Place { bed, size_bytes }
    }

    /// The test's file, which need not exist yet; for a raw device, the device itself.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.bed {
            Bed::Mounted(mounted) => mounted.file("data"),
            Bed::RawDevice(disk) => disk.path().to_owned(),
        }
    }

    /// The disk whose traffic is counted.
    pub(crate) fn device(&self) -> &Path {
        match &self.bed {
            Bed::Mounted(mounted) => mounted.device(),
            Bed::RawDevice(disk) => disk.path(),
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn is_raw(&self) -> bool {
        matches!(self.bed, Bed::RawDevice(_))
    }

    /// The file, filled with the pattern, on the disk and not in the cache.
    pub(crate) fn cold_file(&self, seed: u64) -> PathBuf {
        let path = self.path();
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(!self.is_raw())
            .truncate(!self.is_raw())
            .open(&path)
            .unwrap();
        write_pattern(&mut file, seed, 0, self.size_bytes, MIB);
        file.sync_all().unwrap();
        residency::evict(&path);
        path
    }
}

/// Writes the pattern of `seed` from `offset` on, in blocks.
pub(crate) fn write_pattern(
    to: &mut impl Write,
    seed: u64,
    offset: u64,
    length: u64,
    block_bytes: u64,
) {
    let mut block = vec![0; usize::try_from(block_bytes).unwrap()];
    let mut done = 0;
    while done < length {
        let count = block_bytes.min(length - done);
        let part = &mut block[..usize::try_from(count).unwrap()];
        pattern::fill(seed, offset + done, part);
        to.write_all(part).unwrap();
        done += count;
    }
}

/// Reads to the end in blocks and checks every byte; returns the number of bytes.
pub(crate) fn read_pattern(from: &mut impl Read, seed: u64, block_bytes: u64) -> u64 {
    let mut block = vec![0; usize::try_from(block_bytes).unwrap()];
    let mut offset = 0;
    loop {
        let count = from.read(&mut block).unwrap();
        if count == 0 {
            return offset;
        }
        pattern::check(seed, offset, &block[..count]).unwrap();
        offset += count as u64;
    }
}

/// Checks that the *disk* holds the pattern of `seed` over `length` bytes and nothing after
/// it: evicts what is cached first.
pub(crate) fn check_on_disk(path: &Path, seed: u64, length: u64) {
    residency::evict(path);
    let mut file = fs::File::open(path).unwrap();
    assert_eq!(read_pattern(&mut file, seed, MIB), length);
}

/// Bytes of a file that are in the page cache, as another process counts them.
pub(crate) fn cached_bytes(path: &Path) -> u64 {
    residency::cached(path).unwrap().cached_pages * residency::page_bytes()
}

/// Tells a part which file to work on.
pub(crate) const FILE_VARIABLE: &str = "DROPBEHIND_TEST_FILE";

/// Runs only the ignored test `part` of this program, in its own process: for tests that
/// would disturb others, or be disturbed by them.
pub(crate) fn part(part: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    // If no test has the name, the harness runs nothing and succeeds.
    let list = Command::new(&program)
        .args(["--list", "--ignored"])
        .output();
    let list = String::from_utf8(list.unwrap().stdout).unwrap();
    let line = format!("{part}: test");
    assert!(list.lines().any(|one| one == line), "no {part} in {list}");
    let mut command = Command::new(program);
    // With one thread, the harness starts none of its own.
    command.args(["--exact", part, "--ignored", "--nocapture"]);
    command.args(["--test-threads=1", "-q"]);
    command
}

/// A seeded random number generator (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        // Spreads the seeds, since neighbouring ones would begin alike; never 0.
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}
