//! `nocache`, `cachestats` and `cachedel` beside the originals: the same files,
//! the same words, the same lines and exit codes.

mod user;

use dropbehind_testbed::{Need, need, residency};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use user::User;

/// What a tool printed, and how it ended.
#[derive(Debug, PartialEq, Eq)]
struct Printed {
    stdout: String,
    /// Without the newline that the originals sometimes lack.
    stderr: String,
    code: Option<i32>,
}

/// Runs a program by another name, as a link would.
fn printed(program: &Path, name: &str, user: &User, args: &str) -> Printed {
    let args: Vec<&str> = args.split_whitespace().collect();
    printed_with(program, name, user, &args)
}

fn printed_with(program: &Path, name: &str, user: &User, args: &[&str]) -> Printed {
    let output = Command::new(program)
        .arg0(name)
        .args(args)
        .current_dir(user.file(""))
        .env("LC_ALL", "C")
        // Of these, only nocache heeds it.
        .env("DROPBEHIND_MODE", "buffered")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Printed {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr)
            .unwrap()
            .trim_end()
            .to_owned(),
        code: output.status.code(),
    }
}

fn original(name: &str) -> PathBuf {
    Path::new("/usr/bin").join(name)
}

fn ours() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_dropbehind"))
}

/// That both print the same; the answer is what they did.
#[track_caller]
fn same(name: &str, user: &User, args: &str) -> Printed {
    let theirs = printed(&original(name), name, user, args);
    let printed = printed(ours(), name, user, args);
    assert_eq!(printed, theirs, "{name} {args}");
    printed
}

/// Pages of a file, by somebody else's count.
fn cached_pages(path: &Path) -> u64 {
    residency::cached(path).unwrap().cached_pages
}

/// A clean file of which nothing is cached.
fn cold(user: &User, name: &str, bytes: usize) -> PathBuf {
    let path = user.has(name, bytes);
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    residency::evict(&path);
    path
}

/// Brings one page in, and nothing else.
fn touch_page(path: &Path, page: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    file.read_exact_at(&mut [0; 16], page * 4096).unwrap();
}

#[test]
fn cachestats_prints_the_same_lines() {
    need!(Need::Tool("cachestats"));
    let user = User::new();
    // 114 pages, the last one short.
    let path = cold(&user, "f", 464_000);
    user.has("empty", 0);
    std::fs::File::create(user.file("holes"))
        .unwrap()
        .set_len(10 << 20)
        .unwrap();
    let nothing = same("cachestats", &user, "f");
    assert_eq!(
        nothing.stdout,
        "pages in cache: 0/114 (0.0%)  [filesize=453.1K, pagesize=4K]\n"
    );
    for page in [0, 1, 31, 32, 70, 113] {
        touch_page(&path, page);
        same("cachestats", &user, "f");
        same("cachestats", &user, "-v f");
        assert_eq!(same("cachestats", &user, "-q f").code, Some(1));
    }
    assert_eq!(cached_pages(&path), 6);
    std::fs::read(&path).unwrap();
    assert_eq!(same("cachestats", &user, "-q f").code, Some(0));
    assert!(
        same("cachestats", &user, "-v f")
            .stdout
            .contains("114/114 (100.0%)")
    );
    for args in [
        "empty", "-v empty", "-q empty", "holes", "-q holes", "-v holes",
    ] {
        same("cachestats", &user, args);
    }
}

#[test]
fn cachestats_fails_in_the_same_way() {
    need!(Need::Tool("cachestats"));
    let user = User::new();
    user.has("f", 5000);
    for args in [
        "",
        "missing",
        "-q missing",
        "f/below",
        ".",
        "-q /dev/null",
        "-qv",
        "-x f",
        "f -v",
        "f f",
    ] {
        same("cachestats", &user, args);
    }
}

#[test]
fn cachestats_does_not_guess() {
    need!(Need::Root, Need::Tool("setpriv"), Need::Cachestat);
    let user = User::new();
    let path = cold(&user, "f", 1 << 20);
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(user.file(""), open_to_all).unwrap();
    for option in [&["-v"][..], &["-q"], &[]] {
        let output = Command::new("setpriv")
            .args([
                "--reuid",
                "65534",
                "--clear-groups",
                "bash",
                "-c",
                "exec -a cachestats \"$@\"",
                "-",
            ])
            .arg(ours())
            .args(option)
            .arg(&path)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(255) && stderr.contains("only to its owner"),
            "{output:?}"
        );
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[test]
fn cachedel_drops_as_much() {
    need!(Need::Tool("cachedel"));
    let user = User::new();
    let mut left = Vec::new();
    for program in [&original("cachedel"), ours()] {
        for args in ["f", "-n 3 f", "-n 2x f"] {
            let path = cold(&user, "f", 4 << 20);
            std::fs::read(&path).unwrap();
            assert_eq!(cached_pages(&path), 1024);
            let done = printed(program, "cachedel", &user, args);
            assert_eq!(
                (done.code, &*done.stderr, &*done.stdout),
                (Some(0), "", ""),
                "{args}"
            );
            left.push(cached_pages(&path));
        }
        // No times at all.
        let path = cold(&user, "f", 4 << 20);
        std::fs::read(&path).unwrap();
        assert_eq!(printed(program, "cachedel", &user, "-n x f").code, Some(0));
        assert_eq!(cached_pages(&path), 1024);
    }
    assert_eq!(left, [0; 6]);
}

#[test]
fn cachedel_fails_in_the_same_way() {
    need!(Need::Tool("cachedel"));
    let user = User::new();
    user.has("f", 5000);
    user.has("empty", 0);
    for args in [
        "",
        "missing",
        ".",
        "/dev/null",
        "empty",
        "-n 2 empty",
        "-n",
        "-n 2",
        "-n 2 f f",
        "f f",
    ] {
        same("cachedel", &user, args);
    }
}

#[test]
fn a_link_is_enough() {
    let user = User::new();
    user.has("f", 5000);
    std::os::unix::fs::symlink(ours(), user.file("cachestats")).unwrap();
    let said = user.sh("./cachestats f");
    assert_eq!(
        said.text(),
        "pages in cache: 2/2 (100.0%)  [filesize=4.9K, pagesize=4K]\n"
    );
    // Whoever reads it may go away.
    user.sh("./cachestats -v f | true");
}

/// Runs a line as nocache, ours or the original.
fn nocache(program: &Path, user: &User, args: &[&str]) -> Printed {
    printed_with(program, "nocache", user, args)
}

#[test]
fn nocache_runs_programs_as_the_original_does() {
    need!(Need::Root, Need::Tool("nocache"));
    let user = User::new();
    for args in [
        &["echo", "a  b", "$c"][..],
        &["-n", "3", "echo", "-n", "x"],
        &["-n3", "--", "sh", "-c", "echo out; echo err >&2; exit 7"],
        &["true"],
    ] {
        let theirs = nocache(&original("nocache"), &user, args);
        assert_eq!(nocache(ours(), &user, args), theirs, "{args:?}");
    }
    // What a shell says of these has its own words.
    for (args, code) in [(&["no-such-program"][..], 127), (&["/"], 126)] {
        let theirs = nocache(&original("nocache"), &user, args);
        let printed = nocache(ours(), &user, args);
        assert_eq!(
            (printed.code, theirs.code),
            (Some(code), Some(code)),
            "{args:?}"
        );
        assert!(printed.stderr.contains(args[0]), "{printed:?}");
    }
    let odd = nocache(ours(), &user, &["-x", "echo", "on"]);
    assert_eq!((odd.stdout.as_str(), odd.code), ("on\n", Some(0)));
    assert_eq!(odd.stderr, "nocache: illegal option -- x");
    let nothing = nocache(ours(), &user, &["-n"]);
    assert!(
        nothing.code == Some(2) && nothing.stderr.contains("usage: nocache"),
        "{nothing:?}"
    );
}

#[test]
fn nocache_leaves_nothing_of_what_was_read_or_written() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let bytes = 32 << 20;
    let source = cold(&user, "source", bytes);
    let hot = cold(&user, "hot", bytes);
    std::fs::read(&hot).unwrap();
    // Some machines take clean pages for themselves (DAMON), now and then many.
    let is_hot = || cached_pages(&hot) > bytes as u64 / 4096 / 2;
    assert!(is_hot());
    // A file this young counts as made by the program.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let copied = nocache(ours(), &user, &["-D", "figures", "cp", "source", "copy"]);
    assert_eq!((copied.code, &*copied.stderr), (Some(0), ""));
    assert_eq!(
        (cached_pages(&source), cached_pages(&user.file("copy"))),
        (0, 0)
    );
    user::holds(&user.file("copy"), bytes);
    assert!(is_hot(), "{} pages", cached_pages(&hot));
    let figures = std::fs::read_to_string(user.file("figures")).unwrap();
    assert!(figures.contains("dropped_bytes"), "{figures}");
    // What was there before stays; and -f says so.
    let read = nocache(ours(), &user, &["-f", "true"]);
    assert!(read.stderr.contains("-f is not done"), "{read:?}");
    let read = Command::new(ours())
        .arg0("nocache")
        .args(["cat", "hot"])
        .current_dir(user.file(""))
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(read.success());
    assert!(is_hot(), "{} pages", cached_pages(&hot));
}

#[test]
fn nocache_runs_plainly_where_it_cannot_observe() {
    need!(Need::Root, Need::Tool("unshare"));
    let user = User::new();
    // In a pid namespace without a /proc of its own.
    let said = user.sh(&format!(
        "unshare --pid --fork bash -c 'exec -a nocache {} -n 2 echo ran'",
        ours().display()
    ));
    assert_eq!(
        (said.code, said.text().as_str()),
        (0, "ran\n"),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains("runs plainly"), "{}", said.stderr);
}

/// As the original does from version 1.2 on.
#[test]
fn nocache_leaves_all_alone_where_its_variable_allows_no_descriptor() {
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let file = user.has("file", 64 << 10);
    for (most, stays) in [("3", true), ("4", false), ("1", true), ("64", false)] {
        residency::evict(&file);
        let read = Command::new(ours())
            .arg0("nocache")
            .args(["cat", "file"])
            .env("NOCACHE_MAX_FDS", most)
            .current_dir(user.file(""))
            .output()
            .unwrap();
        assert!(
            read.status.success() && read.stdout.len() == 64 << 10,
            "{read:?}"
        );
        assert_eq!(cached_pages(&file) > 0, stays, "{most}");
    }
}
