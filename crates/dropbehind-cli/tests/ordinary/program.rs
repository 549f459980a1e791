//! The program is the same as without dropbehind.

use crate::bed::{Ordinary, is_root};
use dropbehind_testbed::{Need, need, skip};

#[test]
fn status_and_signals_are_the_programs() {
    need!(all Ordinary::needs(&["sh"]));
    let user = Ordinary::new();
    for (script, code) in [
        ("$RUN true", 0),
        ("$RUN sh -c 'exit 7'", 7),
        ("$RUN sh -c 'kill -TERM $$'", 128 + 15),
        ("$RUN sh -c 'kill -KILL $$'", 128 + 9),
        ("$RUN no-such-program 2>/dev/null", 127),
        ("$RUN /etc/passwd 2>/dev/null", 126),
        (
            "$RUN sh -c 'trap \"exit 5\" TERM; kill -TERM $PPID; sleep 9 & wait'",
            5,
        ),
    ] {
        let left = user.runs("", &format!("{script}; exit $?"));
        assert_eq!(left.code, Some(code), "{script}: {left:?}");
    }
}

#[test]
fn the_summary_and_the_figures_say_what_was_done() {
    need!(all Ordinary::needs(&["dd"]));
    let user = Ordinary::new();
    // Pages of shared libraries that others map would not go.
    let left = user.runs(
        "-v --stats stats.json --only data",
        "$RUN dd if=/dev/zero of=data bs=1M count=16 status=none",
    );
    assert_eq!(left.code, Some(0), "{left:?}");
    for saying in [
        "wrote 16 MiB",
        "0 B at the end",
        "what was cached when a file was opened stays",
    ] {
        assert!(left.stderr.contains(saying), "{saying}: {left:?}");
    }
    let stats = std::fs::read_to_string(user.file("stats.json")).unwrap();
    assert!(stats.contains("\"bytes_written\":16777216"), "{stats}");

    user.does("head -c 2M /dev/zero >read");
    for (mode, saying) in [
        (
            "dontcache",
            "wrote 0 B, read 2.0 MiB into the cache, in 1 file",
        ),
        (
            "write-behind",
            "wrote 0 B, did not count what was read, in 1 file",
        ),
    ] {
        user.does("sync read; dd if=read iflag=nocache count=0 status=none");
        let options = format!("-v -m {mode} --only read");
        let left = user.runs(&options, "$RUN cat read >/dev/null");
        assert!(left.stderr.contains(saying), "{mode}: {left:?}");
    }
}

#[test]
fn static_programs_threads_forks_and_execs_are_observed() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    user.does(
        "cat >threads.py <<'END'\n\
         import os, threading\n\
         def work(n):\n \
             for k in range(50):\n  \
                 with open(f't{n}-{k}', 'wb') as f: f.write(b'x' * 50000)\n  \
                 with open(f't{n}-{k}', 'rb') as f: assert len(f.read()) == 50000\n\
         threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]\n\
         [t.start() for t in threads]\n\
         children = []\n\
         for n in range(4, 7):\n \
             child = os.fork()\n \
             if child == 0:\n  \
                 work(n); os._exit(0)\n \
             children.append(child)\n\
         [t.join() for t in threads]\n\
         assert all(os.waitpid(c, 0)[1] == 0 for c in children)\n\
         END\n\
         $RUN python3 threads.py; \
         $RUN sh -c 'exec sh -c \"exec head -c 8M /dev/zero >chain\"'",
    );
    let names = (0..7).flat_map(|n| (0..50).map(move |k| format!("t{n}-{k}")));
    let cached: u64 = names.map(|name| user.cached_pages(&name)).sum();
    assert_eq!((cached, user.cached_pages("chain")), (0, 0));
    if user.runs("", "busybox true").code == Some(0) {
        user.does("$RUN busybox dd if=/dev/zero of=static bs=1M count=16 2>/dev/null");
        assert_eq!(user.cached_pages("static"), 0);
    }
}

#[test]
fn a_run_within_a_run_is_the_outer_ones() {
    need!(all Ordinary::needs(&["head"]));
    let user = Ordinary::new();
    user.does("$RUN sh -c \"$RUN head -c 16M /dev/zero >data\"");
    assert_eq!(user.cached_pages("data"), 0);
    let left = user.runs("", "$RUN sh -c \"$RUN -v sh -c 'exit 4'\"");
    assert_eq!(left.code, Some(4), "{left:?}");
    assert!(left.stderr.contains("inside of another"), "{left:?}");
}

/// As in a terminal multiplexer that was started under `run`.
#[test]
fn a_run_whose_parents_have_left_the_outer_run_is_still_its_own() {
    need!(all Ordinary::needs(&["setsid"]));
    let user = Ordinary::new();
    let inner = "sleep 0.3; $RUN -v sh -c \"exit 4\" 2>log; echo $? >code";
    user.does(&format!(
        "$RUN sh -c '(setsid sh -c '\\''{inner}'\\'' &); sleep 1.5'"
    ));
    let read = |name| std::fs::read_to_string(user.file(name)).unwrap_or_default();
    let (code, log) = (read("code"), read("log"));
    assert_eq!(code, "4\n", "{log}");
    assert!(log.contains("inside of another"), "{log}");
}

#[test]
fn programs_that_let_nobody_look_are_told() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    // Of one that has ended, nobody can say that it would not have.
    let script = "import ctypes, time; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); \
                  open(\"data\", \"wb\").write(bytes(1 << 20)); time.sleep(1)";
    let left = user.runs("", &format!("$RUN -v python3 -c '{script}'"));
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stderr.contains("let nobody look"), "{left:?}");
}

#[test]
fn too_few_descriptors_are_told_and_nothing_is_started() {
    need!(all Ordinary::needs(&["touch"]));
    let user = Ordinary::new();
    let left = user.runs("", "ulimit -n 10; $RUN touch started");
    assert_eq!(left.code, Some(125), "{left:?}");
    assert!(left.stderr.contains("ulimit -n"), "{left:?}");
    assert!(!user.file("started").exists());
}

#[test]
fn a_limit_on_file_sizes_is_told_and_nothing_is_started() {
    need!(all Ordinary::needs(&["mkdir"]));
    let user = Ordinary::new();
    let left = user.runs("", "ulimit -f 0; $RUN --source seccomp mkdir started");
    assert_eq!(left.code, Some(125), "{left:?}");
    for saying in ["File too large", "ulimit -f", "mkdir was not started"] {
        assert!(left.stderr.contains(saying), "{saying}: {left:?}");
    }
    assert!(!left.stderr.contains("Linux 5.6"), "{left:?}");
    assert!(!user.file("started").exists());
}

/// As in a container whose runtime listens to system calls.
#[test]
fn anothers_listener_is_told_and_nothing_is_started() {
    need!(all Ordinary::needs(&["python3"]));
    let user = Ordinary::new();
    // A filter that stops no call, as it has one step: allow.
    let script = "cat >listen.py <<'END'\n\
         import ctypes, os, struct, sys\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         libc.prctl(38, 1, 0, 0, 0)\n\
         step = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n\
         program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(step)))\n\
         fd = libc.syscall(317, 1, 8, program)\n\
         assert fd >= 0, ctypes.get_errno()\n\
         sys.exit(os.spawnvp(os.P_WAIT, sys.argv[1], sys.argv[1:]))\n\
         END\n\
         python3 listen.py $RUN touch started";
    let left = user.runs("", script);
    assert_eq!(left.code, Some(3), "{left:?}");
    assert!(left.stderr.contains("there can be only one"), "{left:?}");
    assert!(!user.file("started").exists());
}

#[test]
fn nocache_says_nothing() {
    need!(all Ordinary::needs(&["dd"]));
    let user = Ordinary::new();
    user.does(
        "ln -s $DROPBEHIND nocache; ./nocache dd if=/dev/zero of=data bs=1M count=16 status=none",
    );
    assert_eq!(user.cached_pages("data"), 0);
}

#[test]
fn a_program_that_gains_no_rights_is_named_first() {
    need!(all Ordinary::needs(&["su"]));
    let user = Ordinary::new();
    let left = user.runs("", "$RUN su --version");
    assert_eq!(left.code, Some(0), "{left:?}");
    assert!(left.stderr.contains("no_new_privs"), "{left:?}");
    let left = user.runs("", "$RUN true");
    assert_eq!(left.stderr, "");
}

#[test]
fn the_named_source_is_the_only_one() {
    need!(all Ordinary::needs(&["true"]));
    let user = Ordinary::new();
    let left = user.runs("--source fanotify", "$RUN touch started");
    assert_eq!(left.code, Some(3), "{left:?}");
    assert!(left.stderr.contains("CAP_SYS_ADMIN"), "{left:?}");
    assert!(!user.file("started").exists());
    let left = user.runs("--source other", "$RUN touch started");
    assert_eq!(left.code, Some(2), "{left:?}");
}

#[test]
fn probe_says_which_source_it_is_and_what_follows() {
    need!(all Ordinary::needs(&["true"]));
    let user = Ordinary::new();
    let said = user.does("$DROPBEHIND probe");
    for saying in [
        "fanotify, for run",
        "CAP_SYS_ADMIN",
        "seccomp, for run",
        "run learns of opens from seccomp",
    ] {
        assert!(said.contains(saying), "{saying}: {said}");
    }
}

#[test]
fn root_may_choose_it_too() {
    need!(Need::Root, Need::Cachestat);
    if !is_root() {
        skip!("not root");
    }
    let user = Ordinary::new();
    let program = env!("CARGO_BIN_EXE_dropbehind");
    let done = std::process::Command::new(program)
        .args(["run", "--source", "seccomp", "--", "dd", "if=/dev/zero"])
        .arg(format!("of={}", user.file("data").display()))
        .args(["bs=1M", "count=16", "status=none"])
        .status()
        .unwrap();
    assert!(done.success());
    assert_eq!(user.cached_pages("data"), 0);
}

#[test]
fn top_tells_who_uses_a_file_and_why_it_goes() {
    need!(all Ordinary::needs(&["dd"]));
    crate::who::compare(&Ordinary::new().does(crate::who::SCRIPT));
}
