//! Scattered writes, on disks that take longer for a page elsewhere than for the next one.

use dropbehind_policy::{
    Action, ByteRange, Counted, Disk, DiskConfig, Inspected, Mode, Next, StreamConfig, StreamId,
};

use crate::quick_disk::{MIB, PAGE, absent, gone};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
/// The program's own time for a write.
const WRITE_NS: u64 = 2_000;

/// A file of which pages are written, each at any place.
struct Written {
    /// When each page became dirty; 0 if it is not.
    dirty_ns: Vec<u64>,
    /// Until when each page is under writeback.
    busy_ns: Vec<u64>,
    counted_bytes: u64,
    waits_since_ns: Option<u64>,
}

impl Written {
    fn new(bytes: u64) -> Written {
        let pages = (bytes / PAGE) as usize;
        Written {
            dirty_ns: vec![0; pages],
            busy_ns: vec![0; pages],
            counted_bytes: 0,
            waits_since_ns: None,
        }
    }

    fn pages(&self) -> u64 {
        self.dirty_ns.len() as u64
    }
}

/// The policy, a model of a disk, and programs that write as fast as they may.
struct Model {
    policy: Disk,
    /// What each run of adjacent pages takes, and each page.
    run_ns: u64,
    page_ns: u64,
    free_ns: u64,
    now_ns: u64,
    files: Vec<Written>,
    chance: u64,
    dirty_pages: u64,
    most_dirty_pages: u64,
    longest_wait_ns: u64,
    oldest_ns: u64,
}

impl Model {
    /// A disk whose speed is known from a file that was written from start to end.
    fn new(run_ns: u64, page_ns: u64) -> Model {
        let mut model = Model {
            policy: Disk::new(DiskConfig::default()),
            run_ns,
            page_ns,
            free_ns: 0,
            now_ns: 2,
            files: Vec::new(),
            chance: 1,
            dirty_pages: 0,
            most_dirty_pages: 0,
            longest_wait_ns: 0,
            oldest_ns: 0,
        };
        model.open(256 * MIB);
        for page in 0..model.files[0].pages() {
            while !model.write(0, page) {
                model.pass_to(u64::MAX);
            }
        }
        model.policy.closed(model.now_ns, StreamId(0));
        while model.policy.stream_count() > 0 {
            model.pass_to(u64::MAX);
        }
        assert!(model.policy.bytes_per_second().is_some());
        (model.most_dirty_pages, model.longest_wait_ns) = (0, 0);
        model.oldest_ns = 0;
        model
    }

    fn open(&mut self, bytes: u64) -> usize {
        let number = self.files.len();
        let id = StreamId(number as u64);
        self.policy.opened(id, StreamConfig::default(), absent());
        self.files.push(Written::new(bytes));
        number
    }

    fn at_random(&mut self, below: u64) -> u64 {
        // Knuth's MMIX.
        self.chance = self
            .chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % below
    }

    /// Writes a page at a random place. Returns false if the program has to wait.
    fn write_somewhere(&mut self, number: usize) -> bool {
        let page = self.at_random(self.files[number].pages());
        self.write(number, page)
    }

    /// Writes a page. Returns false if the program has to wait.
    fn write(&mut self, number: usize, page: u64) -> bool {
        let id = StreamId(number as u64);
        let done_bytes = self.policy.stream(id).unwrap().done_bytes();
        let file = &mut self.files[number];
        if file.counted_bytes - done_bytes >= self.policy.limit_bytes(id) {
            file.waits_since_ns.get_or_insert(self.now_ns);
            return false;
        }
        let since_ns = file.waits_since_ns.take().unwrap_or(self.now_ns);
        self.longest_wait_ns = self.longest_wait_ns.max(self.now_ns - since_ns);
        if file.dirty_ns[page as usize] == 0 {
            file.dirty_ns[page as usize] = self.now_ns;
            self.dirty_pages += 1;
            self.most_dirty_pages = self.most_dirty_pages.max(self.dirty_pages);
        }
        file.counted_bytes += PAGE;
        let range = ByteRange::new(page * PAGE, (page + 1) * PAGE);
        let counted_bytes = file.counted_bytes;
        self.policy.wrote(self.now_ns, id, range, Mode::DONTCACHE);
        self.policy.written_until(self.now_ns, id, counted_bytes);
        self.serve();
        self.now_ns += WRITE_NS;
        true
    }

    /// Does what is due, and lets time pass until the next thing is, or to `end_ns`.
    fn pass_to(&mut self, end_ns: u64) {
        let due_ns = self.serve().min(end_ns);
        // If nothing is left to do, whoever waits has room by now.
        let is_over = due_ns == u64::MAX;
        self.now_ns = if is_over { 0 } else { due_ns }.max(self.now_ns + 1);
    }

    fn serve(&mut self) -> u64 {
        loop {
            match self.policy.next(self.now_ns) {
                Next::Do(Action::StartWriteback { stream, range, .. }) => {
                    self.write_back(stream, range);
                }
                Next::Do(Action::Count { stream, range }) => {
                    let counted = self.count(stream, range);
                    self.policy.counted(self.now_ns, stream, range, counted);
                }
                Next::Do(Action::Drop { stream, ranges }) => {
                    self.policy.dropped(self.now_ns, stream, gone(&ranges));
                }
                Next::Do(Action::Inspect { stream }) => {
                    let named = Inspected { unlinked: false };
                    self.policy.inspected(self.now_ns, stream, named);
                }
                Next::Do(_) => {}
                Next::At(due_ns) => return due_ns,
                Next::Idle => return u64::MAX,
            }
        }
    }

    fn write_back(&mut self, stream: StreamId, range: ByteRange) {
        let file = &mut self.files[stream.0 as usize];
        let mut last = None;
        for page in pages_of(range, file) {
            let since_ns = std::mem::take(&mut file.dirty_ns[page]);
            if since_ns == 0 {
                continue;
            }
            self.dirty_pages -= 1;
            self.oldest_ns = self.oldest_ns.max(self.now_ns - since_ns);
            let is_next = last.is_some_and(|last| last + 1 == page);
            let took_ns = self.page_ns + if is_next { 0 } else { self.run_ns };
            self.free_ns = self.free_ns.max(self.now_ns) + took_ns;
            file.busy_ns[page] = self.free_ns;
            last = Some(page);
        }
    }

    fn count(&self, stream: StreamId, range: ByteRange) -> Counted {
        let file = &self.files[stream.0 as usize];
        let bytes = |is: &dyn Fn(usize) -> bool| {
            let pages = pages_of(range, file).filter(|&page| is(page));
            pages.count() as u64 * PAGE
        };
        Counted {
            cached_bytes: range.len(),
            dirty_bytes: bytes(&|page| file.dirty_ns[page] > 0),
            writeback_bytes: bytes(&|page| file.busy_ns[page] > self.now_ns),
        }
    }

    fn most_dirty_bytes(&self) -> u64 {
        self.most_dirty_pages * PAGE
    }
}

fn pages_of(range: ByteRange, file: &Written) -> impl Iterator<Item = usize> + use<> {
    let end = (range.end / PAGE).min(file.pages());
    (range.start / PAGE) as usize..end as usize
}

#[test]
fn many_scattered_writers_share_a_disk() {
    let mut model = Model::new(5_000, 4_000);
    let files: Vec<usize> = (0..64).map(|_| model.open(64 * MIB)).collect();
    let end_ns = model.now_ns + 2 * SECOND;
    while model.now_ns < end_ns {
        let mut all_wait = true;
        for &file in &files {
            all_wait &= !model.write_somewhere(file);
        }
        if all_wait {
            model.pass_to(end_ns);
        }
    }
    let dirty_bytes = model.most_dirty_bytes();
    assert!(dirty_bytes <= 160 * MIB, "{} MiB", dirty_bytes / MIB);
    let wait_ms = model.longest_wait_ns / MS;
    assert!(wait_ms <= 100, "{wait_ms} ms");
}

/// What a disk writes from start to end says little about what it writes at random places.
#[test]
fn a_disk_that_gets_slow_keeps_nobody_waiting() {
    // 500 MB/s, and 10,000 places a second.
    let mut model = Model::new(100_000, 8_000);
    let file = model.open(1024 * MIB);
    for _ in 0..30_000 {
        while !model.write_somewhere(file) {
            model.pass_to(u64::MAX);
        }
    }
    let dirty_bytes = model.most_dirty_bytes();
    assert!(dirty_bytes <= 20 * MIB, "{} MiB", dirty_bytes / MIB);
    let wait_ms = model.longest_wait_ns / MS;
    assert!(wait_ms <= 250, "{wait_ms} ms");
}

/// A writer that never has to wait has nothing to gain from pages that wait.
#[test]
fn what_a_slow_writer_scatters_does_not_stay_dirty() {
    for (pause_ns, oldest_ms) in [
        (30 * MS, 1_100),
        (2 * MS, 1_100),
        (400_000, 300),
        (100_000, 100),
    ] {
        let mut model = Model::new(2_000, 8_000);
        let file = model.open(1024 * MIB);
        let end_ns = model.now_ns + 5 * SECOND;
        while model.now_ns < end_ns {
            assert!(model.write_somewhere(file), "the disk is faster");
            let next_ns = model.now_ns + pause_ns;
            while model.now_ns < next_ns {
                model.pass_to(next_ns);
            }
        }
        let found_ms = model.oldest_ns / MS;
        assert!(
            found_ms <= oldest_ms,
            "a page each {pause_ns} ns: {found_ms} ms"
        );
    }
}
