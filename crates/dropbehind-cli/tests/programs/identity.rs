//! Who a program is, and which file a file is.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::kept::still_cached;
use crate::shell::wait_for;
use crate::user::User;
use crate::watched::watch_with;
use dropbehind_testbed::reclaim::{Gone, Reclaim, in_some_attempt};
use dropbehind_testbed::residency::{cached, evict, page_bytes, warm};
use dropbehind_testbed::{Fs, Need, Running, need};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const BYTES: u64 = 32 << 20;

/// Inode numbers begin anew in each subvolume, and the kernel's trace does not tell
/// which it was.
#[test]
fn files_of_two_subvolumes_with_the_same_number() {
    need!(all Bed::needs(Fs::Btrfs, &["btrfs", "cat"]));
    let bed = Bed::on(Fs::Btrfs);
    bed.input(&format!(
        "for name in one two; do btrfs -q subvolume create $name; \
         head -c {BYTES} /dev/urandom >$name/data; done"
    ));
    let [one, two] = ["one", "two"].map(|name| bed.file("input").join(name).join("data"));
    let number = |path| std::fs::metadata(path).unwrap().ino();
    assert_eq!(number(&one), number(&two));
    for (hot, cold) in [(&one, &two), (&two, &one)] {
        in_some_attempt(|reclaim| {
            for program in [
                "cat COLD",
                "cat COLD HOT",
                "cat HOT COLD",
                "cat HOT COLD HOT COLD",
            ] {
                evict(cold);
                evict(hot);
                warm(hot, 0..BYTES);
                let program = program.replace("COLD", &cold.display().to_string());
                let program = program.replace("HOT", &hot.display().to_string());
                let script = format!("exec $RUN {program} >/dev/null");
                let (left, figures) = Figures::told(&bed, "--only 'input/**'", "observed", &script);
                assert_eq!(left.code, Some(0), "{left:?}");
                figures.add_up();
                let stays = cached(cold).unwrap().cached_pages + figures.bytes("left_bytes");
                still_cached(reclaim, hot, BYTES)?;
                // Where it uses both in the same moment, they cannot always be told apart,
                // and pages stay.
                let uses_both = program.contains(&hot.display().to_string());
                assert!(stays == 0 || uses_both, "{stays}: {program}: {figures:?}");
            }
            Ok(())
        });
    }
}

/// To look at all of them for each record of the trace would take too long.
#[test]
fn pages_of_one_among_many_files_with_the_same_number_stay() {
    need!(all Bed::needs(Fs::Btrfs, &["btrfs", "bash", "cat"]));
    let bed = Bed::on(Fs::Btrfs);
    bed.input(&format!(
        "for name in $(seq 9); do btrfs -q subvolume create $name; \
         head -c {BYTES} /dev/urandom >$name/data; done"
    ));
    let file = |name: usize| bed.file("input").join(name.to_string()).join("data");
    for (names, stays) in [(1..=8, 0), (1..=9, BYTES)] {
        let last = file(*names.end());
        names.clone().for_each(|name| evict(&file(name)));
        let opens = names.map(|name| format!("exec 3<{} {{fd}}<&3;", file(name).display()));
        let opens: String = opens.collect();
        // What is cached at an open is looked at a moment later.
        let script = format!("exec $RUN bash -c '{opens} sleep 0.3; cat <&3 >/dev/null'");
        let figures = Figures::of(&bed, "--only 'input/**'", "observed", &script);
        let cached_bytes = cached(&last).unwrap().cached_pages * page_bytes();
        assert_eq!(cached_bytes, stays, "{figures:?}");
    }
}

/// A program that uses files as it is told to.
const USES_FILES: &str = r#"
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
files = {}
for line in sys.stdin:
    what, name = line.split()
    if what == "open": files[name] = os.open(name, os.O_RDONLY)
    elif what == "lease": fcntl.fcntl(files[name], fcntl.F_SETLEASE, fcntl.F_WRLCK)
    elif what == "close": os.close(files.pop(name))
    elif what == "evict": os.posix_fadvise(files[name], 0, 0, os.POSIX_FADV_DONTNEED)
    elif what == "begin": os.pread(files[name], 512 << 10, 0)
    else:
        at = 0
        while block := os.pread(files[name], 1 << 20, at): at += len(block)
    print(flush=True)
"#;

/// A process of it, which ends with the test.
struct Told {
    _process: Running,
    orders: ChildStdin,
    done: Lines<BufReader<ChildStdout>>,
}

impl Told {
    fn start(bed: &Bed, name: &str) -> Self {
        let mut command = Command::new(bed.file(name));
        command
            .arg(bed.file("uses_files.py"))
            .current_dir(bed.file("input"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Running::start(command);
        let orders = process.stdin.take().unwrap();
        let done = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            _process: process,
            orders,
            done,
        }
    }

    fn does(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        self.done.next().unwrap().unwrap();
    }
}

/// What each file of a subvolume has.
const FILE_BYTES: u64 = 4 << 20;

/// A rule wants what the program `held` uses below `one` and `three`. No rule wants what is
/// below `two`, nor what `others` do. The number of `one/end` is no other file's, nor likely
/// that of one which a test beside this has open.
fn three_subvolumes() -> Bed {
    let bed = Bed::on(Fs::Btrfs);
    bed.input(&format!(
        "for name in one two three; do btrfs -q subvolume create $name; \
         for file in data more; do head -c {FILE_BYTES} /dev/urandom >$name/$file; done; done; \
         eval touch one/{{1..$((RANDOM % 9000 + 1))}}; rm one/[0-9]*; \
         head -c {FILE_BYTES} /dev/urandom >one/end"
    ));
    let number = |name: &str| {
        std::fs::metadata(bed.file("input").join(name))
            .unwrap()
            .ino()
    };
    for name in ["two/data", "three/data"] {
        assert_eq!(number(name), number("one/data"));
    }
    let python = "import sys; print(sys.executable)";
    let python = Command::new("python3")
        .args(["-c", python])
        .output()
        .unwrap();
    let python = String::from_utf8(python.stdout).unwrap();
    for name in ["held", "others"] {
        symlink(python.trim(), bed.file(name)).unwrap();
    }
    std::fs::write(bed.file("uses_files.py"), USES_FILES).unwrap();
    bed
}

/// Takes these steps, and sees that what others have of `one/data` in the end stays.
fn others_keep_theirs(bed: &Bed, reclaim: &Reclaim, steps: &[&str]) -> Result<(), Gone> {
    let path = |name: &str| std::fs::canonicalize(bed.file("input").join(name)).unwrap();
    let [one, three, data, end] = ["one", "three", "one/data", "one/end"].map(path);
    bed.cools("input");
    let (mut program, mut others) = (Told::start(bed, "held"), Told::start(bed, "others"));
    let user = User::new();
    let folders = [one, three].map(|folder| format!("\"{}/*\"", folder.display()));
    let rule = format!("path = [{}]\nprogram = \"held\"", folders.join(", "));
    let (mut watch, mut theirs_bytes) = (None, FILE_BYTES);
    for step in steps {
        match (*step, step.strip_prefix("others ")) {
            ("watch", _) => watch = Some(watch_with(&user, &rule)),
            ("the watch stands still", _) => watch.as_ref().expect("a step").signal("STOP"),
            ("the watch goes on", _) => watch.as_ref().expect("a step").signal("CONT"),
            ("all but a page is warm", _) => {
                theirs_bytes = FILE_BYTES - page_bytes();
                warm(&data, 0..theirs_bytes);
            }
            (_, Some(order)) => others.does(order),
            (order, None) => program.does(order),
        }
        // The watch sees one after the other.
        std::thread::sleep(Duration::from_millis(100));
    }
    program.does("close one/data");
    let mut watch = watch.expect("a step");
    let mut looks = 0;
    wait_for("the end is dropped", || {
        // On a busy machine, the watch may lose events and keep this, too.
        if looks % 500 == 0 {
            println!("look {looks}: {}", watch.log());
            evict(&end);
            for order in ["open one/end", "read one/end", "close one/end"] {
                program.does(order);
            }
        }
        looks += 1;
        cached(&end).unwrap().cached_pages == 0
    });
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    still_cached(reclaim, &data, theirs_bytes)
}

#[track_caller]
fn pages_of_others_stay(ways: &[&[&str]]) {
    need!(Need::Trace);
    need!(all Bed::needs(Fs::Btrfs, &["btrfs", "python3"]));
    let bed = three_subvolumes();
    for steps in ways {
        println!("{steps:?}");
        in_some_attempt(|reclaim| others_keep_theirs(&bed, reclaim, steps));
    }
}

#[test]
fn pages_of_others_stay_beside_a_file_that_no_rule_wants() {
    pages_of_others_stay(&[
        &[
            "watch",
            "open one/data",
            "others open one/data",
            "others read one/data",
            "open two/data",
            "read two/data",
        ],
        &[
            "watch",
            "open two/data",
            "others open one/data",
            "others read one/data",
            "open one/data",
            "read two/data",
        ],
    ]);
}

#[test]
fn pages_of_others_stay_that_are_older_than_the_watch() {
    pages_of_others_stay(&[
        &[
            "others open one/data",
            "others read one/data",
            "watch",
            "open one/data",
            "open two/data",
            "read two/data",
        ],
        // So are the program's opens.
        &[
            "open one/data",
            "open two/data",
            "others open one/data",
            "others read one/data",
            "watch",
            "read two/data",
        ],
        &[
            "open two/data",
            "others open one/data",
            "others read one/data",
            "watch",
            "open one/data",
            "read two/data",
        ],
    ]);
}

/// Something was missing of the file, but not these pages.
#[test]
fn pages_of_others_stay_where_some_were_missing() {
    pages_of_others_stay(&[&[
        "watch",
        "open three/more",
        "all but a page is warm",
        "open one/data",
        "open two/data",
        "read two/data",
    ]]);
}

#[test]
fn pages_of_others_stay_when_they_open_the_file_again() {
    pages_of_others_stay(&[
        &[
            "watch",
            "open three/data",
            "open one/data",
            "others open one/data",
            "others read one/data",
            "others close one/data",
            "others open one/data",
            "open two/data",
            "read two/data",
        ],
        &[
            "watch",
            "open three/more",
            "open one/data",
            "others open one/data",
            "others read one/data",
            "open two/data",
            "read two/data",
        ],
    ]);
}

/// The program's own pages left the cache, and others brought them in again.
#[test]
fn pages_of_others_stay_where_the_program_had_its_own() {
    pages_of_others_stay(&[
        &[
            "watch",
            "others open one/data",
            "open three/data",
            "open one/data",
            "begin one/data",
            "others evict one/data",
            "others begin one/data",
            "others read one/data",
        ],
        &[
            "watch",
            "others open one/data",
            "open one/data",
            "open two/data",
            "begin one/data",
            "others evict one/data",
            "others read one/data",
            "begin two/data",
        ],
    ]);
}

/// The kernel cannot open a file that has a lease for the watch.
#[test]
fn pages_of_others_stay_beside_a_file_with_a_lease() {
    pages_of_others_stay(&[&[
        "watch",
        "open one/data",
        "others open one/data",
        "others read one/data",
        "the watch stands still",
        "open two/data",
        "lease two/data",
        "the watch goes on",
        "read two/data",
    ]]);
}

/// Files of another btrfs, of which no rule wants any.
const OTHERS: usize = 40_000;

#[test]
fn files_are_dropped_however_many_others_were_opened() {
    need!(Need::Trace);
    need!(all Bed::needs(Fs::Btrfs, &["python3"]));
    let (bed, others) = (Bed::on(Fs::Btrfs), Bed::on(Fs::Btrfs));
    bed.input("for name in {1..100}; do head -c 256K /dev/urandom >$name; done");
    others.input(&format!("seq {OTHERS} | xargs touch"));
    let input = std::fs::canonicalize(bed.file("input")).unwrap();
    let user = User::new();
    let mut watch = watch_with(&user, &format!("path = \"{}/*\"", input.display()));
    // In steps, since the kernel's queue of events has an end.
    let left = others.runs(
        "",
        "input",
        "python3 -c '
import os, time
for name in os.listdir():
    os.close(os.open(name, os.O_RDONLY))
    if name.endswith(\"00\"): time.sleep(0.005)
'",
    );
    assert_eq!(left.code, Some(0), "{left:?}");
    bed.cools("input");
    let mut names: Vec<String> = (1..=100).map(|name| name.to_string()).collect();
    let mut looks = 0;
    wait_for("all are dropped", || {
        // On a busy machine, the watch may lose events and keep some.
        if looks % 500 == 0 {
            println!("look {looks}: {names:?}, {}", watch.log());
            for name in &names {
                evict(&input.join(name));
                std::fs::read(input.join(name)).unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        looks += 1;
        assert!(looks < 3000, "{names:?} stay, {}", watch.log());
        names.retain(|name| cached(&input.join(name)).unwrap().cached_pages > 0);
        names.is_empty()
    });
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// What a run's program reads of a file that is not to be observed is not remembered for
/// another one.
#[test]
fn pages_of_others_stay_beside_what_a_run_leaves_alone() {
    need!(all Bed::needs(Fs::Btrfs, &["btrfs", "cat", "python3"]));
    let bed = three_subvolumes();
    in_some_attempt(|reclaim| {
        let path = |name: &str| bed.file("input").join(name);
        evict(&path("two/data"));
        warm(&path("one/data"), 0..FILE_BYTES);
        let script = "exec $RUN bash -c 'cat two/data one/data >/dev/null'";
        Figures::of(&bed, "--only 'one/*'", "input", script);
        still_cached(reclaim, &path("one/data"), FILE_BYTES)
    });
}

/// What a run's programs may do changes on their way, and they are its programs all
/// the same.
#[test]
fn programs_of_another_user() {
    for filesystem in [Fs::Ext4, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cat", "setpriv", "su"]));
        let bed = Bed::on(filesystem);
        bed.input(&format!(
            "head -c {BYTES} /dev/urandom >data; cp data secret; chmod 600 secret; \
             cp $(command -v cat) ../cat; chmod 4755 ../cat"
        ));
        for (name, program) in [
            ("data", "su nobody -s /bin/sh -c \"exec cat <&3\" 3<data"),
            ("data", "su nobody -s /bin/sh -c \"exec cat data\""),
            // Only who becomes root can read this one.
            (
                "secret",
                "setpriv --reuid 65534 --regid 65534 --clear-groups sh -c \"../cat secret\"",
            ),
        ] {
            let path = bed.file("input").join(name);
            // Its folders are root's own.
            bed.runs("", "input", "chmod 755 . .. ../..");
            evict(&path);
            let script = format!("exec $RUN {program} >/dev/null");
            let figures = Figures::of(&bed, "--only 'input/*'", "input", &script);
            let stays = cached(&path).unwrap().cached_pages;
            assert_eq!(stays, 0, "{filesystem:?}, {program}: {figures:?}");
            assert_eq!(figures.bytes("bytes_read"), BYTES, "{program}: {figures:?}");
        }
    }
}
