//! What the commands that move data share: settings, figures, the watching
//! thread, and the exit code that builds up.

use crate::error::{Exit, Failure};
use crate::options::IoSettings;
use crate::progress::Progress;
use crate::report_file::InUse;
use crate::stats_file::{RunStats, StatsFile};
use crate::trace_file::TraceFile;
use crate::transfer::Buffer;
use dropbehind::Mode;
use dropbehind::OpenOptions;
use dropbehind::config::{Disks, use_disks};
use dropbehind::flusher::Flusher;
use dropbehind::strategy::Strategy;
use dropbehind_linux::IoPriority;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long to wait until clean pages are gone. Only pages that another program holds take
/// longer, and those may take for ever.
pub(crate) const SETTLE_LIMIT: Duration = Duration::from_secs(5);

/// One run of a command.
pub(crate) struct Session {
    pub(crate) settings: IoSettings,
    pub(crate) progress: Progress,
    pub(crate) buffer: Buffer,
    pub(crate) stats: RunStats,
    flusher: Flusher,
    stats_file: Option<StatsFile>,
    trace: Option<TraceFile>,
    started: Instant,
    exit: Exit,
    has_disk_settings: bool,
}

impl Session {
    /// Prepares all that can fail, before anything is changed. What is `in_use` is not written
    /// over by reports.
    pub(crate) fn start(settings: &IoSettings, mut in_use: Vec<InUse>) -> Result<Self, Failure> {
        let stats_file = settings.stats.as_deref();
        let stats_file = stats_file.map(|path| StatsFile::open(path, &in_use));
        let stats_file = stats_file.transpose()?;
        if let Some(StatsFile::File(_, path)) = &stats_file {
            in_use.push(InUse::File(path.clone()));
        }
        let disks = Disks::find(settings.config.as_deref());
        let disks = disks.map_err(|error| Failure::config(&error))?;
        let has_disk_settings = !disks.is_empty();
        use_disks(disks);
        let trace = settings
            .trace
            .as_deref()
            .map(|path| TraceFile::start(path, &in_use))
            .transpose()?;
        let flusher = Self::flusher(settings.io_priority)?;
        Ok(Self {
            progress: Progress::start(settings.progress, settings.quiet, stats_file.is_some()),
            buffer: Buffer::new(settings.block_bytes),
            settings: settings.clone(),
            has_disk_settings,
            stats: RunStats::default(),
            flusher,
            stats_file,
            trace,
            started: Instant::now(),
            exit: Exit::Done,
        })
    }

    fn flusher(io_priority: IoPriority) -> Result<Flusher, Failure> {
        let flusher = match io_priority {
            IoPriority::Inherit => Flusher::shared(),
            priority => Flusher::builder().io_priority(priority).build(),
        };
        flusher.map_err(|error| {
            Failure::new(format!(
                "cannot start the flusher's thread: {error}. Raise the limit on processes \
                 (ulimit -u), or use plain cp and cat."
            ))
        })
    }

    /// Whether files may be copied without the library: each gets the default mode, and nobody
    /// wants figures that only the library has.
    pub(crate) fn is_plain(&self) -> bool {
        let settings = &self.settings;
        let mode = settings.mode.unwrap_or(Mode::DONTCACHE);
        mode == Mode::DONTCACHE
            && !self.has_disk_settings
            && self.trace.is_none()
            && self.stats_file.is_none()
            && settings.strategy != Strategy::Native
            && settings.io_priority == IoPriority::Inherit
            && settings.window_bytes.is_none()
            && settings.request_bytes.is_none()
    }

    /// How files are opened.
    pub(crate) fn open_options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options
            .strategy(self.settings.strategy)
            .flusher(&self.flusher);
        if let Some(mode) = self.settings.mode {
            options.cache_mode(mode);
        }
        if let Some(bytes) = self.settings.window_bytes {
            options.window_bytes(bytes);
        }
        if let Some(bytes) = self.settings.request_bytes {
            options.request_bytes(bytes);
        }
        options
    }

    /// Reports a failure; the run goes on.
    pub(crate) fn fail(&mut self, failure: &Failure) {
        self.progress.say(&self.settings.voice.line(failure));
        self.exit = self.exit.and(failure.exit);
    }

    /// Says what plain `cp` would say, too; the run goes on, and has not failed.
    pub(crate) fn warn(&self, failure: &Failure) {
        self.progress.say(&self.settings.voice.line(failure));
    }

    /// Says what is worth knowing, unless asked not to.
    pub(crate) fn note(&self, sentence: &str) {
        if !self.settings.quiet {
            self.progress.say(&format!("dropbehind: {sentence}"));
        }
    }

    /// Notes that the reader of our output is gone, which needs no message.
    pub(crate) fn broken_pipe(&mut self) {
        self.exit = self.exit.and(Exit::BrokenPipe);
    }

    /// Writes the figures, and returns the exit code.
    pub(crate) fn finish(mut self) -> Exit {
        let (dirty, cached) = self.progress.finish();
        self.stats.peak_dirty_bytes = self.stats.peak_dirty_bytes.max(dirty);
        self.stats.peak_cached_bytes = self.stats.peak_cached_bytes.max(cached);
        let counters = self.progress.counters();
        self.stats.bytes_read = counters.read.load(Relaxed);
        self.stats.bytes_written = counters.written.load(Relaxed);
        self.stats.set_elapsed(self.started.elapsed());
        for degraded in self.flusher.degraded() {
            self.note(&format!("{degraded}."));
        }
        if self.progress.is_visible() && !self.settings.quiet {
            complain!("{}", self.stats.summary(self.exit));
        }
        if let Some(trace) = self.trace.take() {
            // What is still to be requested belongs into it.
            self.flusher.submit(SETTLE_LIMIT);
            if let Some(incomplete) = trace.finish() {
                // Whoever asked for a trace has to know, however quiet it is to be.
                self.progress.say(&format!("dropbehind: {incomplete}."));
            }
        }
        if let Some(file) = self.stats_file.take()
            && let Err(failure) = file.write(&self.stats)
        {
            self.fail(&failure);
        }
        self.exit
    }
}
