//! The server of stopped opens: a thread of the supervisor.

use super::serving::{PAUSE, Serving};
use dropbehind_linux::seccomp::{Holders, Listener};
use dropbehind_linux::{Interest, Pidfd, PollEntry, keep_descriptors, poll};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread's name.
const NAME: &str = "dropbehind-open";
/// The longest wait at the end for opens to be reported.
const FLUSHING: Duration = Duration::from_secs(1);

/// Starts another process that stands by as holder number `holder`.
pub type StartSpare = Box<dyn FnMut(&Served, usize) -> io::Result<Pidfd> + Send>;

/// What both holders of a listener have.
#[derive(Debug)]
pub struct Served {
    /// Where opens are received.
    pub listener: Listener,
    /// What was received.
    pub holders: Holders,
    /// The server's end of the connection to the observer.
    pub observer: OwnedFd,
}

/// Serves stopped opens in a thread.
#[derive(Debug)]
pub struct OpenServer {
    served: Arc<Served>,
    wake: Arc<OwnedFd>,
    flushed: mpsc::Receiver<usize>,
    asked: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl OpenServer {
    /// Starts a spare holder and the thread.
    ///
    /// # Errors
    /// If either cannot be started. Then nobody answers: the programs must not be started.
    pub fn start(served: Served, mut start_spare: StartSpare) -> io::Result<OpenServer> {
        let served = Arc::new(served);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (done, flushed) = mpsc::channel();
        let asked = Arc::new(AtomicBool::new(false));
        let mut serving = Serving::new(Arc::clone(&served), 0);
        serving.other = Some(start_spare(&served, 1)?);
        let (waker, ask) = (Arc::clone(&wake), Arc::clone(&asked));
        let thread = std::thread::Builder::new().name(NAME.into());
        let thread = thread.spawn(move || {
            // Closing a file that the supervisor has locked must not unlock it.
            let served = Arc::clone(&serving.served);
            let mut kept = vec![
                served.listener.as_fd(),
                served.holders.as_fd(),
                served.observer.as_fd(),
                waker.as_fd(),
            ];
            kept.extend(serving.other.as_ref().map(AsFd::as_fd));
            // If memory is short, it may.
            let _ = keep_descriptors(&kept);
            let mut each = |serving: &mut Serving| {
                // Also if an earlier round has answered, or the poll finds it again at once.
                let _ = rustix::io::read(&*waker, &mut [0; 8]);
                if ask.swap(false, Ordering::SeqCst) {
                    serving.finish_all();
                    let _ = done.send(serving.count_processes());
                }
                serving.replace_dead(&mut start_spare);
                false
            };
            serving.serve(Some(&waker), &mut each);
        })?;
        Ok(OpenServer {
            served,
            wake,
            flushed,
            asked,
            thread,
        })
    }

    /// Reports all opens that were let go, and returns how many processes are known that are still
    /// under the filter.
    pub fn flush(&self) -> usize {
        self.asked.store(true, Ordering::SeqCst);
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        // It ends by itself with the last process.
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < FLUSHING {
            if let Ok(processes) = self.flushed.recv_timeout(PAUSE) {
                return match self.is_over() {
                    true => 0,
                    false => processes.max(1),
                };
            }
        }
        usize::from(!self.is_over())
    }

    /// Says that opens were let go of which the observer knows nothing, if there are such.
    #[must_use]
    pub fn note(&self) -> Option<String> {
        let missed = self.served.holders.missed();
        (missed > 0).then(|| {
            format!(
                "the observer was too slow for up to {missed} opens: those files are left to the kernel"
            )
        })
    }

    /// Returns whether no process is left under the filter.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let mut entry = [PollEntry::new(
            self.served.listener.as_fd(),
            Interest::HangUp,
        )];
        poll(&mut entry, Some(Duration::ZERO)).is_ok() && entry[0].is_hung_up()
    }
}
