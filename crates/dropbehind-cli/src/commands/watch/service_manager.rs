//! Tells systemd how far we are: sd_notify(3), as datagrams to the socket that `NOTIFY_SOCKET`
//! names.

use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The service manager that started us and wants to know; there may be none.
#[derive(Debug)]
pub(super) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Set up as the environment says.
    pub(super) fn new() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name));
        Self {
            socket: address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address))),
            watchdog: watchdog(),
        }
    }

    /// How often [`alive`](Self::alive) is expected, at least.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The rules are in force.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// Other rules are being read, until [`ready`](Self::ready) is called.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Finishing what is under way.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=writing back and dropping what is left");
    }

    /// All is well.
    pub(super) fn alive(&self, status: &str) {
        self.tell(&format!("WATCHDOG=1\nSTATUS={status}"));
    }

    /// The observer does nothing. Without another [`alive`](Self::alive), we will be ended.
    pub(super) fn hanging(&self, _status: &str) {
        self.tell("STATUS=a file system's server does not answer, and nothing is observed");
    }

    /// If nobody listens, the message is lost.
    fn tell(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        _ => SocketAddr::from_pathname(name).ok(),
    }
}

/// See sd_watchdog_enabled(3).
fn watchdog() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let for_us =
        number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
    let micros = number("WATCHDOG_USEC").filter(|micros| for_us && *micros > 0)?;
    Some(Duration::from_micros(micros))
}
