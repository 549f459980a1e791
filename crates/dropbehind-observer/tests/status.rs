//! Observers are asked over their sockets.

mod exposition;

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dropbehind_observer::snapshot::{FileSnapshot, Snapshot};
use dropbehind_observer::status::{CLIENTS_MAX, HttpServer, Samples, Server};
use dropbehind_testbed::{Need, Scratch, need};
use rustix::process::Uid;

/// An observer that counts how often it was asked.
fn counting() -> impl Fn() -> Snapshot + Send + 'static {
    let asked = AtomicU64::new(0);
    move || Snapshot {
        kind: "watch".into(),
        elapsed_ns: asked.fetch_add(1, Ordering::Relaxed),
        ..Snapshot::default()
    }
}

/// An answer no socket has room for.
fn large() -> Snapshot {
    Snapshot {
        notes: vec!["x".repeat(1 << 20)],
        ..Snapshot::default()
    }
}

fn ask(path: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The first of the states that the observer tells a client.
fn snapshot(path: &Path) -> io::Result<Snapshot> {
    let mut samples = Samples::ask(path, Duration::from_millis(100))?;
    samples.next().expect("a state")
}

#[test]
fn a_snapshot_a_stream_and_metrics_are_answered() {
    let scratch = Scratch::new().unwrap();
    let server = Server::start(scratch.file("watch.sock"), counting()).unwrap();
    let path = server.path();

    let answer = ask(path, "snapshot\n");
    assert_eq!(answer.matches('\n').count(), 1, "{answer}");
    let first: Snapshot = serde_json::from_str(&answer).unwrap();
    assert_eq!((first.kind.as_str(), first.elapsed_ns), ("watch", 0));

    let samples = Samples::ask(path, Duration::from_millis(100)).unwrap();
    let told: Vec<u64> = samples.take(3).map(|one| one.unwrap().elapsed_ns).collect();
    assert_eq!(told, [1, 2, 3]);

    for request in ["metrics\n", "metrics 5\n"] {
        let text = ask(path, request);
        assert!(!exposition::read(&text).unwrap().is_empty());
    }
    for wrong in ["status\n", "stream 1\n", "metrics many\n", "\n"] {
        let answer = ask(path, wrong);
        assert!(answer.starts_with("error: "), "{answer}");
    }
    let answer = ask(path, "metrics 9999\n");
    assert!(
        answer.starts_with("error: ") && answer.contains("200"),
        "{answer}"
    );
}

#[test]
fn who_says_no_more_is_answered_all_the_same() {
    let scratch = Scratch::new().unwrap();
    let server = Server::start(scratch.file("watch.sock"), counting()).unwrap();
    let mut stream = UnixStream::connect(server.path()).unwrap();
    stream.write_all(b"stream 100").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let lines = BufReader::new(stream).lines().take(3);
    assert_eq!(lines.filter(Result::is_ok).count(), 3);
}

#[test]
fn http_is_answered_with_headers() {
    let scratch = Scratch::new().unwrap();
    let server = Server::start(scratch.file("watch.sock"), counting()).unwrap();
    let request = |first: &str| {
        let answer = ask(
            server.path(),
            &format!("{first}\r\nHost: localhost\r\n\r\n"),
        );
        let (head, body) = answer.split_once("\r\n\r\n").expect("headers");
        (head.to_owned(), body.to_owned())
    };
    let (head, body) = request("GET /metrics HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head}"
    );
    assert!(exposition::read(&body).is_ok(), "{body}");
    let (head, body) = request("HEAD /metrics?files=3 HTTP/1.0");
    assert!(head.starts_with("HTTP/1.1 200 OK") && body.is_empty());
    assert!(
        request("GET / HTTP/1.1")
            .0
            .starts_with("HTTP/1.1 404 Not Found\r\n")
    );
    let (head, _) = request("POST /metrics HTTP/1.1");
    assert!(head.starts_with("HTTP/1.1 405 ") && head.contains("\r\nAllow: GET, HEAD\r\n"));
}

#[test]
fn a_name_that_is_no_text_hides_nothing() {
    let scratch = Scratch::new().unwrap();
    let odd = || Snapshot {
        files: [&b"/a\xff"[..], b"/b"]
            .map(|path| FileSnapshot {
                path: OsString::from_vec(path.to_vec()).into(),
                ..FileSnapshot::default()
            })
            .to_vec(),
        ..Snapshot::default()
    };
    let server = Server::start(scratch.file("watch.sock"), odd).unwrap();
    let files = snapshot(server.path()).unwrap().files;
    assert_eq!(files[0].path, Path::new("/a\u{fffd}"));
    assert_eq!(files[1].path, Path::new("/b"));
}

/// What a thread of another user gets when it asks.
fn asks_as(user: u32, path: &Path) -> io::Result<String> {
    let path = path.to_owned();
    as_user(user, move || {
        let mut stream = UnixStream::connect(path)?;
        let mut answer = String::new();
        stream.write_all(b"snapshot\n").ok();
        // The server may have closed before it saw the request.
        match stream.read_to_string(&mut answer) {
            Err(error) if answer.is_empty() => Err(error),
            _ => Ok(answer),
        }
    })
}

/// Runs this in a thread whose user is another one; the process stays root's.
fn as_user<T: Send + 'static>(user: u32, job: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(move || {
        let user = Uid::from_raw(user);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        job()
    })
    .join()
    .unwrap()
}

#[test]
fn only_the_owner_and_root_are_answered() {
    need!(Need::Root);
    const OWNER: u32 = 65533;
    const OTHER: u32 = 65534;
    let scratch = Scratch::new().unwrap();
    for (folder, owner) in [("roots", 0), ("theirs", OWNER)] {
        fs::create_dir(scratch.file(folder)).unwrap();
        chown(scratch.file(folder), Some(owner), Some(owner)).unwrap();
        let path = scratch.file(folder).join("watch.sock");
        let server = as_user(owner, move || Server::start(path, counting())).unwrap();
        let path = server.path();
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let answered = |answer: io::Result<String>| answer.is_ok_and(|text| text.starts_with('{'));
        assert!(answered(asks_as(owner, path)));
        assert!(answered(asks_as(0, path)));
        let error = asks_as(OTHER, path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");

        // And when the permissions are lost, the peer's user is looked at.
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        let answer = asks_as(OTHER, path).unwrap();
        assert!(answer.starts_with("error: only the observer's owner"));
        assert!(answered(asks_as(owner, path)));
    }
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let scratch = Scratch::new().unwrap();
    let folder = scratch.file("open");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
    let error = Server::start(folder.join("watch.sock"), counting()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("chmod go-w"), "{error}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn sockets_of_the_dead_are_removed_and_others_are_not() {
    let scratch = Scratch::new().unwrap();
    let alive = Server::start(scratch.file("run-2.sock"), counting()).unwrap();
    for dead in ["watch.sock", "run-1.sock", "other.sock"] {
        // Dropping a listener leaves its file behind, as a killed process does.
        drop(UnixListener::bind(scratch.file(dead)).unwrap());
    }
    fs::write(scratch.file("run-3.sock"), "not a socket").unwrap();
    // It takes no such connection, and is alive.
    let _other = UnixDatagram::bind(scratch.file("run-4.sock")).unwrap();
    let watch = Server::start(scratch.file("watch.sock"), counting()).unwrap();
    assert!(!scratch.file("run-1.sock").exists());
    assert!(scratch.file("run-3.sock").exists());
    assert!(scratch.file("run-4.sock").exists());
    assert!(scratch.file("other.sock").exists());
    assert!(ask(alive.path(), "snapshot\n").starts_with('{'));
    assert!(ask(watch.path(), "snapshot\n").starts_with('{'));

    let error = Server::start(watch.path(), counting()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("end it first"), "{error}");
    assert!(ask(watch.path(), "snapshot\n").starts_with('{'));
    let long = scratch.file(&"x".repeat(120));
    let error = Server::start(long, counting()).unwrap_err();
    assert!(error.to_string().contains("shorter"), "{error}");
}

#[test]
fn observers_leave_nothing_behind() {
    let scratch = Scratch::new().unwrap();
    std::thread::scope(|scope| {
        for observer in 0..4 {
            let path = scratch.file(&format!("run-{observer}.sock"));
            scope.spawn(move || {
                for _ in 0..100 {
                    let server = Server::start(&path, counting()).unwrap();
                    // Others that start meanwhile do not take it for a dead one's.
                    assert!(ask(&path, "snapshot\n").starts_with('{'));
                    drop(server);
                }
            });
        }
    });
    let left = fs::read_dir(scratch.file("")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn the_end_of_an_observer_ends_its_streams() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("watch.sock");
    let server = Server::start(&path, counting()).unwrap();
    let hour = Duration::from_secs(3600);
    let mut samples = Samples::ask(&path, hour).unwrap();
    assert!(samples.next().unwrap().is_ok());
    drop(server);
    assert!(samples.next().is_none());
    assert!(!path.exists());
    let error = Samples::ask(&path, hour).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_server_that_lost_its_socket_removes_nobody_elses() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("watch.sock");
    let server = Server::start(&path, counting()).unwrap();
    fs::remove_file(&path).unwrap();
    let next = Server::start(&path, counting()).unwrap();
    drop(server);
    assert!(ask(next.path(), "snapshot\n").starts_with('{'));
}

#[test]
fn clients_that_do_not_move_hinder_nobody() {
    let scratch = Scratch::new().unwrap();
    let server = Server::start(scratch.file("watch.sock"), large).unwrap();
    // Silent, cut off in their request, and not taking the answer.
    let mut stuck = Vec::new();
    for request in ["", "snap", "GET /metrics HTTP/1.1\r\n", "stream\n"] {
        for _ in 0..CLIENTS_MAX {
            let mut stream = UnixStream::connect(server.path()).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stuck.push(stream);
        }
    }
    assert_eq!(snapshot(server.path()).unwrap(), large());
}

#[test]
fn there_is_a_limit_to_clients_that_do_move() {
    let scratch = Scratch::new().unwrap();
    let server = Server::start(scratch.file("watch.sock"), counting()).unwrap();
    let mut streams = Vec::new();
    for _ in 0..CLIENTS_MAX {
        let mut samples = Samples::ask(server.path(), Duration::from_secs(3600)).unwrap();
        assert!(samples.next().unwrap().is_ok());
        streams.push(samples);
    }
    let answer = ask_refused(server.path());
    assert_eq!(answer, "error: too many clients; end one of them\n");
    // Who leaves makes room, once the server has seen it.
    streams.pop();
    while ask_refused(server.path()).starts_with("error") {
        std::thread::yield_now();
    }
}

/// The server may close before it has seen the request.
fn ask_refused(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"snapshot\n").ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    String::from_utf8(answer).unwrap()
}

#[test]
fn an_endless_answer_is_refused() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("endless.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let endless = std::thread::spawn(move || {
        let piece = [b'x'; 64 << 10];
        let (mut stream, _) = listener.accept().unwrap();
        while stream.write_all(&piece).is_ok() {}
    });
    let error = snapshot(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    endless.join().unwrap();
}

#[test]
fn nobody_waits_for_one_who_takes_no_client() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("full.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut clients = Vec::new();
    let refused = loop {
        match Samples::ask(&path, Duration::from_secs(3600)) {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
}

fn ask_http(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn anybody_gets_metrics_at_an_address_and_nothing_else() {
    let asked = std::sync::Arc::new(AtomicU64::new(0));
    let count = std::sync::Arc::clone(&asked);
    let snapshot = move || {
        count.fetch_add(1, Ordering::Relaxed);
        Snapshot {
            kind: "watch".into(),
            files: vec![FileSnapshot {
                path: "/srv/secret".into(),
                ..FileSnapshot::default()
            }],
            ..Snapshot::default()
        }
    };
    let server = HttpServer::start("127.0.0.1:0".parse().unwrap(), snapshot).unwrap();
    let address = server.address();
    let get = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let answer = ask_http(address, get);
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(!exposition::read(text).unwrap().is_empty());
    let head = ask_http(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(
        head.ends_with("\r\n\r\n") && head.contains(" 200 "),
        "{head}"
    );
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("GET /metrics?files=1 HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("snapshot\n", "400"),
        ("stream\n", "400"),
        ("metrics 5\n", "400"),
        ("\x16\x03\x01\n", "400"),
    ] {
        let answer = ask_http(address, request);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer}"
        );
        assert!(!answer.contains("secret"), "{answer}");
    }
    // Many who ask cost the observer no more than a few.
    for _ in 0..100 {
        ask_http(address, get);
    }
    assert!(asked.load(Ordering::Relaxed) < 100);
    assert!(HttpServer::start(address, Snapshot::default).is_err());
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn clients_that_say_nothing_keep_nobody_from_metrics() {
    let server = HttpServer::start("127.0.0.1:0".parse().unwrap(), large).unwrap();
    let address = server.address();
    let silent: Vec<TcpStream> = (0..3 * CLIENTS_MAX)
        .map(|number| {
            let mut client = TcpStream::connect(address).unwrap();
            // Some begin, and some do not take their answer.
            let said: &[u8] = [
                b"",
                b"GET /met".as_slice(),
                b"GET /metrics HTTP/1.1\r\n\r\n",
            ][number % 3];
            client.write_all(said).unwrap();
            client
        })
        .collect();
    let answer = ask_http(address, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    // None of them is waited for without end.
    for mut client in silent {
        let mut answer = Vec::new();
        let over = client.read_to_end(&mut answer);
        assert!(over.is_ok() || over.unwrap_err().kind() == io::ErrorKind::ConnectionReset);
    }
}
