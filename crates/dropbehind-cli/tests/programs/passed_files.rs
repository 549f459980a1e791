//! Files that a program did not open itself, or opened before it left its parents.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::shell::{RUN, Running, lives, observer_of, wait_for};
use dropbehind_testbed::residency::{cached, evict};
use dropbehind_testbed::{Fs, need};

const BYTES: u64 = 32 << 20;

/// Opens a file, passes it on through a socket, and holds it.
const GIVER: &str = r#"
import os, socket, time
file = os.open("input/data", os.O_RDONLY)
listener = socket.socket(socket.AF_UNIX)
listener.bind("socket")
listener.listen()
while True:
    taker, _ = listener.accept()
    socket.send_fds(taker, [b"file"], [file])
"#;

/// Takes it, and reads it as it is told to.
const TAKER: &str = r#"
import mmap, os, socket, sys
giver = socket.socket(socket.AF_UNIX)
giver.connect("../socket")
file = socket.recv_fds(giver, 16, 1)[1][0]
if sys.argv[1] == "read":
    at = 0
    while block := os.pread(file, 1 << 20, at): at += len(block)
else:
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as mapping:
        sum(mapping[at] for at in range(0, len(mapping), mmap.PAGESIZE))
"#;

#[test]
fn a_file_that_came_through_a_socket() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        bed.input(&format!("head -c {BYTES} /dev/urandom >data"));
        for (name, text) in [("giver.py", GIVER), ("taker.py", TAKER)] {
            std::fs::write(bed.file(name), text).unwrap();
        }
        let giver = Running::start(bed.bash("", ".", "exec python3 giver.py"));
        wait_for("a socket", || bed.file("socket").exists());
        let data = bed.file("input/data");
        for way in ["read", "map"] {
            evict(&data);
            let script = format!("exec $RUN python3 ../taker.py {way}");
            let figures = Figures::of(&bed, "--only 'input/data'", "observed", &script);
            let stays = cached(&data).unwrap().cached_pages;
            assert_eq!(stays, 0, "{filesystem:?}, {way}: {figures:?}");
            assert_eq!(figures.bytes("bytes_read"), BYTES, "{way}: {figures:?}");
        }
        drop(giver);
    }
}

#[test]
fn a_file_on_standard_input() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cat"]));
        let bed = Bed::on(filesystem);
        bed.input(&format!("head -c {BYTES} /dev/urandom >data"));
        let data = bed.file("input/data");
        for script in [
            "exec $RUN cat <../input/data >/dev/null",
            // The shell outside keeps it open.
            "exec 7<../input/data; $RUN sh -c 'exec cat <&7 >/dev/null'",
            "$RUN sh -c 'cat; true' <../input/data | cat >/dev/null",
        ] {
            evict(&data);
            let figures = Figures::of(&bed, "--only 'input/data'", "observed", script);
            let stays = cached(&data).unwrap().cached_pages;
            assert_eq!(stays, 0, "{filesystem:?}, {script}: {figures:?}");
            assert_eq!(figures.bytes("bytes_read"), BYTES, "{script}: {figures:?}");
        }
    }
}

/// It goes on after its parents, with what one of them opened.
const DAEMON: &str = r#"
import os, sys, time
early = os.open("../input/early", os.O_RDONLY)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for fd in range(3): os.dup2(null, fd)
while not os.path.exists("go"): time.sleep(0.005)
late = os.open("../input/late", os.O_RDONLY)
for file in early, late:
    while os.read(file, 1 << 20): pass
open("done", "w").close()
"#;

#[test]
fn files_that_a_daemon_reads() {
    for filesystem in [Fs::Ext4, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        bed.input("for name in early late; do head -c 32M /dev/urandom >$name; done");
        bed.cools("input");
        std::fs::write(bed.file("daemon.py"), DAEMON).unwrap();
        let command = bed.bash(RUN, "observed", "exec $RUN python3 ../daemon.py");
        let mut running = Running::start(command);
        let mut observer = None;
        wait_for("an observer", || {
            observer = observer_of(running.id());
            observer.is_some()
        });
        assert_eq!(running.ends().code(), Some(0));
        std::fs::write(bed.file("observed/go"), "").unwrap();
        let observer = observer.expect("just seen");
        wait_for("the observer's end", || !lives(observer));
        assert!(bed.file("observed/done").exists());
        assert_eq!(bed.cached("input"), [], "{filesystem:?}");
    }
}
