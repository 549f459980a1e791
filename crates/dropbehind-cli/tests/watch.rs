//! `dropbehind watch`: its rules, its signals, and what a service manager sees.

mod user;

use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{Fs, MountedFs, Need, need, residency};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use user::running_watch::RunningWatch;
use user::{User, finish};

const RULES: &str =
    "[[rule]]\nname = \"all\"\npath = \"/nowhere-of-this-name/**\"\nmode = \"dontcache\"\n";

impl User {
    /// A watch with just the privileges that the systemd unit gives it.
    fn watch_as_a_service(&self, args: &str) -> Command {
        let unit = packaged("dropbehind.service");
        let lines = unit.lines();
        let kept = lines
            .filter_map(|line| line.strip_prefix("CapabilityBoundingSet="))
            .flat_map(str::split_whitespace)
            .filter_map(|name| name.strip_prefix("CAP_"))
            .map(|name| format!(",+{}", name.to_lowercase()));
        let kept: String = kept.collect();
        let wrapper = ["setpriv", "--no-new-privs", "--bounding-set"];
        let mut command = self.wrapped(&wrapper, &format!("-all{kept}"), &self.watch(args));
        command.stdin(Stdio::null());
        command
    }

    /// A command, started by another one.
    fn wrapped(&self, wrapper: &[&str], last: &str, inner: &Command) -> Command {
        let mut command = Command::new(wrapper[0]);
        command
            .args(&wrapper[1..])
            .arg(last)
            .arg(inner.get_program())
            .args(inner.get_args())
            .current_dir(self.file(""));
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    fn writes(&self, name: &str, text: &str) {
        std::fs::write(self.file(name), text).unwrap();
    }
}

fn packaged(name: &str) -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    std::fs::read_to_string(packaging.join(name)).unwrap()
}

/// A program that knows nothing of us writes 32 MiB.
fn dd(path: &Path) {
    let output = format!("of={}", path.display());
    let dd = Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "count=32", "status=none", &output])
        .status();
    assert!(dd.unwrap().success());
}

/// Has a program write its input until the watch drops some of that. Which
/// program it is can be told only for as long as it runs, and on a busy machine
/// its events are read late.
fn writes_until_seen(program: &mut Child, path: &Path, watch: &RunningWatch) {
    let mut words = program.stdin.take().unwrap();
    words.write_all(&vec![1; 128 << 20]).unwrap();
    let mut looks = 0;
    while cached_mib(path) >= 64 {
        looks += 1;
        assert!(looks < 3000, "{} MiB\n{}", cached_mib(path), watch.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    words.write_all(&vec![1; 64 << 20]).unwrap();
    drop(words);
    assert!(program.wait().unwrap().success());
}

/// How much of a file is cached, in MiB; a page is one.
fn cached_mib(path: &Path) -> u64 {
    residency::cached(path).unwrap().cached_pages.div_ceil(256)
}

/// That a file of [`dd`] was kept. Of clean pages a machine takes some for itself
/// now and then; whoever drops the file leaves nothing.
#[track_caller]
fn assert_kept(path: &Path, watch: &RunningWatch) {
    let cached = cached_mib(path);
    assert!(
        cached >= 24,
        "{cached} MiB of {}\n{}",
        path.display(),
        watch.log()
    );
}

/// That a file was dropped. What a program has written by the time that its open is
/// told of, late on a busy machine, passes for others' and stays.
#[track_caller]
fn assert_dropped(path: &Path, watch: &RunningWatch) {
    let cached = cached_mib(path);
    assert!(
        cached <= 4,
        "{cached} MiB of {}\n{}",
        path.display(),
        watch.log()
    );
}

#[test]
fn check_tells_what_rules_mean() {
    let user = User::new();
    user.writes("rules", RULES);
    let said = finish(&mut user.watch("--check --config rules"));
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let text = said.text();
    assert!(
        text.starts_with("rules: 1 rule, no mistake\n1. \"all\" (line 1): dontcache\n"),
        "{text}"
    );
    assert!(text.contains("all other files: left alone"), "{text}");

    user.writes(
        "rules",
        "mode = \"write-behind\"\n[disk.nosuch]\nwindow = \"1M\"\n",
    );
    let said = finish(&mut user.watch("--check --config rules"));
    assert_eq!(said.code, 0);
    assert!(
        said.stderr.contains("note: there is no disk nosuch"),
        "{}",
        said.stderr
    );
    // Also from a variable, and nothing but the file is needed.
    let said = finish(
        user.watch("--check")
            .env("DROPBEHIND_CONFIG", user.file("rules")),
    );
    assert_eq!(said.code, 0, "{}", said.stderr);
}

#[test]
fn check_names_each_wrong_line() {
    let user = User::new();
    user.writes("rules", "mode = \"all\"\n\nwindow = 3\n");
    let said = finish(&mut user.watch("--check --config rules"));
    said.fails(1, "rules:1:8: ");
    said.fails(1, "\nrules:3:10: ");
    finish(&mut user.watch("--check --config missing")).fails(1, "missing");
    // Not only in --check.
    finish(&mut user.watch("--config rules")).fails(1, "rules:3:10: ");
    finish(&mut user.watch("--config missing")).fails(1, "--config");
}

#[test]
fn a_service_manager_is_told_of_each_step() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut watch = user.watch("--config rules");
    let mut watch = RunningWatch::start(&user, watch.env("WATCHDOG_USEC", "600000"));
    assert!(watch.says("READY=1").contains("\nSTATUS="));
    watch.says("WATCHDOG=1");
    assert!(
        watch.log().contains("<5>watching, by the rules of rules\n"),
        "{}",
        watch.log()
    );

    user.writes("rules", "mode = \"write-behind\"\n");
    watch.signal("HUP");
    assert!(watch.says("RELOADING=1").contains("\nMONOTONIC_USEC="));
    watch.says("READY=1");
    assert!(
        watch
            .log()
            .contains("<5>the rules of rules are in force now\n"),
        "{}",
        watch.log()
    );

    user.writes("rules", "mode = \"write-behind\"\nwindow = 1\n");
    watch.signal("HUP");
    watch.says("RELOADING=1");
    watch.says("READY=1");
    assert!(
        watch.log().contains("<3>rules:2:10: window is 1;"),
        "{}",
        watch.log()
    );
    assert!(
        watch.log().contains("<3>the rules stay as they were\n"),
        "{}",
        watch.log()
    );
    watch.says("WATCHDOG=1");

    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

#[test]
fn a_key_on_the_terminal_ends_it() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    assert_eq!(watch.ends("INT"), Some(0), "{}", watch.log());
}

#[test]
fn a_second_one_is_told_who_is_there() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    let mut first = RunningWatch::start(&user, &mut user.watch("--config rules"));
    first.says("READY=1");
    // Two at once would not end by themselves.
    let second = user.watch("--config rules --socket other.sock");
    let said = finish(&mut user.wrapped(&["timeout"], "60", &second));
    said.fails(
        1,
        &format!("process {}, by the rules of rules", first.child.id()),
    );
    assert!(
        said.stderr.starts_with("dropbehind: another watch"),
        "{}",
        said.stderr
    );
    // Nothing of the first is disturbed, and its death frees the place.
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    drop(first);
    std::fs::remove_file(user.file("notify")).unwrap();
    let mut next = RunningWatch::start(&user, &mut user.watch("--config rules"));
    next.says("READY=1");
    assert_eq!(next.ends("TERM"), Some(0));
}

#[test]
fn without_the_privilege_it_says_what_is_missing() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    user.writes("rules", RULES);
    let watch = user.watch("--config rules");
    let mut command = user.wrapped(&["setpriv", "--bounding-set"], "-sys_admin", &watch);
    let said = finish(&mut command);
    said.fails(3, "CAP_SYS_ADMIN");
    said.fails(3, "`dropbehind cp`");
}

#[test]
fn files_are_looked_after_by_the_rules_in_force() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    for folder in ["wanted", "hot", "later"] {
        std::fs::create_dir(home.join(folder)).unwrap();
    }
    let rule = |path: &str, mode: &str| {
        format!(
            "[[rule]]\npath = {:?}\nmode = \"{mode}\"\n",
            home.join(path)
        )
    };
    let rules = rule("wanted/hot.*", "buffered") + &rule("wanted/**", "dontcache");
    user.writes("rules", &rules);
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    let (wanted, hot) = (home.join("wanted/a"), home.join("wanted/hot.a"));
    let (other, later) = (home.join("other"), home.join("later/a"));
    for path in [&wanted, &hot, &other, &later] {
        dd(path);
    }
    assert_kept(&other, &watch);

    // A broken file leaves the rules in force; a whole one replaces them, also
    // for files of which the kernel was told not to tell again.
    user.writes("rules", "broken");
    watch.signal("HUP");
    watch.says("READY=1");
    let still = home.join("wanted/b");
    dd(&still);
    user.writes("rules", &rule("later/**", "dontcache"));
    watch.signal("HUP");
    watch.says("READY=1");
    let no_more = home.join("wanted/c");
    // The rules take their way through the observer: the next files show which
    // are in force, and the last of them is the one that is asked about.
    std::fs::remove_file(&later).unwrap();
    dd(&later);
    dd(&no_more);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    for path in [&wanted, &still, &later] {
        assert_dropped(path, &watch);
    }
    for path in [&hot, &other, &no_more] {
        assert_kept(path, &watch);
    }
}

#[test]
fn what_is_mounted_later_is_looked_after_and_can_be_unmounted() {
    need!(Need::Cachestat);
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    user.writes(
        "rules",
        "[[rule]]\npath = \"dropbehindwatch/**\"\nmode = \"dontcache\"\n",
    );
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    let disk = MountedFs::new(Fs::Ext4, 128 << 20).unwrap();
    let folder = disk.path().join("dropbehindwatch");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("a");
    // The mount is noticed by the observer's next look at its events.
    let mut looks = 0;
    loop {
        dd(&file);
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        if cached_mib(&file) == 0 {
            break;
        }
        looks += 1;
        assert!(looks < 300, "{}", watch.log());
    }
    // What it has looked after does not keep a disk from being removed.
    let unmount = || Command::new("umount").arg(disk.path()).output().unwrap();
    while !unmount().status.success() {
        looks += 1;
        assert!(looks < 300, "{:?}", unmount());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

#[test]
fn programs_are_looked_after_by_name() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes(
        "rules",
        "[[rule]]\nprogram = \"dropbehindtest\"\nmode = \"dontcache\"\n",
    );
    let copier = home.join("dropbehindtest");
    let dd_path = user.sh("command -v dd").text();
    std::fs::copy(dd_path.trim(), &copier).unwrap();
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    let (ours, others) = (home.join("ours"), home.join("others"));
    dd(&others);
    let mut copying = Command::new(&copier)
        .arg(format!("of={}", ours.display()))
        .args(["bs=1M", "iflag=fullblock", "status=none"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writes_until_seen(&mut copying, &ours, &watch);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_dropped(&ours, &watch);
    assert_kept(&others, &watch);
}

/// A rule for a program drops what that program reads, and not what others read of
/// the same file, who have it open before or open it meanwhile.
#[test]
fn what_other_programs_read_of_a_file_stays() {
    need!(Need::Root, Need::Cachestat);
    in_some_attempt(|reclaim| {
        let user = User::new();
        let home = std::fs::canonicalize(user.file("")).unwrap();
        user.writes(
            "rules",
            "[[rule]]\nprogram = \"dropbehindtest\"\nmode = \"dontcache\"\n",
        );
        let reader = home.join("dropbehindtest");
        let dd_path = user.sh("command -v dd").text();
        std::fs::copy(dd_path.trim(), &reader).unwrap();
        let [alone, before, meanwhile] =
            ["alone", "before", "meanwhile"].map(|name| home.join(name));
        for path in [&alone, &before, &meanwhile] {
            std::fs::write(path, vec![1; 64 << 20]).unwrap();
        }
        for path in [&alone, &before, &meanwhile] {
            residency::evict(path);
        }
        let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
        watch.says("READY=1");
        let reads = |path: &Path, others: &mut dyn FnMut()| {
            let mut reading = Command::new(&reader)
                .arg(format!("if={}", path.display()))
                .args(["bs=1M", "status=none"])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut output = reading.stdout.take().unwrap();
            let mut half = vec![0; 32 << 20];
            output.read_exact(&mut half).unwrap();
            // Events of this are read by then, or the file is looked at too late.
            std::thread::sleep(Duration::from_millis(300));
            others();
            output.read_exact(&mut half).unwrap();
            assert!(reading.wait().unwrap().success());
        };
        let mut block = vec![0; 16 << 20];
        reads(&alone, &mut || {});
        let file = File::open(&before).unwrap();
        reads(&before, &mut || {
            file.read_exact_at(&mut block, 48 << 20).unwrap();
        });
        let mut file = None;
        reads(&meanwhile, &mut || {
            let opened = file.insert(File::open(&meanwhile).unwrap());
            opened.read_exact_at(&mut block, 48 << 20).unwrap();
        });
        assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
        if cached_mib(&alone) > 0 {
            let cached = cached_mib(&alone);
            return Err(format!("{cached} MiB are kept\n{}", watch.log()));
        }
        for path in [&before, &meanwhile] {
            let map = residency::resident_map(path).unwrap();
            let last = map.len() / 4 * 3;
            let cached = map[last..].iter().filter(|&&page| page).count() as u64;
            reclaim.stays(path, cached * residency::page_bytes(), 16 << 20)?;
        }
        Ok(())
    });
}

/// What a socket answers to a line.
fn asked(socket: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    std::io::read_to_string(stream).unwrap()
}

#[test]
fn others_can_see_what_it_does() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    user.writes(
        "rules",
        &format!(
            "[[rule]]\npath = \"{}/data/\"\nmode = \"dontcache\"\n",
            home.display()
        ),
    );
    std::fs::create_dir(home.join("data")).unwrap();
    let metrics = home.join("watch.prom");
    let mut command = user.watch("--config rules --metrics watch.prom");
    let mut watch = RunningWatch::start(&user, command.env("WATCHDOG_USEC", "300000"));
    watch.says("READY=1");
    let socket = home.join("runtime/watch.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
    let is_counted = |text: &str| {
        text.lines().any(|line| {
            let value = line.strip_prefix("dropbehind_files_total{observer=\"watch\"} ");
            value.is_some_and(|value| value != "0")
        })
    };
    assert!(!is_counted(&asked(&socket, "metrics\n")));
    dd(&home.join("data/a"));
    // The next of these comes after the file was written and seen.
    let mut looks = 0;
    while !is_counted(&std::fs::read_to_string(&metrics).unwrap()) {
        watch.says("WATCHDOG=1");
        looks += 1;
        assert!(
            looks < 600,
            "{}",
            std::fs::read_to_string(&metrics).unwrap()
        );
    }
    assert!(is_counted(&asked(&socket, "metrics\n")));
    let mut top = user.dropbehind(["top", "--once"]);
    let seen = finish(top.env("DROPBEHIND_RUNTIME_DIR", home.join("runtime")));
    assert!(seen.code == 0 && seen.text().contains("watch"), "{seen:?}");
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert!(!socket.exists() && !metrics.exists());
}

#[test]
fn outlets_that_cannot_be_are_said_at_once() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    for (args, saying) in [
        ("--config rules --metrics missing/watch.prom", "missing"),
        ("--config rules --socket rules/sock", "--socket"),
    ] {
        let watch = user.watch(args);
        finish(&mut user.wrapped(&["timeout"], "60", &watch)).fails(1, saying);
    }
    // Neither took the machine's place, or left anything.
    let mut watch = RunningWatch::start(
        &user,
        &mut user.watch("--config rules --socket here.sock --metrics m"),
    );
    watch.says("READY=1");
    assert!(
        watch.log().contains("<4>m: the node exporter passes over"),
        "{}",
        watch.log()
    );
    assert!(user.file("here.sock").exists() && !user.file("runtime/watch.sock").exists());
    assert_eq!(watch.ends("TERM"), Some(0));
}

#[test]
fn the_units_privileges_are_enough() {
    need!(Need::Root, Need::Cachestat, Need::Tool("setpriv"));
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let private = home.join("private");
    std::fs::create_dir(&private).unwrap();
    let nobody = 65534;
    std::os::unix::fs::chown(&private, Some(nobody), Some(nobody)).unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Another user's program is to be told by the path of its file.
    user.writes(
        "rules",
        &format!(
            "[[rule]]\npath = \"{}/**\"\nprogram = \"/**/dd\"\nmode = \"dontcache\"\n",
            private.display()
        ),
    );
    // One file is open already, so that no event brings a descriptor of it.
    let (secret, open_before) = (private.join("secret"), private.join("before"));
    let mut writer = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["dd", "bs=1M", "status=none", "iflag=fullblock"])
        .arg(format!("of={}", open_before.display()))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = writer.stdin.take().unwrap();
    words.write_all(&vec![1; 1 << 20]).unwrap();
    while !open_before.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::set_permissions(&open_before, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut watch = RunningWatch::start(&user, &mut user.watch_as_a_service("--config rules"));
    watch.says("READY=1");
    words.write_all(&vec![1; 64 << 20]).unwrap();
    drop(words);
    assert!(writer.wait().unwrap().success());
    // Which program it is can be told for as long as it runs.
    let mut writer = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args([
            "sh",
            "-c",
            "umask 077 && exec dd bs=1M iflag=fullblock status=none of=\"$0\"",
        ])
        .arg(&secret)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writes_until_seen(&mut writer, &secret, &watch);
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
    assert_dropped(&secret, &watch);
    // What it wrote before we came counts as others'.
    let left = cached_mib(&open_before);
    assert!(left <= 1, "{left} MiB\n{}", watch.log());
}

#[test]
fn the_unit_is_well_formed_and_has_no_mount_namespace() {
    need!(Need::Tool("systemd-analyze"));
    let user = User::new();
    let unit = packaged("dropbehind.service");
    for option in [
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ReadOnlyPaths",
        "ReadWritePaths",
        "InaccessiblePaths",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ProtectProc",
        "PrivateMounts",
        "BindPaths",
        "TemporaryFileSystem",
        "DynamicUser",
        "RootDirectory",
        "MountFlags",
        "DevicePolicy",
        "ProtectClock",
        "PrivateUsers",
        "PrivateNetwork",
    ] {
        let set = unit
            .lines()
            .any(|line| line.starts_with(&format!("{option}=")));
        assert!(
            !set,
            "{option} would give the service a mount namespace of its own"
        );
    }
    let here = env!("CARGO_BIN_EXE_dropbehind");
    user.writes(
        "dropbehind.service",
        &unit.replace("/usr/bin/dropbehind", here),
    );
    let said = user.sh("systemd-analyze verify --man=no ./dropbehind.service");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
}

/// Whether the kernel does not tell a process of what is done to this file.
fn is_ignored(process: u32, path: &Path) -> bool {
    let inode = format!("ino:{:x} ", std::fs::metadata(path).unwrap().ino());
    let entries = std::fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let infos = entries.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
    let marks = infos.flat_map(|info| info.lines().map(str::to_owned).collect::<Vec<_>>());
    marks
        .filter(|mark| mark.starts_with("fanotify ") && mark.contains(&inode))
        .any(|mark| !mark.contains("ignored_mask:0"))
}

#[test]
fn the_kernel_need_not_tell_of_what_no_rule_can_want() {
    need!(Need::Root);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    std::fs::create_dir(home.join("wanted")).unwrap();
    user.writes(
        "rules",
        &format!(
            "[[rule]]\npath = \"{}/wanted/**\"\nprogram = \"nobody\"\nmode = \"dontcache\"\n",
            home.display()
        ),
    );
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    // Another program may still want the first; nobody ever wants the second.
    let (perhaps, never) = (home.join("wanted/a"), home.join("b"));
    dd(&perhaps);
    dd(&never);
    let process = watch.child.id();
    let mut looks = 0;
    while !is_ignored(process, &never) {
        looks += 1;
        assert!(looks < 3000, "it still hears of {}", never.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_ignored(process, &perhaps));
    // Other rules may want it.
    user.writes(
        "rules",
        &format!(
            "[[rule]]\npath = \"{}/**\"\nmode = \"dontcache\"\n",
            home.display()
        ),
    );
    watch.signal("HUP");
    watch.says("READY=1");
    while is_ignored(process, &never) {
        looks += 1;
        assert!(looks < 6000, "it never hears of {} again", never.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// Whether a process has this file open.
fn holds(process: u32, path: &Path) -> bool {
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .any(|link| link == path)
}

/// Whether a process has a file of this name open that was deleted.
fn holds_deleted(process: u32, path: &Path) -> bool {
    holds(process, Path::new(&format!("{} (deleted)", path.display())))
}

#[test]
fn who_read_a_file_does_not_keep_it_from_being_deleted() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let rule = format!(
        "[[rule]]\npath = \"{}/data/**\"\nmode = \"dontcache\"\n",
        home.display()
    );
    user.writes("rules", &rule);
    std::fs::create_dir(home.join("data")).unwrap();
    let mut watch = RunningWatch::start(&user, &mut user.watch("--config rules"));
    watch.says("READY=1");
    let process = watch.child.id();
    let (mut looks, pause) = (0, Duration::from_millis(10));
    let mut until = |done: &dyn Fn() -> bool| {
        while !done() {
            looks += 1;
            assert!(looks < 12_000, "{}", watch.log());
            std::thread::sleep(pause);
        }
    };
    let read: Vec<_> = (0..4)
        .map(|number| home.join(format!("data/read{number}")))
        .collect();
    for (slow, path) in read.iter().enumerate() {
        std::fs::write(path, [1; 4096]).unwrap();
        // Writer and reader are told of one after the other.
        until(&|| holds(process, path));
        let mut file = std::fs::File::open(path).unwrap();
        std::io::copy(&mut file, &mut std::io::sink()).unwrap();
        std::thread::sleep(pause * 5 * u32::try_from(slow).unwrap());
        drop(file);
        std::thread::sleep(pause * 5);
        std::fs::remove_file(path).unwrap();
    }
    // One that nobody read waits for its grace, should it be deleted; those
    // before are gone with the second such. Where events were merged, a close is
    // found by a look for users, a second or so later.
    let mut held = read;
    for number in 0..4 {
        let written = home.join(format!("data/written{number}"));
        std::fs::write(&written, [1; 4096]).unwrap();
        std::fs::remove_file(&written).unwrap();
        until(&|| holds_deleted(process, &written));
        until(&|| !holds_deleted(process, &written));
        held.retain(|path| holds_deleted(process, path));
        if number > 0 && held.is_empty() {
            break;
        }
    }
    assert!(held.is_empty(), "{held:?}\n{}", watch.log());
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}
