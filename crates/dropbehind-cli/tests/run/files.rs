//! What becomes of the files: the point of it all, in short.

use crate::shell::{RUN, Running, bash, once, wait_for};
use crate::user::User;
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::residency::{fincore, page_bytes};
use dropbehind_testbed::{Fs, MountedFs, Need, need};
use std::process::Command;

const MIB: u64 = 1 << 20;

#[test]
fn what_was_written_is_dropped_and_told() {
    need!(Need::Root, Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let script = "$RUN -v --stats figures dd if=/dev/zero of=data bs=1M count=50";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(fincore(&user.file("data")).unwrap(), 0);
    let ours: Vec<&str> = left
        .stderr
        .lines()
        .filter(|line| line.starts_with("dropbehind: "))
        .collect();
    assert_eq!(ours.len(), 3, "{left:?}");
    assert!(ours[0].contains("wrote 50 MiB"), "{left:?}");
    assert!(ours[1].contains("page cache: at most") && ours[1].contains("0 B at the end"));
    assert!(ours[2].contains("kept"));
    let text = std::fs::read_to_string(user.file("figures")).unwrap();
    let figures: serde_json::Value = serde_json::from_str(&text).unwrap();
    let figure = |name: &str| figures[name].as_u64().unwrap();
    assert!(figure("bytes_written") >= 50 * MIB);
    assert!(figure("dropped_bytes") >= 50 * MIB);
    assert_eq!(figure("left_bytes"), 0);
    assert_eq!(figure("exit_status"), 0);
    assert!(figure("observer_cpu_ns") > 0);
    assert_eq!(figures["settled"], true);
    assert_eq!(figures["observer_died"], false);
    assert_eq!(figures["observer_hung"], false);
}

/// What `-v` tells people, in their units.
#[test]
fn what_is_told_can_be_read_by_programs() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let script = "$RUN -v --json sh -c 'dd if=/dev/zero of=data bs=1M count=50; sleep 99 & \
                  echo $! >pid; exit 7'; code=$?; kill $(cat pid); exit $code";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(7), "{left:?}");
    let line = left.stderr.lines().last().unwrap();
    let figures: serde_json::Value = serde_json::from_str(line).unwrap();
    let megabytes = |name: &str| figures[name].as_u64().unwrap() / MIB;
    let most = megabytes("peak_cached_bytes");
    let told = |text: &str| assert!(left.stderr.contains(text), "{text}: {left:?}");
    told(&format!("wrote {} MiB, read ", megabytes("bytes_written")));
    told(&format!("in {} file", figures["files"]));
    told(&format!("page cache: at most {most}"));
    assert!(figures["cached_bytes"].is_u64() && figures["reread_bytes"].is_u64());
    assert_eq!(figures["exit_status"], 7);
    assert_eq!(figures["processes_left"], 1, "{left:?}");
    told("left 1 process running");

    // Half a line of the program's own is not continued.
    let left = once(&user, RUN, "$RUN --json sh -c 'printf half >&2'");
    let (half, line) = left.stderr.split_once('\n').unwrap();
    assert_eq!(half, "half");
    let figures: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(figures["exit_status"], 0);

    let left = once(&user, RUN, "$RUN --json --stats figures true");
    assert_eq!(left.code, Some(2), "{left:?}");
    assert!(!user.file("figures").exists());
}

#[test]
fn top_tells_who_uses_a_file_and_why_it_goes() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let left = once(&user, RUN, crate::who::SCRIPT);
    assert_eq!(left.code, Some(0), "{left:?}");
    crate::who::compare(&left.stdout);
}

/// Also in a mode that keeps both.
#[test]
fn top_tells_what_was_there_from_what_came() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let script = "rm -rf *; head -c 8M /dev/zero >data; sync data; mkdir -m 700 runtime; export DROPBEHIND_RUNTIME_DIR=$PWD/runtime; \
                  $RUN -m write-behind bash -c 'exec 3>>data; head -c 8M /dev/zero >&3; \
                  for look in {1..300}; do dropbehind top --once --json >sample; \
                  grep -q size_bytes.:16777216.*written_bytes.:8388608.*idle sample && break; \
                  sleep 0.1; done; cat sample'";
    // While a file changes, its pages are counted less often than what is written to it.
    in_some_attempt(|reclaim| {
        let left = once(&user, RUN, script);
        assert_eq!(left.code, Some(0), "{left:?}");
        let sample: serde_json::Value = serde_json::from_str(&left.stdout).unwrap();
        let file = &sample["files"][0];
        let kept_bytes = file["kept_bytes"].as_u64().unwrap();
        assert!(kept_bytes <= 8 * MIB, "{sample}");
        reclaim.stays(&user.file("data"), kept_bytes, 8 * MIB)
    });
}

#[test]
fn what_stays_is_not_told_as_gone() {
    need!(Need::Root, Need::Tool("fincore"));
    let user = User::new();
    let script = "$RUN -v -m write-behind dd if=/dev/zero of=data bs=1M count=50";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(
        fincore(&user.file("data")).unwrap() * page_bytes(),
        50 * MIB
    );
    assert!(left.stderr.contains("wrote 50 MiB"), "{left:?}");
    assert!(left.stderr.contains("and it stays there"), "{left:?}");
    assert!(!left.stderr.contains("at the end"), "{left:?}");
}

#[test]
fn it_says_nothing_unless_asked() {
    need!(Need::Root);
    let user = User::new();
    let left = once(&user, RUN, "$RUN sh -c 'echo x >data'");
    assert_eq!((left.stdout.as_str(), left.stderr.as_str()), ("", ""));
}

#[test]
fn standard_output_is_looked_after() {
    need!(Need::Root, Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let left = once(
        &user,
        RUN,
        "$RUN sh -c 'dd if=/dev/zero bs=1M count=50 2>/dev/null' >data",
    );
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(user.file("data").metadata().unwrap().len(), 50 * MIB);
    assert_eq!(fincore(&user.file("data")).unwrap(), 0);
    // Also where we have the same file open for our messages.
    let script = "$RUN sh -c 'dd if=/dev/zero bs=1M count=50; sleep 1.2' >both 2>&1";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(fincore(&user.file("both")).unwrap(), 0);
}

#[test]
fn patterns_choose() {
    need!(Need::Root, Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    std::fs::create_dir(user.file("d")).unwrap();
    let work = "sh -c 'for f in a.iso a.log d/b.iso; do dd if=/dev/zero of=$f bs=1M count=8; done'";
    let names = ["a.iso", "a.log", "d/b.iso"];
    let all = 8 * MIB / page_bytes();
    for (options, expected) in [
        ("--only '*.iso'", [0, all, 0]),
        ("--only '*.iso' --except d/", [0, all, all]),
        ("--except \"$PWD/a.*\"", [all, all, 0]),
        ("--mode write-through", [all, all, all]),
    ] {
        in_some_attempt(|reclaim| {
            let left = once(&user, RUN, &format!("rm -f *.* d/*; $RUN {options} {work}"));
            assert_eq!(left.code, Some(0), "{left:?}");
            for (name, expected) in names.into_iter().zip(expected) {
                let found = fincore(&user.file(name)).unwrap();
                assert!(found <= expected, "{options}: {found} pages of {name}");
                let [found, expected] = [found, expected].map(|pages| pages * page_bytes());
                reclaim.stays(&user.file(name), found, expected)?;
            }
            Ok(())
        });
    }
}

#[test]
fn reads_are_dropped_unless_told_otherwise() {
    need!(Need::Root, Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let path = user.has("a", 20 << 20);
    for (options, dropped) in [
        ("", true),
        ("--no-reads", false),
        ("--no-reads --reads", true),
    ] {
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        dropbehind_testbed::residency::evict(&path);
        let left = once(&user, RUN, &format!("$RUN {options} cksum a"));
        assert_eq!(left.code, Some(0), "{left:?}");
        assert_eq!(fincore(&path).unwrap() == 0, dropped, "{options:?}");
    }
}

/// A program that no preloaded library could reach.
fn static_program(user: &User) -> bool {
    let source = "#include <fcntl.h>\n#include <string.h>\n#include <unistd.h>\n\
                  char chunk[1 << 20];\n\
                  int main(int n, char **a) {\n\
                    int f = open(a[1], O_WRONLY | O_CREAT | O_TRUNC, 0644);\n\
                    memset(chunk, 'x', sizeof chunk);\n\
                    for (int i = 0; i < 30; i++) write(f, chunk, sizeof chunk);\n\
                    return close(f);\n}\n";
    std::fs::write(user.file("program.c"), source).unwrap();
    let mut compiler = Command::new("cc");
    compiler
        .args(["-static", "-w", "-o", "program", "program.c"])
        .current_dir(user.file(""));
    compiler.status().is_ok_and(|status| status.success())
}

#[test]
fn static_programs_and_chroots_are_covered() {
    need!(
        Need::Root,
        Need::Cachestat,
        Need::Tool("fincore"),
        Need::Tool("cc")
    );
    let user = User::new();
    if !static_program(&user) {
        dropbehind_testbed::skip!("cc makes no static programs here");
    }
    let left = once(&user, RUN, "$RUN ./program data");
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(user.file("data").metadata().unwrap().len(), 30 * MIB);
    assert_eq!(fincore(&user.file("data")).unwrap(), 0);

    let left = once(
        &user,
        RUN,
        "mkdir root; mv program root; $RUN chroot root /program /data",
    );
    assert_eq!(left.code, Some(0), "{left:?}");
    assert_eq!(user.file("root/data").metadata().unwrap().len(), 30 * MIB);
    assert_eq!(fincore(&user.file("root/data")).unwrap(), 0);
}

#[test]
fn a_run_inside_a_run_works() {
    need!(Need::Root, Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let left = once(
        &user,
        RUN,
        "$RUN $RUN sh -c 'dd if=/dev/zero of=data bs=1M count=20; exit 8'",
    );
    assert_eq!(left.code, Some(8), "{left:?}");
    assert_eq!(fincore(&user.file("data")).unwrap(), 0);
}

#[test]
fn what_leaves_the_namespace_is_told() {
    need!(Need::Root, Need::Tool("unshare"));
    let user = User::new();
    let script = "$RUN -v unshare --mount sh -c 'touch ready; while test ! -e end; do sleep 0.01; done' & \
                  while test ! -e ready; do sleep 0.01; done; sleep 0.6; touch end; wait $!";
    let left = once(&user, RUN, script);
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(
        left.stderr.contains("mount namespaces of their own (sh"),
        "{left:?}"
    );
    let left = once(&user, RUN, "$RUN -v sleep 0.1");
    assert!(!left.stderr.contains("namespace"), "{left:?}");
}

/// Whoever names a file may have a terminal in mind that is not theirs.
#[test]
fn names_of_others_do_not_control_the_terminal() {
    need!(Need::Root, Need::Filesystem("overlay"));
    let user = User::new();
    // Of a file below layers that cannot be found there is something to say.
    let script = "mkdir -p far/l far/u far/w near; echo x >far/l/file; \
                  m=$PWD/near/$(printf 'a\\nb\\033c'); mkdir \"$m\"; \
                  (cd far; mount -t overlay -o lowerdir=l,upperdir=u,workdir=w none \"$m\"); \
                  $RUN -v cat \"$m/file\"; umount \"$m\"";
    let left = once(&user, RUN, script);
    assert_eq!(
        (left.code, left.stdout.as_str()),
        (Some(0), "x\n"),
        "{left:?}"
    );
    assert!(left.stderr.contains("a\\nb\\u{1b}c/file: "), "{left:?}");
    assert!(!left.stderr.contains('\u{1b}'), "{left:?}");
}

/// The observer keeps no closed file open, and another process's lease then keeps it from
/// opening one.
#[test]
fn what_is_not_known_in_the_end_is_told() {
    need!(Need::Root, Need::Cachestat, Need::Tool("python3"));
    need!(all MountedFs::needs(Fs::Ext4));
    let disk = MountedFs::new(Fs::Ext4, 64 << 20).unwrap();
    let user = User::new();
    let file = disk.file("file");
    // The kernel writes it, which leaves time.
    let script = format!(
        "exec $RUN -v --mode noreuse sh -c 'head -c 64K /dev/zero >{}; : >written; \
         while test ! -e end; do sleep 0.01; done' 2>said",
        file.display()
    );
    let mut running = Running::start(bash(&user, RUN, &script));
    wait_for("the file", || user.file("written").exists());
    let lease = "import fcntl, os, signal, sys, time\n\
                 signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
                 file = os.open(sys.argv[1], os.O_RDWR)\n\
                 while True:\n\
                 \x20   try: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK); break\n\
                 \x20   except OSError: time.sleep(0.01)\n\
                 open('end', 'w').close()\n\
                 time.sleep(1000)";
    let mut holder = Command::new("python3");
    holder.args(["-c", lease]).arg(file);
    holder.current_dir(user.file(""));
    let _holder = Running::start(holder);
    assert_eq!(running.ends().code(), Some(0));
    let said = std::fs::read_to_string(user.file("said")).unwrap();
    assert!(said.contains("64 KiB could not be dropped"), "{said}");
    assert!(said.contains("cached is not known"), "{said}");
}
