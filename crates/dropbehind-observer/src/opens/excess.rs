//! Devices on which programs wait with opening more files for writing, since too much is
//! unwritten there.
//!
//! Whoever writes faster than the disk is held at the file that it writes to. A program that
//! closes this file and writes the next one would not be held at all, so it waits at the open, as
//! it would wait for the kernel's own limits at some later write.

use crate::board::lock;
use dropbehind_flusher::ExcessSink;
use dropbehind_linux::{monotonic_ns, receive_message, send_message};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::time::Duration;

/// A device is reported no more often than this,
const EVERY_NS: u64 = 5_000_000;
/// and opens wait this long after each report: if nobody reports any more, nobody waits.
const LASTS_NS: u64 = 40_000_000;
/// As many devices are remembered.
const DEVICES: usize = 64;

/// Reports through a socket that keeps messages apart.
pub(crate) fn sink(socket: impl AsFd + Send + Sync + 'static) -> ExcessSink {
    let sent: Mutex<HashMap<u64, u64>> = Mutex::default();
    ExcessSink::new(move |device| {
        let now_ns = monotonic_ns();
        let mut sent = lock(&sent);
        if sent
            .get(&device)
            .is_some_and(|sent| now_ns - sent < EVERY_NS)
        {
            return;
        }
        if sent.len() >= DEVICES {
            sent.clear();
        }
        sent.insert(device, now_ns);
        // If there is no room, the one who reads has not even read the last ones.
        let _ = report(socket.as_fd(), device, now_ns + LASTS_NS);
    })
}

fn report(socket: BorrowedFd<'_>, device: u64, until_ns: u64) -> io::Result<()> {
    let message = postcard::to_allocvec(&(device, until_ns)).map_err(io::Error::other)?;
    send_message(socket, &message, None, false)
}

/// What was reported.
#[derive(Debug, Default)]
pub(crate) struct Excess {
    /// Until when opens wait, by device.
    until_ns: HashMap<u64, u64>,
}

impl Excess {
    /// Reads all reports. Returns false once there will be none any more: nobody waits then.
    pub(crate) fn hear(&mut self, socket: BorrowedFd<'_>) -> bool {
        let mut buffer = [0; 32];
        loop {
            let length = match receive_message(socket, &mut buffer) {
                Ok(None) => return true,
                Ok(Some((length, _))) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            let Ok((device, until_ns)) = postcard::from_bytes(&buffer[..length]) else {
                self.until_ns.clear();
                return false;
            };
            self.until_ns.insert(device, until_ns);
        }
    }

    /// Returns whether opens wait on this device.
    pub(crate) fn is_on(&mut self, device: u64) -> bool {
        self.ends_in().is_some() && self.until_ns.contains_key(&device)
    }

    /// How long some open waits, unless that is reported again; `None` if none does.
    pub(crate) fn ends_in(&mut self) -> Option<Duration> {
        if self.until_ns.is_empty() {
            return None;
        }
        let now_ns = monotonic_ns();
        self.until_ns.retain(|_, until_ns| *until_ns > now_ns);
        let first = self.until_ns.values().min()?;
        Some(Duration::from_nanos(first - now_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn opens_wait_while_that_is_reported() {
        let (told, tells) = super::super::connection().unwrap();
        let mut excess = Excess::default();
        assert!(excess.hear(told.as_fd()) && !excess.is_on(7));
        report(tells.as_fd(), 7, monotonic_ns() + LASTS_NS).unwrap();
        let began = Instant::now();
        assert!(excess.hear(told.as_fd()));
        let is_on = excess.is_on(7);
        assert!(is_on || began.elapsed() >= Duration::from_nanos(LASTS_NS));
        assert!(!excess.is_on(8));
        while excess.is_on(7) {}
        assert!(began.elapsed() >= Duration::from_nanos(LASTS_NS / 2));
        report(tells.as_fd(), 7, u64::MAX).unwrap();
        assert!(excess.hear(told.as_fd()) && excess.is_on(7));
        drop(tells);
        assert!(!excess.hear(told.as_fd()) && !excess.is_on(7));
    }
}
