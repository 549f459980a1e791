//! The observer: two threads between the kernel's events and the flusher.
//!
//! The *listener* reads events and, in the same moment, looks at what of a file
//! just opened is in the cache; the program may be reading in the next. The
//! *worker* keeps the table of files, asks the rules, and answers the flusher's
//! notices. Neither is ever waited for by an observed program: there are no
//! permission events.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dropbehind::{CacheMap, Flusher, IoPriority, Notice, Reason};
use dropbehind_linux::{
    Event, EventBuffer, EventMask, Fanotify, FileKind, FileStat, GroupClass, Interest, PollEntry,
    cachestat, file_stat, open_files, page_size, poll, processes,
};
use rustix::event::{EventfdFlags, eventfd};

use crate::files::{Board, Files, Parts, SharedBoard, Use, lock};
use crate::looked::{Looked, Scout, look_at_directory};
use crate::others::Insiders;
use crate::overlay;
use crate::owners;
use crate::rules::Rules;
use crate::small_files::SmallFiles;
use crate::snapshot::{DiskSnapshot, FileSnapshot, Snapshot, Totals};
use crate::source::{Marks, Source};

/// Events are read so many at a time; each opens a descriptor.
const EVENTS: usize = 256;
/// Up to so many events a second are read as they come; beyond, they are left
/// to gather for a while, in which the kernel merges those of one file.
const EVENTS_PER_SECOND: u64 = 5_000;
/// How long.
const GATHER: Duration = Duration::from_millis(2);
/// Where the machine is observed, nobody's reads are to be forestalled, and the
/// time between reads grows until events take no more than a twentieth of it.
const GATHER_MAX: Duration = Duration::from_millis(200);
const LISTENER_SHARE: u32 = 20;
/// A file of which more is cached when it is opened is mapped later, by the
/// worker: the map takes a byte a page.
const MAP_AT_ONCE_BYTES: u64 = 64 << 20;
/// A file made no longer ago than this and written by those observed was made by
/// them; an event may be read as late as that on a busy machine.
const FRESH: Duration = Duration::from_millis(500);
/// A round of the listener that finds nothing takes less than this.
const ROUND: Duration = Duration::from_micros(500);
/// A program waits no longer for its directory to be looked at: at 5 µs a file,
/// two thousand.
const LOOK_AHEAD: Duration = Duration::from_millis(10);
/// The worker looks after notices this often.
const WORK: Duration = Duration::from_millis(5);
/// And this often where there is nothing to look after.
const REST: Duration = Duration::from_millis(200);
/// More files than this are not listed in a snapshot.
const LISTED: usize = 200;

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

/// Why there is no observer.
#[derive(Debug)]
pub enum ObserverError {
    /// `CAP_SYS_ADMIN` in the initial user namespace is missing.
    NotPermitted,
    /// The kernel has no fanotify.
    NoFanotify,
    /// Something else failed.
    Failed {
        /// What was tried.
        doing: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl fmt::Display for ObserverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObserverError::NotPermitted => {
                f.write_str("observing programs needs CAP_SYS_ADMIN (root), for fanotify")
            }
            ObserverError::NoFanotify => {
                f.write_str("this kernel was built without fanotify (CONFIG_FANOTIFY)")
            }
            ObserverError::Failed { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for ObserverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ObserverError::Failed { error, .. } => Some(error),
            _ => None,
        }
    }
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> ObserverError {
    move |error| match error.raw_os_error() {
        Some(libc::EPERM) => ObserverError::NotPermitted,
        Some(libc::ENOSYS) => ObserverError::NoFanotify,
        _ => ObserverError::Failed { doing, error },
    }
}

enum Input {
    Used(Box<Use>),
    /// Somebody opened a file of which the openers are watched.
    OpenedBy(i32, OwnedFd),
    Overflow,
    Rules(Arc<dyn Rules>),
    Inherited(i32, OwnedFd, CacheMap),
    CloseAll,
    /// Answered when everything before was seen to.
    Sync(mpsc::Sender<()>),
}

/// Observes until it is dropped.
pub struct Observer {
    inner: Arc<Shared>,
    input: mpsc::Sender<Input>,
    looked: Looked,
    root: PathBuf,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("kind", &self.inner.config.kind)
            .finish_non_exhaustive()
    }
}

struct Shared {
    config: ObserverConfig,
    flusher: Flusher,
    small: SmallFiles,
    board: SharedBoard,
    events: AtomicU64,
    overflows: AtomicU64,
    stopping: AtomicBool,
    /// How often the listener has read all there was.
    rounds: AtomicU64,
    /// Wakes the listener.
    wake: OwnedFd,
    /// Shows others that the namespace is looked after.
    _taken: Option<std::os::unix::net::UnixListener>,
    started: Instant,
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
        let machine = config.source == Source::Machine;
        let fanotify = if machine {
            Fanotify::with_bounded_queue(GroupClass::Notification)
        } else {
            Fanotify::new(GroupClass::Notification)
        };
        let fanotify = Arc::new(fanotify.map_err(failed("fanotify_init"))?);
        let mut notes = Vec::new();
        let marks = Marks::new(config.source, &fanotify, &mut notes)
            .map_err(failed("the mounts could not be marked"))?;
        let openers = match machine {
            true => None,
            false => Fanotify::new(GroupClass::Notification).ok().map(Arc::new),
        };
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
        let root = match config.source {
            Source::Namespace { process } => PathBuf::from(format!("/proc/{process}/root")),
            Source::Machine => PathBuf::from("/"),
        };
        let small = SmallFiles::start(config.io_priority)
            .map_err(failed("a thread could not be started"))?;
        let inner = Arc::new(Shared {
            config,
            flusher,
            small,
            board,
            events: AtomicU64::new(0),
            overflows: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            rounds: AtomicU64::new(0),
            wake,
            // Without it, a watch would do what we do once more.
            _taken: marks
                .namespace()
                .and_then(|namespace| owners::take(namespace).ok()),
            started: Instant::now(),
        });
        let looked = Looked::default();
        let scout = match machine {
            true => None,
            false => Some(
                Scout::start(looked.clone(), root.clone())
                    .map_err(failed("a thread could not be started"))?,
            ),
        };
        let first = match inner.config.source {
            Source::Namespace { process } => Some(process),
            Source::Machine => None,
        };
        let (input, inputs) = mpsc::channel();
        let (notice_sender, notices) = mpsc::channel();
        let files = Files::new(Parts {
            flusher: inner.flusher.clone(),
            rules: Arc::clone(&inner.config.rules),
            fanotify: Arc::clone(&fanotify),
            openers: openers.clone(),
            looked: looked.clone(),
            scout,
            small: inner.small.clone(),
            insiders: Insiders::new(marks.namespace(), first),
            board: Arc::clone(&inner.board),
            notices: notice_sender,
        });
        let listener = Listener {
            shared: Arc::clone(&inner),
            fanotify,
            openers,
            marks,
            input: input.clone(),
            looked: looked.clone(),
            own: i32::try_from(std::process::id()).unwrap_or(0),
            since: coarse_time(),
        };
        let worker = Arc::clone(&inner);
        let threads = vec![
            thread("dropbehind-hear", move || listener.run())?,
            thread("dropbehind-work", move || {
                work(&worker, files, &inputs, &notices)
            })?,
        ];
        let observer = Observer {
            inner,
            input,
            looked,
            root,
            threads: Mutex::new(threads),
        };
        if machine {
            observer.find_open_files();
        }
        Ok(observer)
    }

    /// Looks at files that the programs are likely to open, before they do: these,
    /// and those in the directory that the programs start in, as many as can be
    /// looked at in some milliseconds. Relative paths begin at `directory`.
    pub fn look_ahead(&self, directory: &Path, paths: &[PathBuf]) {
        for path in paths {
            let path = directory.join(path);
            let inside = path.strip_prefix("/").unwrap_or(&path);
            self.looked.look_at(&self.root.join(inside));
        }
        let inside = directory.strip_prefix("/").unwrap_or(directory);
        let deadline = Instant::now() + LOOK_AHEAD;
        look_at_directory(&self.looked, &self.root.join(inside), Some(deadline));
    }

    /// Looks after the files that a process has open already, such as its
    /// standard output, of which no open will tell.
    pub fn inherit(&self, process: i32) {
        for open in open_files(process).unwrap_or_default() {
            let Some(descriptor) = open.descriptor else {
                continue;
            };
            if open.kind == FileKind::Other {
                continue;
            }
            let path = format!("/proc/{process}/fd/{descriptor}");
            // What has been deleted or may only be written can be opened so, too.
            let opened = File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOATIME)
                .open(path);
            if let Ok(file) = opened {
                let before = CacheMap::now(file.as_fd());
                let _ = self
                    .input
                    .send(Input::Inherited(process, file.into(), before));
            }
        }
    }

    fn find_open_files(&self) {
        let own = i32::try_from(std::process::id()).unwrap_or(0);
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
        let due = self.inner.rounds.load(Ordering::SeqCst) + 2;
        while self.inner.rounds.load(Ordering::SeqCst) < due {
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
        let small = self.inner.small.flush(left());
        self.inner.flusher.drain(left()) && small
    }

    /// How it stands.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// What takes snapshots in another thread.
    pub fn reporter(&self) -> impl Fn() -> Snapshot + Send + 'static {
        let inner = Arc::clone(&self.inner);
        move || inner.snapshot()
    }

    /// Ends the observation; files are left as they are.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Ordering::SeqCst);
        self.wake_listener();
        let threads = std::mem::take(
            &mut *self
                .threads
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn wake_listener(&self) {
        let _ = rustix::io::write(&self.inner.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn has_writable(process: i32) -> bool {
    open_files(process).is_ok_and(|files| files.iter().any(|file| file.writable))
}

fn thread(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, ObserverError> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
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

struct Listener {
    shared: Arc<Shared>,
    fanotify: Arc<Fanotify>,
    openers: Option<Arc<Fanotify>>,
    marks: Marks,
    input: mpsc::Sender<Input>,
    looked: Looked,
    own: i32,
    /// When observing began, since the epoch.
    since: Duration,
}

impl Listener {
    fn run(mut self) {
        let mut buffer = EventBuffer::new(EVENTS);
        let mut second = (Instant::now(), 0_u64);
        while !self.shared.stopping.load(Ordering::SeqCst) {
            if self.wait() {
                let mut notes = Vec::new();
                let _ = self.marks.refresh(&self.fanotify, &mut notes);
                for note in notes {
                    lock(&self.shared.board).note(note);
                }
            }
            let started = Instant::now();
            let read = self.read_all(&mut buffer);
            self.read_openers(&mut buffer);
            self.shared.rounds.fetch_add(1, Ordering::SeqCst);
            if second.0.elapsed() >= Duration::from_secs(1) {
                second = (Instant::now(), 0);
            }
            second.1 += read;
            let flood = second.1 > EVENTS_PER_SECOND;
            if self.shared.config.source == Source::Machine {
                let pause = (started.elapsed() * LISTENER_SHARE).min(GATHER_MAX);
                if flood {
                    std::thread::sleep(pause.max(GATHER));
                }
            } else if flood {
                std::thread::sleep(GATHER);
            }
        }
    }

    /// Waits for something to happen; true when mounts have changed.
    fn wait(&self) -> bool {
        let mut entries = vec![
            PollEntry::new(self.fanotify.as_fd(), Interest::Readable),
            PollEntry::new(self.marks.watch(), Interest::Urgent),
            PollEntry::new(self.shared.wake.as_fd(), Interest::Readable),
        ];
        if let Some(openers) = &self.openers {
            entries.push(PollEntry::new(openers.as_fd(), Interest::Readable));
        }
        if poll(&mut entries, None).is_err() {
            return false;
        }
        if entries[2].is_ready() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.shared.wake, &mut count);
        }
        entries[1].is_ready()
    }

    fn read_all(&self, buffer: &mut EventBuffer) -> u64 {
        let mut read = 0;
        loop {
            let events = match self.fanotify.read(buffer) {
                Ok(events) => events,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return read,
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    lock(&self.shared.board)
                        .note("out of descriptors: some files are left to the kernel".into());
                    std::thread::sleep(GATHER);
                    continue;
                }
                // That of a single event's file.
                Err(_) => continue,
            };
            let mut some = false;
            for event in events {
                some = true;
                read += 1;
                self.take(event);
            }
            if !some {
                return read;
            }
        }
    }

    fn take(&self, event: Event) {
        if event.process != self.own {
            self.shared.events.fetch_add(1, Ordering::Relaxed);
        }
        if event.overflow {
            self.shared.overflows.fetch_add(1, Ordering::Relaxed);
            let _ = self.input.send(Input::Overflow);
            return;
        }
        if event.process == self.own || event.mask.contains(EventMask::ON_DIR) {
            return;
        }
        let Some(file) = event.file else { return };
        let Ok(info) = file_stat(file.as_fd()) else {
            return;
        };
        if info.kind == FileKind::Other {
            return;
        }
        let fresh = is_fresh(&info, self.since);
        let opened = event.mask.contains(EventMask::OPEN);
        // An overlay's own inode has no pages: the worker looks at the file below.
        let before = if fresh || !opened || overlay::is_overlay(&file) {
            None
        } else {
            look_at_open(file.as_fd(), info.size_bytes)
        };
        if let Some(before) = &before {
            // The first look counts: the next event of this file comes later.
            if before.cached_bytes() == 0 {
                self.looked.keep(info.id, before.clone());
            }
        }
        let _ = self.input.send(Input::Used(Box::new(Use {
            fresh,
            file,
            info,
            mask: event.mask,
            process: event.process,
            before,
        })));
    }

    fn read_openers(&self, buffer: &mut EventBuffer) {
        let Some(openers) = &self.openers else { return };
        while let Ok(events) = openers.read(buffer) {
            let mut some = false;
            for event in events {
                some = true;
                if let Some(file) = event.file
                    && event.process != self.own
                {
                    let _ = self.input.send(Input::OpenedBy(event.process, file));
                }
            }
            if !some {
                return;
            }
        }
    }
}

/// What others had of a file that was opened a moment ago. `None` leaves it to
/// the worker to map what is there.
fn look_at_open(file: BorrowedFd<'_>, size_bytes: u64) -> Option<CacheMap> {
    if size_bytes == 0 {
        return Some(CacheMap::empty());
    }
    let cached_bytes = cachestat(file, 0, 0).ok()?.cached_pages * page_size();
    match cached_bytes {
        0 => Some(CacheMap::empty()),
        1..=MAP_AT_ONCE_BYTES => Some(CacheMap::now_without_reads_under_way(file)),
        _ => None,
    }
}

/// True for a file made a moment ago, and after `since`.
///
/// Files are dated by the coarse clock, which is some milliseconds behind, or by
/// the exact one where somebody has just asked for a date (multigrain
/// timestamps, since Linux 6.13): so `since` is of the one, and now of the other.
fn is_fresh(info: &FileStat, since: Duration) -> bool {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    info.born
        .is_some_and(|born| since <= born && born <= now && now - born < FRESH)
}

/// The time of the coarse clock, since the epoch.
fn coarse_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

fn work(
    shared: &Shared,
    mut files: Files,
    inputs: &mpsc::Receiver<Input>,
    notices: &mpsc::Receiver<Notice>,
) {
    loop {
        let pause = if files.is_busy() { WORK } else { REST };
        let mut next = inputs.recv_timeout(pause);
        loop {
            match next {
                Ok(input) => handle(shared, &mut files, input),
                Err(mpsc::RecvTimeoutError::Timeout) => break,
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            if shared.stopping.load(Ordering::SeqCst) {
                return;
            }
            next = match inputs.try_recv() {
                Ok(input) => Ok(input),
                Err(_) => break,
            };
        }
        while let Ok(notice) = notices.try_recv() {
            files.notice(notice);
        }
        files.grow_up();
        files.look_around();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
    }
}

fn handle(shared: &Shared, files: &mut Files, input: Input) {
    match input {
        Input::Used(used) => files.used(*used),
        Input::OpenedBy(process, file) => {
            if let Ok(info) = file_stat(file.as_fd()) {
                files.opened_by(process, info.id);
            }
        }
        Input::Overflow => find_again(shared, files),
        Input::Rules(rules) => files.set_rules(rules),
        Input::Inherited(process, file, before) => files.inherited(process, file, before),
        Input::CloseAll => files.close_all(),
        Input::Sync(done) => drop(done.send(())),
    }
}

/// Events were lost: files that somebody has open for writing are looked for in
/// `/proc`. What of them is cached now counts as others'.
fn find_again(shared: &Shared, files: &mut Files) {
    for process in processes().into_iter().flatten() {
        for open in open_files(process).unwrap_or_default() {
            let (true, Some(descriptor)) = (open.writable, open.descriptor) else {
                continue;
            };
            if files.known(open.id) || open.kind == FileKind::Other {
                continue;
            }
            let opened = File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOATIME)
                .open(format!("/proc/{process}/fd/{descriptor}"));
            if let Ok(file) = opened {
                let before = CacheMap::now(file.as_fd());
                files.inherited(process, file.into(), before);
            }
        }
    }
    let described = files.describe();
    lock(&shared.board).note(format!(
        "the kernel's queue of events overflowed: open files were searched for anew {described}"
    ));
}

impl Shared {
    fn snapshot(&self) -> Snapshot {
        let (finished, by_disk, mut notes, mut views) = {
            let board = lock(&self.board);
            let by_disk = board.by_disk.clone();
            (board.finished, by_disk, board.notes.clone(), board.views())
        };
        notes.extend(self.flusher.degraded());
        let small = self.small.totals();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut totals = Totals {
            events: self.events.load(Ordering::Relaxed),
            overflows: self.overflows.load(Ordering::Relaxed),
            files: finished.files + count(&small.files),
            written_bytes: finished.written_bytes + count(&small.brought_bytes),
            read_bytes: finished.read_bytes,
            waits: finished.waits,
            wait_ns: finished.wait_ns,
            brought_bytes: finished.small_dropped_bytes + count(&small.brought_bytes),
            dropped_bytes: finished.small_dropped_bytes + count(&small.dropped_bytes),
            left_bytes: count(&small.left_bytes),
            cached_bytes: count(&small.waiting_bytes),
            peak_cached_bytes: count(&small.peak_bytes),
            peak_dirty_bytes: count(&small.peak_bytes),
            ..Totals::default()
        };
        let budget = Reason::Budget.name().to_owned();
        totals
            .writeback_bytes
            .insert(budget, count(&small.writeback_bytes));
        let mut disks: Vec<DiskSnapshot> = Vec::new();
        for disk in self.flusher.disks_stats() {
            let (stats, pages) = (&disk.stats, disk.observed);
            totals.brought_bytes += stats.brought_bytes;
            totals.dropped_bytes += stats.dropped_bytes;
            totals.kept_bytes += stats.kept_bytes;
            totals.left_bytes += stats.left_bytes;
            totals.cached_bytes += pages.counted.cached_bytes;
            // Of each disk at its own time: at most this much at once.
            totals.peak_cached_bytes += pages.peak_cached_bytes;
            totals.peak_dirty_bytes += pages.peak_unwritten_bytes;
            for (reason, bytes) in stats.writeback_bytes.iter() {
                *totals
                    .writeback_bytes
                    .entry(reason.name().to_owned())
                    .or_default() += bytes;
            }
            let (written_bytes, read_bytes) = by_disk.get(&disk.name).copied().unwrap_or_default();
            disks.push(DiskSnapshot {
                written_bytes,
                read_bytes,
                name: disk.name,
                files: disk.files as u64,
                dirty_bytes: pages.counted.dirty_bytes,
                writeback_bytes: pages.counted.writeback_bytes,
                cached_bytes: pages.counted.cached_bytes,
                dropped_bytes: stats.dropped_bytes,
                kept_bytes: stats.kept_bytes,
                left_bytes: stats.left_bytes,
                writeback_bytes_per_second: disk.bytes_per_second,
                window_bytes: disk.window_bytes,
                yielded_ns: disk.yielded_ns,
            });
        }
        views.sort_by_key(|view| {
            let state = &view.state;
            (
                view.idle,
                std::cmp::Reverse(state.written_bytes + state.read_bytes),
            )
        });
        let mut files = Vec::new();
        for (index, view) in views.iter().enumerate() {
            let state = &view.state;
            totals.written_bytes += state.written_bytes;
            totals.read_bytes += state.read_bytes;
            totals.waits += state.waits;
            totals.wait_ns += state.wait_ns;
            if let Some(disk) = disks.iter_mut().find(|disk| disk.name == view.disk) {
                disk.written_bytes += state.written_bytes;
                disk.read_bytes += state.read_bytes;
            }
            if index < LISTED {
                files.push(file_snapshot(view));
            }
        }
        Snapshot {
            elapsed_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            kind: self.config.kind.clone(),
            process: std::process::id(),
            cpu_ns: own_cpu_ns(),
            totals,
            disks,
            files,
            notes,
        }
    }
}

fn file_snapshot(view: &crate::files::FileView) -> FileSnapshot {
    let state = &view.state;
    FileSnapshot {
        path: view.path.clone(),
        disk: view.disk.clone(),
        mode: view.mode.clone(),
        size_bytes: state.size_bytes,
        written_bytes: state.written_bytes,
        read_bytes: state.read_bytes,
        dirty_bytes: state.counted.dirty_bytes,
        writeback_bytes: state.counted.writeback_bytes,
        cached_bytes: state.counted.cached_bytes,
        dropped_bytes: state.counters.dropped_bytes,
        kept_bytes: state.counters.kept_bytes,
        waits: state.waits,
        state: match (state.shared, view.idle) {
            (true, _) => "kept: others use it".into(),
            (false, true) => "idle".into(),
            (false, false) => "active".into(),
        },
    }
}

fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}
