//! Processes outside of the run that use the program's files at the same moment.
//! A page belongs to whoever brought it in last, which a trace of the test's own
//! tells.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::rounds::rounds;
use crate::shell::{Running, wait_for};
use dropbehind_testbed::bringers::{Bringers, Brought};
use dropbehind_testbed::reclaim::Reclaim;
use dropbehind_testbed::residency::{page_bytes, resident_map};
use dropbehind_testbed::{Fs, Need, need};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Some 3000 small files of 48 MiB, and large ones of 96.
const INPUT: &str = "mkdir small large; for i in $(seq 3000); do \
                     head -c $((i * 7919 % 32768 + 1)) /dev/zero >small/$i; done; \
                     for i in $(seq 6); do head -c 16M /dev/zero >large/$i; done; sync -f .";

const OPTIONS: &str = "--only 'input/**'";

/// Does so many things to files of the input and to files of its own, by chance, unless there is
/// a file `stop`. It has one thread, leaves its number, and deletes nothing.
const WORKER: &str = r#"
import mmap, os, random, sys
ways, seed, count, own = sys.argv[1].split(","), sys.argv[2], int(sys.argv[3]), sys.argv[4]
chance = random.Random(seed)
os.makedirs(own, exist_ok=True)
open(f"{own}/{os.getpid()}.process", "w").close()
def some_range(size):
    if size <= 64 << 10: return 0, size
    length = chance.randrange(1, 2 << 20)
    return chance.randrange(max(1, size - length)), length
for number in range(count):
    if os.path.exists("../stop"): break
    large = chance.random() < 0.1
    path = f"large/{chance.randint(1, 6)}" if large else f"small/{chance.randint(1, 3000)}"
    way = chance.choice(ways)
    if way == "create":
        with open(f"{own}/{number}", "wb", buffering=0) as file:
            for _ in range(chance.randint(1, 40 if large else 3)):
                file.write(bytes(chance.randint(1, 64 << 10)))
        continue
    file = os.open(path, os.O_RDWR)
    size = os.fstat(file).st_size
    start, length = some_range(size)
    if way == "read":
        while length > 0 and (block := os.pread(file, min(length, 64 << 10), start)):
            start += len(block); length -= len(block)
    elif way == "write":
        os.pwrite(file, bytes(min(length, size - start)), start)
    elif way == "map":
        with mmap.mmap(file, size) as mapping:
            for at in range(start, min(size, start + length), mmap.PAGESIZE):
                if chance.random() < 0.2: mapping[at] = mapping[at]
                else: mapping[at]
    os.close(file)
"#;

/// All files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// The processes that left their numbers in folders of this beginning.
fn processes(bed: &Bed, beginning: &str) -> HashSet<u32> {
    let files = files_below(&bed.file("input"));
    let names = files.iter().filter_map(|path| {
        let folder = path.parent()?.file_name()?.to_str()?;
        let name = path.file_name()?.to_str()?.strip_suffix(".process")?;
        folder.starts_with(beginning).then_some(name)
    });
    names.map(|name| name.parse().expect("a number")).collect()
}

/// What became of pages, by whose they are.
#[derive(Debug, Default)]
struct Account {
    outsiders_pages: u64,
    programs_pages: u64,
    /// Of the program's, those that are there.
    left_pages: u64,
    /// The last such page of each file, and how it came.
    left_files: Vec<(PathBuf, usize, Option<Brought>)>,
    /// Files of which pages are missing.
    missing: Vec<String>,
}

fn one_round(bed: &Bed, round: u32) {
    bed.runs(
        "",
        "input",
        "rm -rf outside* inside* begun go ../stop; sync -f .",
    );
    bed.cools("input");
    // A third of the files was there before.
    let warm = "for i in $(seq 1 3 3000); do cat small/$i; done >/dev/null; \
                cat large/1 large/2 >/dev/null";
    bed.runs("", "input", warm);
    let reclaim = Reclaim::watch();
    let maps = |files: &[PathBuf]| -> HashMap<PathBuf, Vec<bool>> {
        let map = |path: &PathBuf| (path.clone(), resident_map(path).unwrap());
        files.iter().map(map).collect()
    };
    let before = maps(&files_below(&bed.file("input")));
    let bringers = Bringers::watch(&bed.file("input")).unwrap();
    let script = format!(
        "exec $RUN bash -c 'for seed in 1 2; do python3 ../worker.py read,read,write,map,create \
         $seed{round} 1500 inside$seed & done; touch begun; \
         tar -cf - small large | cat >/dev/null; wait; \
         while test ! -e go; do sleep 0.01; done; \
         python3 ../worker.py read,create 3{round} 300 inside3'"
    );
    let ((left, figures), mut last) = std::thread::scope(|scope| {
        let run = scope.spawn(|| Figures::told(bed, OPTIONS, "input", &script));
        wait_for("the program has begun", || {
            run.is_finished() || bed.file("input/begun").exists()
        });
        let outsiders = ["read", "map,read", "write,create,read"].map(|ways| {
            let name = ways.replace(',', "-");
            let script =
                format!("exec python3 ../worker.py {ways} {name}{round} 1500 outside-{name}");
            Running::start(bed.bash("", "input", &script))
        });
        for mut outsider in outsiders {
            assert!(outsider.ends().success());
        }
        // This one reads on while the run settles.
        let script = format!("exec python3 ../worker.py read last{round} 10000000 outside-last");
        let last = Running::start(bed.bash("", "input", &script));
        wait_for("the last outsider has begun", || {
            processes(bed, "outside").len() == 4
        });
        std::fs::write(bed.file("input/go"), "").unwrap();
        (run.join().expect("a run"), last)
    });
    // Killed, it could leave a read under way, whose pages do not count as cached until then.
    std::fs::write(bed.file("stop"), "").unwrap();
    assert!(last.ends().success());
    assert_eq!(left.code, Some(0), "{left:?}");
    let outsiders = processes(bed, "outside");
    assert_eq!(outsiders.len(), 4);
    let files = files_below(&bed.file("input"));
    let after = maps(&files);
    let mut account = Account::default();
    for path in files
        .iter()
        .filter(|path| path.starts_with(bed.file("input")))
    {
        let file_name = path.file_name().unwrap().to_string_lossy();
        // Made by the test itself.
        if file_name == "go" {
            continue;
        }
        let nothing = Vec::new();
        let before = before.get(path).unwrap_or(&nothing);
        let (mut wanted, mut found, mut left, mut dropped) = (0, 0, 0, 0);
        let (mut last_left, mut last_gone) = (None, None);
        for (page, bringer) in bringers.of(path).unwrap().into_iter().enumerate() {
            let resident = after[path].get(page).copied().unwrap_or(false);
            let theirs = match bringer {
                Some(brought) => outsiders.contains(&brought.thread) && !brought.taken,
                None => before.get(page).copied().unwrap_or(false),
            };
            if theirs {
                wanted += page_bytes();
                found += u64::from(resident) * page_bytes();
                dropped += u64::from(bringer.is_some_and(|brought| brought.dropped));
                if !resident {
                    last_gone = Some((page, bringer));
                }
            } else {
                let is_programs = bringer.is_some_and(|brought| !brought.taken);
                account.programs_pages += u64::from(is_programs);
                // The kernel may have taken a page of others since the map was made.
                let is_left = resident && (bringer.is_none() || is_programs);
                left += u64::from(is_left);
                if is_left {
                    last_left = Some((path.clone(), page, bringer));
                }
            }
        }
        account.outsiders_pages += wanted / page_bytes();
        account.left_pages += left;
        account.left_files.extend(last_left);
        let gone = reclaim.stays(path, found, wanted).err();
        if dropped > 0 || gone.is_some() {
            let name = path.display();
            let of = format!(
                "{name}: dropbehind dropped {dropped} pages of others, {gone:?}, {last_gone:?}"
            );
            account.missing.push(of);
        }
    }
    let wrong = account.left_pages > 0 || !account.missing.is_empty();
    println!(
        "round {round}: {} pages were the program's, {} others'",
        account.programs_pages, account.outsiders_pages
    );
    account.left_files.truncate(20);
    let missing_files = account.missing.len();
    account.missing.truncate(20);
    assert!(
        !wrong,
        "round {round}: {missing_files} files lack pages, {account:?}, {figures:?}"
    );
    assert!(account.programs_pages > 1000 && account.outsiders_pages > 1000);
    assert_eq!(figures.bytes("left_bytes"), 0, "{figures:?}");
    figures.add_up();
}

#[test]
fn each_page_belongs_to_whoever_brought_it_in_last() {
    need!(Need::Trace);
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3", "tar"]));
        let bed = Bed::on(filesystem);
        bed.input(INPUT);
        std::fs::write(bed.file("worker.py"), WORKER).unwrap();
        for round in 0..rounds() {
            println!("{filesystem:?}");
            one_round(&bed, round);
        }
    }
}

/// Files that only outsiders use, beside those of the program, and made where it makes
/// its own.
#[test]
fn files_that_outsiders_alone_use_stay() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cat", "split"]));
        let bed = Bed::on(filesystem);
        bed.input(
            "mkdir theirs ours; head -c 24M /dev/zero | split -b 12000 -a 4 -d - theirs/; \
             cp -r theirs/. ours; sync -f .",
        );
        for _ in 0..rounds() {
            bed.cools("input");
            bed.runs("", ".", "rm -rf made");
            let reclaim = Reclaim::watch();
            let script = "exec $RUN bash -c 'cat ours/* >/dev/null & mkdir -p ../made; \
                          for i in $(seq 500); do head -c 20000 /dev/zero >../made/ours$i; done; \
                          wait'";
            let options = "--only 'input/**' --only 'made/*'";
            std::fs::create_dir_all(bed.file("made")).unwrap();
            let (left, figures) = std::thread::scope(|scope| {
                let run = scope.spawn(|| Figures::told(&bed, options, "input", script));
                let theirs = "cat theirs/* >/dev/null; \
                              for i in $(seq 500); do \
                              head -c 20000 /dev/zero >../made/theirs$i; done";
                let left = bed.runs("", "input", theirs);
                assert_eq!(left.code, Some(0), "{left:?}");
                run.join().expect("a run")
            });
            assert_eq!(left.code, Some(0), "{left:?}");
            for folder in ["input/ours", "made"] {
                let mut stays = bed.cached(folder);
                stays.retain(|(name, _)| !name.contains("theirs"));
                assert_eq!(stays, [], "{filesystem:?}: {figures:?}");
            }
            let mut paths = files_below(&bed.file("input/theirs"));
            paths.extend(files_below(&bed.file("made")));
            paths.retain(|path| path.to_string_lossy().contains("theirs"));
            assert!(paths.len() > 2500);
            let missing = paths.iter().filter_map(|path| {
                let map = resident_map(path).unwrap();
                let found = map.iter().filter(|&&page| page).count() as u64;
                let wanted = map.len() as u64 * page_bytes();
                reclaim.stays(path, found * page_bytes(), wanted).err()
            });
            let missing: Vec<_> = missing.take(20).collect();
            assert!(
                missing.is_empty(),
                "{filesystem:?}: {missing:#?}, {figures:?}"
            );
            assert_eq!(figures.bytes("left_bytes"), 0, "{figures:?}");
            figures.add_up();
        }
    }
}
