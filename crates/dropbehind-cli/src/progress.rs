//! Watches a run, for the peaks in its figures and for the progress bar.
//!
//! One thread looks at the open files about every 20 ms; the thread that moves the data only
//! adds to counters.

use crate::options::When;
use crate::size::show;
use dropbehind::File;
use dropbehind_linux::StartState;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::{SigSet, Signal};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Often enough to see a peak of some MiB on a disk of 2 GiB/s.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// A look may cost at most one part in this many of a CPU: counting the pages of a large, fully
/// cached file takes milliseconds.
const MAX_COST: u32 = 20;
/// Fast enough for the eye.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Seldom enough for a log.
const PRINT_EVERY: Duration = Duration::from_secs(1);
/// Asks how far the run is.
const QUESTION: Signal = Signal::SIGUSR1;

/// What the thread that moves the data counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Bytes read from the sources.
    pub(crate) read: AtomicU64,
    /// Bytes written to the destinations.
    pub(crate) written: AtomicU64,
    /// Bytes of holes that were skipped.
    pub(crate) skipped: AtomicU64,
    /// Bytes that were written without the library, and are not synced yet.
    pub(crate) unsynced: AtomicU64,
    /// Bytes of closed files that were not on the disk yet.
    pub(crate) unwritten: AtomicU64,
}

/// The run as both threads see it.
#[derive(Default)]
struct Watched {
    counters: Counters,
    files: Mutex<Vec<Arc<File>>>,
    peak_dirty: AtomicU64,
    peak_cached: AtomicU64,
    /// Bytes of open files that were not on the disk at the last look.
    unwritten: AtomicU64,
    /// How much there is to do, if known.
    total: AtomicU64,
}

/// Keeps SIGUSR1 from ending the process: [`Progress`] or [`answer`] answers it, as dd does. There
/// must be no other threads yet.
pub(crate) fn take_question() {
    // What is ignored, as under nohup, stays so.
    let is_ignored = StartState::get().is_ok_and(|start| start.ignores(QUESTION as i32));
    if !is_ignored {
        // If it is not blocked, it does what it always does.
        let _ = SigSet::from(QUESTION).thread_block();
    }
}

/// The watching thread, and the progress bar.
pub(crate) struct Progress {
    watched: Arc<Watched>,
    bar: Option<ProgressBar>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts watching, if there is a bar to show or `wants_peaks` is set.
    pub(crate) fn start(when: When, quiet: bool, wants_peaks: bool) -> Self {
        let visible = match when {
            When::Always => true,
            When::Auto => !quiet && io::stderr().is_terminal(),
            When::Never => false,
        };
        // Without a terminal, it stays hidden and only calculates: see `draw`.
        let bar = visible.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(style("{spinner} {msg}"));
            bar
        });
        let watched = Arc::new(Watched::default());
        let thread = (visible || wants_peaks)
            .then(|| spawn(&watched, bar.as_ref()))
            .flatten();
        let (asked, started) = ((Arc::clone(&watched), bar.clone()), Instant::now());
        answer(move || {
            let (watched, bar) = &asked;
            watched.look();
            let rate = watched.done() as f64 / started.elapsed().as_secs_f64();
            let line = format!("dropbehind: {}", watched.line(rate, ""));
            match bar {
                Some(bar) => bar.suspend(|| complain!("{line}")),
                None => complain!("{line}"),
            }
        });
        Self {
            watched,
            bar,
            thread,
        }
    }

    /// Whether there is a bar to show.
    pub(crate) fn is_visible(&self) -> bool {
        self.bar.is_some()
    }

    /// The counters of the run.
    pub(crate) fn counters(&self) -> &Counters {
        &self.watched.counters
    }

    /// Sets how much there is to do.
    pub(crate) fn set_total(&self, bytes: u64) {
        self.watched.total.store(bytes, Relaxed);
        if let Some(bar) = self.bar.as_ref().filter(|_| bytes > 0) {
            bar.set_length(bytes);
            bar.set_style(style("[{bar:24}] {msg}"));
        }
    }

    /// Watches one more file.
    pub(crate) fn attach(&self, file: &Arc<File>) {
        lock(&self.watched.files).push(Arc::clone(file));
    }

    /// Looks at a file for the last time. Afterwards, the caller has the only handle again.
    pub(crate) fn detach(&self, file: &Arc<File>) {
        if self.thread.is_some() {
            self.watched.look();
        }
        lock(&self.watched.files).retain(|watched| !Arc::ptr_eq(watched, file));
    }

    /// Prints a line, above the bar if there is one.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| complain!("{line}")),
            None => complain!("{line}"),
        }
    }

    /// Ends watching. Returns the peaks of dirty and of cached bytes.
    pub(crate) fn finish(&mut self) -> (u64, u64) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            // It can only have panicked while drawing, which does not affect the data.
            let _ = thread.join();
        }
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        (
            self.watched.peak_dirty.load(Relaxed),
            self.watched.peak_cached.load(Relaxed),
        )
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watched {
    /// Counts the files' pages. Holding the lock meanwhile lets [`Progress::detach`] leave the
    /// caller the only handle.
    fn look(&self) {
        let files = lock(&self.files);
        let (mut dirty, mut writeback, mut cached) = (0, 0, 0);
        for state in files
            .iter()
            .filter_map(|file| file.residency(0..u64::MAX).ok())
        {
            dirty += state.dirty_bytes;
            writeback += state.writeback_bytes;
            cached += state.cached_bytes;
        }
        self.unwritten.store(dirty + writeback, Relaxed);
        self.peak_dirty.fetch_max(dirty + writeback, Relaxed);
        self.peak_cached.fetch_max(cached, Relaxed);
    }

    fn done(&self) -> u64 {
        self.counters.written.load(Relaxed) + self.counters.skipped.load(Relaxed)
    }

    /// How far the run is, at so many bytes a second.
    fn line(&self, rate: f64, left: &str) -> String {
        let counters = &self.counters;
        // In this order, what is written meanwhile is not taken for synced.
        let written = counters.written.load(Relaxed);
        let of_closed = counters.unsynced.load(Relaxed) + counters.unwritten.load(Relaxed);
        let at_disk = written.saturating_sub(of_closed + self.unwritten.load(Relaxed));
        let of = match self.total.load(Relaxed) {
            0 => String::new(),
            total => format!(" of {}", show(total.max(self.done()))),
        };
        format!(
            "{}{of}, {}/s{left}, {} at the disk",
            show(self.done()),
            // Never negative, and far from the limit.
            show(rate as u64),
            show(at_disk),
        )
    }

    /// Shows how far the run is: as a line, if a bar was asked for and there is no terminal to
    /// draw it on.
    fn draw(&self, bar: &ProgressBar) {
        let done = self.done();
        bar.set_position(done);
        let rate = bar.per_sec();
        let left = match bar.length() {
            Some(total) if done >= total => ", waiting for the disk".to_owned(),
            Some(_) if rate >= 1.0 => {
                let seconds = bar.eta().as_secs();
                format!(", {}:{:02} left", seconds / 60, seconds % 60)
            }
            _ => String::new(),
        };
        let message = self.line(rate, &left);
        if bar.is_hidden() {
            complain!("{message}");
        } else {
            bar.set_message(message);
        }
    }
}

/// Starts the watching thread. If no more threads can be had, there is no bar, and the peaks are
/// the library's own.
fn spawn(
    watched: &Arc<Watched>,
    bar: Option<&ProgressBar>,
) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = mpsc::channel();
    let (watched, bar) = (Arc::clone(watched), bar.cloned());
    let thread = std::thread::Builder::new()
        .name("progress".to_owned())
        .spawn(move || watch(&watched, bar.as_ref(), &stopped));
    Some((stop, thread.ok()?))
}

/// Starts the thread that prints a line whenever somebody asks. Without it, the question stays
/// unanswered, and does no harm.
pub(crate) fn answer(print: impl Fn() + Send + 'static) {
    let question = SigSet::from(QUESTION);
    if !SigSet::thread_get_mask().is_ok_and(|blocked| blocked.contains(QUESTION)) {
        return;
    }
    let answer = move || {
        while question.wait().is_ok() {
            print();
        }
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    let _ = thread.spawn(answer);
}

fn watch(watched: &Watched, bar: Option<&ProgressBar>, stopped: &mpsc::Receiver<()>) {
    let mut pause = SAMPLE_EVERY;
    let mut drawn = Instant::now();
    let draw_every = match bar {
        Some(bar) if bar.is_hidden() => PRINT_EVERY,
        _ => DRAW_EVERY,
    };
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
        let started = Instant::now();
        watched.look();
        pause = SAMPLE_EVERY.max(started.elapsed() * MAX_COST);
        if let Some(bar) = bar.filter(|_| drawn.elapsed() >= draw_every) {
            watched.draw(bar);
            drawn = Instant::now();
        }
    }
}
