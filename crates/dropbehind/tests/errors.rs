//! Errors stay the program's: each comes out of exactly the call that reports
//! it without us, and nothing hangs that does not hang without us. Every test
//! runs twice, once with the standard library's file, and compares.

mod common;

use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::thread::JoinHandleExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::{KIB, MIB, PATIENCE, cached_bytes, read_pattern, write_pattern};
use dropbehind::{File, Flusher, Mode, OpenOptions};
use dropbehind_testbed::slow_disk::{Failing, RequestKind};
use dropbehind_testbed::{
    CallFilter, FailNth, FailingDisk, Fs, MountedFs, Need, SlowDisk, SlowDiskOptions, need,
    pattern, residency,
};

/// With whose file something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Plain,
    Ours(Mode),
}

impl Side {
    fn ours() -> impl Iterator<Item = Side> {
        Mode::ALL.into_iter().map(Side::Ours)
    }

    fn open(self, path: &Path) -> Twin {
        self.open_with(path, &Flusher::shared().unwrap())
    }

    fn open_with(self, path: &Path, flusher: &Flusher) -> Twin {
        match self {
            Side::Plain => Twin::Plain(
                fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(path)
                    .unwrap(),
            ),
            Side::Ours(mode) => Twin::Ours(
                OpenOptions::new()
                    .read(true)
                    .write(true)
                    .mode(mode)
                    .flusher(flusher)
                    .open(path)
                    .unwrap(),
            ),
        }
    }
}

/// A file that is ours or a plain one.
enum Twin {
    Plain(fs::File),
    Ours(File),
}

impl Twin {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Twin::Plain(file) => file.write(data),
            Twin::Ours(file) => file.write(data),
        }
    }

    fn write_all(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Twin::Plain(file) => file.write_all(data),
            Twin::Ours(file) => file.write_all(data),
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        match self {
            Twin::Plain(file) => file.sync_all(),
            Twin::Ours(file) => file.sync_all(),
        }
    }

    fn read_at(&self, data: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Twin::Plain(file) => file.read_at(data, offset),
            Twin::Ours(file) => file.read_at(data, offset),
        }
    }

    fn settle(&self) {
        if let Twin::Ours(file) = self {
            assert!(file.settle(PATIENCE).unwrap(), "{:?}", file.stats());
        }
    }
}

/// What each call said, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Log(Vec<(String, Result<u64, Option<i32>>)>);

impl Log {
    fn note<T: TryInto<u64>>(&mut self, call: impl Into<String>, result: io::Result<T>) {
        let value = |value: T| value.try_into().ok().expect("not negative");
        let result = result.map(value).map_err(|error| error.raw_os_error());
        self.0.push((call.into(), result));
    }

    fn note_done(&mut self, call: impl Into<String>, result: io::Result<()>) {
        self.note(call, result.map(|()| 0_u64));
    }

    fn errors(&self) -> usize {
        self.0.iter().filter(|(_, result)| result.is_err()).count()
    }
}

fn open_plain(path: &Path) -> fs::File {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

// ---- writeback that fails ---------------------------------------------------

/// A disk on which a file lies whose middle cannot be written. The file system
/// can write all of its own, so that nothing but the data's errors counts.
struct BadSpot {
    path: PathBuf,
    _mounted: Option<MountedFs>,
    disk: SlowDisk,
}

impl BadSpot {
    const FILE_BYTES: u64 = 24 * MIB;

    fn needs(filesystem: Option<Fs>) -> Vec<Need> {
        let mut needs = SlowDisk::needs();
        needs.extend(filesystem.into_iter().flat_map(Fs::needs));
        needs.push(Need::Cachestat);
        needs
    }

    fn new(filesystem: Option<Fs>) -> BadSpot {
        let disk = SlowDisk::new(SlowDiskOptions {
            size_bytes: 384 * MIB,
            ..SlowDiskOptions::default()
        })
        .unwrap();
        let mounted = filesystem.map(|filesystem| disk.mount(filesystem).unwrap());
        let path = mounted
            .as_ref()
            .map_or(disk.device().to_owned(), |mounted| mounted.file("data"));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(mounted.is_some())
            .truncate(false)
            .open(&path)
            .unwrap();
        disk.forget_requests().unwrap();
        write_pattern(&mut file, 1, 0, Self::FILE_BYTES, MIB);
        file.sync_all().unwrap();
        // The file is nearly all that was written, so what lies in the middle
        // of that is the file's.
        let mut written = disk.requests().unwrap();
        written.retain(|one| one.kind == RequestKind::Write && one.length >= 64 * KIB);
        written.sort_by_key(|one| one.offset);
        let middle = &written[written.len() / 2];
        disk.add_bad_range(middle.offset..middle.offset + 64 * KIB)
            .unwrap();
        residency::evict(&path);
        BadSpot {
            path,
            _mounted: mounted,
            disk,
        }
    }

    fn overwrite(log: &mut Log, file: &mut Twin) {
        for block in 0..Self::FILE_BYTES / MIB {
            let data = pattern::filled(2, block * MIB, MIB as usize);
            if let Err(error) = file.write_all(&data) {
                log.note_done("write", Err(error));
            }
        }
    }
}

/// The descriptors of those who only want to know whether all is well.
fn open_to_ask(path: &Path) -> fs::File {
    fs::File::open(path).unwrap()
}

/// Who opened the file before the failure, who wrote, and who opens it later.
fn errors_of_syncs(side: Side, filesystem: Option<Fs>, settle_first: bool) -> Log {
    let bed = BadSpot::new(filesystem);
    let mut log = Log::default();
    let earlier = open_to_ask(&bed.path);
    let mut writer = side.open(&bed.path);
    BadSpot::overwrite(&mut log, &mut writer);
    if settle_first {
        // Everything the flusher can find out, it has found out by now.
        writer.settle();
    }
    log.note_done("first sync", writer.sync_all());
    log.note_done("second sync", writer.sync_all());
    log.note_done("sync of one opened earlier", earlier.sync_all());
    log.note_done("its second sync", earlier.sync_all());
    let later = open_to_ask(&bed.path);
    log.note_done("sync of one opened later", later.sync_all());
    writer.settle();
    // Pages whose writeback failed count as clean: nothing is left to fail.
    log.note_done("last sync", writer.sync_all());
    bed.disk.clear_bad_ranges().unwrap();
    BadSpot::overwrite(&mut log, &mut side.open(&bed.path));
    log.note_done("sync on a good disk", writer.sync_all());
    log
}

/// The writer closes and never syncs; who opens the file next is told.
fn errors_after_close(side: Side, filesystem: Option<Fs>) -> Log {
    let bed = BadSpot::new(filesystem);
    let flusher = Flusher::builder().build().unwrap();
    let mut log = Log::default();
    // A raw device forgets all at its last close, its errors too.
    let _second_opener = filesystem.is_none().then(|| open_to_ask(&bed.path));
    let mut writer = side.open_with(&bed.path, &flusher);
    BadSpot::overwrite(&mut log, &mut writer);
    drop(writer);
    assert!(flusher.drain(PATIENCE));
    let next = open_to_ask(&bed.path);
    log.note_done("sync of the next opener", next.sync_all());
    log.note_done("its second sync", next.sync_all());
    let later = open_to_ask(&bed.path);
    log.note_done("sync of a later opener", later.sync_all());
    log
}

fn errors_are_the_same(filesystem: Option<Fs>, modes: &[Mode]) {
    need!(all BadSpot::needs(filesystem));
    let plain = errors_of_syncs(Side::Plain, filesystem, false);
    assert!(plain.errors() >= 2, "nothing failed: {plain:?}");
    for &mode in modes {
        for settle_first in [false, true] {
            let ours = errors_of_syncs(Side::Ours(mode), filesystem, settle_first);
            assert_eq!(ours, plain, "{mode}, settled first: {settle_first}");
        }
    }
    let plain = errors_after_close(Side::Plain, filesystem);
    assert!(plain.errors() >= 1, "nothing failed: {plain:?}");
    for &mode in modes {
        let ours = errors_after_close(Side::Ours(mode), filesystem);
        assert_eq!(ours, plain, "{mode}");
    }
}

#[test]
fn writeback_errors_on_ext4_come_out_of_the_same_calls_in_every_mode() {
    errors_are_the_same(Some(Fs::Ext4), &Mode::ALL);
}

#[test]
fn writeback_errors_on_a_raw_device_come_out_of_the_same_calls() {
    errors_are_the_same(None, &[Mode::DONTCACHE, Mode::WRITE_BEHIND_ANY]);
}

#[test]
fn writeback_errors_on_xfs_come_out_of_the_same_calls() {
    errors_are_the_same(Some(Fs::Xfs), &[Mode::DONTCACHE]);
}

// ---- disks that run full below the page cache -------------------------------

/// More than a failing disk takes.
const TOO_MUCH_BYTES: u64 = FailingDisk::REAL_BYTES + 24 * MIB;

fn write_too_much(file: &mut Twin) {
    let block = vec![7; MIB as usize];
    for _ in 0..TOO_MUCH_BYTES / MIB {
        // btrfs goes read-only as soon as it notices.
        if file.write_all(&block).is_err() {
            return;
        }
    }
}

/// Whether the writer's first sync failed, and that of someone who had the
/// file open; how often those that follow fail is up to metadata, which such a
/// disk does not take either.
fn errors_of_a_full_disk(side: Side, filesystem: Option<Fs>) -> Log {
    let disk = match filesystem {
        Some(filesystem) => FailingDisk::formatted(filesystem).unwrap(),
        None => FailingDisk::raw().unwrap(),
    };
    let path = disk.file("data");
    if filesystem.is_some() {
        fs::File::create(&path).unwrap();
    }
    let mut log = Log::default();
    let earlier = open_to_ask(&path);
    let mut writer = side.open(&path);
    write_too_much(&mut writer);
    writer.settle();
    log.note_done("first sync", writer.sync_all());
    log.note_done("sync of one opened earlier", earlier.sync_all());
    log
}

fn a_full_disk_is_noticed_by_the_same_syncs(filesystem: Option<Fs>, modes: &[Mode]) {
    need!(all FailingDisk::needs(filesystem));
    need!(Need::Cachestat);
    let plain = errors_of_a_full_disk(Side::Plain, filesystem);
    assert_eq!(plain.errors(), 2, "{plain:?}");
    for &mode in modes {
        let ours = errors_of_a_full_disk(Side::Ours(mode), filesystem);
        assert_eq!(ours, plain, "{mode}");
    }
}

#[test]
fn a_full_disk_below_ext4_is_noticed_by_the_same_syncs_in_every_mode() {
    a_full_disk_is_noticed_by_the_same_syncs(Some(Fs::Ext4NoJournal), &Mode::ALL);
}

#[test]
fn a_full_disk_below_xfs_is_noticed_by_the_same_syncs() {
    a_full_disk_is_noticed_by_the_same_syncs(Some(Fs::Xfs), &[Mode::DONTCACHE]);
}

#[test]
fn a_full_disk_below_btrfs_is_noticed_by_the_same_syncs() {
    a_full_disk_is_noticed_by_the_same_syncs(Some(Fs::Btrfs), &[Mode::DONTCACHE]);
}

#[test]
fn a_full_disk_below_a_raw_device_is_noticed_by_the_same_syncs() {
    a_full_disk_is_noticed_by_the_same_syncs(None, &[Mode::DONTCACHE]);
}

// ---- writeback that fails where cachestat is missing ------------------------

const FILE_VARIABLE: &str = "DROPBEHIND_TEST_FILE";

/// The part that runs under a filter which leaves it no cachestat: the flusher
/// has to wait on a description of its own, and that marks errors seen. To
/// files of this library they are told all the same.
#[test]
#[ignore = "a part of another test"]
fn errors_without_cachestat() {
    let path = std::env::var_os(FILE_VARIABLE).unwrap();
    let log = errors_with_openers_of_the_same_kind(
        Side::Ours(Mode::DONTCACHE),
        Path::new(&path),
        std::env::var_os("SYNCS").is_some(),
    );
    println!("LOG {log:?}");
    let degraded = Flusher::shared().unwrap().degraded();
    assert!(
        degraded.iter().any(|note| note.contains("no cachestat")),
        "{degraded:?}"
    );
}

fn errors_with_openers_of_the_same_kind(side: Side, path: &Path, syncs: bool) -> Log {
    let mut log = Log::default();
    let mut writer = side.open(path);
    BadSpot::overwrite(&mut log, &mut writer);
    writer.settle();
    if syncs {
        log.note_done("sync of the writer", writer.sync_all());
        log.note_done("its second sync", writer.sync_all());
    }
    drop(writer);
    let next = side.open(path);
    log.note_done("sync of the next opener", next.sync_all());
    log.note_done("its second sync", next.sync_all());
    let later = side.open(path);
    log.note_done("sync of a later opener", later.sync_all());
    log
}

#[test]
fn writeback_errors_are_told_where_cachestat_is_missing() {
    need!(all BadSpot::needs(Some(Fs::Ext4)));
    for syncs in [true, false] {
        let bed = BadSpot::new(Some(Fs::Ext4));
        let plain = errors_with_openers_of_the_same_kind(Side::Plain, &bed.path, syncs);
        assert!(plain.errors() >= 1, "nothing failed: {plain:?}");
        let bed = BadSpot::new(Some(Fs::Ext4));
        let mut command = common::part("errors_without_cachestat");
        command.env(FILE_VARIABLE, &bed.path);
        if syncs {
            command.env("SYNCS", "1");
        }
        let calls = [CallFilter::new("cachestat").unwrap()];
        let outcome = FailNth::every(calls, libc::ENOSYS).run(command).unwrap();
        let said = String::from_utf8_lossy(&outcome.stdout);
        assert!(outcome.status.success(), "{said}{outcome:?}");
        assert!(
            said.contains(&format!("LOG {plain:?}\n")),
            "without us {plain:?}, with us: {said}"
        );
    }
}

// ---- no room ----------------------------------------------------------------

#[test]
fn a_full_disk_says_so_in_the_same_write() {
    need!(all MountedFs::needs(Fs::Ext4));
    let fill = |side: Side| {
        let disk = MountedFs::new(Fs::Ext4, 24 * MIB).unwrap();
        let path = disk.file("data");
        fs::File::create(&path).unwrap();
        let mut file = side.open(&path);
        let mut accepted = 0;
        let error = loop {
            let block = pattern::filled(1, accepted, 100_000);
            match file.write(&block) {
                Ok(count) => accepted += count as u64,
                Err(error) => break error,
            }
            assert!(accepted < 24 * MIB);
        };
        let synced = file.sync_all().map_err(|error| error.raw_os_error());
        file.settle();
        residency::evict(&path);
        let held = read_pattern(&mut fs::File::open(&path).unwrap(), 1, MIB);
        assert_eq!(held, accepted, "{side:?}");
        (error.raw_os_error(), synced, accepted)
    };
    let (error, synced, accepted) = fill(Side::Plain);
    assert_eq!(error, Some(libc::ENOSPC));
    for side in Side::ours() {
        let ours = fill(side);
        assert_eq!((ours.0, ours.1), (error, synced), "{side:?}");
        // When blocks are allocated decides how many go to metadata.
        assert!(ours.2.abs_diff(accepted) <= MIB, "{side:?}: {}", ours.2);
    }
}

/// The part that lives with a limit of the size of files.
#[test]
#[ignore = "a part of another test"]
fn limited_file_size() {
    let path = std::env::var_os(FILE_VARIABLE).unwrap();
    let path = Path::new(&path);
    let limit = libc::rlimit {
        rlim_cur: MIB,
        rlim_max: MIB,
    };
    // SAFETY: the limit is a valid structure; ignoring a signal has no handler
    // that could do harm.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let write = |side: Side| {
        fs::File::create(path).unwrap();
        let mut file = side.open(path);
        let mut log = Log::default();
        let block = vec![3; 400 << 10];
        for _ in 0..5 {
            log.note("write", file.write(&block));
        }
        log.note_done("sync", file.sync_all());
        file.settle();
        assert_eq!(fs::metadata(path).unwrap().len(), MIB);
        log
    };
    let plain = write(Side::Plain);
    let short = plain.0.iter().any(|(_, result)| *result == Ok(224 << 10));
    assert!(short, "{plain:?}");
    let refused = Err(Some(libc::EFBIG));
    assert!(plain.0.iter().any(|(_, result)| *result == refused));
    for side in Side::ours() {
        assert_eq!(write(side), plain, "{side:?}");
    }
}

#[test]
fn a_limit_of_file_size_gives_the_same_short_write_and_error() {
    need!(all MountedFs::needs(Fs::Ext4));
    let disk = MountedFs::new(Fs::Ext4, 32 * MIB).unwrap();
    let status = common::part("limited_file_size")
        .env(FILE_VARIABLE, disk.file("data"))
        .status()
        .unwrap();
    assert!(status.success());
}

// ---- the file changes under us ----------------------------------------------

/// Runs the same script on both sides; what it returns must be the same.
fn on_both_sides<T: PartialEq>(script: impl Fn(Side, &Path) -> T) {
    need!(all MountedFs::needs(Fs::Ext4));
    let disk = MountedFs::new(Fs::Ext4, 256 * MIB).unwrap();
    let plain = script(Side::Plain, &disk.file("plain"));
    for (number, side) in Side::ours().enumerate() {
        let ours = script(side, &disk.file(&format!("ours-{number}")));
        assert!(ours == plain, "{side:?}");
    }
}

#[test]
fn a_file_truncated_under_us_has_the_same_bytes() {
    on_both_sides(|side, path| {
        fs::File::create(path).unwrap();
        let other = open_plain(path);
        let mut file = side.open(path);
        let mut log = Log::default();
        for (step, length) in [MIB + 123, 0, 20 * MIB, 5 * MIB].into_iter().enumerate() {
            for block in 0..24 {
                let data = pattern::filled(step as u64, block, 200_000);
                log.note("write", file.write(&data));
            }
            other.set_len(length).unwrap();
        }
        log.note("write", file.write(&[9; 5000]));
        log.note_done("sync", file.sync_all());
        file.settle();
        residency::evict(path);
        (log, fs::read(path).unwrap())
    });
}

#[test]
fn a_file_deleted_under_us_can_be_read_by_those_who_have_it() {
    on_both_sides(|side, path| {
        fs::File::create(path).unwrap();
        let other = open_plain(path);
        let mut file = side.open(path);
        let mut log = Log::default();
        for step in 0..16 {
            log.note("write", file.write(&vec![step; MIB as usize]));
            if step == 5 {
                fs::remove_file(path).unwrap();
            }
        }
        file.settle();
        log.note_done("sync", file.sync_all());
        file.settle();
        let mut data = vec![0; 16 << 20];
        other.read_exact_at(&mut data, 0).unwrap();
        drop(file);
        let mut again = vec![0; 16 << 20];
        other.read_exact_at(&mut again, 0).unwrap();
        assert!(data == again);
        (log, data)
    });
}

#[test]
fn a_file_that_takes_our_files_name_is_left_alone() {
    on_both_sides(|side, path| {
        fs::File::create(path).unwrap();
        let mut file = side.open(path);
        let mut log = Log::default();
        let newcomer = path.with_extension("new");
        for step in 0..16 {
            log.note("write", file.write(&vec![step; MIB as usize]));
            if step == 5 {
                fs::write(&newcomer, pattern::filled(5, 0, 4 << 20)).unwrap();
                fs::rename(&newcomer, path).unwrap();
            }
        }
        log.note_done("sync", file.sync_all());
        file.settle();
        let mut data = vec![0; 16 << 20];
        let count = file.read_at(&mut data, 0).unwrap();
        drop(file);
        // It was another's I/O that brought its pages in.
        assert_eq!(cached_bytes(path), 4 * MIB, "{side:?}");
        let newcomer = fs::read(path).unwrap();
        pattern::check(5, 0, &newcomer).unwrap();
        data.truncate(count);
        (log, data, newcomer.len())
    });
}

// ---- disks that go away -----------------------------------------------------

fn slow_disk() -> SlowDisk {
    SlowDisk::new(SlowDiskOptions {
        size_bytes: 128 * MIB,
        ..SlowDiskOptions::default()
    })
    .unwrap()
}

fn vanishing(side: Side, filesystem: Option<Fs>) -> Log {
    let disk = slow_disk();
    let mounted = filesystem.map(|filesystem| disk.mount(filesystem).unwrap());
    let path = mounted
        .as_ref()
        .map_or(disk.device().to_owned(), |mounted| mounted.file("data"));
    if mounted.is_some() {
        fs::File::create(&path).unwrap();
    }
    let mut log = Log::default();
    let mut file = side.open(&path);
    let block = vec![4; MIB as usize];
    for _ in 0..4 {
        log.note("write", file.write(&block));
    }
    log.note_done("sync while it is there", file.sync_all());
    for step in 0..8 {
        log.note("write", file.write(&block));
        if step == 3 {
            disk.vanish().unwrap();
        }
    }
    log.note_done("sync when it is gone", file.sync_all());
    file.settle();
    log.note_done("second sync", file.sync_all());
    let flusher = Flusher::shared().unwrap();
    drop(file);
    assert!(flusher.drain(PATIENCE));
    log
}

fn a_vanished_disk_is_noticed_by_the_same_calls(filesystem: Option<Fs>) {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    need!(all filesystem.into_iter().flat_map(Fs::needs));
    let plain = vanishing(Side::Plain, filesystem);
    assert!(plain.errors() >= 1, "{plain:?}");
    for mode in [Mode::DONTCACHE, Mode::WRITE_BEHIND_ANY, Mode::NOREUSE] {
        assert_eq!(vanishing(Side::Ours(mode), filesystem), plain, "{mode}");
    }
}

#[test]
fn a_vanished_raw_device_is_noticed_by_the_same_calls() {
    a_vanished_disk_is_noticed_by_the_same_calls(None);
}

#[test]
fn a_vanished_disk_below_ext4_is_noticed_by_the_same_calls() {
    a_vanished_disk_is_noticed_by_the_same_calls(Some(Fs::Ext4NoJournal));
}

#[test]
fn a_bad_spot_on_the_disk_fails_the_read_and_nothing_else() {
    need!(all SlowDisk::needs());
    let disk = slow_disk();
    let mut file = open_plain(disk.device());
    write_pattern(&mut file, 1, 0, 16 * MIB, MIB);
    file.sync_all().unwrap();
    let bad = 9 * MIB..9 * MIB + 4 * KIB;
    disk.add_bad_range(bad.clone()).unwrap();
    for block_bytes in [4 * KIB, 64 * KIB, 3 * MIB] {
        let read_up = |side: Side| {
            residency::evict(disk.device());
            let file = side.open(disk.device());
            let mut block = vec![0; block_bytes as usize];
            let mut offset = 0;
            let error = loop {
                match file.read_at(&mut block, offset) {
                    Ok(0) => panic!("the end, past the bad spot"),
                    Ok(count) => {
                        pattern::check(1, offset, &block[..count]).unwrap();
                        offset += count as u64;
                    }
                    Err(error) => break error,
                }
            };
            let count = file.read_at(&mut block, 12 * MIB).unwrap();
            pattern::check(1, 12 * MIB, &block[..count]).unwrap();
            file.settle();
            (error.raw_os_error(), offset)
        };
        let (error, plain_offset) = read_up(Side::Plain);
        assert_eq!(error, Some(libc::EIO));
        let (error, offset) = read_up(Side::Ours(Mode::DONTCACHE));
        assert_eq!(error, Some(libc::EIO));
        // A page fails with the folio it is in; ours may be smaller.
        assert!((plain_offset..=bad.start).contains(&offset), "{offset}");
    }
}

// ---- signals ----------------------------------------------------------------

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn signals_do_not_cut_a_write_that_waits_for_the_disk() {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    let disk = SlowDisk::new(SlowDiskOptions {
        size_bytes: 64 * MIB,
        write_bytes_per_second: Some(8 * MIB),
        ..SlowDiskOptions::default()
    })
    .unwrap();
    // SAFETY: the action is a valid structure, and the handler only adds to an
    // atomic. Without SA_RESTART, a call that waits ends with EINTR.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let path = disk.device().to_owned();
    let writer = std::thread::spawn(move || {
        let mut file = OpenOptions::new()
            .write(true)
            .window_bytes(64 * KIB)
            .open(&path)
            .unwrap();
        let block = vec![6; 64 << 10];
        for _ in 0..128 {
            assert_eq!(file.write(&block).unwrap(), block.len());
        }
        assert!(file.settle(PATIENCE).unwrap());
        file.seek(SeekFrom::Start(0)).unwrap();
        file.stats()
    });
    while !writer.is_finished() {
        // SAFETY: the thread is not joined yet, so its handle is valid.
        unsafe { libc::pthread_kill(writer.as_pthread_t(), libc::SIGUSR2) };
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = writer.join().unwrap();
    assert!(stats.waits > 10, "{stats:?}");
    assert!(SIGNALS.load(Ordering::Relaxed) > 100);
}

#[test]
fn a_disk_that_fails_all_writes_holds_nobody_up() {
    need!(all SlowDisk::needs());
    need!(Need::Cachestat);
    let write = |side: Side| {
        let disk = slow_disk();
        let mut file = side.open(disk.device());
        disk.fail(Failing::Writes).unwrap();
        let mut log = Log::default();
        for _ in 0..48 {
            log.note("write", file.write(&vec![1; MIB as usize]));
        }
        log.note_done("sync", file.sync_all());
        file.settle();
        disk.fail(Failing::Nothing).unwrap();
        log.note("write", file.write(&[2; 5000]));
        log.note_done("sync", file.sync_all());
        log
    };
    let plain = write(Side::Plain);
    assert!(plain.errors() >= 1, "{plain:?}");
    for side in Side::ours() {
        assert_eq!(write(side), plain, "{side:?}");
    }
}
