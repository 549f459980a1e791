//! System calls that fail, or that the kernel does not have.

mod user;

use dropbehind_testbed::{CallFilter, FailNth, Need, Outcome, need, pattern, residency};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use user::User;

const EIO: i32 = 5;
const ENOSYS: i32 = 38;
const BYTES: usize = 300_001;

fn call(name: &str) -> CallFilter {
    CallFilter::new(name).expect("a system call")
}

fn run(plan: FailNth, user: &User, line: &str) -> Outcome {
    let command = user.dropbehind(line.split(' '));
    plan.timeout(Duration::from_secs(30))
        .run(command)
        .expect("a run under supervision")
}

/// Whichever call fails, the copy is whole or the user is told that it is not.
#[test]
fn no_failed_call_is_passed_over() {
    let user = User::new();
    let from = user.has("from", BYTES);
    let to = user.file("to");
    let folder = from.parent().unwrap().to_str().unwrap();
    let named = |name| call(name).path_prefix(folder).unwrap();
    for calls in [
        vec![named("openat")],
        vec![call("openat").path_prefix("/proc").unwrap()],
        vec![named("statx"), named("newfstatat")],
        vec![call("fstat"), call("fcntl")],
        vec![call("read")],
        vec![call("write"), call("pwrite64")],
        vec![call("lseek")],
        vec![call("fsync"), call("ftruncate")],
        vec![call("sync_file_range")],
        vec![call("fadvise64")],
        vec![call("cachestat")],
        vec![call("mincore")],
        vec![call("close")],
    ] {
        let line = format!("cp --block-size 64k {folder}/from {folder}/to");
        let seen = run(FailNth::count(calls.clone()), &user, &line).calls_seen;
        for nth in 1..=seen {
            let _ = std::fs::remove_file(&to);
            let outcome = run(FailNth::once(calls.clone(), nth, EIO), &user, &line);
            let failed = format!("{:?} of {calls:?}: {outcome:?}", outcome.failed_call);
            assert!(!outcome.timed_out, "{failed}");
            match outcome.status.code() {
                Some(0) => {
                    let copied = std::fs::read(&to).expect("the copy");
                    assert_eq!(copied.len(), BYTES, "{failed}");
                    assert_eq!(pattern::check(1, 0, &copied), Ok(()), "{failed}");
                }
                // No panic (101), and no death by a signal.
                Some(1 | 3 | 127) => assert!(!outcome.stderr.is_empty(), "{failed}"),
                _ => panic!("{failed}"),
            }
        }
    }
}

#[test]
fn a_failed_sync_or_write_fails_the_command() {
    let user = User::new();
    user.has("from", BYTES);
    for (name, doing) in [("fsync", "cannot sync"), ("write", "cannot write")] {
        for mode in dropbehind::Mode::ALL {
            let line = format!("cp --mode {mode} from to");
            let outcome = run(FailNth::once([call(name)], 1, EIO), &user, &line);
            let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
            assert_eq!(outcome.status.code(), Some(1), "{name} {mode}: {told}");
            assert!(told.contains(doing) && told.contains("dmesg"), "{told}");
        }
    }
}

/// As before Linux 6.5.
#[test]
fn a_kernel_without_cachestat_counts_drops_and_copies() {
    let user = User::new();
    let from = user.has("from", BYTES);
    let old_kernel = || FailNth::every([call("cachestat")], ENOSYS);
    std::fs::File::open(&from).unwrap().sync_all().unwrap();
    for line in ["stat from", "drop from"] {
        let outcome = run(old_kernel(), &user, line);
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status.code(), Some(0), "{line}: {told}");
    }
    assert_eq!(residency::cached(&from).unwrap().cached_pages, 0);
    for mode in ["dontcache", "write-behind"] {
        let outcome = run(
            old_kernel(),
            &user,
            &format!("cp --mode {mode} --stats - from to"),
        );
        let told = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert_eq!(outcome.status.code(), Some(0), "{told}");
        user::holds(&user.file("to"), BYTES);
    }
    let outcome = run(old_kernel(), &user, "probe");
    let told = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(told.contains("without cachestat"), "{told}");
}

/// One sync of the file system is enough for many small files, and for the directories that
/// were there when it began.
#[test]
fn directories_made_after_the_last_sync_are_synced() {
    need!(Need::Tool("strace"));
    let user = User::new();
    std::fs::create_dir(user.file("tree")).unwrap();
    // Those of a batch that is synced together.
    let mut last = 0;
    for number in 0..192 {
        let file = user.has(&format!("tree/{number}"), 128 << 10);
        last = last.max(file.metadata().unwrap().ino());
    }
    // Trees are copied in the order of their inodes. The thread that syncs may begin late.
    let mut later = 0;
    for number in 0..2000 {
        let path = user.file(&format!("tree/later-{number}"));
        std::fs::create_dir(&path).unwrap();
        later += usize::from(path.metadata().unwrap().ino() > last);
        if later > 400 {
            break;
        }
    }
    let traced = "strace -f -o calls -e trace=mkdirat,syncfs,fsync";
    let said = user.sh(&format!(
        "{traced} dropbehind cp -r --reflink=never tree copy"
    ));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let calls = std::fs::read_to_string(user.file("calls")).unwrap();
    let (_, later) = calls
        .rsplit_once(" syncfs(")
        .expect("a sync of small files");
    let made = later.matches(" mkdirat(").count();
    let synced = later.matches(" fsync(").count();
    assert!(made > 0 && synced >= made, "{calls}");
}

/// A name is safe when its directory is synced, also if something else had it before.
#[test]
fn directories_of_typed_names_are_synced() {
    need!(Need::Tool("strace"));
    for (line, directory) in [
        ("cp a new", ""),
        ("cp a d/new", "/d"),
        ("cp -b a b", ""),
        ("cp --remove-destination a b", ""),
        ("cp --remove-destination -P link other", ""),
        ("cp -lf a b", ""),
        ("cp -sf a b", ""),
        ("cp --atomic a b", ""),
        ("cp --parents tree/f d", "/d"),
        ("cp -r --parents tree d", "/d"),
    ] {
        let user = User::new();
        let said = user.sh(&format!(
            "echo 1 > a; echo 2 > b; ln -s a link; ln -s b other; mkdir tree d; echo 3 > tree/f
             strace -f -y -o calls -e trace=fsync dropbehind {line} && pwd -P"
        ));
        assert_eq!(said.code, 0, "{line}: {}", said.stderr);
        let synced = format!("<{}{directory}>)", said.text().trim_end());
        let calls = std::fs::read_to_string(user.file("calls")).unwrap();
        assert!(calls.contains(&synced), "{line}: {calls}");
    }
}

#[test]
fn an_interrupted_call_is_made_again() {
    const EINTR: i32 = 4;
    let user = User::new();
    user.has("from", BYTES);
    for name in ["read", "write"] {
        // The first reads are the dynamic linker's.
        for nth in 4..12 {
            let plan = FailNth::once([call(name)], nth, EINTR);
            let outcome = run(plan, &user, "cp --block-size 16k from to");
            assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
            user::holds(&user.file("to"), BYTES);
        }
    }
}

/// A failed writeback makes pages look clean, and whoever has asked about failures before that
/// drops them. So an observer counts each range before it asks, however short the range is, and
/// after it has dropped it.
#[test]
fn an_observer_counts_what_it_drops() {
    need!(
        Need::Root,
        Need::Trace,
        Need::Cachestat,
        Need::Tool("python3"),
        Need::Tool("strace")
    );
    let user = User::new();
    let writer = "file = open('data', 'wb', buffering=0)\n\
                  for page in range(0, 2000, 2): file.seek(page << 12); file.write(bytes(4096))\n";
    std::fs::write(user.file("writer.py"), writer).unwrap();
    let said = user.sh("strace -f -o calls dropbehind run python3 writer.py");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let calls = std::fs::read_to_string(user.file("calls")).unwrap();
    let (mut counts, mut drops) = (HashMap::new(), 0);
    for line in calls.lines() {
        let (thread, call) = line.split_once(' ').unwrap_or_default();
        let counts = counts.entry(thread).or_insert(2);
        if call.contains("fadvise64(") && call.contains("DONTNEED") {
            assert!(*counts != 1, "{line}");
            (*counts, drops) = (0, drops + 1);
        // Older versions of strace know cachestat by its number only.
        } else if call.contains("cachestat(") || call.contains("syscall_0x1c3(") {
            *counts += 1;
        }
    }
    assert!(drops > 100, "{drops} drops");
}

/// A source that cannot be looked at does not cost its older copy.
#[test]
fn an_old_copy_stays_if_its_source_cannot_be_looked_at() {
    need!(Need::Cachestat, Need::Tool("setfacl"), Need::Tool("strace"));
    let user = User::new();
    let script = "mkdir from to; echo new >from/a; echo old >to/a; touch -d '-1 hour' to/a; \
                  setfacl -m u:1:r from/a || exit 77; \
                  strace -f -o calls -e inject=fgetxattr:error=EIO \
                  dropbehind cp -aT --reflink=never from to && exit 9; cat to/a";
    let said = user.sh(script);
    if said.code == 77 {
        dropbehind_testbed::skip!("the scratch folder's file system has no access lists");
    }
    assert_eq!(
        (said.code, said.text().as_str()),
        (0, "old\n"),
        "{}",
        said.stderr
    );
}

/// What stays as it is costs no reads, and what is replaced no turn of the disk for each.
#[test]
fn an_update_reads_nothing_of_what_stays() {
    need!(Need::Cachestat, Need::Tool("strace"));
    let user = User::new();
    let script = "mkdir from; for n in $(seq 60); do echo unchanged >from/$n; done; cp -a from to; \
                  for n in $(seq 30); do echo changed >from/$n; done; \
                  touch -d '+1 hour' $(seq -f 'from/%.0f' 30); \
                  strace -f -o calls -e trace=read,fsync,fdatasync dropbehind cp -aTu from to; \
                  diff -r from to";
    let said = user.sh(script);
    assert_eq!(
        (said.code, said.text().as_str()),
        (0, ""),
        "{}",
        said.stderr
    );
    let calls = std::fs::read_to_string(user.file("calls")).unwrap();
    assert!(calls.contains("\"changed"), "{calls}");
    assert!(!calls.contains("\"unchanged"), "{calls}");
    assert!(calls.matches("sync(").count() < 10, "{calls}");
}
