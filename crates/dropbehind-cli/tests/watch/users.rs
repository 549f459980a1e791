//! Who uses a file without having opened it by itself.

use crate::files::{assert_kept, cold, until_dropped};
use crate::user::running_watch::RunningWatch;
use crate::user::{User, finish};
use dropbehind_testbed::{Need, Running, need, residency, skip};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// For files of one test only: the others run beside it.
fn rules(home: &Path) -> String {
    format!(
        "[[rule]]\npath = \"{}/*.wanted\"\nmode = \"dontcache\"\n",
        home.display()
    )
}

/// What the watch tells `top`.
fn asked(user: &User) -> Value {
    let mut top = user.dropbehind(["top", "--once", "--json"]);
    let said = finish(top.env("DROPBEHIND_RUNTIME_DIR", user.file("runtime")));
    serde_json::from_slice(&said.stdout).unwrap()
}

/// Waits until the watch tells that so much has been brought in, and is dropped or left by now.
/// Nobody opens the files for that.
fn brought(user: &User, bytes: u64, watch: &RunningWatch) -> Value {
    let mut looks = 0;
    loop {
        let sample = asked(user);
        let totals = &sample["totals"];
        let [brought, dropped, left] = ["brought_bytes", "dropped_bytes", "left_bytes"]
            .map(|name| totals[name].as_u64().unwrap());
        if brought >= bytes && brought == dropped + left {
            return sample;
        }
        looks += 1;
        assert!(looks < 3000, "{totals}\n{}", watch.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A shell that goes on with its script at each line that it is given, and is there until
/// it is dropped.
struct Shell(Running);

impl Shell {
    fn starts(folder: &Path, namespace: bool, script: &str) -> Self {
        let script = format!("{script}\necho done; read end");
        let mut command = Command::new(if namespace { "unshare" } else { "env" });
        if namespace {
            // All that it starts ends with it.
            command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        }
        command
            .args(["sh", "-c", &script])
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self(Running::start(command))
    }

    fn goes_on(&mut self) {
        self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn says(&mut self, expected: &str) {
        let mut line = String::new();
        // Line by line, so that nothing of the next is read.
        let mut said = BufReader::with_capacity(1, self.0.stdout.as_mut().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
    }
}

/// Anybody may give a file that he can read a name of a rule's, in a mount namespace, and
/// open it by that name as often as he likes.
#[test]
fn what_is_inherited_is_wanted_by_the_path_of_its_open() {
    need!(Need::Root, Need::Cachestat, Need::Tool("unshare"));
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes("rules", &rules(&home));
    let [inherited, flooded] = ["inherited", "flooded"].map(|name| cold(home.join(name), 32 << 20));
    let wanted = cold(home.join("file.wanted"), 32 << 20);
    let marker = cold(home.join("marker.wanted"), 32 << 20);
    let mut watch = RunningWatch::by_rules(&user);
    let attack = "touch a.wanted b.wanted
        mount --bind inherited a.wanted && mount --bind flooded b.wanted
        exec 3<a.wanted 4<b.wanted
        echo open; read go
        for i in $(seq 70); do sleep 1000 <b.wanted & done";
    let mut attacker = Shell::starts(&home, true, attack);
    attacker.says("open");
    // `cat` is a child that has the file from the shell, or the shell's process itself.
    let child = "exec 3<$0; echo open; read go; cat <&3 >/dev/null";
    let itself = "exec 3<$0; echo open; read go; exec sh -c 'cat >/dev/null <&3; echo done; exec sleep 1000'";
    let script = |script: &str, path: &Path| script.replace("$0", path.to_str().unwrap());
    let mut victims = [
        Shell::starts(&home, false, &script(child, &inherited)),
        Shell::starts(&home, false, &script(itself, &flooded)),
        Shell::starts(&home, false, &script(child, &wanted)),
    ];
    for victim in &mut victims {
        victim.says("open");
    }
    attacker.goes_on();
    attacker.says("done");
    for victim in &mut victims {
        victim.goes_on();
        victim.says("done");
    }
    until_dropped(&wanted, &watch, 0);
    std::fs::read(&marker).unwrap();
    until_dropped(&marker, &watch, 0);
    drop((victims, attacker));
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_kept(&inherited, &watch);
    assert_kept(&flooded, &watch);
}

/// A process may execute another program, with the file open still, or to be opened anew.
#[test]
fn a_program_counts_as_what_it_is_by_now() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes(
        "rules",
        "[[rule]]\nprogram = [\"dbt-drops\", \"dbt-holds\"]\nmode = \"dontcache\"\n",
    );
    let named = |program, name: &str| {
        let path = user
            .sh(&format!("readlink -f $(command -v {program})"))
            .text();
        std::fs::copy(path.trim(), home.join(name)).unwrap();
    };
    named("cat", "dbt-drops");
    named("sh", "dbt-holds");
    let file = |name: &str| cold(home.join(name), 32 << 20);
    let files = ["a", "b", "c"].map(file);
    let mut watch = RunningWatch::by_rules(&user);
    // Without somebody whose rule means the files, nobody would know them.
    let mut holder = Shell::starts(
        &home,
        false,
        "exec ./dbt-holds -c 'exec 3<a 4<b 5<c; echo open; read go'",
    );
    holder.says("open");
    // One has the file from before, one opens it anew, and one was meant before.
    let scripts = [
        "exec 3<a; sleep 1; exec ./dbt-drops <&3 >/dev/null",
        "exec 3<b 3<&-; sleep 1; exec ./dbt-drops b >/dev/null",
        "exec ./dbt-holds -c 'exec 3<c; sleep 1; exec cat <&3 >/dev/null'",
    ];
    for script in scripts {
        let ran = user.sh(script);
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    for path in &files[..2] {
        until_dropped(path, &watch, 0);
    }
    drop(holder);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_kept(&files[2], &watch);
}

/// What is cached of a file that is still open was brought in, too.
#[test]
fn what_waits_in_an_open_file_was_brought_in() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes("rules", &rules(&home));
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    let script = "exec 3>small.wanted; head -c 100K /dev/zero >&3; echo open; read go";
    let mut writer = Shell::starts(&home, false, script);
    writer.says("open");
    let seen = residency::fincore(&home.join("small.wanted")).unwrap() * residency::page_bytes();
    // All of it has been reported by then.
    let is_known = |totals: &Value| totals["cached_bytes"] == seen;
    let totals = (0..500).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        Some(asked(&user)["totals"].take()).filter(is_known)
    });
    let totals = totals.unwrap_or_else(|| panic!("{seen} B are cached: {}", watch.log()));
    assert_eq!(totals["brought_bytes"], seen, "{totals}");
    drop(writer);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// A process with thousands of descriptors takes long to search for the path by which it has a
/// file. Until that is found, its pages stay, and they are not told as kept for others.
#[test]
fn what_a_search_that_was_cut_short_leaves_is_told() {
    const DESCRIPTORS: u64 = 18_000;
    need!(Need::Root, Need::Cachestat, Need::Tool("python3"));
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if most.is_some_and(|most| most < DESCRIPTORS + 100) {
        skip!("no process may have {DESCRIPTORS} descriptors");
    }
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    // Nobody else's files, which would count, too.
    let path = home.join("*.read");
    user.writes(
        "rules",
        &format!("[[rule]]\npath = {path:?}\nmode = \"dontcache\"\n"),
    );
    let [file, marker] = ["file.read", "marker.read"].map(|name| cold(home.join(name), 32 << 20));
    let script = format!(
        "import os, resource, sys\n\
         most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
         null = os.open('/dev/null', os.O_RDONLY)\n\
         for _ in range({DESCRIPTORS}): os.dup(null)\n\
         data = os.open('file.read', os.O_RDONLY)\n\
         if os.fork() == 0:\n\
         \x20   while os.read(data, 1 << 20): pass\n\
         \x20   print('done', flush=True)\n\
         \x20   sys.stdin.readline()\n\
         \x20   os._exit(0)\n\
         os.wait()\n\
         print('done', flush=True)"
    );
    user.writes("reads.py", &script);
    let mut watch = RunningWatch::by_rules(&user);
    let mut reader = Shell::starts(&home, false, "exec python3 reads.py");
    reader.says("done");
    // What it has dropped, and all before that, it has read of.
    std::fs::read(&marker).unwrap();
    brought(&user, 32 << 20, &watch);
    reader.goes_on();
    reader.says("done");
    let sample = brought(&user, 64 << 20, &watch);
    // The kernel may have taken some since.
    let stays = residency::cached(&file).unwrap().cached_pages * residency::page_bytes();
    let bytes = |name: &str| sample["totals"][name].as_u64().unwrap();
    assert!(
        stays > 0 && bytes("left_bytes") >= stays,
        "{stays}: {sample}"
    );
    assert_eq!(bytes("kept_bytes"), 0, "{sample}");
    let notes = sample["notes"].to_string();
    for note in [
        "some searches were cut short",
        "it is not known whether an observed program brought them in",
    ] {
        assert!(notes.contains(note), "{notes}");
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// One file under two names, which different rules match.
#[test]
fn each_user_of_a_file_is_shown_with_its_own_rule() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let names = ["first", "second"];
    let rules = |modes: [&str; 2]| {
        let rules = [0, 1].map(|place| {
            let (name, path) = (names[place], home.join(names[place]));
            let mode = modes[place];
            format!("[[rule]]\nname = {name:?}\npath = {path:?}\nmode = {mode:?}\n")
        });
        user.writes("rules", &rules.concat());
    };
    rules(["auto", "dontcache"]);
    cold(home.join("first"), 32 << 20);
    std::fs::hard_link(home.join("first"), home.join("second")).unwrap();
    let mut watch = RunningWatch::by_rules(&user);
    let shells = names.map(|name| {
        // Those that have ended keep the rule that they had.
        let script = format!("exec 3<{name}; tail -c +1 -f --pid $$ {name} >/dev/null 2>&1 &");
        let mut shell = Shell::starts(&home, false, &script);
        shell.says("done");
        shell
    });
    let mut looks = 0;
    let (users, file) = loop {
        let sample = asked(&user);
        let file = &sample["files"][0];
        let users = file["users"].as_array().cloned();
        let of = |shell: &Shell| {
            let users = users.iter().flatten();
            let user = users.clone().find(|user| user["process"] == shell.0.id())?;
            Some(user["rule"].as_str().unwrap().to_owned())
        };
        if let [Some(first), Some(second)] = [0, 1].map(|place| of(&shells[place])) {
            break ([first, second], file.clone());
        }
        looks += 1;
        assert!(looks < 3000, "{sample}\n{}", watch.log());
    };
    assert_eq!(users, names);
    // The file has the mode that serves both, and is shown with the rule that gives it.
    assert_eq!([&file["mode"], &file["rule"]], ["dontcache", "second"]);
    for (modes, mode, rule) in [
        (["auto", "write-through"], "auto", "first"),
        (["auto", "noreuse"], "dontcache", "first + second"),
    ] {
        rules(modes);
        watch.signal("HUP");
        watch.says("READY=1");
        let has_changed = |sample: &Value| sample["files"][0]["mode"] == mode;
        let mut sample = asked(&user);
        while !has_changed(&sample) {
            looks += 1;
            assert!(looks < 3000, "{sample}\n{}", watch.log());
            sample = asked(&user);
        }
        assert_eq!(sample["files"][0]["rule"], rule, "{sample}");
    }
    drop(shells);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// Files of programs that end at once: nobody finds these whose events are lost.
#[track_caller]
fn short_files_go(user: &User, home: &Path, watch: &RunningWatch) {
    for first in (0..100).step_by(20) {
        let last = first + 19;
        let writes =
            format!("for i in $(seq {first} {last}); do head -c 64K /dev/zero >$i.wanted; done");
        let written = user.sh(&writes);
        assert_eq!(written.code, 0, "{}", written.stderr);
        for number in first..=last {
            until_dropped(&home.join(format!("{number}.wanted")), watch, 0);
        }
    }
}

/// A watch that may have so many descriptors.
fn watch_with_descriptors(user: &User, descriptors: u32) -> RunningWatch {
    let mut command = Command::new("prlimit");
    let plain = user.watch("--config rules");
    command
        .arg(format!("--nofile={descriptors}:{descriptors}"))
        .arg(plain.get_program())
        .args(plain.get_args());
    command.envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command.current_dir(user.file(""));
    let mut watch = RunningWatch::start(user, &mut command);
    watch.says("READY=1");
    watch
}

/// The watch takes no more opens while closed files hold most of its descriptors. What programs
/// bring into the files of those opens meanwhile is theirs.
#[test]
fn files_of_a_burst_go_though_they_outnumber_the_descriptors() {
    const FILES: u64 = 3000;
    need!(
        Need::Root,
        Need::Cachestat,
        Need::Tool("python3"),
        Need::Tool("prlimit")
    );
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    // Nobody else's files, which would count, too.
    let path = home.join("*.wanted");
    user.writes(
        "rules",
        &format!("[[rule]]\npath = {path:?}\nmode = \"dontcache\"\n"),
    );
    let mut watch = watch_with_descriptors(&user, 1000);
    let script = format!(
        "for number in range({FILES}):\n\
         \x20   with open('%d.wanted' % number, 'wb', 0) as file: file.write(b'x' * 4096)"
    );
    user.writes("writes.py", &script);
    let written = user.sh("python3 writes.py");
    assert_eq!(written.code, 0, "{}", written.stderr);
    let sample = brought(&user, FILES * residency::page_bytes(), &watch);
    for name in ["left_bytes", "kept_bytes"] {
        assert_eq!(sample["totals"][name], 0, "{sample}");
    }
    for number in 0..FILES {
        let file = home.join(format!("{number}.wanted"));
        assert_eq!(residency::fincore(&file).unwrap(), 0, "{}", watch.log());
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// Of a file with a lease, the kernel says what it says when there is no event.
#[test]
fn leases_of_some_hide_no_others() {
    need!(Need::Root, Need::Cachestat, Need::Tool("python3"));
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes("rules", &rules(&home));
    let mut watch = RunningWatch::by_rules(&user);
    let leases = "import fcntl, os, resource, signal, sys\n\
        signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
        for number in range(3000):\n\
        \x20   file = os.open('lease%d' % number, os.O_RDWR | os.O_CREAT)\n\
        \x20   try: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
        \x20   except OSError: pass  # The watch has it open in this moment.\n\
        print('done', flush=True)\n\
        sys.stdin.read()";
    user.writes("leases", leases);
    let mut holder = Shell::starts(&home, false, "exec python3 leases");
    holder.says("done");
    short_files_go(&user, &home, &watch);
    drop(holder);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

#[test]
fn more_open_files_than_descriptors_hide_no_others() {
    need!(
        Need::Root,
        Need::Cachestat,
        Need::Tool("python3"),
        Need::Tool("prlimit")
    );
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes("rules", &rules(&home));
    let mut watch = watch_with_descriptors(&user, 1000);
    let open = "import resource, sys\n\
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))\n\
        files = [open('%d.open.wanted' % number, 'wb', 0) for number in range(3000)]\n\
        for file in files: file.write(b'x')\n\
        print('done', flush=True)\n\
        sys.stdin.read()";
    user.writes("open", open);
    let mut holder = Shell::starts(&home, false, "exec python3 open");
    holder.says("done");
    // All these opens have been read once a file that was written after them goes.
    let marker = home.join("marker.wanted");
    std::fs::write(&marker, vec![1; 64 << 10]).unwrap();
    until_dropped(&marker, &watch, 0);
    short_files_go(&user, &home, &watch);
    drop(holder);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// Threads of the kernel use it, and no process has it open.
#[test]
fn the_file_behind_a_loop_device_is_found() {
    need!(Need::Root, Need::Cachestat, Need::Loop);
    need!(Need::Tool("losetup"), Need::Tool("dd"));
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes("rules", &rules(&home));
    let image = cold(home.join("image.wanted"), 64 << 20);
    let mut attach = Command::new("losetup");
    let attach = attach.args(["--find", "--show", "--direct-io=off"]);
    let disk = String::from_utf8(attach.arg(&image).output().unwrap().stdout).unwrap();
    let disk = disk.trim();
    let mut watch = RunningWatch::by_rules(&user);
    let copies = [
        format!("if=/dev/zero of={disk} oflag=direct"),
        format!("if={disk} of=/dev/null iflag=direct skip=32"),
    ];
    for (copy, bytes) in copies.iter().zip([32 << 20, 64 << 20]) {
        let mut dd = Command::new("dd");
        dd.args(["bs=1M", "count=32", "status=none"]);
        assert!(dd.args(copy.split(' ')).status().unwrap().success());
        let sample = brought(&user, bytes, &watch);
        assert_eq!(sample["totals"]["left_bytes"], 0, "{}", watch.log());
    }
    let cached = residency::cached(&image).unwrap();
    assert_eq!(cached.cached_pages, 0, "{}", watch.log());
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    let detached = Command::new("losetup").args(["--detach", disk]).status();
    assert!(detached.unwrap().success());
}
