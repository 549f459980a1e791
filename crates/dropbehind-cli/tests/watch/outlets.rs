//! What a watch says of itself.

use crate::commands::RULES;
use crate::files::dd;
use crate::user::running_watch::RunningWatch;
use crate::user::{User, finish};
use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{Need, need};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What a socket answers to a line.
pub(crate) fn asked(socket: &Path, request: &str) -> String {
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
    let bytes = std::fs::metadata(home.join("data/a")).unwrap().len();
    let mut looks = 0;
    let rule = |figure: &str, value: u64| {
        format!("\ndropbehind_rule_{figure}_total{{observer=\"watch\",rule=\"1\"}} {value}\n")
    };
    let [files, written] = [rule("files", 1), rule("written_bytes", bytes)];
    let last = "\ndropbehind_rules_last_reload_successful{observer=\"watch\"} ";
    loop {
        let text = asked(&socket, "metrics\n");
        if text.contains(&files) && text.contains(&written) && text.contains(&format!("{last}1\n"))
        {
            break;
        }
        looks += 1;
        assert!(looks < 600, "{text}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    user.writes("rules", "mode = 1\n");
    watch.signal("HUP");
    watch.says("RELOADING=1");
    watch.says("READY=1");
    assert!(asked(&socket, "metrics\n").contains(&format!("{last}0\n")));
    user.writes("rules", RULES);
    watch.signal("HUP");
    watch.says("RELOADING=1");
    watch.says("READY=1");
    assert!(asked(&socket, "metrics\n").contains(&format!("{last}1\n")));
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
        (
            "--config rules --socket nowhere/sock",
            "there is no directory nowhere for the observer's socket; create it first",
        ),
        ("--config rules --listen 192.0.2.1:1", "192.0.2.1:1"),
    ] {
        let watch = user.watch(args);
        finish(&mut user.wrapped(&["timeout"], "60", &watch)).fails(1, saying);
    }
    // None took the machine's place, or left anything.
    assert!(!user.file("nowhere").exists());
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
fn reports_replace_no_file_that_the_watch_uses() {
    need!(Need::Root);
    let user = User::new();
    for folder in ["rules.d", "runtime"] {
        std::fs::create_dir(user.file(folder)).unwrap();
    }
    for name in ["rules", "rules.d/a.toml"] {
        user.writes(name, RULES);
    }
    std::os::unix::fs::symlink("rules", user.file("link")).unwrap();
    for args in [
        "--metrics rules",
        "--metrics link",
        "--metrics rules.d/a.toml",
        "--trace rules",
        "--trace rules.d/a.toml",
        "--trace rules.d/new.toml",
        "--trace runtime/watch.lock",
        "--trace runtime/watch.sock",
        "--metrics runtime/watch.lock",
        "--metrics runtime/watch.sock",
        "--metrics here --socket here",
        "--metrics same --trace same",
    ] {
        let watch = user.watch(&format!("--config rules {args}"));
        let said = finish(&mut user.wrapped(&["timeout"], "60", &watch));
        println!("{args}");
        said.fails(2, "Nothing was changed");
        for name in ["rules", "rules.d/a.toml"] {
            assert_eq!(std::fs::read_to_string(user.file(name)).unwrap(), RULES);
        }
        for name in ["rules.d/new.toml", "here", "same", "runtime/watch.sock"] {
            assert!(!user.file(name).exists(), "{args}: {name}");
        }
    }
    // What is not read again may be both.
    let args = "--config rules --metrics m.prom --trace /dev/null";
    let mut watch = RunningWatch::start(&user, &mut user.watch(args));
    watch.says("READY=1");
    assert_eq!(watch.ends("TERM"), Some(0));
}

/// The figures of all disks add up to the totals, even where a disk has only small files.
#[test]
fn the_figures_of_disks_add_up() {
    const SMALL_FILES: u64 = 20;
    const SMALL_BYTES: u64 = 64 << 10;
    need!(Need::Root, Need::Cachestat);
    let user = User::new();
    let home = std::fs::canonicalize(user.file("")).unwrap();
    let folder = home.join("data");
    let rule = format!(
        "[[rule]]\npath = \"{}/\"\nmode = \"dontcache\"\n",
        folder.display()
    );
    user.writes("rules", &rule);
    std::fs::create_dir(&folder).unwrap();
    let mut watch = RunningWatch::by_rules(&user);
    let socket = home.join("runtime/watch.sock");
    let mut bytes = 0;
    for large in [false, true] {
        match large {
            false => {
                for number in 0..SMALL_FILES {
                    let small = vec![1; usize::try_from(SMALL_BYTES).unwrap()];
                    std::fs::write(folder.join(number.to_string()), small).unwrap();
                }
                bytes += SMALL_FILES * SMALL_BYTES;
            }
            true => {
                dd(&folder.join("large"));
                bytes += std::fs::metadata(folder.join("large")).unwrap().len();
            }
        }
        let mut looks = 0;
        loop {
            let said: serde_json::Value =
                serde_json::from_str(&asked(&socket, "snapshot\n")).unwrap();
            let disks = said["disks"].as_array().unwrap();
            let agree =
                ["written_bytes", "dropped_bytes", "left_bytes", "kept_bytes"].map(|name| {
                    let of_disks = disks.iter().map(|disk| disk[name].as_u64().unwrap());
                    of_disks.sum::<u64>() == said["totals"][name].as_u64().unwrap()
                });
            let dropped = said["totals"]["dropped_bytes"].as_u64();
            if dropped == Some(bytes) && agree == [true; 4] {
                break;
            }
            looks += 1;
            assert!(looks < 600, "{bytes} bytes: {said:#}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}

/// What was kept of a file counts until the file is looked at again.
#[test]
fn what_is_no_longer_cached_is_not_kept() {
    need!(Need::Root, Need::Cachestat);
    in_some_attempt(|_| {
        let user = User::new();
        let home = std::fs::canonicalize(user.file("")).unwrap();
        let [rewritten, deleted] =
            ["rewritten.wanted", "deleted.wanted"].map(|name| home.join(name));
        for path in [&rewritten, &deleted] {
            std::fs::write(path, vec![1; 32 << 20]).unwrap();
        }
        let home = home.display();
        let rule = format!("[[rule]]\npath = \"{home}/*.wanted\"\nmode = \"dontcache\"\n");
        user.writes("rules", &rule);
        let mut watch = RunningWatch::by_rules(&user);
        let socket = user.file("runtime/watch.sock");
        let is_kept = |is_it: &dyn Fn(u64) -> bool| {
            (0..400).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                let said: serde_json::Value =
                    serde_json::from_str(&asked(&socket, "snapshot\n")).unwrap();
                is_it(said["totals"]["kept_bytes"].as_u64().unwrap())
            })
        };
        for path in [&rewritten, &deleted] {
            std::fs::read(path).unwrap();
        }
        if !is_kept(&|bytes| bytes > 40 << 20) {
            return Err("the files were not cached".to_owned());
        }
        dd(&rewritten);
        let file = std::fs::File::open(&deleted).unwrap();
        // Under its new name, no rule would want it.
        std::thread::sleep(std::time::Duration::from_millis(500));
        std::fs::remove_file(&deleted).unwrap();
        drop(file);
        let said = || asked(&socket, "snapshot\n");
        assert!(is_kept(&|bytes| bytes == 0), "{}\n{}", said(), watch.log());
        assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
        Ok(())
    });
}

#[test]
fn metrics_are_given_at_an_address() {
    need!(Need::Root);
    let user = User::new();
    user.writes("rules", RULES);
    // Nobody listens on a port that was free a moment ago, as far as one can tell.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let args = format!("--config rules --listen {address}");
    let mut watch = RunningWatch::start(&user, &mut user.watch(&args));
    watch.says("READY=1");
    let mut client = std::net::TcpStream::connect(address).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let answer = std::io::read_to_string(client).unwrap();
    assert!(
        answer.contains("\ndropbehind_build_info{observer=\"watch\",version="),
        "{answer}"
    );
    assert_eq!(watch.ends("TERM"), Some(0), "{}", watch.log());
}
