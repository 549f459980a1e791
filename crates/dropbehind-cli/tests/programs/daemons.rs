//! Processes that outlive the program.

use crate::bed::Bed;
use crate::shell::{RUN, lives, observer_of, wait_for};
use dropbehind_testbed::{Fs, need};

/// Opens its files before it forks twice, waits until its parents are gone, and
/// writes on.
const DAEMON: &str = r#"
import os, sys, time
block = bytes(range(256)) * 4096
early = open("early", "wb", buffering=0)
early.write(block)
if os.fork(): os._exit(4)
os.setsid()
if os.fork(): os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for fd in range(3): os.dup2(null, fd)
while not os.path.exists("go"): time.sleep(0.005)
late = open("late", "wb", buffering=0)
for i in range(30):
    early.write(block); late.write(block)
with open("../input/data", "rb") as source, open("read", "wb") as copy:
    copy.write(source.read())
open("done", "w").close()
"#;

#[test]
fn a_daemon_is_observed_to_its_end() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input("head -c 20000000 /dev/urandom >data");
    bed.cools("input");
    std::fs::write(bed.file("daemon.py"), DAEMON).unwrap();
    let mut command = bed.bash(RUN, "observed", "exec $RUN python3 ../daemon.py");
    let mut running = command.spawn().expect("the command");
    let mut observer = None;
    wait_for("an observer", || {
        observer = observer_of(running.id());
        observer.is_some()
    });
    assert_eq!(running.wait().unwrap().code(), Some(4));
    let observer = observer.expect("just seen");
    assert!(lives(observer));
    std::fs::write(bed.file("observed/go"), "").unwrap();
    wait_for("the observer's end", || !lives(observer));
    assert!(bed.file("observed/done").exists());
    assert_eq!(bed.cached("observed"), []);
    let read = bed.runs(
        "",
        "observed",
        "cmp read ../input/data; cmp -i 1048576:0 early late",
    );
    assert_eq!(read.code, Some(0), "{read:?}");
}
