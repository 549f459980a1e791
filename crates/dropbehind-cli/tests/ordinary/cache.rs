//! What stays in the page cache.

use crate::bed::Ordinary;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{evict, resident_map, warm};
use dropbehind_testbed::{Need, need};
use std::fs::File;
use std::process::Command;

const MIB: u64 = 1 << 20;

#[test]
fn what_is_written_and_read_goes() {
    need!(all Ordinary::needs(&["dd"]));
    let user = Ordinary::new();
    user.does(
        "$RUN dd if=/dev/zero of=written bs=1M count=64 status=none; \
         $RUN sh -c 'cat written >copy'",
    );
    for name in ["written", "copy"] {
        assert_eq!(user.cached_pages(name), 0, "{name}");
        let size = user.file(name).metadata().unwrap().len();
        assert_eq!(size, 64 * MIB);
    }
}

#[test]
fn the_cached_half_stays_even_if_others_hold_the_file_open() {
    need!(all Ordinary::needs(&["cat"]));
    let user = Ordinary::new();
    user.does("head -c 64M /dev/urandom >data; sync data");
    let data = user.file("data");
    in_some_attempt(|reclaim| {
        evict(&data);
        warm(&data, 0..32 * MIB);
        let _held = File::open(&data).unwrap();
        user.does("$RUN cat data >/dev/null");
        let map = resident_map(&data).unwrap();
        // The kernel reads ahead of who warmed it.
        let rest = map[(48 * MIB / 4096) as usize..].iter();
        assert_eq!(rest.filter(|&&page| page).count(), 0);
        let half = map[..(32 * MIB / 4096) as usize].iter();
        let kept = half.filter(|&&page| page).count() as u64;
        reclaim.stays(&data, kept * 4096, 32 * MIB)
    });
}

/// The page at the end is theirs as a whole: the kernel drops no part of one.
#[test]
fn what_is_appended_to_a_page_of_others_goes() {
    need!(all Ordinary::needs(&["dd"]));
    let user = Ordinary::new();
    user.does("head -c 105000 /dev/urandom >data; sync data");
    let data = user.file("data");
    evict(&data);
    warm(&data, 102_400..105_000);
    assert_eq!(user.cached_pages("data"), 1);
    let figures = user.does(
        "$RUN --stats figures -- \
         dd if=/dev/zero of=data bs=64K count=40 oflag=append conv=notrunc status=none; cat figures",
    );
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["settled"], true, "{figures}");
    assert_eq!(figures["left_bytes"], 0, "{figures}");
    assert_eq!(
        figures["brought_bytes"], figures["dropped_bytes"],
        "{figures}"
    );
    assert!(user.cached_pages("data") <= 1, "{figures}");
}

/// What others wrote a moment before is not what the program has written.
#[test]
fn what_was_dirty_before_does_not_count_as_written() {
    need!(all Ordinary::needs(&["cat", "cp"]));
    let user = Ordinary::new();
    for (command, written_mib) in [("cat source", 0), ("cp source copy", 32)] {
        let figures = user.does(&format!(
            "head -c 32M /dev/urandom >source; \
             $RUN --stats figures -- sh -c '{command} >/dev/null'; cat figures"
        ));
        let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
        let told = figures["bytes_written"].as_u64();
        assert_eq!(told, Some(written_mib * MIB), "{command}: {figures}");
    }
}

/// Nobody tells what comes back, so `auto` keeps everything, and says so.
#[test]
fn what_may_be_used_again_stays_and_that_is_told() {
    need!(all Ordinary::needs(&["dd"]));
    let user = Ordinary::new();
    let script = "$RUN dd if=/dev/zero of=written bs=1M count=8 status=none";
    let left = user.runs("-m auto -v", script);
    assert!(left.stderr.contains("and it stays there"), "{left:?}");
    assert!(user.cached_pages("written") > 0);
}

/// The old content was cached; nothing of it is left.
#[test]
fn a_truncated_file_is_the_programs() {
    need!(all Ordinary::needs(&["dd"]));
    let user = Ordinary::new();
    for kept in ["", "; sleep 0.3"] {
        user.does(&format!(
            "head -c 64M /dev/zero >data; sync data; \
             $RUN sh -c 'dd if=/dev/zero of=data bs=1M count=24 status=none{kept}'"
        ));
        assert_eq!(user.cached_pages("data"), 0, "{kept}");
    }
}

/// A folio of what was written last reaches beyond the end of what was there before, which waits to
/// be dropped. The kernel drops no part of a folio, so only what was written last can be dropped.
#[test]
fn what_waits_of_a_file_is_gone_once_it_is_truncated() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "\
import os, time
for size, until_closed in (40_000, 0), (250_000, 7):
    file = os.open('data', os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    os.write(file, bytes(size))
    os.fsync(file)
    time.sleep(until_closed)
    os.close(file)
    time.sleep(0.5)
";
    std::fs::write(user.file("program.py"), program).unwrap();
    let figures = user
        .does("$RUN -m dontcache --only data --stats figures -- python3 program.py; cat figures");
    assert_eq!(user.cached_pages("data"), 0, "{figures}");
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(figures["left_bytes"], 0, "{figures}");
    let pages = |bytes: u64| bytes.next_multiple_of(4096);
    let brought_bytes = pages(40_000) + pages(250_000);
    for field in ["brought_bytes", "dropped_bytes"] {
        assert_eq!(figures[field], brought_bytes, "{field}: {figures}");
    }
}

/// The program has it open when it truncates it, and reads what is others' until then.
#[test]
fn a_file_in_use_is_the_programs_once_it_is_truncated() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    for kib in [200, 8 << 10] {
        user.does(&format!(
            "head -c {kib}K /dev/urandom >data; sync data; cat data >/dev/null; \
             cat >truncate.py <<'END'\n\
             import os, time\n\
             first = os.open('data', os.O_RDONLY)\n\
             data = os.read(first, {kib} << 10)\n\
             time.sleep(0.1)\n\
             again = os.open('data', os.O_WRONLY | os.O_TRUNC)\n\
             os.write(again, data)\n\
             END\n\
             $RUN python3 truncate.py"
        ));
        assert_eq!(user.cached_pages("data"), 0, "{kib} KiB");
    }
}

/// The program reads and writes a copy, which the open makes.
#[test]
fn what_an_overlay_copies_goes_and_its_cached_half_stays() {
    need!(Need::Root, Need::Filesystem("overlay"));
    need!(all Ordinary::needs(&["dd"]));
    const NAMES: [&str; 5] = ["over", "tail", "read", "cut", "half"];
    let user = Ordinary::new();
    user.does(
        "mkdir lower upper work merged; \
         for name in over tail read cut half; do \
         head -c 16M /dev/urandom >lower/$name; sync lower/$name; done",
    );
    let half = user.file("lower/half");
    in_some_attempt(|reclaim| {
        user.does("rm -rf upper/*");
        for name in NAMES {
            evict(&user.file("lower").join(name));
        }
        warm(&half, 0..8 * MIB);
        let warmed = user.cached_pages("lower/half");
        let merged = user.file("merged");
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| user.file(name));
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let mounted = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o", &layers])
            .arg(&merged)
            .status();
        assert!(mounted.unwrap().success());
        let left = user.runs(
            "--stats ../figures",
            "cd merged; $RUN sh -c 'cat read >/dev/null; \
             dd if=/dev/zero of=over bs=1M count=4 conv=notrunc status=none; \
             for name in tail read half; do echo more >>$name; done; echo less >cut'; \
             code=$?; cat ../figures; exit $code",
        );
        let unmounted = Command::new("umount").arg(&merged).status();
        assert!(unmounted.unwrap().success());
        assert_eq!(left.code, Some(0), "{left:?}");
        for name in NAMES {
            let [below, copy] = [format!("lower/{name}"), format!("upper/{name}")];
            assert_eq!(user.cached_pages(&copy), 0, "{copy}: {left:?}");
            if name != "half" {
                assert_eq!(user.cached_pages(&below), 0, "{below}: {left:?}");
            }
        }
        let kept = user.cached_pages("lower/half");
        assert!(kept <= warmed, "{kept}, {warmed}");
        reclaim.stays(&half, kept * 4096, 8 * MIB)
    });
}

/// If an open fails, nobody's pages may go.
#[test]
fn a_file_that_could_not_be_truncated_stays_cached() {
    need!(all Ordinary::needs(&["bash"]));
    let user = Ordinary::new();
    user.does("head -c 1M /dev/urandom >data; sync data; chmod 400 data");
    let before = user.cached_pages("data");
    let left = user.runs("", "$RUN sh -c 'echo x >data'");
    assert_ne!(left.code, Some(0));
    assert_eq!(user.cached_pages("data"), before);
}

#[test]
fn archives_of_small_files_go() {
    need!(all Ordinary::needs(&["tar"]));
    let user = Ordinary::new();
    user.does(
        "mkdir tree out; for name in $(seq 500); do head -c 10000 /dev/urandom >tree/$name; done; \
         tar cf t.tar tree; sync t.tar; $RUN tar xf t.tar -C out; diff -r tree out/tree; \
         rm -rf out/*; $DROPBEHIND drop t.tar >/dev/null; $RUN tar xf t.tar -C out",
    );
    assert_eq!(user.cached_pages("t.tar"), 0);
    let cached = (1..=500).map(|name| user.cached_pages(&format!("out/tree/{name}")));
    assert_eq!(cached.sum::<u64>(), 0);
}

/// rsync and git write files under other names first.
#[test]
fn renamed_and_linked_files_go() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    user.does(
        "cat >make.py <<'END'\nimport os\n\
         for n in range(300):\n \
             with open('tmp', 'wb') as f: f.write(b'x' * 20000)\n \
             if n % 2: os.rename('tmp', f'made{n}')\n \
             else: os.link('tmp', f'made{n}'); os.unlink('tmp')\nEND\n\
         $RUN python3 make.py",
    );
    let cached = (0..300).map(|name| user.cached_pages(&format!("made{name}")));
    assert_eq!(cached.sum::<u64>(), 0);
}

/// As a shell's script does with mv.
#[test]
fn files_that_another_thread_renames_go() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    user.does(
        "cat >make.py <<'END'\nimport os, threading\n\
         def make():\n \
             with open('tmp', 'wb') as f: f.write(b'x' * 20000)\n\
         for n in range(100):\n \
             thread = threading.Thread(target=make)\n \
             thread.start(); thread.join(); os.rename('tmp', f'made{n}')\nEND\n\
         $RUN python3 make.py",
    );
    let cached = (0..100).map(|name| user.cached_pages(&format!("made{name}")));
    assert_eq!(cached.sum::<u64>(), 0);
}

/// One thread makes files, and another one reads each of them as soon as something is in it. The
/// second open finds pages that the first one's thread has brought in.
#[test]
fn files_that_another_thread_has_just_made_go() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "\
import queue, threading
made, read = queue.Queue(), queue.Queue()
def reads():
    while (number := made.get()) is not None:
        with open(f'file{number}', 'rb', buffering=0) as file: file.read()
        read.put(number)
reader = threading.Thread(target=reads)
reader.start()
for number in range(200):
    with open(f'file{number}', 'wb', buffering=0) as file:
        file.write(bytes(200_000))
        made.put(number)
        read.get()
made.put(None)
reader.join()
";
    std::fs::write(user.file("program.py"), program).unwrap();
    let figures = user.does("$RUN -m dontcache --stats figures -- python3 program.py; cat figures");
    let left = (0..200).filter(|number| user.cached_pages(&format!("file{number}")) > 0);
    assert_eq!(left.collect::<Vec<i32>>(), [0; 0], "{figures}");
}

/// Threads use the same files at the same time, so that each is opened again while its last pages
/// are dropped.
#[test]
fn files_that_several_threads_use_go() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "\
import os, random, threading
def uses(seed):
    chance = random.Random(seed)
    for _ in range(120):
        file = os.open(f'file{chance.randrange(8)}', os.O_CREAT | os.O_RDWR)
        if chance.random() < 0.5:
            os.pwrite(file, bytes(1 << 20), chance.randrange(8) << 20)
        else:
            while os.read(file, 1 << 20): pass
        os.close(file)
threads = [threading.Thread(target=uses, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";
    std::fs::write(user.file("program.py"), program).unwrap();
    for _ in 0..3 {
        let figures = user.does(
            "rm -f file*; $RUN -m dontcache --only 'file*' --stats figures -- python3 program.py; \
             cat figures",
        );
        let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
        let left = (0..8).filter(|number| user.cached_pages(&format!("file{number}")) > 0);
        assert_eq!(left.collect::<Vec<i32>>(), [0; 0], "{figures}");
        assert_eq!(figures["left_bytes"], 0, "{figures}");
        assert_eq!(figures["kept_bytes"], 0, "{figures}");
    }
}

/// At each close, all that is cached is looked at. What waits since an earlier close has been
/// counted then.
#[test]
fn what_waits_counts_once_however_often_it_is_read() {
    need!(all Ordinary::needs(&["cat"]));
    let user = Ordinary::new();
    let figures = user.does(
        "$RUN -m dontcache --only 'file*' --stats figures -- sh -c '\
         for i in 1 2 3 4 5; do head -c 40960 /dev/zero >file$i; done; \
         for times in 1 2 3 4; do sleep 0.2; cat file* >/dev/null; done'; cat figures",
    );
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    for field in ["bytes_written", "brought_bytes", "dropped_bytes"] {
        assert_eq!(figures[field], 5 * 40960, "{field}: {figures}");
    }
    let left = (1..=5).filter(|number| user.cached_pages(&format!("file{number}")) > 0);
    assert_eq!(left.count(), 0, "{figures}");
}

/// The program gets a processor so seldom that it opens a file long after the observer was told so.
#[test]
fn files_go_whose_program_waits_for_a_processor() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "\
import os, signal, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
busy = os.fork()
while busy == 0: pass
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
time.sleep(0.1)
for number in range(10):
    file = os.open(f'file{number}', os.O_CREAT | os.O_RDWR)
    os.close(file)
    file = os.open(f'file{number}', os.O_RDWR)
    os.write(file, bytes(200_000))
    os.close(file)
os.kill(busy, signal.SIGKILL)
";
    std::fs::write(user.file("program.py"), program).unwrap();
    let figures = user.does(
        "$RUN -m dontcache --only 'file*' --stats figures -- python3 program.py; cat figures",
    );
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    let left = (0..10).filter(|number| user.cached_pages(&format!("file{number}")) > 0);
    assert_eq!(left.collect::<Vec<i32>>(), [0; 0], "{figures}");
    assert_eq!(figures["kept_bytes"], 0, "{figures}");
}

/// As `cp -p` does, which truncates what it overwrites, and sets the times that it had.
#[test]
fn files_whose_times_are_set_go() {
    need!(all Ordinary::needs(&["cp"]));
    let user = Ordinary::new();
    user.does(
        "mkdir from to; for n in $(seq 30); do head -c 100K /dev/urandom >from/$n; done; \
         cp -p from/* to; sync to/*",
    );
    for number in 1..=30 {
        evict(&user.file(&format!("to/{number}")));
    }
    user.does("$RUN cp -p from/* to");
    let left = (1..=30).filter(|number| user.cached_pages(&format!("to/{number}")) > 0);
    assert_eq!(left.collect::<Vec<i32>>(), [0; 0]);
}

/// A thread that waits in the open of a FIFO has closed what it had opened before.
#[test]
fn a_file_goes_whose_thread_waits_in_another_open() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "\
import os
file = os.open('data', os.O_RDONLY)
os.read(file, 1 << 20)
os.close(file)
os.open('fifo', os.O_RDONLY)
";
    std::fs::write(user.file("program.py"), program).unwrap();
    user.does("head -c 1M /dev/urandom >data; sync data; mkfifo fifo");
    let data = user.file("data");
    evict(&data);
    let mut run = user.script("", "$RUN python3 program.py").spawn().unwrap();
    let has_read = |_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        user.cached_pages("data") > 0
    };
    // It may be gone before this sees it.
    let _ = (0..100).any(has_read);
    let is_gone = |_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        user.cached_pages("data") == 0
    };
    let gone = (0..100).any(is_gone);
    let waits = run.try_wait().unwrap().is_none();
    user.does(": >fifo");
    assert!(run.wait().unwrap().success());
    assert!(gone && waits);
}

/// After a file was open for seconds, its close is noticed soon. What others bring in later, and
/// before it is opened again, is theirs.
#[test]
fn what_others_read_between_two_uses_stays() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "\
import os, time
def use(seconds):
    file = os.open('data', os.O_RDONLY)
    for _ in range(10 * seconds + 1):
        os.pread(file, 4096, 0)
        time.sleep(0.1)
    os.close(file)
use(6)
time.sleep(5)
os.close(os.open('closed', os.O_CREAT | os.O_WRONLY))
while not os.path.exists('read'): time.sleep(0.01)
use(0)
time.sleep(3)
";
    std::fs::write(user.file("program.py"), program).unwrap();
    user.does("head -c 16M /dev/urandom >data; sync data");
    let data = user.file("data");
    evict(&data);
    let mut run = user.script("", "$RUN python3 program.py").spawn().unwrap();
    while !user.file("closed").exists() {
        assert_eq!(run.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    warm(&data, 0..16 * MIB);
    std::fs::write(user.file("read"), "").unwrap();
    assert!(run.wait().unwrap().success());
    // The kernel may take back a few by itself.
    let cached_bytes = user.cached_pages("data") * 4096;
    assert!(cached_bytes >= 12 * MIB, "{cached_bytes}");
}

/// ext4 writes back a file at its close if it was truncated before, so it looks as if it had been
/// read.
#[test]
fn files_that_are_truncated_and_written_count_as_written() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "\
import os, time
for number in range(30):
    file = os.open(f'file{number % 5}', os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.write(file, bytes(1_500_000))
    os.close(file)
    time.sleep(0.05)
";
    std::fs::write(user.file("program.py"), program).unwrap();
    let figures = user.does(
        "$RUN -m dontcache --no-reads --only 'file*' --stats figures -- python3 program.py; \
         cat figures",
    );
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    let left = (0..5).filter(|number| user.cached_pages(&format!("file{number}")) > 0);
    assert_eq!(left.collect::<Vec<i32>>(), [0; 0], "{figures}");
    assert_eq!(figures["bytes_read"], 0, "{figures}");
    assert_eq!(figures["kept_bytes"], 0, "{figures}");
}

/// A mapping uses a file whose descriptor is closed.
#[test]
fn what_a_mapping_reads_after_the_close_goes() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "\
import mmap, os, time
file = os.open('data', os.O_RDONLY)
mapping = mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
os.close(file)
for descriptor in range(3, 20):
    try: os.close(descriptor)
    except OSError: pass
time.sleep(1)
for page in range(0, len(mapping), 4096): mapping[page]
";
    std::fs::write(user.file("program.py"), program).unwrap();
    user.does("head -c 16M /dev/urandom >data; sync data");
    evict(&user.file("data"));
    let figures = user.does("$RUN --stats figures -- python3 program.py; cat figures");
    assert_eq!(user.cached_pages("data"), 0, "{figures}");
}

#[test]
fn a_file_is_found_while_others_open_files_all_the_time() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let script = "cat >busy.py <<'END'\n\
         import os, signal, time\n\
         def busy():\n \
             child = os.fork()\n \
             while child == 0: os.close(os.open('busy.py', os.O_RDONLY))\n \
             return child\n\
         children = [busy(), busy()]\n\
         time.sleep(0.2)\n\
         fd = os.open('data', os.O_WRONLY | os.O_CREAT)\n\
         for n in range(64): os.write(fd, b'x' * (1 << 20))\n\
         while not os.path.exists('stop'): time.sleep(0.01)\n\
         for child in children: os.kill(child, signal.SIGKILL)\nEND\n\
         $RUN python3 busy.py";
    let mut run = user.script("", script).spawn().unwrap();
    let data = user.file("data");
    let is_written = || data.metadata().is_ok_and(|data| data.len() == 64 * MIB);
    let is_gone = || is_written() && user.cached_pages("data") == 0;
    let gone = (0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        is_gone()
    });
    std::fs::write(user.file("stop"), "").unwrap();
    assert!(run.wait().unwrap().success());
    assert!(gone);
}

/// Files without a name, and those that the program finds by a link of its own in `/proc`.
#[test]
fn files_that_can_only_be_seen_afterwards_go() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    user.does(
        "cat >make.py <<'END'\nimport os, sys, time\n\
         name = sys.argv[2]\n\
         if sys.argv[1] == 'unnamed': f = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o600)\n\
         else: f = os.open('/proc/self/cwd/' + name, os.O_CREAT | os.O_WRONLY, 0o600)\n\
         os.write(f, b'x' * (4 << 20))\n\
         time.sleep(0.1)\n\
         if sys.argv[1] == 'unnamed': os.system(f'ln -L /proc/{os.getpid()}/fd/{f} {name}')\nEND\n\
         for n in $(seq 10); do for how in unnamed linked; do $RUN python3 make.py $how $how$n; done; done",
    );
    for name in (1..=10).flat_map(|n| ["unnamed", "linked"].map(|how| format!("{how}{n}"))) {
        assert_eq!(user.cached_pages(&name), 0, "{name}");
    }
}

#[test]
fn a_program_that_is_only_run_goes() {
    need!(all Ordinary::needs(&["bash"]));
    let user = Ordinary::new();
    user.does("cp $(command -v bash) own; sync own");
    evict(&user.file("own"));
    for run in ["./own -c :", "sh -c './own -c :; :'"] {
        user.does(&format!("$RUN {run}"));
        assert_eq!(user.cached_pages("own"), 0, "{run}");
    }
}

/// git makes its objects so: nobody else may write to them.
#[test]
fn files_that_are_made_read_only_go() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    user.does(
        "cat >make.py <<'END'\nimport os\n\
         for n in range(100):\n \
             f = os.open(f'made{n}', os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)\n \
             os.write(f, b'x' * 20000)\n \
             os.close(f)\nEND\n\
         $RUN python3 make.py",
    );
    let cached = (0..100).map(|name| user.cached_pages(&format!("made{name}")));
    assert_eq!(cached.sum::<u64>(), 0);
}

#[test]
fn a_redirected_output_goes() {
    need!(all Ordinary::needs(&["head"]));
    let user = Ordinary::new();
    user.does("$RUN head -c 64M /dev/zero >data");
    assert_eq!(user.cached_pages("data"), 0);
}

/// The observer stays with what a program leaves behind.
#[test]
fn what_is_left_running_is_observed_to_its_end() {
    need!(all Ordinary::needs(&["dd", "setsid"]));
    let user = Ordinary::new();
    let script = "$RUN -v sh -c 'exec >/dev/null 2>&1; setsid sh -c \"read _ <gate; \
                  dd if=/dev/zero of=data bs=1M count=32; touch done\" & exit 3'; \
                  c=$?; echo >gate; until [ -e done ]; do sleep 0.1; done; exit $c";
    user.does("mkfifo gate");
    let left = user.runs("", script);
    assert_eq!(left.code, Some(3), "{left:?}");
    assert!(
        left.stderr.contains("running; the observer stays"),
        "{left:?}"
    );
    for _ in 0..600 {
        if user.cached_pages("data") == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{} pages", user.cached_pages("data"));
}

/// Each open waits while somebody counts.
#[test]
fn what_takes_long_to_count_is_counted_seldom() {
    need!(all Ordinary::needs(&["python3", "strace"]));
    let user = Ordinary::new();
    user.does(
        "head -c 64M /dev/urandom >data; sync data; \
         cat >holes.py <<'END'\n\
         import os\n\
         f = os.open('data', os.O_RDONLY)\n\
         for page in range(0, 16384, 2): os.posix_fadvise(f, page * 4096, 4096, 4)\n\
         END\n\
         cat >opens.py <<'END'\n\
         import os\n\
         for n in range(30): f = os.open('data', os.O_RDONLY); os.pread(f, 4096, 0); os.close(f)\n\
         END\n\
         python3 holes.py",
    );
    in_some_attempt(|reclaim| {
        let before = user.cached_pages("data");
        assert!((4096..16384).contains(&before), "{before}");
        user.does("strace -f -qq -o calls $RUN python3 opens.py");
        let calls = std::fs::read_to_string(user.file("calls")).unwrap();
        // cachestat(2), which older versions do not know by name.
        let is_count = |line: &&str| line.contains("cachestat(") || line.contains("syscall_0x1c3(");
        let calls = calls.lines().filter(is_count).count();
        assert!((1000..5 * 4096).contains(&calls), "{calls}");
        let after = user.cached_pages("data");
        assert!(after <= before + 64, "{before}, {after}");
        reclaim.stays(&user.file("data"), after * 4096, before * 4096)
    });
}

/// The kernel then shows what the process has open to root alone, unless it is asked about another
/// thread.
#[test]
fn files_go_whose_programs_main_thread_has_ended() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "import ctypes, os, threading, time\n\
                   def write(file):\n    \
                       time.sleep(0.2)\n    \
                       for _ in range(64):\n        \
                           file.write(bytes(1 << 20))\n        \
                           time.sleep(0.02)\n    \
                       os._exit(5)\n\
                   file = open('big', 'wb', buffering=0)\n\
                   threading.Thread(target=write, args=[file]).start()\n\
                   ctypes.CDLL(None).syscall(60, 0)";
    let left = user.runs("-v", &format!("$RUN -- python3 -c \"{program}\""));
    assert_eq!(left.code, Some(5), "{left:?}");
    assert_eq!(user.cached_pages("big"), 0, "{left:?}");
    assert!(left.stderr.contains("wrote 64 MiB"), "{left:?}");
}

#[test]
fn what_was_mapped_for_long_goes_at_the_end_and_counts_once() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    let program = "import mmap, time\n\
                   file = open('big', 'w+b')\n\
                   file.truncate(16 << 20)\n\
                   mapping = mmap.mmap(file.fileno(), 0)\n\
                   mapping[:] = bytes([1]) * len(mapping)\n\
                   time.sleep(3)";
    let figures = user.does(&format!(
        "$RUN --stats figures -- python3 -c \"{program}\"; cat figures"
    ));
    let figures: serde_json::Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(user.cached_pages("big"), 0, "{figures}");
    assert_eq!(figures["left_bytes"], 0, "{figures}");
    assert_eq!(figures["brought_bytes"], 16 * MIB, "{figures}");
}
