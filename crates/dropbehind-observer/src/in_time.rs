//! Calls that may take forever.

use std::sync::mpsc;
use std::time::Duration;

/// How long we wait for a file system's server. One that answers does so much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Does something in a thread of its own; `None` if it was not done within [`PATIENCE`]. A
/// thread that waits for a FUSE server cannot be interrupted. So it stays, and the process with
/// it, until the server answers or is gone.
pub(crate) fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    in_time_or(body, drop)
}

/// The same. Whatever comes too late is undone in that thread.
pub(crate) fn in_time_or<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
    undo: impl FnOnce(T) + Send + 'static,
) -> Option<T> {
    // Without a buffer, what is sent was received.
    let (done, result) = mpsc::sync_channel(0);
    let thread = std::thread::Builder::new().name("dropbehind-wait".into());
    let run = move || {
        if let Err(mpsc::SendError(late)) = done.send(body()) {
            undo(late);
        }
    };
    thread.spawn(run).ok()?;
    result.recv_timeout(PATIENCE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_too_late_is_undone() {
        let (begin, begins) = mpsc::channel();
        let (undone, is_undone) = mpsc::channel();
        let body = move || begins.recv();
        let undo = move |late| undone.send(late).unwrap();
        assert_eq!(in_time_or(body, undo), None);
        begin.send(7).unwrap();
        assert_eq!(is_undone.recv(), Ok(Ok(7)));
        assert_eq!(in_time_or(|| 8, |_| panic!("it was in time")), Some(8));
    }
}
