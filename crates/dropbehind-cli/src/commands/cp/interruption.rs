//! SIGINT, SIGTERM and SIGHUP end a copy between two blocks, so that it can take back a file that
//! is half copied. The second of them ends it at once.

use crate::error::Failure;
use dropbehind_linux::{StartState, die_by};
use nix::sys::signal::{SigSet, Signal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

/// Whether the user wants the copy to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Interruption {
    received: Arc<AtomicI32>,
    /// The copying waits for a user or for another program: nothing would notice the signal.
    waiting: Arc<AtomicBool>,
}

impl Interruption {
    /// Begins to wait for signals. There must be no other threads yet.
    pub(super) fn listen() -> Self {
        let interruption = Self::default();
        let start = StartState::get();
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            // What is ignored, as under nohup, stays so.
            if !start
                .as_ref()
                .is_ok_and(|start| start.ignores(signal as i32))
            {
                signals.add(signal);
            }
        }
        let (received, waiting) = (interruption.flag(), Arc::clone(&interruption.waiting));
        let wait = move || {
            while let Ok(signal) = signals.wait() {
                if received.swap(signal as i32, Relaxed) != 0 || waiting.load(Relaxed) {
                    die_by(signal as i32);
                }
            }
        };
        // Without a thread, signals do what they always do.
        if signals.thread_block().is_ok() {
            let thread = std::thread::Builder::new().name("signals".to_owned());
            if thread.spawn(wait).is_err() {
                let _ = signals.thread_unblock();
            }
        }
        interruption
    }

    /// The signal that came.
    pub(super) fn signal(&self) -> Option<i32> {
        Some(self.received.load(Relaxed)).filter(|&signal| signal != 0)
    }

    /// Notes whether the copying waits for somebody, during which a signal ends it at once.
    /// Returns whether it did before.
    pub(super) fn wait(&self, waiting: bool) -> bool {
        self.waiting.swap(waiting, Relaxed)
    }

    /// The flag that reads of a source look at.
    pub(super) fn flag(&self) -> Arc<AtomicI32> {
        Arc::clone(&self.received)
    }

    /// What to say at the end.
    pub(super) fn failure(signal: i32) -> Failure {
        let name = Signal::try_from(signal).map_or("a signal", Signal::as_str);
        Failure::new(format!(
            "stopped by {name} before all was copied. What is there is whole but for what is \
             named above; run the command again, with -u to skip what is there."
        ))
        .like_cp(format!("stopped by {name}"))
    }
}
