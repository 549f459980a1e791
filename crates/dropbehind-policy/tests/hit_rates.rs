//! What the mode `auto` finds in the cache, beside other policies, on traces made here.
//!
//! Ours is [`Reuse`] in front of the kernel's lists, which are an LRU list here. LRU is plain
//! buffered I/O, ARC and S3-FIFO are what research has, and OPT (Belady's) knows the future.
//! `cargo test -p dropbehind-policy --test hit_rates -- --nocapture` prints the table of
//! `docs/results/auto.md`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use dropbehind_policy::{ByteRange, FileNumber, Inode, Reuse, Used};

const PAGE: u64 = 4096;
/// The memory, in pages: 32 MiB, of which a sixteenth is for what waits.
const MEMORY: usize = 8192;

type Page = (u64, u64);

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % most
    }

    /// Of so many pages, one by Zipf's law with the exponent 1, nearly.
    fn zipf(&mut self, pages: u64) -> u64 {
        let unit = self.below(1 << 30) as f64 / (1_u64 << 30) as f64;
        ((pages as f64).powf(unit) - 1.0) as u64
    }
}

// ---- policies ---------------------------------------------------------------

/// An ordered set: the oldest comes out first.
#[derive(Default)]
struct List {
    by_page: HashMap<Page, u64>,
    by_age: BTreeMap<u64, Page>,
    last: u64,
}

impl List {
    fn len(&self) -> usize {
        self.by_page.len()
    }

    fn has(&self, page: Page) -> bool {
        self.by_page.contains_key(&page)
    }

    fn push(&mut self, page: Page) {
        self.remove(page);
        self.last += 1;
        self.by_page.insert(page, self.last);
        self.by_age.insert(self.last, page);
    }

    fn remove(&mut self, page: Page) -> bool {
        let age = self.by_page.remove(&page);
        age.and_then(|age| self.by_age.remove(&age)).is_some()
    }

    fn pop(&mut self) -> Option<Page> {
        let (_, page) = self.by_age.pop_first()?;
        self.by_page.remove(&page);
        Some(page)
    }
}

fn lru(trace: &[Page]) -> usize {
    let mut list = List::default();
    let mut hits = 0;
    for &page in trace {
        hits += usize::from(list.has(page));
        list.push(page);
        if list.len() > MEMORY {
            list.pop();
        }
    }
    hits
}

/// Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003, figure 4.
fn arc(trace: &[Page]) -> usize {
    let [mut t1, mut t2, mut b1, mut b2] = [(); 4].map(|()| List::default());
    let (mut target, mut hits) = (0_usize, 0);
    let replace = |t1: &mut List, t2: &mut List, b1: &mut List, b2: &mut List, target, in_b2| {
        if t1.len() > 0 && (t1.len() > target || in_b2 && t1.len() == target) {
            b1.push(t1.pop().unwrap());
        } else if let Some(page) = t2.pop() {
            b2.push(page);
        }
    };
    for &page in trace {
        if t1.remove(page) || t2.remove(page) {
            hits += 1;
            t2.push(page);
        } else if b1.has(page) {
            target = MEMORY.min(target + (b2.len() / b1.len()).max(1));
            replace(&mut t1, &mut t2, &mut b1, &mut b2, target, false);
            b1.remove(page);
            t2.push(page);
        } else if b2.has(page) {
            target = target.saturating_sub((b1.len() / b2.len()).max(1));
            replace(&mut t1, &mut t2, &mut b1, &mut b2, target, true);
            b2.remove(page);
            t2.push(page);
        } else {
            let all = t1.len() + t2.len() + b1.len() + b2.len();
            if t1.len() + b1.len() == MEMORY {
                if t1.len() < MEMORY {
                    b1.pop();
                    replace(&mut t1, &mut t2, &mut b1, &mut b2, target, false);
                } else {
                    t1.pop();
                }
            } else if all >= MEMORY {
                if all == 2 * MEMORY {
                    b2.pop();
                }
                replace(&mut t1, &mut t2, &mut b1, &mut b2, target, false);
            }
            t1.push(page);
        }
    }
    hits
}

/// Yang and others, "FIFO queues are all you need for cache eviction", SOSP 2023.
fn s3_fifo(trace: &[Page]) -> usize {
    let small_most = MEMORY / 10;
    let mut used: HashMap<Page, u8> = HashMap::new();
    let (mut small, mut main) = (VecDeque::new(), VecDeque::new());
    let mut ghosts = List::default();
    let mut hits = 0;
    for &page in trace {
        if let Some(times) = used.get_mut(&page) {
            hits += 1;
            *times = (*times + 1).min(3);
            continue;
        }
        while small.len() + main.len() >= MEMORY {
            if small.len() >= small_most || main.is_empty() {
                let page: Page = small.pop_front().unwrap();
                if used[&page] > 0 {
                    used.insert(page, 0);
                    main.push_back(page);
                } else {
                    used.remove(&page);
                    ghosts.push(page);
                    if ghosts.len() > MEMORY - small_most {
                        ghosts.pop();
                    }
                }
            } else {
                let page = main.pop_front().unwrap();
                match used[&page] {
                    0 => drop(used.remove(&page)),
                    times => {
                        used.insert(page, times - 1);
                        main.push_back(page);
                    }
                }
            }
        }
        match ghosts.remove(page) {
            true => main.push_back(page),
            false => small.push_back(page),
        }
        used.insert(page, 0);
    }
    hits
}

/// Evicts what is used again last.
fn opt(trace: &[Page]) -> usize {
    let mut next = vec![usize::MAX; trace.len()];
    let mut seen: HashMap<Page, usize> = HashMap::new();
    for (at, page) in trace.iter().enumerate().rev() {
        next[at] = seen.insert(*page, at).unwrap_or(usize::MAX);
    }
    let mut cached: HashMap<Page, usize> = HashMap::new();
    let mut by_next: BTreeSet<(usize, Page)> = BTreeSet::new();
    let mut hits = 0;
    for (at, &page) in trace.iter().enumerate() {
        if let Some(due) = cached.remove(&page) {
            by_next.remove(&(due, page));
            hits += 1;
        } else if cached.len() == MEMORY {
            let (_, last) = by_next.pop_last().unwrap();
            cached.remove(&last);
        }
        cached.insert(page, next[at]);
        by_next.insert((next[at], page));
    }
    hits
}

/// Ours, and the most that it had cached of what was not to stay.
fn auto(trace: &[Page]) -> (usize, usize) {
    let mut reuse = Reuse::default();
    reuse.set_memory(MEMORY as u64 * PAGE, None);
    let mut known = HashSet::new();
    // The kernel's list, and what it has evicted as far back as memory could have held it.
    let (mut kernel, mut shadows) = (List::default(), List::default());
    // Since each page was brought in: whether it was used again.
    let mut uses: HashMap<Page, bool> = HashMap::new();
    let (mut hits, mut most) = (0, 0);
    for &page in trace {
        let (file, number) = page;
        if known.insert(file) {
            let inode = Inode {
                device: 1,
                number: file,
            };
            reuse.opened(FileNumber(file), Some((inode, 0)), u64::MAX);
        }
        if kernel.has(page) {
            hits += 1;
            uses.insert(page, true);
            kernel.push(page);
            continue;
        }
        kernel.push(page);
        shadows.remove(page);
        if kernel.len() > MEMORY
            && let Some(evicted) = kernel.pop()
        {
            shadows.push(evicted);
            if shadows.len() > MEMORY {
                shadows.pop();
            }
        }
        uses.insert(page, false);
        let range = ByteRange::new(number * PAGE, (number + 1) * PAGE);
        let (parts, _) = reuse.arrived(FileNumber(file), range, [None; 2]);
        let goes = parts
            .iter()
            .any(|(_, arrival)| *arrival == dropbehind_policy::reuse::Arrival::Goes);
        if goes {
            kernel.remove(page);
        }
        while let Some((file, parts)) = reuse.take_oldest(false) {
            let pages = parts
                .iter()
                .flat_map(|part| part.start / PAGE..part.end / PAGE);
            let pages: Vec<Page> = pages.map(|page| (file.0, page)).collect();
            let around_is_kept = Reuse::surroundings(&parts).is_some_and(|around| {
                let pages = around.range.start / PAGE..around.range.end / PAGE;
                let kept = pages
                    .map(|page| (file.0, page))
                    .filter(|page| kernel.has(*page) || shadows.has(*page));
                kept.count() as u64 * PAGE >= around.kept_bytes
            });
            let used = Used {
                once: true,
                again: around_is_kept || pages.iter().any(|page| uses[page]),
                unknown: false,
            };
            if !reuse.decide(file, &parts, used) {
                for page in pages {
                    kernel.remove(page);
                }
            }
        }
        most = most.max(reuse.waiting_bytes() as usize / PAGE as usize);
    }
    (hits, most)
}

// ---- traces -----------------------------------------------------------------

const USES: u64 = 100_000;

/// Each page of a long file, once.
fn scan() -> Vec<Page> {
    (0..USES).map(|page| (1, page)).collect()
}

/// A file that fits into memory this many percent, over and over.
fn cycle(percent: u64) -> Vec<Page> {
    let pages = MEMORY as u64 * percent / 100;
    (0..USES).map(|at| (1, at % pages)).collect()
}

fn zipf() -> Vec<Page> {
    let mut random = Random(1);
    (0..USES)
        .map(|_| (1, random.zipf(8 * MEMORY as u64)))
        .collect()
}

/// Lookups, and of so many in ten uses, one of a scan of files of 4 MiB that nobody reads again.
fn zipf_beside_scans(scanned: u64) -> Vec<Page> {
    let mut random = Random(2);
    let mut at = 0;
    let mut next = || {
        if random.below(10) < scanned {
            at += 1;
            return (2 + at / 1024, at % 1024);
        }
        (1, random.zipf(4 * MEMORY as u64))
    };
    (0..USES).map(|_| next()).collect()
}

/// What is wanted changes altogether.
fn shift() -> Vec<Page> {
    let mut random = Random(3);
    let page = |at: u64| (1 + at * 4 / USES, random.zipf(2 * MEMORY as u64));
    (0..USES).map(page).collect()
}

/// Files of 64 KiB, each read twice, soon.
fn twice() -> Vec<Page> {
    let pass = |set: u64| (0..512).map(move |page| (1 + set * 32 + page / 16, page % 16));
    (0..USES / 1024)
        .flat_map(|set| pass(set).chain(pass(set)))
        .collect()
}

#[test]
fn what_is_used_again_is_found_and_scans_do_no_harm() {
    let traces = [
        ("scan", scan()),
        ("loop, half of memory", cycle(50)),
        ("loop, twice the memory", cycle(200)),
        ("zipf", zipf()),
        ("zipf, 30 % scans", zipf_beside_scans(3)),
        ("zipf, 70 % scans", zipf_beside_scans(7)),
        ("zipf that shifts", shift()),
        ("small files, twice", twice()),
    ];
    println!("| trace | LRU | ARC | S3-FIFO | auto | OPT |\n|---|---:|---:|---:|---:|---:|");
    let mut rates = BTreeMap::new();
    for (name, trace) in &traces {
        let (ours, most) = auto(trace);
        let all = [lru(trace), arc(trace), s3_fifo(trace), ours, opt(trace)];
        let percent = all.map(|hits| hits as f64 * 100.0 / trace.len() as f64);
        let columns = percent.map(|percent| format!("{percent:.1}")).join(" | ");
        println!("| {name} | {columns} |");
        assert!(most <= MEMORY / 16 + 64, "{name}: {most} pages waited");
        assert!(
            all.iter().all(|hits| *hits <= all[4]),
            "{name}: nobody beats OPT"
        );
        rates.insert(*name, percent);
    }
    let of = |name| {
        let [lru, arc, s3_fifo, auto, opt] = rates[name];
        (lru, arc, s3_fifo, auto, opt)
    };
    // All that fits is found, from the third pass of 24 on.
    let (lru, .., auto, _) = of("loop, half of memory");
    assert!(auto >= lru - 100.0 / 24.0, "{auto} {lru}");
    let (lru, .., auto, _) = of("zipf");
    assert!(auto >= lru, "{auto} {lru}");
    // Who learns from the past is wrong for a while, but for LRU.
    let (lru, _, s3_fifo, auto, _) = of("zipf that shifts");
    assert!(
        auto >= lru - 4.0 && auto >= s3_fifo - 1.0,
        "{auto} {lru} {s3_fifo}"
    );
    for name in ["zipf, 30 % scans", "zipf, 70 % scans"] {
        let (lru, arc, _, auto, _) = of(name);
        assert!(
            auto >= lru - 0.5 && auto >= arc - 3.0,
            "{name}: {auto} {lru} {arc}"
        );
    }
    let (.., auto, opt) = of("small files, twice");
    assert!(auto >= opt - 0.1, "{auto} {opt}");
}
