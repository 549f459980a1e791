//! Calls that may take forever.

use std::sync::mpsc;
use std::time::Duration;

/// How long we wait for a file system's server. One that answers does so much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Does something in a thread of its own; `None` if it was not done within [`PATIENCE`]. A
/// thread that waits for a FUSE server cannot be interrupted. So it stays, and the process with
/// it, until the server answers or is gone.
pub(crate) fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = mpsc::channel();
    let thread = std::thread::Builder::new().name("dropbehind-wait".into());
    thread.spawn(move || drop(done.send(body()))).ok()?;
    result.recv_timeout(PATIENCE).ok()
}
