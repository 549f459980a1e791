//! Scattered writes, on a disk that takes as long for one page as for some that lie side by side.

use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, DiskConfig, Inspected, Mode, Next, StreamConfig,
};

use crate::quick_disk::{ID, MIB, PAGE, absent, gone};

/// What it takes for each run of adjacent pages, and the program for a write.
const RUN_NS: u64 = 20_000;
const WRITE_NS: u64 = 2_000;

struct SlowDisk {
    dirty: Vec<bool>,
    /// Until when each page is under writeback.
    busy_ns: Vec<u64>,
    free_ns: u64,
    runs: u64,
}

impl SlowDisk {
    fn new(pages: u64) -> SlowDisk {
        let pages = pages as usize;
        SlowDisk {
            dirty: vec![false; pages],
            busy_ns: vec![0; pages],
            free_ns: 0,
            runs: 0,
        }
    }

    fn write_back(&mut self, now_ns: u64, range: ByteRange) {
        let mut last = None;
        for page in pages_of(range).filter(|&page| std::mem::take(&mut self.dirty[page])) {
            if last.is_none_or(|last| last + 1 != page) {
                self.runs += 1;
                self.free_ns = self.free_ns.max(now_ns) + RUN_NS;
            }
            self.busy_ns[page] = self.free_ns;
            last = Some(page);
        }
    }

    fn count(&self, now_ns: u64, range: ByteRange) -> Counted {
        let bytes =
            |is: &dyn Fn(usize) -> bool| PAGE * pages_of(range).filter(|&p| is(p)).count() as u64;
        Counted {
            cached_bytes: range.len(),
            dirty_bytes: bytes(&|page| self.dirty[page]),
            writeback_bytes: bytes(&|page| self.busy_ns[page] > now_ns),
        }
    }

    /// Does what is due, and returns when the next thing is.
    fn serve(&mut self, disk: &mut Disk, now_ns: u64) -> u64 {
        loop {
            match disk.next(now_ns) {
                Next::Do(Action::StartWriteback { range, .. }) => self.write_back(now_ns, range),
                Next::Do(Action::Count { range, .. }) => {
                    disk.counted(now_ns, ID, range, self.count(now_ns, range));
                }
                Next::Do(Action::Drop { ranges, .. }) => disk.dropped(now_ns, ID, gone(&ranges)),
                Next::Do(Action::Inspect { .. }) => {
                    disk.inspected(now_ns, ID, Inspected { unlinked: false });
                }
                Next::Do(_) => {}
                Next::At(due_ns) => return due_ns,
                Next::Idle => return u64::MAX,
            }
        }
    }
}

fn pages_of(range: ByteRange) -> impl Iterator<Item = usize> {
    (range.start / PAGE) as usize..(range.end / PAGE) as usize
}

/// The numbers below `count` in an order without pattern (Fisher and Yates).
fn shuffled(count: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..count).collect();
    let mut state = 1_u64;
    for last in (1..count).rev() {
        // Knuth's MMIX.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(last as usize, ((state >> 33) % (last + 1)) as usize);
    }
    numbers
}

/// Writes a file of this size once, in random order. Returns how many runs of pages the disk got,
/// and how many bytes were dirty at most.
fn write_at_random(file_bytes: u64, gather_bytes: u64, config: StreamConfig) -> (u64, u64) {
    let mut disk = Disk::new(DiskConfig {
        gather_bytes,
        ..DiskConfig::default()
    });
    disk.opened(1, ID, config, absent());
    let pages = file_bytes / PAGE;
    let mut slow = SlowDisk::new(pages);
    let order = shuffled(pages);
    let (mut now_ns, mut dirty_bytes) = (2, 0);
    for number in 0..pages {
        let page = order[number as usize];
        let counted_bytes = number * PAGE;
        loop {
            let due_ns = slow.serve(&mut disk, now_ns);
            let done_bytes = disk.stream(ID).unwrap().done_bytes();
            if counted_bytes - done_bytes < disk.limit_bytes(ID) {
                break;
            }
            assert_ne!(due_ns, u64::MAX, "the writer waits for nothing");
            now_ns = due_ns;
        }
        let range = ByteRange::new(page * PAGE, (page + 1) * PAGE);
        slow.dirty[page as usize] = true;
        disk.wrote(now_ns, ID, range, Mode::DONTCACHE);
        disk.written_until(now_ns, ID, counted_bytes + PAGE);
        let done_bytes = disk.stream(ID).unwrap().done_bytes();
        dirty_bytes = dirty_bytes.max(counted_bytes + PAGE - done_bytes);
        now_ns += WRITE_NS;
    }
    disk.closed(now_ns, ID);
    loop {
        match slow.serve(&mut disk, now_ns) {
            u64::MAX => break,
            due_ns => now_ns = due_ns,
        }
    }
    assert!(!slow.dirty.contains(&true), "all of it was written");
    // Nobody reports here what is brought in.
    let dropped_bytes = if config.traced { 0 } else { file_bytes };
    assert_eq!(disk.forgotten(ID).unwrap().dropped_bytes, dropped_bytes);
    (slow.runs, dirty_bytes)
}

#[test]
fn scattered_writes_wait_for_neighbours() {
    let file_bytes = 128 * MIB;
    let (runs, dirty_bytes) = write_at_random(file_bytes, 0, StreamConfig::default());
    assert!(dirty_bytes <= 20 * MIB, "{dirty_bytes}");
    let gather_bytes = 32 * MIB;
    let (fewer_runs, more_bytes) =
        write_at_random(file_bytes, gather_bytes, StreamConfig::default());
    assert!(fewer_runs * 10 < runs * 8, "{fewer_runs} of {runs}");
    let limit_bytes = gather_bytes + 9 * MIB;
    assert!(
        (dirty_bytes..limit_bytes).contains(&more_bytes),
        "{more_bytes}"
    );
}

/// In so large a file, there are hardly any.
#[test]
fn writes_too_far_apart_wait_for_none() {
    let without = write_at_random(256 * MIB, 0, StreamConfig::default());
    assert_eq!(
        write_at_random(256 * MIB, 4 * MIB, StreamConfig::default()),
        without
    );
}

/// A window of a file's own is what may be dirty of it, and programs are held by what is dirty of
/// observed files.
#[test]
fn what_has_a_limit_of_its_own_waits_for_none() {
    let own = StreamConfig {
        window_bytes: Some(8 * MIB),
        ..StreamConfig::default()
    };
    let traced = StreamConfig {
        traced: true,
        ..StreamConfig::default()
    };
    for config in [own, traced] {
        let without = write_at_random(32 * MIB, 0, config);
        assert_eq!(write_at_random(32 * MIB, 32 * MIB, config), without);
    }
}
