//! `top` in a terminal and in pipes, asking observers that this process plays.

mod terminal;
mod user;

use dropbehind_observer::snapshot::{DiskSnapshot, FileSnapshot, Snapshot};
use dropbehind_observer::status::Server;
use dropbehind_testbed::{HangingFs, Need, Scratch, need};
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terminal::{Terminal, runtime_dir};
use user::{User, finish};

/// What an observer says after so many seconds.
fn sample(kind: &str, process: u32, elapsed: u64) -> Snapshot {
    let file = |number: u64| FileSnapshot {
        path: format!("/srv/{kind}{number:02}").into(),
        disk: "sda".into(),
        written_bytes: elapsed << 20,
        cached_bytes: number << 20,
        ..FileSnapshot::default()
    };
    Snapshot {
        elapsed_ns: elapsed * 1_000_000_000,
        kind: kind.to_owned(),
        process,
        disks: vec![DiskSnapshot {
            name: "sda".into(),
            ..DiskSnapshot::default()
        }],
        files: (0..60).map(file).collect(),
        notes: vec!["overlayfs is out of reach".into()],
        ..Snapshot::default()
    }
}

/// Plays an observer whose files grow by 1 MiB a second.
fn observer(folder: &Path, name: &str) -> Server {
    let seconds = AtomicU64::new(0);
    let (kind, process) = name.split_once('-').unwrap_or((name, "4711"));
    let (kind, process) = (kind.to_owned(), process.parse().unwrap());
    let path = folder.join(format!("{name}.sock"));
    let snapshot = move || sample(&kind, process, seconds.fetch_add(1, Ordering::Relaxed));
    Server::start(path, snapshot).unwrap()
}

/// The quickest interval.
const QUICK: [&str; 3] = ["top", "--interval", "0.1"];

fn top(folder: &Scratch) -> Terminal {
    Terminal::start(&QUICK, folder.path())
}

#[test]
fn it_ends_with_its_terminal() {
    let folder = runtime_dir();
    let _observer = observer(folder.path(), "watch");
    for _ in 0..4 {
        let mut terminal = top(&folder);
        terminal.until_shown("watch 4711");
        let status = terminal.goes_away();
        let hung_up = status.signal() == Some(Signal::HUP.as_raw());
        assert!(hung_up || status.code() == Some(1), "{status}");
    }
}

#[test]
fn figures_are_shown_until_q() {
    let folder = runtime_dir();
    let _observer = observer(folder.path(), "watch");
    let mut terminal = top(&folder);
    terminal.until_shown("watch 4711");
    terminal.until(|screen| screen.alternate_screen() && screen.hide_cursor());
    terminal.until_shown("/srv/watch00");
    terminal.until_shown("1.0 MiB/s");
    terminal.until_shown("█");
    terminal.until_shown("note: overlayfs is out of reach");
    // The sixth after activity.
    terminal.types("ssssss");
    terminal.until_shown("CACHEDv");
    terminal.until(|screen| {
        let text = screen.contents();
        text.contains("/srv/watch59") && !text.contains("/srv/watch00")
    });
    terminal.types("\x1b[F");
    terminal.until_shown("-60 of 60");
    terminal.until_shown("/srv/watch00");
    // What is typed is the text, also q.
    terminal.types("/Watch2q\x7f");
    terminal.until_shown("/watch2 ");
    terminal.until(|screen| {
        let text = screen.contents();
        text.contains("/srv/watch29") && !text.contains("/srv/watch30")
    });
    terminal.types("\r\x1b");
    terminal.until_shown("/srv/watch59");
    terminal.types("q");
    let left = terminal.ends();
    assert_eq!(left.code(), 0, "{left:?}");
}

#[test]
fn it_follows_the_size_of_the_terminal() {
    let folder = runtime_dir();
    let _observer = observer(folder.path(), "watch");
    let mut terminal = top(&folder);
    terminal.until_shown("/srv/watch10");
    terminal.resize(40, 10);
    terminal.until(|screen| {
        let rows: Vec<String> = screen.rows(0, 40).collect();
        rows[9].starts_with("q quit") && rows[0].starts_with("watch 4711")
    });
    terminal.resize(160, 50);
    terminal.until_shown("/srv/watch30");
    terminal.until_shown("UNIT");
    // As ctrl-c types it.
    terminal.types("\x03");
    assert_eq!(terminal.ends().code(), 0);
}

#[test]
fn the_end_of_the_observer_is_said() {
    let folder = runtime_dir();
    let observer = observer(folder.path(), "run-77");
    let mut terminal = top(&folder);
    terminal.until_shown("/srv/run00");
    drop(observer);
    let left = terminal.ends();
    assert_eq!(left.code(), 0, "{left:?}");
    assert!(
        left.text.contains("the observer run 77 has ended"),
        "{left:?}"
    );
}

#[test]
fn tab_goes_to_the_next_observer_and_an_end_to_one_that_is_left() {
    let folder = runtime_dir();
    let _watch = observer(folder.path(), "watch");
    let first = observer(folder.path(), "run-5");
    let mut terminal = top(&folder);
    terminal.until_shown("/srv/watch00");
    terminal.until_shown(" watch  run 5");
    terminal.types("\t");
    terminal.until_shown("/srv/run00");
    // One that comes later is shown, too.
    let _second = observer(folder.path(), "run-6");
    terminal.until_shown("  run 6");
    drop(first);
    terminal.until_shown("the observer run 5 has ended");
    terminal.until_shown("/srv/watch00");
    terminal.types("q");
    assert_eq!(terminal.ends().code(), 0);
}

#[test]
fn a_signal_ends_it_and_leaves_the_terminal_in_order() {
    let folder = runtime_dir();
    let _observer = observer(folder.path(), "watch");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut terminal = top(&folder);
        terminal.until_shown("/srv/watch00");
        send(&terminal, signal);
        assert_eq!(terminal.ends().code(), -signal.as_raw());
    }
}

fn send(terminal: &Terminal, signal: Signal) {
    let process = Pid::from_raw(terminal.process().try_into().unwrap()).unwrap();
    rustix::process::kill_process(process, signal).unwrap();
}

#[test]
fn it_stops_and_goes_on() {
    let folder = runtime_dir();
    let _observer = observer(folder.path(), "watch");
    let mut terminal = top(&folder);
    for stop in ["by ctrl-z", "by a signal"] {
        terminal.until_shown("/srv/watch00");
        if stop == "by ctrl-z" {
            terminal.types("\x1a");
        } else {
            send(&terminal, Signal::TSTP);
        }
        terminal.until(|screen| !screen.alternate_screen() && !screen.hide_cursor());
        let state = format!("/proc/{}/stat", terminal.process());
        while !std::fs::read_to_string(&state).unwrap().contains(") T ") {
            std::thread::yield_now();
        }
        send(&terminal, Signal::CONT);
        terminal.until(vt100::Screen::alternate_screen);
    }
    terminal.until_shown("/srv/watch00");
    terminal.types("q");
    assert_eq!(terminal.ends().code(), 0);
}

#[test]
fn an_answer_that_is_none_is_said() {
    let folder = runtime_dir();
    let listener = UnixListener::bind(folder.file("watch.sock")).unwrap();
    let server = std::thread::spawn(move || {
        // The look for observers connects as well, and asks nothing.
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = String::new();
            let mut reader = BufReader::new(client.try_clone().unwrap());
            reader.read_line(&mut request).unwrap();
            if !request.is_empty() {
                client.write_all(b"{\"elapsed_ns\":\"\x1b[2J\"}\n").unwrap();
                return;
            }
        }
    });
    let left = top(&folder).ends();
    assert_eq!(left.code(), 1, "{left:?}");
    assert!(left.text.contains("gave no figures"), "{left:?}");
    server.join().unwrap();
}

/// It answers faster than anybody can look.
#[test]
fn a_flood_of_figures_keeps_nobody_from_the_keys() {
    let folder = runtime_dir();
    let listener = UnixListener::bind(folder.file("watch.sock")).unwrap();
    // To find these takes longer than to read a sample.
    let run = |number| UnixListener::bind(folder.file(&format!("run-{number}.sock"))).unwrap();
    let _others: Vec<UnixListener> = (1..=100).map(run).collect();
    let (samples, sent) = (5000, Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&sent);
    std::thread::spawn(move || {
        let flood = move |mut client: UnixStream| {
            let mut request = String::new();
            let mut reader = BufReader::new(client.try_clone().unwrap());
            // The look for observers asks nothing.
            if reader.read_line(&mut request).is_ok_and(|bytes| bytes > 0) {
                let mut figures = sample("watch", 4711, 1);
                figures.files.truncate(1);
                let line = serde_json::to_string(&figures).unwrap() + "\n";
                while counted.fetch_add(1, Ordering::Relaxed) < samples
                    && client.write_all(line.as_bytes()).is_ok()
                {}
            }
        };
        for client in listener.incoming() {
            let flood = flood.clone();
            std::thread::spawn(move || flood(client.unwrap()));
        }
    });
    let mut terminal = top(&folder);
    terminal.until_shown("/srv/watch00");
    terminal.types("q");
    let left = terminal.ends();
    let sent = sent.load(Ordering::Relaxed);
    assert!(
        left.code() == 0 && sent < samples,
        "{sent} samples: {left:?}"
    );
}

/// The command in a pipe, with this folder for sockets.
fn piped(user: &User, folder: &Scratch, line: &str) -> Command {
    let mut command = user.dropbehind(line.split(' '));
    command.env("DROPBEHIND_RUNTIME_DIR", folder.path());
    command
}

#[test]
fn json_goes_on_until_nobody_reads_it() {
    let (user, folder) = (User::new(), runtime_dir());
    let _observer = observer(folder.path(), "watch");
    let mut child = piped(&user, &folder, "top --json -i 0.1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for elapsed in 0..3 {
        let sample: Snapshot = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(sample.elapsed_ns, elapsed * 1_000_000_000);
    }
    drop(lines);
    assert_eq!(child.wait().unwrap().code(), Some(141));
    let mut said = String::new();
    child.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

#[test]
fn json_ends_with_the_observer() {
    let (user, folder) = (User::new(), runtime_dir());
    let observer = observer(folder.path(), "run-9");
    let mut child = piped(&user, &folder, "top --json --interval 60")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    drop(observer);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    child.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("run-9.sock has ended."), "{said}");
}

#[test]
fn one_sample_is_one_sample() {
    let (user, folder) = (User::new(), runtime_dir());
    let server = observer(folder.path(), "watch");
    let said = finish(&mut piped(&user, &folder, "top --once --json"));
    assert_eq!((said.code, said.text().lines().count()), (0, 1));
    let socket = server.path().to_str().unwrap();
    let mut command = user.dropbehind(["top", "--once", "--socket", socket]);
    let said = finish(&mut command);
    assert_eq!(said.code, 0, "{}", said.stderr);
    for word in ["watch 4711", "sda", "/srv/watch59\n", "note: overlayfs"] {
        assert!(said.text().contains(word), "{word}: {}", said.text());
    }
}

#[test]
fn which_observer_is_meant_has_to_be_clear() {
    let (user, folder) = (User::new(), runtime_dir());
    let once = || finish(&mut piped(&user, &folder, "top --once"));
    once().fails(
        1,
        "no observer runs. Start one: `dropbehind run -- COMMAND`",
    );
    let _first = observer(folder.path(), "run-5");
    assert!(once().text().contains("run 5"));
    let _second = observer(folder.path(), "run-6");
    once().fails(1, "Choose one with --socket: ");
    let _watch = observer(folder.path(), "watch");
    assert!(once().text().contains("watch 4711"));
    user.runs("top --once --socket missing.sock")
        .fails(1, "no observer listens at missing.sock. Start one");
    user.runs("top --once --interval 0")
        .fails(2, "expected seconds from 0.1 to 60");
    finish(&mut piped(&user, &folder, "top")).fails(1, "standard output is no terminal. Use");
}

#[test]
fn another_users_observer_is_refused() {
    need!(Need::Root, Need::Tool("setpriv"));
    let (user, folder) = (User::new(), runtime_dir());
    let server = observer(folder.path(), "watch");
    // Where the command was built may be closed to others.
    let program = user.file("dropbehind");
    std::fs::copy(env!("CARGO_BIN_EXE_dropbehind"), &program).unwrap();
    let asks = |args: &[&str]| {
        finish(
            Command::new("setpriv")
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
                .arg(&program)
                .args(["top", "--once"])
                .args(args)
                .env("DROPBEHIND_RUNTIME_DIR", folder.path()),
        )
    };
    let socket = server.path().to_str().unwrap();
    asks(&[]).fails(3, "is another user's. Run top as that user, or as root");
    asks(&["--socket", socket]).fails(3, "is another user's");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(server.path(), mode).unwrap();
    asks(&[]).fails(3, "is another user's");
}

/// Users choose what leads to their sockets: no link and no mount has root ask their server.
#[test]
fn no_users_server_is_asked_for_sockets() {
    need!(Need::Root);
    need!(all HangingFs::needs());
    let user = User::new();
    // From here on, mounts are this thread's own.
    let fs = HangingFs::new().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs", "/run"])
        .status();
    assert!(mounted.unwrap().success());
    let runtime = |number: u32| {
        let runtime = Path::new("/run/user").join(number.to_string());
        std::fs::create_dir_all(&runtime).unwrap();
        runtime
    };
    symlink(fs.path(), runtime(1).join("dropbehind")).unwrap();
    symlink(fs.path(), runtime(2).with_file_name("3")).unwrap();
    let folder = runtime(4).join("dropbehind");
    std::fs::create_dir(&folder).unwrap();
    let _observer = observer(&folder, "run-4");
    symlink(fs.file(), folder.join("run-5.sock")).unwrap();
    std::fs::create_dir(runtime(6).join("dropbehind")).unwrap();
    let over = Command::new("mount")
        .arg("--bind")
        .args([fs.path(), runtime(6).join("dropbehind")])
        .status();
    assert!(over.unwrap().success());
    let hanging = fs.hang();
    let mut top = user.dropbehind(["top", "--once"]);
    let mut top = top
        .env_remove("DROPBEHIND_RUNTIME_DIR")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut looks = 0;
    while top.try_wait().unwrap().is_none() {
        looks += 1;
        assert!(fs.waiting() == 0 && looks < 3000, "it asks");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(fs.waiting(), 0);
    drop(hanging);
    let said = std::io::read_to_string(top.stdout.take().unwrap()).unwrap();
    assert!(said.contains("/srv/run"), "{said}");
}

/// Holds the locks of directories as any user can: a listing waits for a page of its answer,
/// which a file system's server does not give, and what would change the directory waits for
/// the listing.
const HOLDS_LOCKS: &str = "
import ctypes, mmap, os, sys, threading
file = os.open(sys.argv[1], os.O_RDONLY)
pages = mmap.mmap(file, 4 << 20, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
libc = ctypes.CDLL(None)
folders = [os.open(folder, os.O_RDONLY) for folder in sys.argv[2:]]
def begin(what):
    for number in range(len(folders)):
        threading.Thread(target=what, args=[number]).start()
    print(flush=True)
    input()
print(flush=True)
input()
begin(lambda number: libc.getdents64(folders[number], ctypes.c_void_p(start + (number << 20)), 4096))
begin(lambda number: os.mkdir('new', dir_fd=folders[number]))
";

#[test]
fn a_users_locks_do_not_keep_root_waiting() {
    need!(Need::Root, Need::Tool("python3"));
    need!(all HangingFs::needs());
    let user = User::new();
    // From here on, mounts are this thread's own.
    let fs = HangingFs::new().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs", "/run"])
        .status();
    assert!(mounted.unwrap().success());
    let [first, second, third] = [1, 2, 3].map(|number| format!("/run/user/{number}"));
    let listed = format!("{second}/dropbehind");
    for folder in [&first, &listed, &third] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let folder = Path::new(&third).join("dropbehind");
    std::fs::create_dir(&folder).unwrap();
    let _observer = observer(&folder, "run-3");
    let mut holder = Command::new("python3")
        .args(["-c", HOLDS_LOCKS])
        .arg(fs.file())
        .args([&first, &listed])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut goes_on, mut steps) = (
        holder.stdin.take().unwrap(),
        BufReader::new(holder.stdout.take().unwrap()).lines(),
    );
    steps.next().unwrap().unwrap();
    let hanging = fs.hang();
    for _ in 0..2 {
        goes_on.write_all(b"\n").unwrap();
        steps.next().unwrap().unwrap();
        let since = Instant::now();
        while fs.waiting() < 2 {
            assert!(since.elapsed() < Duration::from_secs(10), "nothing waits");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    // Until the directories are being changed.
    std::thread::sleep(Duration::from_millis(300));
    let mut top = user.dropbehind(["top", "--once"]);
    let mut top = top
        .env_remove("DROPBEHIND_RUNTIME_DIR")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while top.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < Duration::from_secs(20), "it waits");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(hanging);
    holder.kill().unwrap();
    holder.wait().unwrap();
    let said = std::io::read_to_string(top.stdout.take().unwrap()).unwrap();
    assert!(said.contains("/srv/run"), "{said}");
}
