//! Rules about real processes in real control groups.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use dropbehind_observer::rules::{Candidate, Rules};
use dropbehind_observer::rules_file::RulesFile;
use dropbehind_testbed::{MemoryCgroup, Running, Scratch, need};

/// A process that waits to be ended.
struct Sleeper(Running);

impl Sleeper {
    /// From a program of this name: a copy of sleep.
    fn named(home: &Scratch, name: &str) -> Self {
        let program = copy_of_sleep(home, name);
        Self::from(&mut Command::new(program))
    }

    fn from(command: &mut Command) -> Self {
        Self(Running::start(command.arg("1000").stdin(Stdio::null())))
    }

    fn id(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }
}

fn copy_of_sleep(home: &Scratch, name: &str) -> PathBuf {
    let program = home.file(name);
    // By a process of its own: a descriptor of ours that may write it would be
    // held for a moment by what another test just starts, and a program that is
    // open for writing cannot be run.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&program).status();
    assert!(copied.expect("cp").success());
    program
}

/// Whether a rule with this condition matches a file that the process opens.
fn matches(condition: &str, process: i32) -> bool {
    let text = format!("[[rule]]\nmode = \"dontcache\"\n{condition}\n");
    let rules = RulesFile::parse(&text).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    let path = Path::new("/srv/x");
    let candidate = Candidate {
        path,
        name: None,
        size_bytes: None,
        process,
        disk: "vda",
    };
    rules.settings_for(candidate).is_some()
}

#[test]
fn programs_are_known_by_name_and_by_file() {
    let home = Scratch::new().unwrap();
    let sleeper = Sleeper::named(&home, "copier");
    let folder = std::fs::canonicalize(home.path()).unwrap();
    let file = folder.join("copier");
    for (condition, expected) in [
        ("program = \"copier\"".to_owned(), true),
        ("program = [\"other\", \"cop*\"]".to_owned(), true),
        (format!("program = {file:?}"), true),
        (format!("program = \"{}/*\"", folder.display()), true),
        ("program = \"sleep\"".to_owned(), false),
        ("program = \"/bin/copier\"".to_owned(), false),
        ("program = \"copier\"\npath = \"/srv/*\"".to_owned(), true),
        ("program = \"copier\"\npath = \"/else/*\"".to_owned(), false),
    ] {
        assert_eq!(matches(&condition, sleeper.id()), expected, "{condition}");
    }
}

#[test]
fn long_names_are_known_though_the_kernel_cuts_them() {
    let home = Scratch::new().unwrap();
    let script = home.file("nightly-backup-of-all.sh");
    // It says so when the interpreter runs it, and stays what it is.
    std::fs::write(&script, "#!/bin/sh\necho ready\nread _\n").unwrap();
    let mut permissions = std::fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    std::fs::set_permissions(&script, permissions).unwrap();
    let mut child = Command::new(&script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let process = i32::try_from(child.id()).unwrap();
    let script = matches("program = \"nightly-backup-of-all.sh\"", process);
    let start_only = matches("program = \"nightly-back\"", process);
    let interpreter = matches("program = \"/**/{sh,dash,bash}\"", process);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(script && !start_only && interpreter);
}

#[test]
fn a_removed_program_is_still_known() {
    let home = Scratch::new().unwrap();
    let sleeper = Sleeper::named(&home, "upgraded");
    std::fs::remove_file(home.file("upgraded")).unwrap();
    assert!(matches("program = \"**/upgraded\"", sleeper.id()));
}

#[test]
fn a_new_program_in_the_same_process_is_seen() {
    let home = Scratch::new().unwrap();
    let second = copy_of_sleep(&home, "second");
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", "echo first; read _; exec \"$0\" 1000"])
        .arg(&second)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    let process = i32::try_from(child.id()).unwrap();
    let rules = "[[rule]]\nmode = \"dontcache\"\nprogram = \"second\"\n";
    let rules = RulesFile::parse(rules).unwrap();
    let path = Path::new("/srv/x");
    let wanted = || {
        let candidate = Candidate {
            path,
            name: None,
            size_bytes: None,
            process,
            disk: "vda",
        };
        rules.settings_for(candidate).is_some()
    };
    let before = wanted();
    drop(child.stdin.take());
    // The same rules object: what it knew of the process has to be forgotten.
    while std::fs::read_link(format!("/proc/{process}/exe")).unwrap() != second {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = wanted();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!before && after);
}

#[test]
fn nobody_has_no_program() {
    for process in [0, -1, i32::MAX] {
        assert!(!matches("program = \"*\"", process));
        assert!(!matches("cgroup = \"/**\"", process));
        assert!(matches("path = \"/srv/*\"", process));
    }
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    assert!(!matches(
        "program = \"*\"",
        i32::try_from(gone.id()).unwrap()
    ));
}

#[test]
fn real_control_groups_are_found() {
    need!(all MemoryCgroup::needs());
    let group = MemoryCgroup::new(64 << 20).unwrap();
    let name = group.path().file_name().unwrap().to_str().unwrap();
    let sleeper = group.spawn(Command::new("sleep").arg("1000")).unwrap();
    let sleeper = Sleeper(sleeper.into());
    let outside = Sleeper::from(&mut Command::new("sleep"));
    for (condition, expected) in [
        (format!("cgroup = \"/**/{name}\""), true),
        (
            format!("cgroup = \"/**/{}*\"", &name[..name.len() - 1]),
            true,
        ),
        ("cgroup = \"/nothing-of-this-name\"".to_owned(), false),
        (
            format!("cgroup = \"/**/{name}\"\nprogram = \"sleep\""),
            true,
        ),
        (format!("cgroup = \"/**/{name}\"\nprogram = \"dd\""), false),
        // It is in a group of the memory controller, not of systemd.
        (format!("unit = \"{name}.service\""), false),
    ] {
        assert_eq!(matches(&condition, sleeper.id()), expected, "{condition}");
        assert!(!matches(&condition, outside.id()), "{condition}");
    }
}

/// A group in a hierarchy in which systemd keeps its units.
struct UnitGroup(PathBuf);

impl UnitGroup {
    fn new(hierarchy: &str, slice: &str, unit: &str) -> std::io::Result<Self> {
        let path = Path::new(hierarchy).join(slice).join(unit);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for UnitGroup {
    fn drop(&mut self) {
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = std::fs::remove_dir(self.0.parent().unwrap());
    }
}

#[test]
fn units_are_found_in_both_versions() {
    need!(dropbehind_testbed::Need::Root);
    let hierarchies = [
        "/sys/fs/cgroup/systemd",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup",
    ];
    let mut tried = 0;
    for hierarchy in hierarchies {
        if !Path::new(hierarchy).join("cgroup.procs").exists() {
            continue;
        }
        let own = std::process::id();
        let slice = format!("dropbehindtest{own}.slice");
        let Ok(group) = UnitGroup::new(hierarchy, &slice, "nightly@home.service") else {
            continue;
        };
        let sleeper = Sleeper::from(&mut Command::new("sleep"));
        std::fs::write(group.0.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
        for (condition, expected) in [
            ("unit = \"nightly@home\"".to_owned(), true),
            ("unit = \"nightly@*.service\"".to_owned(), true),
            (format!("unit = \"{slice}\""), true),
            (format!("cgroup = \"/**/{slice}\""), true),
            ("unit = \"nightly@away\"".to_owned(), false),
        ] {
            assert_eq!(
                matches(&condition, sleeper.id()),
                expected,
                "{hierarchy}: {condition}"
            );
        }
        // A group below a unit is no unit, whatever its name: its processes may have made it.
        let unit = format!("{slice}/nightly@home.service");
        let below = UnitGroup::new(hierarchy, &unit, "other.service").unwrap();
        std::fs::write(below.0.join("cgroup.procs"), sleeper.id().to_string()).unwrap();
        assert!(matches("unit = \"nightly@home\"", sleeper.id()));
        assert!(!matches("unit = \"other\"", sleeper.id()), "{hierarchy}");
        drop(sleeper);
        tried += 1;
    }
    if tried == 0 {
        dropbehind_testbed::skip!("no hierarchy in which systemd could keep units");
    }
}

#[test]
fn users_are_known_by_name_and_number() {
    let own = rustix::process::getuid().as_raw();
    let process = i32::try_from(std::process::id()).unwrap();
    assert!(matches(&format!("user = [\"nobody\", \"{own}\"]"), process));
    assert!(!matches(&format!("user = \"{}\"", own + 1), process));
    assert!(!matches("user = \"nobody-of-this-name\"", process));
    need!(dropbehind_testbed::Need::Root);
    assert!(matches("user = \"root\"", process));
    let mut command = Command::new("sleep");
    std::os::unix::process::CommandExt::uid(&mut command, 65534);
    let sleeper = Sleeper::from(&mut command);
    assert!(matches("user = \"nobody\"", sleeper.id()));
    assert!(!matches("user = \"root\"", sleeper.id()));
}

/// Nobody knows whether a process that is gone was an exception.
#[test]
fn exceptions_count_when_nothing_is_known_of_them() {
    let home = Scratch::new().unwrap();
    let sleeper = Sleeper::named(&home, "copier");
    for (not, expected) in [
        ("not.program = \"copier\"", false),
        ("not.program = \"/**/copier\"", false),
        ("not.program = \"cp\"", true),
        ("not.program = [\"cp\", \"cop*\"]", false),
        ("not.path = \"/srv/*.iso\"\nnot.program = \"cp\"", true),
        ("not.path = \"/srv/x\"\nnot.program = \"cp\"", false),
        ("not = { unit = \"none-of-this.slice\" }", true),
        ("not.user = \"nobody-of-this-name\"", true),
    ] {
        for more in ["", "\npath = \"/srv/*\""] {
            let condition = format!("{not}{more}");
            assert_eq!(matches(&condition, sleeper.id()), expected, "{condition}");
        }
    }
    for not in [
        "program = \"cp\"",
        "user = \"nobody\"",
        "unit = \"a\"",
        "cgroup = \"/a\"",
    ] {
        assert!(!matches(&format!("not.{not}"), 0), "{not}");
    }
}
