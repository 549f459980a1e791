//! Descriptors in messages, where a process may have few. In a process of its own: all threads share
//! the limit.

use dropbehind_linux::{message_sockets, receive_message, send_message};
use rustix::process::{Resource, Rlimit, Uid, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::time::Duration;

const DESCRIPTORS: u64 = 64;

#[test]
fn a_message_waits_until_others_are_received() {
    let limit = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(DESCRIPTORS),
        ..limit
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let (socket, other) = message_sockets(Duration::from_secs(60)).unwrap();
    let file = File::open("/dev/null").unwrap();
    let (say, said) = mpsc::channel();
    let sender = std::thread::spawn(move || {
        // Root may send as many as it likes. This changes one thread.
        if rustix::process::geteuid().is_root() {
            let nobody = Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        }
        let send = |waits| send_message(socket.as_fd(), b"file", Some(file.as_fd()), waits);
        let refused = (0..=2 * DESCRIPTORS).find_map(|_| send(false).err());
        let refused = refused.and_then(|error| error.raw_os_error());
        say.send(()).unwrap();
        (refused, send(true))
    });
    said.recv().unwrap();
    // So that it waits by then.
    std::thread::sleep(Duration::from_millis(50));
    let mut buffer = [0; 8];
    while !sender.is_finished() {
        let _ = receive_message(other.as_fd(), &mut buffer).unwrap();
    }
    let (refused, sent) = sender.join().unwrap();
    assert_eq!(refused, Some(libc::ETOOMANYREFS));
    sent.unwrap();
}
