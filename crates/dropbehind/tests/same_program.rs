//! The same program with and without us: random operations on our file and on
//! a plain one, which stands for what is right. Bytes, return values, errno,
//! positions and sizes are the same after every single operation.
//!
//! `DROPBEHIND_OPS` sets the number of operations, `DROPBEHIND_SEED` repeats a
//! run that failed.

mod common;

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::{Dice, KIB, Kind, MIB, PATIENCE, Place};
use dropbehind::{File, Mode, OpenOptions, Strategy};
use dropbehind_testbed::{Fs, need, pattern, residency};

/// Keeps the tests of a pull request within seconds.
const FAST_OPS: u64 = 6_000;
const SLOW_OPS: u64 = 1_000_000;
/// No file grows beyond this; a raw device has it.
const SIZE_BYTES: u64 = 6 * MIB;
const LONGEST_IO_BYTES: u64 = 192 * KIB;

fn ops(default: u64) -> u64 {
    std::env::var("DROPBEHIND_OPS").map_or(default, |text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    let chosen = std::env::var("DROPBEHIND_SEED").ok();
    chosen.map_or_else(
        || {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.unwrap().as_nanos() as u64
        },
        |text| text.parse().expect("a number"),
    )
}

/// An operation's outcome as a program sees it.
type Outcome = Result<u64, Option<i32>>;

fn outcome<T: TryInto<u64>>(result: io::Result<T>) -> Outcome {
    match result {
        Ok(value) => Ok(value.try_into().ok().expect("not negative")),
        Err(error) => Err(error.raw_os_error()),
    }
}

/// How a file is open.
#[derive(Clone, Copy, Debug)]
struct Access {
    read: bool,
    write: bool,
    append: bool,
    mode: Mode,
    window_bytes: Option<u64>,
    strategy: Strategy,
    random: bool,
}

impl Access {
    fn draw(dice: &mut Dice) -> Access {
        let (read, write) = dice.pick(&[
            (true, true),
            (true, true),
            (true, true),
            (true, true),
            (false, true),
            (true, false),
        ]);
        Access {
            read,
            write,
            append: write && dice.once_in(5),
            mode: Mode::from_bits(dice.below(8) as u8),
            window_bytes: dice.pick(&[None, Some(64 * KIB), Some(256 * KIB), Some(2 * MIB)]),
            strategy: dice.pick(&[Strategy::Auto, Strategy::Emulated, Strategy::Native]),
            random: dice.once_in(8),
        }
    }

    fn open_ours(self, path: &Path) -> File {
        let mut options = OpenOptions::new();
        options
            .read(self.read)
            .write(self.write)
            .append(self.append)
            .mode(self.mode)
            .strategy(self.strategy)
            .random(self.random);
        if let Some(bytes) = self.window_bytes {
            options.window_bytes(bytes);
        }
        options.open(path).unwrap()
    }

    fn open_plain(self, path: &Path) -> fs::File {
        fs::OpenOptions::new()
            .read(self.read)
            .write(self.write)
            .append(self.append)
            .open(path)
            .unwrap()
    }
}

/// Our file and the plain one, and what was done so far.
struct Twins {
    ours: File,
    plain: fs::File,
    access: Access,
    ours_path: PathBuf,
    plain_path: PathBuf,
    dice: Dice,
    raw: bool,
    /// Who fails says how to repeat it.
    seed: u64,
    step: u64,
}

impl Twins {
    fn new(ours: &Place, plain: &Place, seed: u64) -> Twins {
        let (ours_path, plain_path) = (ours.path(), plain.path());
        if !ours.is_raw() {
            fs::File::create(&ours_path).unwrap();
            fs::File::create(&plain_path).unwrap();
        }
        let mut dice = Dice::new(seed);
        let access = Access::draw(&mut dice);
        Twins {
            ours: access.open_ours(&ours_path),
            plain: access.open_plain(&plain_path),
            access,
            ours_path,
            plain_path,
            dice,
            raw: ours.is_raw(),
            seed,
            step: 0,
        }
    }

    #[track_caller]
    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, ours: T, plain: T) {
        assert!(
            ours == plain,
            "{what}: {ours:?} with us, {plain:?} without; step {}, {:?}; \
             repeat with DROPBEHIND_SEED={}",
            self.step,
            self.access,
            self.seed
        );
    }

    fn offset(&mut self) -> u64 {
        match self.dice.below(300) {
            // Beyond what any file can have.
            0 => self
                .dice
                .pick(&[u64::MAX, i64::MAX as u64 + 1, i64::MAX as u64 - 10]),
            1 => SIZE_BYTES + self.dice.below(MIB),
            2..60 => self.dice.below(64) * 4096,
            _ => self.dice.below(SIZE_BYTES),
        }
    }

    /// One that keeps a write from making the file endless.
    fn write_offset(&mut self) -> u64 {
        let offset = self.offset();
        // xfs has files of 8 EiB, and takes what fits before that.
        if self.raw || i64::try_from(offset).is_err() {
            offset
        } else {
            offset.min(SIZE_BYTES - LONGEST_IO_BYTES)
        }
    }

    fn length(&mut self) -> usize {
        let length = match self.dice.below(10) {
            0 => self.dice.pick(&[0, 1, 4095, 4096, 4097]),
            1..7 => self.dice.below(16 * KIB),
            _ => self.dice.below(LONGEST_IO_BYTES),
        };
        length as usize
    }

    /// Some reads are so long that they are made in pieces.
    fn read_length(&mut self) -> usize {
        if self.dice.once_in(60) {
            (2 * MIB + self.dice.below(4 * MIB)) as usize
        } else {
            self.length()
        }
    }

    fn data(&mut self, length: usize) -> Vec<u8> {
        pattern::filled(self.seed ^ self.step, 0, length)
    }

    /// Cuts a buffer into pieces for a vectored call; some are empty.
    fn cuts(&mut self, length: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = (0..self.dice.below(6))
            .map(|_| self.dice.below(length as u64 + 1) as usize)
            .collect();
        cuts.extend([0, length]);
        cuts.sort_unstable();
        cuts
    }

    fn step(&mut self) {
        self.step += 1;
        match self.dice.below(1000) {
            0..200 => self.write(),
            200..380 => self.write_at(),
            380..430 => self.write_vectored(),
            430..580 => self.read(),
            580..760 => self.read_at(),
            760..810 => self.read_vectored(),
            810..880 => self.seek(),
            880..895 => self.set_len(),
            // Each of these two takes as long as a hundred others.
            895..898 => self.sync(),
            898..901 => self.settle(),
            901..930 => self.control(),
            930..955 => {
                let mode = Mode::from_bits(self.dice.below(8) as u8);
                self.ours.set_mode(mode);
                self.same("mode", self.ours.mode(), mode);
            }
            955..970 => self.clone_and_drop(),
            970..985 => self.reopen(),
            985..990 => self.through_std(),
            _ => self.whole(),
        }
        self.places();
    }

    fn places(&mut self) {
        self.same(
            "position",
            outcome((&self.ours).stream_position()),
            outcome((&self.plain).stream_position()),
        );
        self.same("size", self.size_ours(), self.size_plain());
    }

    fn size_ours(&self) -> u64 {
        self.ours.metadata().unwrap().len()
    }

    fn size_plain(&self) -> u64 {
        self.plain.metadata().unwrap().len()
    }

    /// True when a write at the position would make the file too large.
    fn no_room(&mut self) -> bool {
        let position = if self.access.append {
            self.size_plain()
        } else {
            (&self.plain).stream_position().unwrap()
        };
        !self.raw && position + LONGEST_IO_BYTES > SIZE_BYTES
    }

    fn write(&mut self) {
        if self.no_room() {
            self.seek_to(SeekFrom::Start(0));
            if self.access.append {
                self.set_len_to(0);
            }
        }
        let length = self.length();
        let data = self.data(length);
        self.same(
            "write",
            outcome((&self.ours).write(&data)),
            outcome((&self.plain).write(&data)),
        );
    }

    fn write_at(&mut self) {
        if self.access.append && self.no_room() {
            // Linux appends here too.
            self.set_len_to(0);
        }
        let (offset, length) = (self.write_offset(), self.length());
        let data = self.data(length);
        let mode = Mode::from_bits(self.dice.below(8) as u8);
        let ours = match self.dice.below(3) {
            0 => self.ours.write_at_with(&data, offset, mode),
            _ => self.ours.write_at(&data, offset),
        };
        let plain = self.plain.write_at(&data, offset);
        self.same("write_at", outcome(ours), outcome(plain));
    }

    fn write_vectored(&mut self) {
        if self.no_room() {
            self.seek_to(SeekFrom::Start(0));
            if self.access.append {
                self.set_len_to(0);
            }
        }
        let (offset, length) = (self.write_offset(), self.length());
        let data = self.data(length);
        let slices: Vec<IoSlice<'_>> = self
            .cuts(length)
            .windows(2)
            .map(|ends| IoSlice::new(&data[ends[0]..ends[1]]))
            .collect();
        if self.dice.once_in(2) {
            self.same(
                "write_vectored",
                outcome((&self.ours).write_vectored(&slices)),
                outcome((&self.plain).write_vectored(&slices)),
            );
        } else {
            // The standard library has no such call; what it does is a write
            // of the same bytes.
            self.same(
                "write_vectored_at",
                outcome(self.ours.write_vectored_at(&slices, offset)),
                outcome(self.plain.write_at(&data, offset)),
            );
        }
    }

    fn read(&mut self) {
        let length = self.read_length();
        let (mut ours, mut plain) = (vec![1; length], vec![1; length]);
        self.same(
            "read",
            outcome((&self.ours).read(&mut ours)),
            outcome((&self.plain).read(&mut plain)),
        );
        self.same("bytes read", ours == plain, true);
    }

    fn read_at(&mut self) {
        let (offset, length) = (self.offset(), self.read_length());
        let (mut ours, mut plain) = (vec![1; length], vec![1; length]);
        let mode = Mode::from_bits(self.dice.below(8) as u8);
        let result = match self.dice.below(3) {
            0 => self.ours.read_at_with(&mut ours, offset, mode),
            _ => self.ours.read_at(&mut ours, offset),
        };
        self.same(
            "read_at",
            outcome(result),
            outcome(self.plain.read_at(&mut plain, offset)),
        );
        self.same("bytes read at an offset", ours == plain, true);
    }

    fn read_vectored(&mut self) {
        let (offset, length) = (self.offset(), self.length());
        let cuts = self.cuts(length);
        let (mut ours, mut plain) = (vec![1; length], vec![1; length]);
        let at_position = self.dice.once_in(2);
        let mut slices = slices_of(&mut ours, &cuts);
        let result = if at_position {
            (&self.ours).read_vectored(&mut slices)
        } else {
            self.ours.read_vectored_at(&mut slices, offset)
        };
        let expected = if at_position {
            (&self.plain).read_vectored(&mut slices_of(&mut plain, &cuts))
        } else {
            self.plain.read_at(&mut plain, offset)
        };
        self.same("read_vectored", outcome(result), outcome(expected));
        self.same("bytes of a vectored read", ours == plain, true);
    }

    fn seek(&mut self) {
        let to = match self.dice.below(4) {
            0 => SeekFrom::Current(self.dice.below(2 * MIB) as i64 - MIB as i64),
            1 => SeekFrom::End(-(self.dice.below(MIB) as i64)),
            _ => SeekFrom::Start(self.offset()),
        };
        self.seek_to(to);
        // Writes beyond would make it grow without bounds.
        if !self.raw && (&self.plain).stream_position().unwrap() > SIZE_BYTES {
            self.seek_to(SeekFrom::Start(0));
        }
    }

    fn seek_to(&mut self, to: SeekFrom) {
        self.same(
            "seek",
            outcome((&self.ours).seek(to)),
            outcome((&self.plain).seek(to)),
        );
    }

    fn set_len(&mut self) {
        let length = match self.dice.below(4) {
            0 => u64::MAX / 2 + 1,
            _ => self.dice.below(SIZE_BYTES),
        };
        self.set_len_to(length);
    }

    fn set_len_to(&mut self, length: u64) {
        self.same(
            "set_len",
            outcome(self.ours.set_len(length).map(|()| 0_u64)),
            outcome(self.plain.set_len(length).map(|()| 0_u64)),
        );
    }

    fn sync(&mut self) {
        let (ours, plain) = if self.dice.once_in(2) {
            (self.ours.sync_all(), self.plain.sync_all())
        } else {
            (self.ours.sync_data(), self.plain.sync_data())
        };
        self.same(
            "sync",
            outcome(ours.map(|()| 0_u64)),
            outcome(plain.map(|()| 0_u64)),
        );
    }

    fn settle(&mut self) {
        // Pages that the kernel calls dirty, and that a truncation has left
        // with nothing to write, may keep it waiting.
        self.ours.settle(Duration::from_secs(1)).unwrap();
    }

    /// Whatever these answer, the bytes stay what they are.
    fn control(&mut self) {
        let start = self.dice.below(SIZE_BYTES);
        let range = start..start + self.dice.below(SIZE_BYTES);
        let done = match self.dice.below(4) {
            0 => self.ours.start_writeback(range),
            1 => self.ours.wait_clean(range),
            2 => self.ours.drop_behind(range).map(drop),
            _ => self.ours.residency(range).map(drop),
        };
        self.same("control", outcome(done.map(|()| 0_u64)), Ok(0));
    }

    fn clone_and_drop(&mut self) {
        let clones = (
            self.ours.try_clone().unwrap(),
            self.plain.try_clone().unwrap(),
        );
        // The position is shared, and outlives the first descriptor.
        if self.dice.once_in(2) {
            (self.ours, self.plain) = clones;
        }
    }

    fn reopen(&mut self) {
        self.access = Access::draw(&mut self.dice);
        let closed = std::mem::replace(&mut self.ours, self.access.open_ours(&self.ours_path));
        self.plain = self.access.open_plain(&self.plain_path);
        if self.dice.once_in(2) {
            closed.close().unwrap();
        }
    }

    fn through_std(&mut self) {
        let ours = std::mem::replace(&mut self.ours, self.access.open_ours(&self.ours_path));
        let std = ours.into_std();
        self.ours = File::from_std(std, self.access.mode).unwrap();
    }

    /// All of the file, through descriptors of their own.
    fn whole(&mut self) {
        if self.dice.once_in(3) {
            let ours = read_all(&self.ours_path);
            let plain = read_all(&self.plain_path);
            self.same("whole file", ours == plain, true);
        }
    }

    /// The disks hold the same, too.
    fn end(mut self) {
        self.settle();
        self.places();
        residency::evict(&self.ours_path);
        residency::evict(&self.plain_path);
        let (ours, plain) = (read_all(&self.ours_path), read_all(&self.plain_path));
        self.same("whole file on the disk", ours == plain, true);
    }
}

fn slices_of<'a>(data: &'a mut [u8], cuts: &[usize]) -> Vec<IoSliceMut<'a>> {
    let mut rest = data;
    let mut slices = Vec::new();
    for ends in cuts.windows(2) {
        let (now, later) = rest.split_at_mut(ends[1] - ends[0]);
        slices.push(IoSliceMut::new(now));
        rest = later;
    }
    slices
}

fn read_all(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

fn random_operations(kind: Kind, ops: u64) {
    need!(all kind.needs());
    let seed = seed();
    // Never on one disk: a raw device is the whole of it.
    let (ours, plain) = (Place::new(kind, SIZE_BYTES), Place::new(kind, SIZE_BYTES));
    let mut twins = Twins::new(&ours, &plain, seed);
    for _ in 0..ops {
        twins.step();
    }
    twins.end();
}

#[test]
fn random_operations_on_a_file_do_the_same() {
    random_operations(Kind::Mounted(Fs::Ext4), ops(FAST_OPS));
}

#[test]
fn random_operations_on_a_raw_device_do_the_same() {
    random_operations(Kind::RawDevice, ops(FAST_OPS));
}

#[test]
#[ignore = "a million operations take minutes: cargo test --release --test same_program -- --ignored"]
fn a_million_operations_do_the_same() {
    let each = ops(SLOW_OPS) / 4;
    for kind in [
        Kind::Mounted(Fs::Ext4),
        Kind::Mounted(Fs::Xfs),
        Kind::Mounted(Fs::Btrfs),
        Kind::RawDevice,
    ] {
        random_operations(kind, each);
    }
}

/// Each thread works in a part of its own, through a file of its own and a
/// clone of one that all share, and knows what must be in its part.
fn many_threads(kind: Kind, ops: u64) {
    const THREADS: u64 = 4;
    const PART_BYTES: u64 = SIZE_BYTES / THREADS;
    need!(all kind.needs());
    let seed = seed();
    let place = Place::new(kind, SIZE_BYTES);
    let path = place.cold_file(seed);
    let access = Access {
        append: false,
        read: true,
        write: true,
        ..Access::draw(&mut Dice::new(seed))
    };
    let shared = access.open_ours(&path);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (shared, path) = (&shared, &path);
            scope.spawn(move || {
                let part = thread * PART_BYTES;
                let mut dice = Dice::new(seed + thread + 1);
                let mut oracle = pattern::filled(seed, part, PART_BYTES as usize);
                let mut own = access.open_ours(path);
                let again = format!("repeat with DROPBEHIND_SEED={seed}");
                for step in 0..ops / THREADS {
                    let length = dice.below(64 * KIB);
                    let start = dice.below(PART_BYTES - length);
                    let here = start as usize..(start + length) as usize;
                    let offset = part + start;
                    match dice.below(400) {
                        0..140 => {
                            let data = pattern::filled(seed ^ step, thread, length as usize);
                            let mode = Mode::from_bits(dice.below(8) as u8);
                            let written = match dice.below(3) {
                                0 => shared.write_at_with(&data, offset, mode),
                                1 => shared.write_at(&data, offset),
                                _ => own
                                    .seek(SeekFrom::Start(offset))
                                    .and_then(|_| own.write(&data)),
                            };
                            assert_eq!(written.unwrap(), data.len(), "{again}");
                            oracle[here].copy_from_slice(&data);
                        }
                        140..320 => {
                            let mut data = vec![1; length as usize];
                            let read = match dice.below(2) {
                                0 => shared.read_at(&mut data, offset),
                                _ => own
                                    .seek(SeekFrom::Start(offset))
                                    .and_then(|_| own.read(&mut data)),
                            };
                            assert_eq!(read.unwrap(), data.len(), "{again}");
                            assert!(data == oracle[here], "thread {thread}; {again}");
                        }
                        320..344 => shared.set_mode(Mode::from_bits(dice.below(8) as u8)),
                        344..368 => drop(shared.drop_behind(offset..offset + length).unwrap()),
                        368..380 => shared.start_writeback(offset..offset + length).unwrap(),
                        380 => shared.sync_data().unwrap(),
                        // The others write on, so it may never be over.
                        381 => drop(shared.settle(Duration::from_millis(20)).unwrap()),
                        382..392 => own = access.open_ours(path),
                        _ => drop(shared.try_clone().unwrap()),
                    }
                }
                let mut data = vec![0; PART_BYTES as usize];
                own.seek(SeekFrom::Start(part)).unwrap();
                own.read_exact(&mut data).unwrap();
                assert!(data == oracle, "thread {thread}; {again}");
            });
        }
    });
    shared.sync_all().unwrap();
    assert!(shared.settle(PATIENCE).unwrap());
}

#[test]
fn threads_in_parts_of_one_file_do_the_same() {
    many_threads(Kind::Mounted(Fs::Ext4), ops(FAST_OPS) / 2);
}

#[test]
fn threads_in_parts_of_one_raw_device_do_the_same() {
    many_threads(Kind::RawDevice, ops(FAST_OPS) / 2);
}

#[test]
fn more_buffers_than_the_kernel_takes_are_cut_as_ever() {
    need!(all Kind::Mounted(Fs::Ext4).needs());
    let place = Place::new(Kind::Mounted(Fs::Ext4), MIB);
    let data = pattern::filled(1, 0, 1500);
    let slices: Vec<IoSlice<'_>> = data.chunks(1).map(IoSlice::new).collect();
    let plain_path = place.path().with_extension("plain");
    let mut plain = fs::File::create(&plain_path).unwrap();
    let expected = plain.write_vectored(&slices).unwrap();
    let mut ours = File::create(place.path()).unwrap();
    assert_eq!(ours.write_vectored(&slices).unwrap(), expected);
    assert_eq!(ours.write_vectored_at(&slices, 7).unwrap(), expected);
    let (mut one, mut other) = ([0; 1500], [0; 1500]);
    let mut plain = fs::File::open(&plain_path).unwrap();
    let mut buffers: Vec<_> = one.chunks_mut(1).map(IoSliceMut::new).collect();
    let expected = plain.read_vectored(&mut buffers).unwrap();
    let mut ours = File::open(&plain_path).unwrap();
    let mut buffers: Vec<_> = other.chunks_mut(1).map(IoSliceMut::new).collect();
    assert_eq!(ours.read_vectored(&mut buffers).unwrap(), expected);
    assert_eq!(one, other);
}

#[test]
fn pipes_and_terminals_work_as_ever() {
    let (mut reader, writer) = io::pipe().unwrap();
    let writer = fs::File::from(std::os::fd::OwnedFd::from(writer));
    let mut ours = File::from_std(writer, Mode::DONTCACHE).unwrap();
    ours.write_all(b"through a pipe").unwrap();
    assert!(ours.settle(Duration::from_secs(1)).unwrap());
    let seek = ours.seek(SeekFrom::Start(1)).unwrap_err();
    assert_eq!(seek.raw_os_error(), Some(libc::ESPIPE));
    drop(ours);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    assert_eq!(said, "through a pipe");
    let mut null = File::options().write(true).open("/dev/null").unwrap();
    null.write_all(&[0; 100]).unwrap();
}
