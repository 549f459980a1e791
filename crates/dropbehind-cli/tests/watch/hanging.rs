//! File systems whose server does not answer.

use crate::files::{cached_mib, dd, until_dropped};
use crate::outlets::asked;
use crate::user::User;
use crate::user::running_watch::RunningWatch;
use dropbehind_testbed::{Hanging, HangingFs, Need, Running, need};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// All files are observed.
const ALL_FILES: &str = "[[rule]]\npath = \"*\"\nmode = \"dontcache\"\n";

fn python(program: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", program]);
    command
}

/// A program that runs until it is killed.
struct Somebody {
    child: Running,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Somebody {
    fn runs(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Running::start(command);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Opens its file, over and over.
    fn uses(hanging: &HangingFs) -> Self {
        let program = "import sys, time\n\
                       while True: open(sys.argv[1]).close(); time.sleep(0.001)";
        let mut command = python(program);
        Self::runs(command.arg(hanging.file()).stderr(Stdio::null()))
    }

    /// Waits until it says this.
    fn says(&mut self, word: &str) {
        assert_eq!(self.lines.next().unwrap().unwrap(), word);
    }

    fn hears(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
    }
}

/// A watch that waits for the server of this file system, which a rule names, and who uses it.
fn watch_that_waits<'a>(user: &User, fs: &'a HangingFs) -> (RunningWatch, Somebody, Hanging<'a>) {
    let named = fs.path().join("*");
    user.writes(
        "rules",
        &format!("[[rule]]\npath = {named:?}\nmode = \"dontcache\"\n"),
    );
    let mut watch = user.watch("--config rules");
    let mut watch = RunningWatch::start(user, watch.env("WATCHDOG_USEC", "600000"));
    watch.says("WATCHDOG=1");
    let somebody = Somebody::uses(fs);
    let hanging = fs.hang_for(watch.child.id());
    watch.says("STATUS=a file system's server does not answer");
    (watch, somebody, hanging)
}

#[test]
fn one_that_no_rule_names_is_left_alone() {
    need!(Need::Cachestat, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    let fs = HangingFs::new().unwrap();
    user.writes("rules", ALL_FILES);
    let mut watch = RunningWatch::by_rules(&user);
    let _somebody = Somebody::uses(&fs);
    let _hanging = fs.hang_for(watch.child.id());
    let file = user.file("a");
    let mut looks = 0;
    loop {
        dd(&file);
        std::thread::sleep(Duration::from_millis(100));
        if cached_mib(&file) == 0 {
            break;
        }
        looks += 1;
        assert!(looks < 100, "{}", watch.log());
    }
    assert!(
        watch.log().contains("(fuse) is left to the kernel"),
        "{}",
        watch.log()
    );
    assert_eq!(fs.waiting(), 0, "the server was asked");
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// The last close of a raw disk waits for its pages, and whoever opens the disk waits for that.
#[test]
fn a_raw_disk_is_not_waited_for() {
    need!(Need::Root, Need::Loop, Need::Cachestat);
    need!(Need::Tool("python3"), Need::Tool("losetup"));
    need!(all HangingFs::needs());
    for is_named in [false, true] {
        let user = User::new();
        let fs = HangingFs::new().unwrap();
        let mut attach = Command::new("losetup");
        let attach = attach.args(["--find", "--show"]).arg(fs.file());
        let disk = String::from_utf8(attach.output().unwrap().stdout).unwrap();
        let disk = disk.trim();
        let file = user.file("a");
        let rule = |path| format!("[[rule]]\npath = \"{path}\"\nmode = \"dontcache\"\n");
        let mut rules = rule(file.to_str().unwrap());
        if is_named {
            rules += &rule(disk);
        }
        user.writes("rules", &rules);
        let mut watch = RunningWatch::by_rules(&user);
        let program = "import os, sys\n\
                       disk = os.open(sys.argv[1], os.O_RDONLY)\n\
                       if sys.argv[2] == 'true': os.pread(disk, 1 << 20, 0)\n\
                       print('open', flush=True)\n\
                       sys.stdin.read()\n\
                       os.posix_fadvise(disk, 2 << 20, 1 << 20, os.POSIX_FADV_WILLNEED)\n\
                       os.close(disk)";
        let mut command = python(program);
        let mut somebody = Somebody::runs(command.args([disk, &is_named.to_string()]));
        somebody.says("open");
        // It opens the disk for a moment when it hears of it, which waits, too.
        let socket = user.file("runtime/watch.sock");
        while is_named && !asked(&socket, "snapshot\n").contains(disk) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let hanging = fs.hang();
        drop(somebody.child.stdin.take());
        while fs.waiting() == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        dd(&file);
        until_dropped(&file, &watch, 0);
        assert!(fs.waiting() > 0);
        drop(hanging);
        assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
        drop(somebody);
        let detached = Command::new("losetup").args(["--detach", disk]).status();
        assert!(detached.unwrap().success());
    }
}

/// A watch looks at what programs have open when it begins.
#[test]
fn one_that_is_hidden_is_left_alone() {
    need!(Need::Root, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    user.writes("rules", ALL_FILES);
    let fs = HangingFs::new().unwrap();
    let program = "import subprocess, sys, time\n\
                   file = open(sys.argv[1], 'r+b')\n\
                   subprocess.run(['umount', '-l', sys.argv[2]], check=True)\n\
                   print('hidden', flush=True)\n\
                   time.sleep(1000)";
    let mut command = python(program);
    let mut somebody = Somebody::runs(command.arg(fs.file()).arg(fs.path()));
    somebody.says("hidden");
    let _hanging = fs.hang();
    let mut watch = RunningWatch::by_rules(&user);
    assert_eq!(fs.waiting(), 0, "the server was asked");
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// To open a file of an overlay opens the one below, whose server does not answer. Where its
/// layers are, anybody may hide in a mount namespace.
#[test]
fn one_below_an_overlay_is_left_alone() {
    need!(Need::Root, Need::Tool("python3"));
    need!(Need::Filesystem("overlay"));
    need!(all HangingFs::needs());
    for unshare in ["", "import ctypes; ctypes.CDLL(None).unshare(0x20000)"] {
        let user = User::new();
        user.writes("rules", ALL_FILES);
        let fs = HangingFs::new().unwrap();
        let program = format!(
            "import os, subprocess, sys, time\n{unshare}\n\
             [os.mkdir(name) for name in ('merged', 'lower')]\n\
             layers = 'lowerdir=%s:lower' % sys.argv[1]\n\
             mount = ['mount', '-t', 'overlay', 'overlay', '-o', layers, 'merged']\n\
             subprocess.run(mount, check=True)\n\
             file = open('merged/file', 'rb')\n\
             print('open', flush=True)\n\
             time.sleep(1000)"
        );
        let mut command = python(&program);
        let command = command.arg(fs.path()).current_dir(user.file(""));
        let mut somebody = Somebody::runs(command);
        somebody.says("open");
        let hanging = fs.hang();
        let mut watch = RunningWatch::by_rules(&user);
        assert_eq!(fs.waiting(), 0, "the server was asked");
        let file = user.file("a");
        dd(&file);
        until_dropped(&file, &watch, 0);
        assert_eq!(fs.waiting(), 0, "the server was asked");
        assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
        drop(hanging);
        let _ = rustix::mount::unmount(user.file("merged"), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Whoever reads a process's mappings waits for its `mmap_lock`, and who has that for a
/// server.
#[test]
fn a_process_that_waits_for_one_is_not_waited_for() {
    need!(Need::Root, Need::Cachestat, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    user.writes("rules", ALL_FILES);
    user.writes("shared", "0123456789");
    let fs = HangingFs::new().unwrap();
    let program = "import mmap, os, sys, threading, time\n\
                   file = open(sys.argv[2], 'r+b')\n\
                   shared = mmap.mmap(file.fileno(), 10)\n\
                   fuse = open(sys.argv[1], 'rb')\n\
                   page = mmap.mmap(fuse.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ, offset=1 << 20)\n\
                   lines = [line for line in open('/proc/self/maps') if line.rstrip().endswith(sys.argv[1])]\n\
                   at = int(lines[0].split('-')[0], 16)\n\
                   memory = os.open('/proc/self/mem', os.O_RDONLY)\n\
                   print('mapped', flush=True)\n\
                   sys.stdin.readline()\n\
                   threading.Thread(target=lambda: os.pread(memory, 1, at)).start()\n\
                   time.sleep(0.5)\n\
                   print('held', flush=True)\n\
                   mmap.mmap(-1, 4096)";
    let mut command = python(program);
    let mut somebody = Somebody::runs(command.arg(fs.file()).arg(user.file("shared")));
    somebody.says("mapped");
    let _hanging = fs.hang();
    somebody.hears("\n");
    somebody.says("held");
    let look = format!(
        "(timeout -s KILL 2 ls -l /proc/{}/map_files); [ $? -gt 128 ]",
        somebody.child.id()
    );
    assert_eq!(user.sh(&look).code, 0, "it answers");
    let mut watch = RunningWatch::by_rules(&user);
    let file = user.file("a");
    dd(&file);
    until_dropped(&file, &watch, 0);
    // By then the file is looked for in all mappings.
    std::thread::sleep(Duration::from_secs(3));
    let again = user.file("b");
    dd(&again);
    until_dropped(&again, &watch, 0);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

#[test]
fn one_that_a_rule_names_is_waited_for_in_the_open() {
    need!(Need::Root, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    let fs = HangingFs::new().unwrap();
    let (mut watch, _somebody, hanging) = watch_that_waits(&user, &fs);
    let log = watch.log();
    assert!(log.contains("nothing is observed until it does"), "{log}");
    watch.signal("TERM");
    while !watch.log().contains("this process ends when that does") {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Another may take its place before it has ended.
    std::fs::remove_file(user.file("notify")).unwrap();
    user.writes("rules", "mode = \"buffered\"\n");
    let mut next = RunningWatch::by_rules(&user);
    assert_eq!(next.ends("TERM"), Some(0), "{}", next.log());
    assert!(watch.child.try_wait().unwrap().is_none());
    drop(hanging);
    assert_eq!(watch.child.wait().unwrap().code(), Some(0));
}

#[test]
fn rules_that_wait_for_one_are_not_said_to_be_in_force() {
    need!(Need::Root, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    let fs = HangingFs::new().unwrap();
    let (mut watch, _somebody, hanging) = watch_that_waits(&user, &fs);
    user.writes("rules", "mode = \"buffered\"\n");
    watch.signal("HUP");
    watch.says("RELOADING=1");
    watch.says("READY=1");
    let log = watch.log();
    assert!(!log.contains("are in force now"), "{log}");
    assert!(
        log.contains("come into force once the observer is free"),
        "{log}"
    );
    let socket = user.file("runtime/watch.sock");
    let is_in_force = || {
        let metrics = asked(&socket, "metrics\n");
        metrics.contains("\ndropbehind_rules_last_reload_successful{observer=\"watch\"} 1\n")
    };
    assert!(!is_in_force());
    drop(hanging);
    while !is_in_force() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

#[test]
fn one_that_no_rule_names_any_more_is_left_alone() {
    need!(Need::Root, Need::Cachestat, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    let fs = HangingFs::new().unwrap();
    let rule = |path| format!("[[rule]]\npath = {path:?}\nmode = \"dontcache\"\n");
    let others = rule(Path::new("*"));
    user.writes("rules", &(rule(&fs.path().join("*")) + &others));
    let mut watch = RunningWatch::by_rules(&user);
    user.writes("rules", &others);
    watch.signal("HUP");
    watch.says("RELOADING=1");
    // The marks follow the rules in the next round.
    while !watch.log().contains("(fuse) is left to the kernel") {
        watch.says("STATUS=");
    }
    let _somebody = Somebody::uses(&fs);
    let _hanging = fs.hang_for(watch.child.id());
    let file = user.file("a");
    dd(&file);
    until_dropped(&file, &watch, 0);
    assert_eq!(fs.waiting(), 0, "the server was asked");
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// To hold a file's writers takes its lock, and whoever writes what a server does not give keeps
/// that, so that not even the watch's death ends the wait.
#[test]
fn a_dead_watch_that_still_waits_for_a_files_lock_leaves_its_place() {
    need!(Need::Root, Need::Cachestat, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    user.writes(
        "rules",
        "[[rule]]\npath = \"*/held*\"\nmode = \"dontcache\"\nmax_dirty = \"16MiB\"\n",
    );
    let fs = HangingFs::new().unwrap();
    let mut watch = RunningWatch::by_rules(&user);
    // Each of these goes beyond the limit in a write that does not come to its end.
    let program = "import mmap, os, sys, threading\n\
                   fuse = open(sys.argv[1], 'rb')\n\
                   page = mmap.mmap(fuse.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ)\n\
                   large = bytes(32 << 20)\n\
                   def writes(number):\n\
                   \x20   file = os.open(sys.argv[2] + str(number), os.O_RDWR | os.O_CREAT)\n\
                   \x20   for step in range(32): os.pwrite(file, bytes(1 << 20), step << 20)\n\
                   \x20   os.pwritev(file, [large, page], 32 << 20)\n\
                   print('mapped', flush=True)\n\
                   sys.stdin.readline()\n\
                   for number in range(4): threading.Thread(target=writes, args=[number]).start()";
    let mut command = python(program);
    let mut somebody = Somebody::runs(command.arg(fs.file()).arg(user.file("held")));
    somebody.says("mapped");
    let hanging = fs.hang();
    somebody.hears("\n");
    std::thread::sleep(Duration::from_secs(3));
    watch.signal("KILL");
    std::thread::sleep(Duration::from_secs(1));
    let waits = format!(
        "grep -l '^State:.D' /proc/{}/task/*/status",
        watch.process()
    );
    assert_eq!(user.sh(&waits).code, 0, "no thread waits: {}", watch.log());
    std::fs::remove_file(user.file("notify")).unwrap();
    user.writes("rules", "mode = \"buffered\"\n");
    let mut next = RunningWatch::by_rules(&user);
    assert_eq!(next.ends("TERM"), Some(0), "{}", next.log());
    assert!(watch.child.try_wait().unwrap().is_none());
    drop(hanging);
}

/// One that nobody but its user may look into.
#[test]
fn one_that_a_rule_names_and_root_may_not_enter_is_told_of() {
    need!(Need::Fuse, Need::Tool("unshare"));
    let user = User::new();
    let folder = std::fs::canonicalize(user.file("")).unwrap().join("mine");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("**");
    user.writes(
        "rules",
        &format!("[[rule]]\npath = {path:?}\nmode = \"dontcache\"\n"),
    );
    let script = "exec 3<>/dev/fuse; \
                  mount -i -t fuse -o fd=3,rootmode=40000,user_id=65534,group_id=65534 x mine && \
                  exec \"$0\" watch --config rules";
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "sh",
            "-c",
            script,
            env!("CARGO_BIN_EXE_dropbehind"),
        ])
        .current_dir(user.file(""))
        .env("DROPBEHIND_RUNTIME_DIR", user.file("runtime"))
        .env("WATCHDOG_USEC", "600000");
    let mut watch = RunningWatch::start(&user, &mut command);
    watch.says("READY=1");
    let note = format!("{} (fuse) cannot be observed: ", folder.display());
    while !watch.log().contains(&note) {
        watch.says("WATCHDOG=1");
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// It takes a second until that is known.
#[test]
fn a_server_that_hangs_is_asked_for_one_path() {
    need!(all HangingFs::needs());
    let user = User::new();
    let fs = HangingFs::new().unwrap();
    let rule = |number| {
        let path = fs.path().join(format!("{number}/"));
        format!("[[rule]]\npath = {path:?}\nmode = \"dontcache\"\n")
    };
    let rules: Vec<String> = (0..20).map(rule).collect();
    user.writes("rules", &rules.concat());
    let hanging = fs.hang();
    let mut check = user.watch("--check --config rules");
    let check = check.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut check = Running::start(check.stdin(Stdio::null()));
    let mut stderr = BufReader::new(check.stderr.take().unwrap());
    let mut said = String::new();
    stderr.read_line(&mut said).unwrap();
    assert!(said.contains("line 1: nothing says within"), "{said}");
    // Only then can it end.
    drop(hanging);
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
}
