//! What users are told when things go wrong, and the exit codes.

mod user;

use dropbehind_testbed::reclaim::{Reclaim, in_some_attempt};
use dropbehind_testbed::{FailingDisk, Fs, MountedFs, Need, need, pattern};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use user::{User, finish, holds};

#[test]
fn a_wrong_command_line_is_told_and_changes_nothing() {
    let user = User::new();
    user.has("a", 10);
    for (line, saying) in [
        ("cp a", "SRC... DST"),
        ("cp --mode fast a b", "write-behind-any"),
        ("cp --window 1 a b", "from 64 KiB to 64 GiB"),
        ("cp --window 16Mbit a b", "16MiB"),
        ("cp --block-size 0 a b", "from 512 B to 1.0 GiB"),
        ("cp --io-priority first a b", "best-effort:7"),
        ("cp --strategy fast a b", "emulated"),
        ("cp --sparse some a b", "never"),
        ("read --offset x a", "16MiB"),
        ("read --offset -1 a", "'-1' for '--offset"),
        ("read --length -4k a", "16MiB"),
        ("read --length 1.5 a", "16MiB"),
        ("write --count -1 b", "16MiB"),
        ("cp --window -1 a b", "16MiB"),
        ("run --settle -1 touch b", "from 0 to 86400"),
        ("bench --runs -1", "from 1 to 1000"),
        ("bench report a --html a", "name another file"),
        ("bench report a --csv ./a", "name another file"),
        ("bench compare no a --html a", "name another file"),
        ("copy a b", "unrecognized subcommand"),
        ("stat", "FILE"),
    ] {
        user.runs(line).fails(2, saying);
        assert!(!user.file("b").exists(), "{line}");
        holds(&user.file("a"), 10);
    }
}

#[test]
fn what_was_meant_is_guessed() {
    let user = User::new();
    user.has("a", 10);
    for (line, code, saying) in [
        ("cp --mode dontcahe a b", 2, "Did you mean dontcache?"),
        ("cp --strategy nativ a b", 2, "Did you mean native?"),
        ("cp --bs=1M a b", 2, "--block-size sets"),
        ("cp --rate-limit 5M a b", 2, "--io-priority idle"),
        ("write --oflag=direct b", 2, "--mode says how"),
        ("write --conv=notrunc b", 2, "--seek"),
        ("write --fsync b", 2, "unless --no-sync"),
        ("read --skip 5 a", 2, "--offset"),
        ("read --count 5 a", 2, "--length"),
        ("cp if=a of=b", 1, "That is how dd takes it"),
        ("cp - b", 1, "standard input is /dev/stdin"),
        ("write -", 1, "one that is called - is ./-"),
        (
            "run --modee buffered true",
            2,
            "similar argument exists: '--mode'",
        ),
        ("cp --reflink=maybe a b", 2, "Usage: dropbehind cp"),
        ("sta a", 2, "subcommand exists: 'stat'"),
        ("copy a b", 2, "subcommand exists: 'cp'"),
        ("stat --bs a", 2, "--block-size sets"),
        ("bench seq-wirte-1m", 2, "Did you mean seq-write-1m?"),
        ("bench report a", 1, "holds no results"),
    ] {
        if line.ends_with("report a") {
            std::fs::write(user.file("a"), [0xff; 10]).unwrap();
        }
        let said = user.runs(line);
        said.fails(code, saying);
        assert!(!said.stderr.contains("'--b'"), "{line}: {}", said.stderr);
        assert!(!user.file("b").exists(), "{line}");
    }
    for line in ["drop -v a", "run -z true", "stat --nonsense a"] {
        let said = user.runs(line);
        said.fails(2, "unexpected argument");
        assert!(!said.stderr.contains("tip:"), "{line}: {}", said.stderr);
        // Now it may well be meant.
        let option = line.split(' ').nth(1).unwrap();
        user.has(option, 10);
        user.runs(line).fails(2, &format!("use '-- {option}'"));
    }
    let said = user.runs("cp --mode nonsense a b");
    assert!(!said.stderr.contains("mean"), "{}", said.stderr);
}

#[test]
fn variables_are_read_and_checked() {
    let user = User::new();
    user.has("a", 10);
    let mut command = user.dropbehind(["cp", "a", "b"]);
    finish(command.env("DROPBEHIND_MODE", "fast")).fails(2, "in the variable DROPBEHIND_MODE");
    assert!(!user.file("b").exists());
    let mut command = user.dropbehind(["cp", "--mode", "buffered", "a", "b"]);
    assert_eq!(finish(command.env("DROPBEHIND_MODE", "fast")).code, 0);
}

#[test]
fn a_missing_folder_is_named() {
    let user = User::new();
    user.has("a", 10);
    user.runs("cp a no/b")
        .fails(1, "Create the directory no first.");
    user.runs("cp a /proc/b")
        .fails(1, "No file can be made there; choose another place.");
    user.runs("cp a new/")
        .fails(1, "there is no such directory");
    user.pipes(b"x", "write no/b")
        .fails(1, "Create the directory no first.");
}

#[test]
fn a_folder_is_no_file() {
    let user = User::new();
    std::fs::create_dir(user.file("d")).unwrap();
    user.pipes(b"x", "write d")
        .fails(1, "It is a directory; name a file in it");
    user.runs("read d").fails(1, "Is a directory");
    user.runs("stat d").fails(1, "it is a directory");
}

#[test]
fn a_file_size_limit_is_an_error_and_not_a_death() {
    let user = User::new();
    user.has("a", 1 << 20);
    let said = user.sh("ulimit -f 100; dropbehind cp a b");
    said.fails(
        1,
        "cannot write b: File too large (os error 27). 100 KiB of 1.0 MiB were written",
    );
    assert!(said.stderr.contains("ulimit -f"));
    user.sh("ulimit -f 100; dropbehind write b < a")
        .fails(1, "os error 27");
}

#[test]
fn a_full_disk_is_told_with_how_far_it_got() {
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    user.has("a", 8 << 20);
    let small = MountedFs::new(Fs::Ext4, 8 << 20).unwrap();
    let target = small.file("b");
    for line in [
        format!("cp a {}", target.display()),
        format!("cp --mode buffered a {}", target.display()),
    ] {
        let said = user.runs(&line);
        said.fails(1, "No space left on device (os error 28).");
        assert!(
            said.stderr
                .contains("of 8.0 MiB were written; free space and run the command")
        );
    }
    let data = pattern::filled(1, 0, 8 << 20);
    user.pipes(&data, &format!("write {}", target.display()))
        .fails(1, "No space left on device (os error 28).");
}

/// Everything fits the page cache, and the disk refuses it afterwards: only the
/// sync can tell.
#[test]
fn a_disk_that_fails_late_is_not_overlooked() {
    need!(all FailingDisk::needs(Some(Fs::Ext4NoJournal)));
    let user = User::new();
    let bytes = FailingDisk::TOO_MUCH_BYTES as usize;
    user.has("a", bytes);
    for mode in dropbehind::Mode::ALL {
        for command in ["cp", "write"] {
            let disk = FailingDisk::new().unwrap();
            let target = disk.file("b").display().to_string();
            let said = match command {
                "cp" => user.runs(&format!("cp --mode {mode} a {target}")),
                _ => user.sh(&format!("dropbehind write --mode {mode} {target} < a")),
            };
            let told = said.code == 1
                && said.stderr.contains("(os error 28)")
                && said.stderr.contains("cannot sync")
                && said.stderr.contains("before you drop it");
            assert!(told, "{command} {mode}: {} {}", said.code, said.stderr);
        }
    }
}

/// Nobody asks for a sync, so nobody is told, but for whoever opens the file later. Until
/// then the cache has the only copy.
#[test]
fn what_the_disk_never_got_stays_cached() {
    let user = User::new();
    let bytes = FailingDisk::TOO_MUCH_BYTES as usize;
    let block = 1 << 20;
    for filesystem in [
        Some(Fs::Ext4NoJournal),
        Some(Fs::Xfs),
        Some(Fs::Btrfs),
        None,
    ] {
        need!(all FailingDisk::needs(filesystem));
        need!(Need::Cachestat);
        let input = user.has("a", bytes);
        let left_by = |command: &str, reclaim: &Reclaim| {
            let disk = match filesystem {
                Some(filesystem) => FailingDisk::formatted(filesystem),
                None => FailingDisk::raw(),
            };
            let disk = disk.unwrap();
            let target = disk.file("b");
            if filesystem.is_some() {
                std::fs::write(&target, b"").unwrap();
            }
            // A raw device forgets all at its last close.
            let witness = std::fs::File::open(&target).unwrap();
            let to = target.display();
            let said = match command {
                "cat" => user.sh(&format!("cat a > {to}")),
                "cp" => user.runs(&format!("cp --no-sync a {to}")),
                _ => user.sh(&format!("dropbehind write --no-sync {to} < a")),
            };
            let file = std::fs::File::open(&target).unwrap();
            let file = dropbehind::File::from_std(file, dropbehind::Mode::BUFFERED).unwrap();
            file.wait_clean(0..u64::MAX).unwrap();
            drop(file);
            let mut data = vec![0; block];
            let wrong = (0..bytes).step_by(block).filter(|&at| {
                let read = witness.read_exact_at(&mut data, at as u64);
                read.is_err() || pattern::check(1, at as u64, &data).is_err()
            });
            let wrong = wrong.count();
            let taken_bytes = reclaim.bytes_of(&target).unwrap();
            let later = std::fs::File::open(&target).unwrap().sync_all();
            // ENOSPC of the data or EIO of the metadata, whichever came last.
            let told = later.is_err();
            if command != "cat" && said.code == 0 {
                assert!(said.stderr.contains("writing back"), "{}", said.stderr);
            }
            (wrong, taken_bytes, (said.code, told))
        };
        for command in ["cp", "write"] {
            in_some_attempt(|reclaim| {
                let (plain_wrong, _, plain) = left_by("cat", reclaim);
                assert!(plain.1, "{filesystem:?}: {plain:?}");
                let (wrong, taken_bytes, ours) = left_by(command, reclaim);
                println!("{command} {filesystem:?}: {wrong} MiB wrong, {plain_wrong} without us");
                // Btrfs may stop taking writes at the first failure, which comes earlier here.
                let code = match filesystem {
                    Some(Fs::Btrfs) => plain.0.max(ours.0.min(1)),
                    _ => plain.0,
                };
                assert_eq!(ours, (code, plain.1), "{command} {filesystem:?}");
                // Btrfs gives up a whole extent, of up to 128 MiB, when a part of it fails: also
                // the parts that it has reported as written, which may be dropped by then.
                if wrong <= plain_wrong || filesystem == Some(Fs::Btrfs) {
                    return Ok(());
                }
                // The kernel takes pages that only look clean, too.
                assert!(taken_bytes > 0, "{wrong}, not {plain_wrong}");
                Err(format!(
                    "{wrong} MiB are wrong, and the kernel took {taken_bytes} bytes"
                ))
            });
        }
        std::fs::remove_file(input).unwrap();
    }
}

/// Rust opens `/dev/null` in its place.
#[test]
fn a_closed_standard_descriptor_is_told() {
    let user = User::new();
    user.has("a", 10);
    for line in [
        "read a >&-",
        "stat --json a >&-",
        "drop a >&-",
        "write a <&-",
        "read - <&-",
        "stat --files0-from - <&-",
    ] {
        user.sh(&format!("dropbehind {line}"))
            .fails(1, "Bad file descriptor");
    }
    for line in ["cp --json a b", "read --stats - a", "write --json b <a"] {
        let said = user.sh(&format!("dropbehind {line} 2>&-"));
        assert_eq!(said.code, 1, "{line}");
        holds(&user.file("b"), 10);
    }
    holds(&user.file("a"), 10);
}

/// Pages whose writeback failed look clean.
#[test]
fn drop_keeps_what_the_disk_never_got() {
    need!(Need::Cachestat);
    let user = User::new();
    for filesystem in [Fs::Ext4NoJournal, Fs::Xfs] {
        need!(all FailingDisk::needs(Some(filesystem)));
        in_some_attempt(|reclaim| {
            let disk = FailingDisk::formatted(filesystem).unwrap();
            let path = disk.file("a");
            let bytes = FailingDisk::TOO_MUCH_BYTES;
            std::fs::write(&path, pattern::filled(1, 0, bytes as usize)).unwrap();
            let file = std::fs::File::open(&path).unwrap();
            let file = dropbehind::File::from_std(file, dropbehind::Mode::BUFFERED).unwrap();
            file.wait_clean(0..u64::MAX).unwrap();
            for options in ["", "--sync "] {
                user.runs(&format!("drop {options}{}", path.display()))
                    .fails(1, "stays cached: writing it back failed");
                let found = file.residency(0..u64::MAX).unwrap().cached_bytes;
                reclaim.stays(&path, found, bytes)?;
            }
            Ok(())
        });
    }
}

#[test]
fn a_read_only_file_system_is_told() {
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    user.has("a", 10);
    let disk = MountedFs::new(Fs::Ext4, 16 << 20).unwrap();
    let target = disk.file("b");
    remount_read_only(disk.path());
    user.runs(&format!("cp a {}", target.display()))
        .fails(1, "Mount the file system for writing");
}

fn remount_read_only(path: &Path) {
    let done = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(path)
        .status()
        .unwrap();
    assert!(done.success());
}

#[test]
fn what_one_may_not_write_is_told() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    user.has("a", 10);
    user.sh("chmod 755 .; chmod 600 a; echo old > b; chmod 644 a b");
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups \"$(which dropbehind)\"";
    user.sh(&format!("{nobody} cp a b"))
        .fails(1, "Run as a user who may write it.");
    user.sh(&format!("{nobody} cp -f a b"))
        .fails(1, "Permission denied");
    user.sh(&format!("{nobody} cp a new"))
        .fails(1, "Run as a user who may write it.");
    assert_eq!(std::fs::read(user.file("b")).unwrap(), b"old\n");
    user.sh("chmod 600 a");
    user.sh(&format!("{nobody} read a"))
        .fails(1, "Run as a user who may read it.");
    // Reading is not enough to see who caches what, but to drop it.
    user.sh("chmod 644 a");
    for command in ["stat", "drop"] {
        user.sh(&format!("{nobody} {command} a"))
            .fails(0, "cannot be counted");
    }
}

#[test]
fn what_stays_as_it_is_needs_no_source_that_can_be_read() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups \"$(which dropbehind)\"";
    user.sh(
        "chmod 755 .; mkdir from; echo new > from/a; chmod 600 from/a; echo new > from/b
         mkdir to; echo old > to/a; chmod -R a+rwX to; chmod 644 from/b",
    );
    for options in ["-n", "-u", "-rn", "-ru"] {
        let sources = if options.contains('r') {
            "from/."
        } else {
            "from/a from/b"
        };
        let said = user.sh(&format!(
            "rm -f to/b; {nobody} cp {options} {sources} to; cat to/*"
        ));
        assert_eq!(
            (said.code, said.text()),
            (0, "old\nnew\n".into()),
            "{options}: {}",
            said.stderr
        );
        assert_eq!(said.stderr, "", "{options}");
    }
    user.sh(&format!(
        "touch -d yesterday to/a; {nobody} cp -u from/a to"
    ))
    .fails(1, "Run as a user who may read it.");
    assert_eq!(std::fs::read(user.file("to/a")).unwrap(), b"old\n");
}

#[test]
fn force_replaces_what_cannot_be_opened() {
    need!(Need::Root, Need::Tool("setpriv"));
    let user = User::new();
    user.has("a", 10);
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups \"$(which dropbehind)\"";
    let said = user.sh(&format!(
        "chmod 755 .; mkdir -m 777 d; echo old > d/b; chmod 644 d/b; {nobody} cp -f a d/b"
    ));
    assert_eq!(said.code, 0, "{}", said.stderr);
    holds(&user.file("d/b"), 10);
}

#[test]
fn a_closed_output_is_told() {
    let user = User::new();
    user.has("a", 10);
    user.sh("dropbehind read a > /dev/full")
        .fails(1, "standard output: No space left");
    user.sh("dropbehind stat a > /dev/full")
        .fails(1, "standard output: No space left");
    user.sh("dropbehind cp -v a b > /dev/full")
        .fails(1, "standard output: No space left");
    for line in [
        "--help",
        "--version",
        "help cp",
        "cp --help",
        "run -h",
        "read -V",
    ] {
        for (output, saying) in [
            ("/dev/full", "No space left"),
            ("&-", "Bad file descriptor"),
        ] {
            user.sh(&format!("dropbehind {line} >{output}"))
                .fails(1, &format!("standard output: {saying}"));
        }
    }
    user.sh("ln -s $(type -P dropbehind) cp; ./cp --help > /dev/full")
        .fails(1, "cp: write error: No space left on device");
    user.sh("dropbehind cp -v a b >&-")
        .fails(1, "standard output: Bad file descriptor");
    holds(&user.file("b"), 10);
}

#[test]
fn a_copy_to_standard_output_ends_as_its_reader_does() {
    let user = User::new();
    user.has("a", 1 << 20);
    let said = user.sh("dropbehind cp a /dev/stdout | head -c 1 >b; echo ${PIPESTATUS[0]}");
    assert_eq!((said.text(), said.stderr), ("141\n".into(), String::new()));
}

/// The table in the manual is complete, and every line of it is true.
#[test]
fn each_exit_code_means_what_the_manual_says() {
    need!(Need::Tool("setpriv"));
    let user = User::new();
    user.has("file", 10 << 20);
    // Without the privilege, whoever runs the tests.
    let plain = match rustix::process::geteuid().is_root() {
        true => "setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin ",
        false => "",
    };
    let alone = "DROPBEHIND_RUNTIME_DIR=$PWD ";
    let cases = [
        ("dropbehind stat file", "0"),
        ("dropbehind watch --check --config /dev/null", "0"),
        ("dropbehind drop file missing", "1"),
        (&*format!("{alone}dropbehind top --once"), "1"),
        (
            "echo x >rules; dropbehind watch --check --config rules",
            "1",
        ),
        ("dropbehind stat --nonsense file", "2"),
        ("dropbehind run --mode nonsense true", "2"),
        ("dropbehind top --nonsense", "2"),
        ("dropbehind watch --nonsense", "2"),
        (
            &*format!("{plain}dropbehind run --source fanotify touch started"),
            "3",
        ),
        ("dropbehind run --stats no/where touch started", "125"),
        ("dropbehind run --source seccomp ./file", "126"),
        ("dropbehind run --source seccomp no-such-program", "127"),
        (
            "dropbehind read file | head -c 10 >/dev/null; exit ${PIPESTATUS[0]}",
            "141",
        ),
        ("dropbehind run --source seccomp sh -c 'exit 7'", "else"),
    ];
    let mut meant = Vec::new();
    for (script, code) in cases {
        let said = user.sh(script);
        let expected = code.parse().unwrap_or(7);
        assert_eq!(said.code, expected, "{script}: {}", said.stderr);
        meant.push(code);
    }
    assert!(!user.file("started").exists());
    meant.dedup();
    for script in ["dropbehind --help", "dropbehind man"] {
        let text = user.sh(script).text();
        let (_, table) = text.split_once("Exit codes:\n").unwrap();
        let lines = table.lines().filter_map(|line| line.strip_prefix("  "));
        let codes: Vec<&str> = lines
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert_eq!(codes, meant, "{table}");
    }
}

#[test]
fn what_not_even_root_may_write_is_told_with_what_protects_it() {
    need!(all MountedFs::needs(Fs::Ext4));
    need!(
        Need::Tool("chattr"),
        Need::Tool("mkswap"),
        Need::Tool("swapon")
    );
    let mounted = MountedFs::new(Fs::Ext4, 64 << 20).unwrap();
    let user = User::new();
    user.has("a", 10);
    let does = |program: &str, arguments: &[&str], name: &str| {
        let mut command = Command::new(program);
        let done = command.args(arguments).arg(mounted.file(name)).status();
        assert!(done.unwrap().success(), "{program} {arguments:?}");
    };
    std::fs::write(mounted.file("file"), "").unwrap();
    let copies = |saying: &str| {
        let copy = format!("cp a {}", mounted.file("file").display());
        user.runs(&copy).fails(1, saying);
    };
    for attribute in ["i", "a"] {
        does("chattr", &[&format!("+{attribute}")], "file");
        copies("with chattr -i or -a.");
        does("chattr", &[&format!("-{attribute}")], "file");
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::write(mounted.file("file"), vec![0; 8 << 20]).unwrap();
    std::fs::set_permissions(mounted.file("file"), mode).unwrap();
    does("mkswap", &["-q"], "file");
    does("swapon", &[], "file");
    copies("swapoff");
    does("swapoff", &[], "file");
}
