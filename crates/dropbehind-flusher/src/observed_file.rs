//! Files that other processes read and write, observed from outside.

mod brake;
mod brakes;
pub(crate) mod mailbox;
mod observed_pages;
pub(crate) mod source;
mod unwritten;
mod waits;

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock};

use dropbehind_linux::{Description, FileKind, KernelInode, file_stat, page_size};
use dropbehind_policy::observed_stream::ProvenanceKind;
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{
    Brought, ByteRange, Counted, Mode, ObservedCounts, ObservedStream, ObservedStreamConfig, Stats,
    StreamConfig, StreamId, Unread,
};

use crate::arrivals::ReportedTrace;
use crate::cache_map::CacheMap;
use crate::disk_handle::{DiskHandle, Message};
use crate::disk_thread::{Attachment, Entry, Source};
use crate::failed_writeback::WritebackSign;
use crate::flusher::Flusher;
use crate::trace::Label;
use crate::{lock, residency};
use brake::Brake;
pub use brake::WriterLimit;
pub(crate) use brakes::Brakes;
use mailbox::{Mail, Mailbox};
pub use observed_pages::ObservedPages;
use source::{ObservedSource, Unreported};
use unwritten::UnwrittenCounter;

pub use waits::{WAIT_LENGTHS, Waits};

/// How to observe a file.
#[derive(Clone, Debug)]
pub struct ObserveOptions {
    /// When to write back, and which pages stay cached.
    pub mode: Mode,
    /// Window in bytes; `None` derives it from the disk's speed.
    pub window_bytes: Option<u64>,
    /// Request size in bytes; `None` takes the disk's.
    pub request_bytes: Option<u64>,
    /// Whether pages that reads bring in are dropped, too, if the mode drops. If not, pages
    /// that appear in a written file count as written until [`Observed::was_read`].
    pub reads: bool,
    /// The file's size in bytes when the observed programs opened it.
    pub opened_size_bytes: u64,
    /// Nobody has opened it for reading, or it was written and nobody is known to have read it.
    /// What appears in it then counts as written until [`Observed::was_read`].
    pub only_written: bool,
    /// How to know whose a page is.
    pub provenance: Provenance,
    /// Reports whether the file's writeback has failed, where that can be known. Its pages
    /// then stay.
    pub writeback_sign: Option<WritebackSign>,
    /// Identifies the file in notices.
    pub key: u64,
    /// Where the notices go.
    pub notices: NoticeSink,
}

/// How to know which pages of a file the observed programs brought in.
#[derive(Clone, Debug)]
pub enum Provenance {
    /// Only [`Observed::brought`] says so, which reports this trace. The trace names the file by
    /// this inode.
    Traced(ReportedTrace, KernelInode),
    /// What was resident at the open stays, and the rest goes.
    ResidentAtOpen(CacheMap),
}

/// Receives what a disk's threads tell of observed files. Runs in these threads, so it must pass
/// that on without waiting.
pub struct Sink<T>(Arc<dyn Fn(T) + Send + Sync>);

/// Receives the notices of observed files.
pub type NoticeSink = Sink<Notice>;

/// Is told every few milliseconds, as long as more is unwritten in a disk's observed files than
/// may be, on which devices (`st_dev`) programs open these files.
pub type ExcessSink = Sink<u64>;

impl<T> Sink<T> {
    /// Calls `take` with each.
    pub fn new(take: impl Fn(T) + Send + Sync + 'static) -> Sink<T> {
        Sink(Arc::new(take))
    }

    /// Tells it.
    pub fn tell(&self, told: T) {
        (self.0)(told);
    }
}

impl<T> Clone for Sink<T> {
    fn clone(&self) -> Sink<T> {
        Sink(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Sink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}

/// What has happened to an observed file.
#[derive(Debug)]
pub enum Notice {
    /// It has not changed for a second, so from now on it is looked at every two seconds.
    /// [`Observed::reopened`] or [`Observed::brought`] ends that.
    Idle {
        /// The file.
        key: u64,
    },
    /// The observer has said that nobody has it open, and everything is written and dropped:
    /// its stream has ended.
    Finished {
        /// The file.
        key: u64,
        /// What was done with it.
        state: Box<ObservedState>,
    },
}

/// An observed file at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedState {
    /// What the last look found.
    pub counts: ObservedCounts,
    /// What has been done.
    pub counters: Stats,
    /// How often its writers were held, and for how long.
    pub waits: Waits,
}

/// An observed file.
///
/// Dropping this does not end the observation; [`Observed::closed`] does, once everything is
/// written and dropped.
#[derive(Clone, Debug)]
pub struct Observed {
    disk: Arc<DiskHandle>,
    number: u32,
    state: Arc<Mutex<ObservedState>>,
    mailbox: Mailbox,
    description: Arc<Description>,
    brake: BrakePlace,
    /// The file's own window.
    window_bytes: Option<u64>,
}

/// The brake that holds a file's writers: empty until one is asked for, and `None` for good
/// once the file is not observed any more.
type BrakePlace = Arc<OnceLock<Option<Arc<Brake>>>>;

impl Flusher {
    /// Observes a file that other processes read and write, through `description`.
    ///
    /// The description is a separate one, opened for reading, and the caller may close it at
    /// any time. The other processes' descriptions, positions, locks and errors are not
    /// touched.
    ///
    /// # Errors
    /// `Unsupported` if this flusher was not built for
    /// [observing](crate::FlusherBuilder::observing), if the file is neither a regular file
    /// nor a block device. `NotFound` if it was deleted or unmounted. Those of cachestat(2) and
    /// mincore(2) if its pages cannot be counted.
    pub fn observe(
        &self,
        description: Arc<Description>,
        options: ObserveOptions,
    ) -> io::Result<Observed> {
        let unsupported = |text| io::Error::new(io::ErrorKind::Unsupported, text);
        if !self.inner.settings.observing {
            return Err(unsupported("this flusher was not built for observing"));
        }
        // What stands in for a file that is gone would be a disk of its own.
        let file = description.find()?.ok_or(io::ErrorKind::NotFound)?;
        let info = file_stat(file.as_fd())?;
        let (block_device, device) = match info.kind {
            FileKind::Regular => (false, info.id.device),
            FileKind::Block => (true, info.special_device),
            _ => return Err(unsupported("neither a regular file nor a block device")),
        };
        let size_bytes = info.size_bytes;
        let whole = residency::whole(size_bytes);
        let counted = residency::count_observed(file.as_fd(), whole)?;
        if !residency::tells_unwritten(file.as_fd(), whole) {
            self.note(
                "this kernel does not show on all file systems what is still to be written: no \
                 writeback is started there before pages are dropped"
                    .into(),
            );
        }
        let disk = self.disk_of(file.as_fd(), device)?;
        let number = disk.next_number();
        let (before, provenance, trace) = match options.provenance {
            Provenance::Traced(trace, inode) => {
                let unreported = Unreported::new(trace, inode);
                let before = ResidencyMap::unknown();
                (before, ProvenanceKind::Traced, Some(unreported))
            }
            Provenance::ResidentAtOpen(before) => {
                let kind = ProvenanceKind::ResidentAtOpen {
                    cached_bytes: before.cached_bytes,
                    unwritten_bytes: before.unwritten_bytes,
                };
                (before.map, kind, None)
            }
        };
        let stream = ObservedStream::new(ObservedStreamConfig {
            id: StreamId(number.into()),
            mode: options.mode,
            reads: options.reads,
            provenance,
            size_bytes,
            block_device,
            only_written: options.only_written,
            written_from: match block_device {
                true => u64::MAX,
                false => options.opened_size_bytes,
            },
            // If a reader has doubled its readahead (`POSIX_FADV_SEQUENTIAL`), two windows
            // are four times the disk's.
            lag_bytes: (4 * disk.read_ahead().call_bytes).clamp(LAG_MIN_BYTES, LAG_MAX_BYTES),
            page_bytes: page_size(),
        });
        let state = Arc::new(Mutex::new(ObservedState {
            counts: ObservedCounts {
                counted,
                ..stream.counts()
            },
            ..ObservedState::default()
        }));
        let mailbox = Mailbox::default();
        let brake = BrakePlace::default();
        if block_device {
            let _ = brake.set(None);
        }
        let source = ObservedSource {
            stream,
            mailbox: mailbox.clone(),
            state: Arc::clone(&state),
            brake: Arc::clone(&brake),
            writeback_sign: options.writeback_sign,
            unreported: trace,
            key: options.key,
            notices: options.notices,
            queued_ns: 0,
            accounted: Counted::default(),
        };
        disk.attach(Attachment {
            number,
            config: StreamConfig {
                window_bytes: options.window_bytes,
                request_bytes: options.request_bytes,
                size_bytes: options.opened_size_bytes.min(size_bytes),
                block_device,
                traced: provenance == ProvenanceKind::Traced,
                observed: true,
                ..StreamConfig::default()
            },
            before,
            entry: Entry {
                description: Arc::clone(&description),
                source: Source::Observed(Box::new(source)),
                label: Label::default(),
            },
        })?;
        Ok(Observed {
            disk,
            number,
            state,
            mailbox,
            description,
            brake,
            window_bytes: options.window_bytes,
        })
    }
}

/// The least lag: btrfs reads 4 MiB ahead whatever the disk's setting (fs/btrfs/disk-io.c),
/// and other file systems have settings of their own.
const LAG_MIN_BYTES: u64 = 16 << 20;
/// The most that readers of one file may have cached behind their fronts.
const LAG_MAX_BYTES: u64 = 64 << 20;

impl Observed {
    /// A program has opened the file: look at it often, and keep what its readers have not read.
    pub fn reopened(&self) {
        self.disk.post(Message::Reopened(self.number));
        if let Some(Some(brake)) = self.brake.get() {
            brake.set_open(true);
            self.disk.watch_writers(brake);
        }
    }

    /// Changes how the file is used from now on. Changing from a mode that keeps to one that
    /// drops affects only what is brought in afterwards: first tell [`Observed::brought`]
    /// that everything else stays.
    pub fn change(&self, mode: Mode, reads: bool) {
        self.tell([Mail::Changed { mode, reads }]);
    }

    /// Whether its users say that they write at random places (`POSIX_FADV_RANDOM`): nothing is
    /// written behind them then.
    pub fn advised(&self, random: bool) {
        self.tell([Mail::Advised { random }]);
    }

    /// An open has truncated the file to nothing: without a trace, all that is cached of it from
    /// now on was brought in ([`Provenance::ResidentAtOpen`]).
    pub fn emptied(&self) {
        self.tell([Mail::Emptied]);
    }

    /// Holds the file's writers from now on while more than this is dirty or under writeback.
    /// That holds all of the file's writers, since the kernel doesn't report who wrote which
    /// page. Works only on ext4, xfs and btrfs. Only the first limit counts. If the disk's files
    /// share it, the flusher's [`ExcessSink`] is told of these devices, on which programs open
    /// them.
    pub fn hold_writers(&self, limit: WriterLimit, devices: Vec<u64>) {
        let mut brake = None;
        self.brake.get_or_init(|| {
            let counter = UnwrittenCounter::new(Arc::clone(&self.description));
            let window_bytes = match self.window_bytes {
                Some(bytes) => Arc::new(bytes.into()),
                None => Arc::clone(&self.disk.window_bytes),
            };
            let sum = match limit {
                WriterLimit::OfDisk(_) => Arc::clone(&self.disk.brakes.sum),
                WriterLimit::TwoWindows => Arc::default(),
            };
            let new = Brake::new(counter, limit, window_bytes, sum, devices);
            brake = Some(Arc::new(new));
            brake.clone()
        });
        if let Some(brake) = &brake {
            self.disk.add_brake(brake);
        }
    }

    /// The file was closed. Unless it is still written to, everything left is written and
    /// dropped, and the file is finished.
    pub fn closed(&self) {
        if let Some(Some(brake)) = self.brake.get() {
            brake.set_open(false);
        }
        self.disk.post(Message::LastClosed(self.number));
    }

    /// These pages entered the cache, in this order ([`Provenance::Traced`]).
    pub fn brought(&self, brought: impl IntoIterator<Item = Brought>) {
        self.tell(brought.into_iter().map(Mail::Brought));
    }

    /// What was [held](Brought::held) of this range stays, or is dropped like all else.
    pub fn decided(&self, range: ByteRange, stays: bool) {
        self.tell([Mail::Decided { range, stays }]);
    }

    fn tell(&self, news: impl IntoIterator<Item = Mail>) {
        if self.mailbox.put(news) {
            self.disk.post(Message::Traced(self.number));
        }
    }

    /// What was reported about a finished file too late to be used.
    pub fn take_unread(&self) -> Vec<Unread> {
        let told = self.mailbox.take().into_iter();
        told.filter_map(Mail::unread).collect()
    }

    /// Another process has read from the file. If pages that reads bring in are to stay, so
    /// do clean pages that appear from now on.
    pub fn was_read(&self) {
        self.disk.post(Message::WasRead(self.number));
    }

    /// An observed process has written to the file.
    pub fn was_written(&self) {
        self.disk.post(Message::WasWritten(self.number));
    }

    /// The file's current state.
    pub fn state(&self) -> ObservedState {
        *lock(&self.state)
    }

    /// The name of its disk, as in `/sys/block`.
    pub fn disk_name(&self) -> &str {
        self.disk.name()
    }
}
