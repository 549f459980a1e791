//! The observer: a thread between the kernel's reports and the flusher.
//!
//! No observed program ever waits for it: there are no permission events.

mod error;
mod inputs;
mod reporter;
mod rounds;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dropbehind_flusher::{FailedWriteback, Flusher, NoticeSink, ReportedTrace};
use dropbehind_linux::IoPriority;
use dropbehind_linux::{
    CacheTrace, Fanotify, HeldMountNamespace, TIME_SLICE_MIN, WritebackFailures,
    mount_namespace_of, process_stat, processor_time_of, set_thread_time_slice,
};

pub use error::ObserverError;

use crate::block_inodes;
use crate::board::{Board, SharedBoard, lock};
use crate::files::{self, Files};
use crate::inodes::Inodes;
use crate::opens::{self, Reported};
use crate::owners::{LISTENER, Owners};
use crate::programs::{Programs, Tree};
use crate::rules::Rules;
use crate::small_files::SmallFiles;
use crate::snapshot::Snapshot;
use crate::source::{Marks, MountTable, Source};
use error::failed;
pub(crate) use inputs::{Input, Inputs};
use reporter::Reporter;
use rounds::Rounds;

/// A round that finds nothing takes less than this.
const ROUND: Duration = Duration::from_micros(500);
/// The longest wait for the observer's thread to do what was asked of it.
const STARTING: Duration = Duration::from_secs(3);
/// The observer's thread ends sooner, unless it waits for a server that does not answer.
const STOPPING: Duration = Duration::from_secs(3);
/// All rings of pages together take this, and each at most [`RING_BYTES`] and at least
/// [`RING_MIN_BYTES`]. A record takes 40 bytes, a ring holds a power of two of them, and a
/// processor makes up to 400,000 a second. So a ring holds those of 160 ms with up to 32
/// processors, of 80 ms with 64, and of 10 ms from 512 on.
const RINGS_BYTES: usize = 128 << 20;
const RING_BYTES: usize = 4 << 20;
const RING_MIN_BYTES: usize = 256 << 10;
/// The same for the trace of failed writeback. A record takes 56 bytes, and a disk that fails at
/// once makes 100,000 a second: enough while the observer waits for a processor.
const FAILURE_RINGS_BYTES: usize = 32 << 20;
const FAILURE_RING_BYTES: usize = 1 << 20;

/// Why nothing is traced where opens come without fanotify.
const NOT_PERMITTED: &str = "it does for root, with fanotify";

/// How to observe.
#[derive(Clone, Debug)]
pub struct ObserverConfig {
    /// Whose files to observe.
    pub source: Source,
    /// Which files to observe, and how.
    pub rules: Arc<dyn Rules>,
    /// I/O priority of the flusher's threads.
    pub io_priority: IoPriority,
    /// Where the opens of a namespace's processes are reported, in place of fanotify: the
    /// observer's end of [`connection`](crate::opens::connection). Its processes may share the
    /// namespace with others then, and nothing is traced.
    pub opens: Option<Arc<OwnedFd>>,
}

/// Observes until it is dropped.
pub struct Observer {
    shared: Arc<Shared>,
    inputs: Inputs,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("kind", &self.shared.reporter.kind)
            .finish_non_exhaustive()
    }
}

/// What the threads share with those that hold the observer.
struct Shared {
    reporter: Reporter,
    stopping: AtomicBool,
    /// No opens will be reported any more.
    opens_over: AtomicBool,
    /// The number of the observer's thread.
    thread: AtomicI32,
}

impl Observer {
    /// Marks what is to be observed, and starts.
    ///
    /// Raises the process's soft limit on descriptors to the hard one: each observed file needs
    /// some.
    ///
    /// # Errors
    /// Without privilege or fanotify, if `/proc` shows another pid namespace, or if a thread
    /// cannot be started.
    pub fn new(config: ObserverConfig) -> Result<Observer, ObserverError> {
        if !is_proc_ours() {
            return Err(ObserverError::ForeignProc);
        }
        raise_descriptor_limit();
        let group = match (config.source, &config.opens) {
            (_, Some(_)) => None,
            (Source::Namespace { .. }, None) => Some(Fanotify::new()),
            (Source::Machine, None) => Some(Fanotify::with_bounded_queue()),
        };
        let fanotify = group
            .transpose()
            .map_err(failed("fanotify_init"))?
            .map(Arc::new);
        let mut notes = Vec::new();
        // Before the first file can be opened.
        let trace = match &config.opens {
            Some(_) => Err(NOT_PERMITTED.to_owned()),
            None => open_trace(),
        };
        let trace = trace.map_err(|error| {
            // seccomp stops the program until the file has been looked at.
            let except = match &config.opens {
                Some(_) => "",
                None => ", except what came before we looked at the file",
            };
            notes.push(format!(
                "the kernel does not report which process brings in which page ({error}): what was \
                 cached when a file was opened stays, the rest is dropped{except}"
            ));
        });
        let mut trace = trace.ok();
        let ring_bytes = share_of(FAILURE_RINGS_BYTES).min(FAILURE_RING_BYTES);
        // Without fanotify, files are asked.
        let failures = config.opens.is_none();
        let failed_writeback = failures.then(|| WritebackFailures::open(ring_bytes));
        let failed_writeback = failed_writeback.transpose().unwrap_or_else(|error| {
            notes.push(format!(
                "the kernel does not report when writeback fails ({error}): then programs may read \
                 back older data than they wrote"
            ));
            None
        });
        let marks = Marks::new(config.source, &*config.rules, fanotify.as_ref(), &mut notes)
            .map_err(failed("the mounts could not be marked"))?;
        let block_devices = trace
            .as_mut()
            .and_then(|trace| block_inodes::learn_superblock(trace, marks.mounts(), |_, _| {}));
        if trace.is_some() && block_devices.is_none() && block_inodes::are_usable() {
            notes.push(
                "what programs read from and write to raw devices (such as /dev/sda) stays cached: to \
                 recognise devices in the kernel's reports, dropbehind must read one page of a disk, \
                 and it could read none"
                    .to_owned(),
            );
        }
        let programs = match config.source {
            Source::Namespace { process } => {
                let namespace =
                    mount_namespace_of(process).map_err(failed("the programs' mount namespace"))?;
                Programs::Tree(Tree::of(process, namespace))
            }
            Source::Machine => Programs::Everybody,
        };
        let owners = match (config.source, &config.opens) {
            // The observed programs share others' mounts.
            (_, Some(_)) => Owners::default(),
            (Source::Namespace { process }, None) => {
                let observed = HeldMountNamespace::of(process)
                    .map_err(failed("the programs' mount namespace"))?;
                Owners::new(Some(observed), &mut notes)
            }
            (Source::Machine, None) => Owners::new(None, &mut notes),
        };
        let mut flusher = Flusher::builder()
            .io_priority(config.io_priority)
            .observing();
        let excess = config.opens.clone().map(opens::excess::sink);
        if let Some(excess) = &excess {
            flusher = flusher.excess(excess.clone());
        }
        let flusher = flusher
            .build()
            .map_err(failed("the flusher could not be started"))?;
        let board: SharedBoard = Arc::new(Mutex::new(Board::default()));
        for note in notes {
            lock(&board).note(note);
        }
        if config.source == Source::Machine {
            lock(&board).rules_taken();
        }
        let (inputs, inbox) = Inputs::new().map_err(failed("eventfd"))?;
        let reported = trace.as_ref().map(|trace| ReportedTrace::new(trace.view()));
        let most_held = rounds::most_held();
        // Small files are hurried before events have to wait.
        let crowd = most_held / 2;
        let small = SmallFiles::start(config.io_priority, inputs.clone(), reported.clone(), crowd)
            .map_err(failed("a thread could not be started"))?;
        let shared = Arc::new(Shared {
            reporter: Reporter {
                kind: match config.source {
                    Source::Namespace { .. } => "run",
                    Source::Machine => "watch",
                },
                flusher: flusher.clone(),
                small: small.clone(),
                board: Arc::clone(&board),
                events: AtomicU64::new(0),
                overflows: AtomicU64::new(0),
                started: Instant::now(),
                traced: trace.is_some(),
            },
            stopping: AtomicBool::new(false),
            opens_over: AtomicBool::new(false),
            thread: AtomicI32::new(0),
        });
        let notices = inputs.clone();
        let mut files = Files::new(files::Parts {
            flusher,
            rules: config.rules,
            fanotify,
            small,
            programs,
            owners,
            board,
            notices: NoticeSink::new(move |notice| notices.send(Input::Notice(notice))),
            inodes: Inodes::new(block_devices),
            mounts: MountTable::new().map_err(failed("the mounts could not be read"))?,
            trace: reported,
            failed_writeback: failed_writeback.map(FailedWriteback::new),
            most_held,
            excess,
        });
        files.mounted(&marks);
        let mut rounds = Rounds {
            shared: Arc::clone(&shared),
            reported: config.opens.map(Reported::new),
            marks,
            next_rules: None,
            trace,
            advice: None,
            files,
            inputs: inputs.clone(),
            inbox,
            barriers: Vec::new(),
            closes: Vec::new(),
            remounted: false,
            next_mounts: Instant::now(),
            next_learning: Instant::now() + rounds::LEARNING,
            others_only: false,
        };
        rounds.listen_to_advice();
        rounds.files.look_for_uses();
        let observer = Observer {
            shared,
            inputs,
            thread: Mutex::new(Some(start(rounds)?)),
        };
        if config.source == Source::Machine {
            observer.inputs.send(Input::FindAgain);
            observer.inputs.found_all(STARTING);
        }
        Ok(observer)
    }

    /// Observes the files that a process has open already, such as its standard output, whose
    /// opens no event will report.
    pub fn inherit(&self, process: i32) {
        self.inputs.send(Input::Inherit(process));
        self.inputs.found_all(STARTING);
    }

    /// Returns whether all processes whose opens were reported have ended.
    pub fn opens_are_over(&self) -> bool {
        self.shared.opens_over.load(Ordering::SeqCst)
    }

    /// Returns whether the observer's thread does its work: whether it went through a round in
    /// this time, or was working on one. While it waits for a file system's server, it reads no
    /// events, and neither uses a processor nor waits for one, except that each event wakes it
    /// for a moment.
    pub fn works(&self, at_most: Duration) -> bool {
        let events = || self.shared.reporter.events.load(Ordering::Relaxed);
        let (before, was_running, had_read) = (self.processor_time(), self.is_running(), events());
        self.inputs.caught_up(at_most).is_some()
            || events() > had_read
            || self.processor_time() > before.map(|before| before + at_most / 16)
            || was_running && self.is_running()
    }

    /// Returns whether the observer's thread uses a processor or waits for one.
    fn is_running(&self) -> bool {
        let stat = process_stat(self.shared.thread.load(Ordering::Relaxed));
        stat.is_ok_and(|stat| stat.state == 'R')
    }

    /// The processor time of the observer's thread; `None` once it has ended.
    fn processor_time(&self) -> Option<Duration> {
        processor_time_of(lock(&self.thread).as_ref()?).ok()
    }

    /// Applies other rules, also to files that are open. Returns whether they are in force by
    /// then. Otherwise the observer's thread waits for a file system's server, or has much to do,
    /// and takes them after that.
    pub fn set_rules(&self, rules: Arc<dyn Rules>) -> bool {
        if let Some(read) = &mut lock(&self.shared.reporter.board).figures.rules_read {
            read.refused = false;
            read.waiting = true;
        }
        self.inputs.send(Input::Rules(rules));
        self.inputs.caught_up(STARTING).is_some()
    }

    /// Records that other rules had a mistake, and those in force stay.
    pub fn rules_refused(&self) {
        if let Some(read) = &mut lock(&self.shared.reporter.board).figures.rules_read {
            read.refused = true;
        }
    }

    /// After the programs are done, waits until what they left is written and dropped. Returns
    /// false if `timeout` passed first.
    pub fn settle(&self, timeout: Duration) -> bool {
        let started = Instant::now();
        let left = || timeout.saturating_sub(started.elapsed());
        // Their last events may still be in the kernel's queues, and a close counts in the round
        // after the one that reads it.
        for _ in 0..2 {
            if self.inputs.found_all(left()).is_none() {
                return false;
            }
        }
        self.inputs.send(Input::CloseAll);
        loop {
            let Some(files) = self.inputs.found_all(left()) else {
                return false;
            };
            if files == 0 {
                return true;
            }
            let reporter = &self.shared.reporter;
            if !(reporter.small.flush(left()) && reporter.flusher.drain(left())) {
                return false;
            }
            std::thread::sleep(ROUND);
        }
    }

    /// The state of the observation now.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.reporter.snapshot()
    }

    /// Returns a function that takes snapshots in another thread.
    pub fn reporter(&self) -> impl Fn() -> Snapshot + Send + 'static {
        let shared = Arc::clone(&self.shared);
        move || shared.reporter.snapshot()
    }

    /// Ends the observation; files are left as they are. Returns false if the observer's thread
    /// waits for a file system whose server does not answer: the thread, and with it this
    /// process, then ends only when the server answers or is gone.
    pub fn stop(&self) -> bool {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.inputs.wake();
        let thread = lock(&self.thread).take();
        let Some(thread) = thread else { return true };
        let began = Instant::now();
        while !thread.is_finished() {
            if began.elapsed() > STOPPING {
                return false;
            }
            std::thread::sleep(ROUND / 10);
        }
        let _ = thread.join();
        true
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Opens the trace of the page cache that an observer would use: who brings which page in. Without
/// it, what was resident when a file was opened stays, and the rest goes.
///
/// # Errors
/// The reason why there is none, in words.
pub fn open_trace() -> Result<CacheTrace, String> {
    if std::env::var_os("DROPBEHIND_NO_TRACE").is_some() {
        return Err("DROPBEHIND_NO_TRACE is set".to_owned());
    }
    let ring_bytes = share_of(RINGS_BYTES).clamp(RING_MIN_BYTES, RING_BYTES);
    CacheTrace::open(ring_bytes).map_err(|error| error.to_string())
}

/// Each processor's share of these bytes.
fn share_of(bytes: usize) -> usize {
    bytes / std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts the observer's thread. It gets a processor soon after it is woken, even while programs
/// keep all of them busy: files are best looked at soon after their events.
fn start(rounds: Rounds) -> Result<JoinHandle<()>, ObserverError> {
    let run = || {
        // If refused, it runs as other threads do.
        let _ = set_thread_time_slice(TIME_SLICE_MIN);
        rounds.run();
    };
    let thread = std::thread::Builder::new().name(LISTENER.into());
    thread
        .spawn(run)
        .map_err(failed("a thread could not be started"))
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // With the lower limit, fewer files can be observed at once.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Returns whether `/proc` shows processes by the numbers that we know them by.
fn is_proc_ours() -> bool {
    let own = std::fs::read_link("/proc/self");
    own.is_ok_and(|number| number.as_os_str() == std::process::id().to_string().as_str())
}

pub(crate) fn own_process() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}
