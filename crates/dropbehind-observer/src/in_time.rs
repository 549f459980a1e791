//! What may take forever.

use std::sync::mpsc;
use std::time::Duration;

/// So long we wait for the server of a file system. One that answers does so much sooner.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// Does something in a thread of its own; `None` when it was not done within [`PATIENCE`].
/// Who waits for a FUSE server cannot be interrupted, so the thread stays until the server
/// answers or is gone, and the process with it.
pub(crate) fn in_time<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = mpsc::channel();
    let thread = std::thread::Builder::new().name("dropbehind-wait".into());
    thread.spawn(move || drop(done.send(body()))).ok()?;
    result.recv_timeout(PATIENCE).ok()
}
