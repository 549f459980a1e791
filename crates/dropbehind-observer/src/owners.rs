//! Who observes a process's files already.
//!
//! A `run` inside a watched machine, or a program that uses the library, looks
//! after its own; a second flusher for the same pages would only count and ask
//! twice. A `run` shows that its namespace is taken by an abstract socket, which
//! goes with it however it ends. A user of the library shows by its flusher's
//! thread.

use std::collections::HashMap;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use dropbehind_linux::{MountNamespaceId, mount_namespace_of};

use crate::start_times::StartTimes;

/// What was found out holds so long.
const KNOWN: Duration = Duration::from_secs(1);
/// No more processes are remembered.
const PROCESSES: usize = 4096;
/// The library's thread that opens its descriptions.
const KEEPER: &str = "dropbehind-keep";
/// The observer's thread, which reads events and the trace.
pub(crate) const LISTENER: &str = "dropbehind-hear";
fn address(namespace: MountNamespaceId) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("dropbehind-owner-{namespace}"))
}

/// Says that the files used in this namespace are observed, while it lives.
pub(crate) fn take(namespace: MountNamespaceId) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(namespace)?)
}

/// What is known of other owners.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    namespaces: HashMap<MountNamespaceId, (Instant, bool)>,
    processes: HashMap<(i32, u64), (Instant, bool)>,
    start_times: StartTimes,
}

impl Owners {
    /// True when somebody else observes the files of a process; `observed` is
    /// the namespace that we observe ourselves.
    pub(crate) fn has(&mut self, process: i32, observed: Option<MountNamespaceId>) -> bool {
        let started = self.start_times.of(process).unwrap_or(0);
        if let Some((at, owned)) = self.processes.get(&(process, started))
            && at.elapsed() < KNOWN
        {
            return *owned;
        }
        let owned = uses_library(process) || self.lives_elsewhere(process, observed);
        if self.processes.len() >= PROCESSES {
            self.processes.clear();
        }
        self.processes
            .insert((process, started), (Instant::now(), owned));
        owned
    }

    fn lives_elsewhere(&mut self, process: i32, observed: Option<MountNamespaceId>) -> bool {
        let Ok(namespace) = mount_namespace_of(process) else {
            return false;
        };
        if observed == Some(namespace) {
            return false;
        }
        if let Some((at, owned)) = self.namespaces.get(&namespace)
            && at.elapsed() < KNOWN
        {
            return *owned;
        }
        let owned =
            address(namespace).is_ok_and(|address| UnixStream::connect_addr(&address).is_ok());
        if self.namespaces.len() >= PROCESSES {
            self.namespaces.clear();
        }
        self.namespaces.insert(namespace, (Instant::now(), owned));
        owned
    }
}

fn uses_library(process: i32) -> bool {
    has_thread(process, KEEPER)
}

/// True for another observer: it holds every observed file open without using it.
pub(crate) fn is_observer(process: i32) -> bool {
    has_thread(process, LISTENER)
}

fn has_thread(process: i32, wanted: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    threads.flatten().any(|thread| {
        std::fs::read_to_string(thread.path().join("comm"))
            .is_ok_and(|name| name.trim_end() == wanted)
    })
}
