//! The observer: two threads between the kernel's events and the flusher.
//!
//! The *listener* reads events and, in the same moment, looks at what of a file
//! just opened is in the cache; the program may be reading in the next. The
//! *worker* keeps the table of files, asks the rules, and answers the flusher's
//! notices. Neither is ever waited for by an observed program: there are no
//! permission events.

mod error;
mod listener;
mod open_before;
mod reporter;
mod worker;

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dropbehind::{Flusher, IoPriority, NoticeSink};
use dropbehind_linux::{
    Fanotify, GroupClass, TIME_SLICE_MIN, open_files, processes, set_thread_time_slice,
};
use rustix::event::{EventfdFlags, eventfd};

pub use error::ObserverError;

use crate::board::{Board, SharedBoard, lock};
use crate::files::{self, Files};
use crate::looked::Looked;
use crate::others::Insiders;
use crate::owners;
use crate::rules::Rules;
use crate::scout::{Scout, look_at_directory};
use crate::small_files::SmallFiles;
use crate::snapshot::Snapshot;
use crate::source::{Marks, Source};
use error::failed;
use listener::Listener;
use open_before::open_again;
use reporter::Reporter;
use worker::{Input, Worker};

/// A round of the listener that finds nothing takes less than this.
const ROUND: Duration = Duration::from_micros(500);
/// A program waits no longer for its directory to be looked at: a thousand
/// files or more.
const LOOK_AHEAD: Duration = Duration::from_millis(10);

/// How to observe.
#[derive(Clone, Debug)]
pub struct ObserverConfig {
    /// Whose files.
    pub source: Source,
    /// Which of them, and how.
    pub rules: Arc<dyn Rules>,
    /// What the snapshot calls it: `run` or `watch`.
    pub kind: String,
    /// I/O priority of the flusher's threads.
    pub io_priority: IoPriority,
}

/// Observes until it is dropped.
pub struct Observer {
    shared: Arc<Shared>,
    input: mpsc::Sender<Input>,
    root: PathBuf,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// These hold the fanotify groups longest, until the drop.
    looked: Option<Looked>,
    fanotify: Option<Arc<Fanotify>>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("kind", &self.shared.reporter.kind)
            .finish_non_exhaustive()
    }
}

/// What the threads share with those who hold the observer.
struct Shared {
    source: Source,
    reporter: Reporter,
    stopping: AtomicBool,
    /// How often the listener has read all there was.
    rounds: AtomicU64,
    /// Wakes the listener.
    wake: OwnedFd,
    /// Shows others that the namespace is looked after.
    _taken: Option<UnixListener>,
}

impl Observer {
    /// Marks what is to be observed and starts.
    ///
    /// Raises the process's soft limit on descriptors to the hard one: each file
    /// that is looked after has some.
    ///
    /// # Errors
    /// Without privilege or fanotify, or when a thread cannot be started.
    pub fn new(config: ObserverConfig) -> Result<Observer, ObserverError> {
        raise_descriptor_limit();
        let first_process = match config.source {
            Source::Namespace { process } => Some(process),
            Source::Machine => None,
        };
        let group = || match first_process {
            Some(_) => Fanotify::new(GroupClass::Notification),
            None => Fanotify::with_bounded_queue(GroupClass::Notification),
        };
        let fanotify = Arc::new(group().map_err(failed("fanotify_init"))?);
        let mut notes = Vec::new();
        let marks = Marks::new(config.source, &fanotify, &mut notes)
            .map_err(failed("the mounts could not be marked"))?;
        let openers = first_process
            .map(|_| Fanotify::new(GroupClass::Notification))
            .transpose()
            .map_err(failed("fanotify_init"))?
            .map(Arc::new);
        let flusher = Flusher::builder()
            .io_priority(config.io_priority)
            .observing()
            .build()
            .map_err(failed("the flusher could not be started"))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| failed("eventfd")(error.into()))?;
        let board: SharedBoard = Arc::new(Mutex::new(Board::default()));
        for note in notes {
            lock(&board).note(note);
        }
        let small = SmallFiles::start(config.io_priority)
            .map_err(failed("a thread could not be started"))?;
        let shared = Arc::new(Shared {
            source: config.source,
            reporter: Reporter {
                kind: config.kind,
                flusher: flusher.clone(),
                small: small.clone(),
                board: Arc::clone(&board),
                events: AtomicU64::new(0),
                overflows: AtomicU64::new(0),
                started: Instant::now(),
            },
            stopping: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            wake,
            // Without it, a watch would do what we do once more.
            _taken: marks
                .namespace()
                .and_then(|namespace| owners::take(namespace).ok()),
        });
        let root = first_process.map_or_else(
            || PathBuf::from("/"),
            |process| PathBuf::from(format!("/proc/{process}/root")),
        );
        let looked = Looked::new(openers.clone());
        let scout = first_process
            .map(|_| Scout::start(looked.clone(), root.clone()))
            .transpose()
            .map_err(failed("a thread could not be started"))?;
        let (input, inputs) = mpsc::channel();
        let notices = input.clone();
        let files = Files::new(files::Parts {
            flusher,
            rules: config.rules,
            fanotify: Arc::clone(&fanotify),
            openers: openers.clone(),
            looked: looked.clone(),
            scout,
            small,
            insiders: Insiders::new(marks.namespace(), first_process),
            board,
            notices: NoticeSink::new(move |notice| drop(notices.send(Input::Notice(notice)))),
        });
        let listener = Listener::new(listener::Parts {
            shared: Arc::clone(&shared),
            fanotify: Arc::clone(&fanotify),
            openers,
            marks,
            input: input.clone(),
            looked: looked.clone(),
        });
        let worker = Worker {
            shared: Arc::clone(&shared),
            files,
            inputs,
        };
        let threads = vec![
            thread(owners::LISTENER, move || listener.run())?,
            thread("dropbehind-work", move || worker.run())?,
        ];
        let observer = Observer {
            shared,
            input,
            root,
            threads: Mutex::new(threads),
            looked: Some(looked),
            fanotify: Some(fanotify),
        };
        if config.source == Source::Machine {
            observer.find_open_files();
        }
        Ok(observer)
    }

    /// Looks at files that the programs are likely to open, before they do: these,
    /// and those in the directory that the programs start in, as many as can be
    /// looked at in some milliseconds. Relative paths begin at `directory`.
    pub fn look_ahead(&self, directory: &Path, paths: &[PathBuf]) {
        let Some(looked) = &self.looked else { return };
        for path in paths {
            let path = directory.join(path);
            let inside = path.strip_prefix("/").unwrap_or(&path);
            looked.look_at(&self.root.join(inside));
        }
        let inside = directory.strip_prefix("/").unwrap_or(directory);
        let deadline = Instant::now() + LOOK_AHEAD;
        look_at_directory(looked, &self.root.join(inside), None, Some(deadline));
    }

    /// Looks after the files that a process has open already, such as its
    /// standard output, of which no open will tell.
    pub fn inherit(&self, process: i32) {
        for open in open_files(process).unwrap_or_default() {
            if let Some((file, before)) = open_again(process, &open) {
                let _ = self.input.send(Input::Inherited(process, file, before));
            }
        }
    }

    fn find_open_files(&self) {
        let own = own_process();
        for process in processes().into_iter().flatten() {
            if process != own && has_writable(process) {
                self.inherit(process);
            }
        }
    }

    /// Applies other rules to files opened from now on.
    pub fn set_rules(&self, rules: Arc<dyn Rules>) {
        let _ = self.input.send(Input::Rules(rules));
    }

    /// The programs are done: what they left is written and dropped. False when
    /// `timeout` passed first.
    pub fn settle(&self, timeout: Duration) -> bool {
        let started = Instant::now();
        // What they did last may still be in the kernel's queue. The listener may
        // be in the middle of a round, so it takes two to have read all.
        let due = self.shared.rounds.load(Ordering::SeqCst) + 2;
        while self.shared.rounds.load(Ordering::SeqCst) < due {
            if started.elapsed() >= timeout {
                return false;
            }
            self.wake_listener();
            std::thread::sleep(ROUND);
        }
        let (done, seen) = mpsc::channel();
        let _ = self.input.send(Input::CloseAll);
        let _ = self.input.send(Input::Sync(done));
        if seen.recv_timeout(timeout).is_err() {
            return false;
        }
        let left = || timeout.saturating_sub(started.elapsed());
        let small = self.shared.reporter.small.flush(left());
        self.shared.reporter.flusher.drain(left()) && small
    }

    /// How it stands.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.reporter.snapshot()
    }

    /// What takes snapshots in another thread.
    pub fn reporter(&self) -> impl Fn() -> Snapshot + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.reporter.snapshot()
    }

    /// Ends the observation; files are left as they are.
    pub fn stop(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.wake_listener();
        let _ = self.input.send(Input::Stop);
        let threads =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn wake_listener(&self) {
        let _ = rustix::io::write(&self.shared.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop();
        // The kernel takes some 12 ms to end a group, and no longer for two at once.
        let looked = self.looked.take();
        let ending = std::thread::Builder::new().spawn(|| drop(looked));
        self.fanotify = None;
        let _ = ending.map(JoinHandle::join);
    }
}

fn has_writable(process: i32) -> bool {
    open_files(process).is_ok_and(|files| files.iter().any(|file| file.writable))
}

/// A thread that gets a processor soon after it is woken, also where programs
/// keep all of them busy: what it is told of cannot be looked at too soon.
fn thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, ObserverError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(|| {
            // Refused, it runs as other threads do.
            let _ = set_thread_time_slice(TIME_SLICE_MIN);
            body();
        })
        .map_err(failed("a thread could not be started"))
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // With the lower one fewer files can be looked after at once.
    let _ = setrlimit(Resource::Nofile, raised);
}

fn own_process() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}
