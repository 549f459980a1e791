//! Files that other processes read and write, observed from outside.

mod brake;
mod brakes;
mod observed_pages;
pub(crate) mod source;
mod unwritten;

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, OnceLock};

use dropbehind_linux::{Description, FileKind, file_stat, page_size};
use dropbehind_policy::brake::Limit;
use dropbehind_policy::observed_stream::ProvenanceKind;
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{
    Brought, Counted, Mode, ObservedCounts, ObservedStream, ObservedStreamConfig, StreamConfig,
    StreamCounters, StreamId,
};

use crate::cache_map::CacheMap;
use crate::disk_handle::{DiskHandle, Message};
use crate::disk_thread::{Attachment, Entry, Source};
use crate::failed_writeback::WritebackSign;
use crate::flusher::Flusher;
use crate::{lock, residency};
use brake::Brake;
pub(crate) use brakes::Brakes;
pub use observed_pages::ObservedPages;
use source::ObservedSource;
use unwritten::UnwrittenCounter;

/// How a file is to be observed.
#[derive(Clone, Debug)]
pub struct ObserveOptions {
    /// When to write back, and what stays cached.
    pub mode: Mode,
    /// Window in bytes; `None` follows the disk's speed.
    pub window_bytes: Option<u64>,
    /// Request in bytes; `None` is the disk's.
    pub request_bytes: Option<u64>,
    /// What reads bring in is dropped, too, where the mode drops. Otherwise what
    /// appears in a file that is written counts as written until
    /// [`Observed::was_read`].
    pub reads: bool,
    /// The file's size in bytes when the observed programs opened it.
    pub opened_size_bytes: u64,
    /// How it is known whose a page is.
    pub provenance: Provenance,
    /// Tells whether its writeback failed, where that can be known: then its pages stay.
    pub writeback_sign: Option<WritebackSign>,
    /// What the notices say of the file.
    pub key: u64,
    /// Where the notices go.
    pub notices: NoticeSink,
}

/// How it is known which pages of a file the observed programs brought in.
#[derive(Clone, Debug)]
pub enum Provenance {
    /// [`Observed::brought`] says so, and nothing else does.
    Traced,
    /// What was resident at the open stays, and the rest goes.
    ResidentAtOpen(CacheMap),
}

/// Receives the notices of observed files, in the disk's thread: it hands them on and
/// does not wait.
#[derive(Clone)]
pub struct NoticeSink(Arc<dyn Fn(Notice) + Send + Sync>);

impl NoticeSink {
    /// Has this called with each notice.
    pub fn new(take: impl Fn(Notice) + Send + Sync + 'static) -> NoticeSink {
        NoticeSink(Arc::new(take))
    }

    pub(super) fn tell(&self, notice: Notice) {
        (self.0)(notice);
    }
}

impl fmt::Debug for NoticeSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoticeSink").finish_non_exhaustive()
    }
}

/// What becomes of an observed file.
#[derive(Debug)]
pub enum Notice {
    /// Unchanged for a second, so it is looked at every two seconds. [`Observed::touched`]
    /// or [`Observed::brought`] ends that.
    Idle {
        /// The file.
        key: u64,
    },
    /// The observer said that nobody has it open, and everything is written and
    /// dropped: its stream has ended.
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
    /// What was done.
    pub counters: StreamCounters,
    /// How often its writers were made to wait.
    pub waits: u64,
    /// For how long, in nanoseconds.
    pub wait_ns: u64,
}

/// An observed file.
///
/// Dropping this does not end the observation; [`Observed::closed`] does, in
/// good time.
#[derive(Clone)]
pub struct Observed {
    disk: Arc<DiskHandle>,
    number: u32,
    state: Arc<Mutex<ObservedState>>,
    mailbox: Mailbox,
    description: Arc<Description>,
    brake: BrakePlace,
}

/// What holds a file's writers: nothing is there before that is asked for, and `None` for
/// good once the file is not observed any more.
type BrakePlace = Arc<OnceLock<Option<Arc<Brake>>>>;

/// What the observer says of a file, in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    Brought(Brought),
    Changed { mode: Mode, reads: bool },
}

/// What the observer said of a file and the disk's thread has not read yet.
type Mailbox = Arc<Mutex<Vec<Told>>>;

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Flusher {
    /// Observes a file that others read and write, through `description`.
    ///
    /// The description is a separate one, for reading, and the caller may close it
    /// at any time. Nothing of the others' descriptions, positions, locks and errors is
    /// touched.
    ///
    /// # Errors
    /// `Unsupported` where this flusher was not built for
    /// [observing](crate::FlusherBuilder::observing), where the file is neither
    /// a regular file nor a block device, or where its pages cannot be counted
    /// (cachestat(2), since Linux 6.5).
    pub fn observe(
        &self,
        description: Arc<Description>,
        options: ObserveOptions,
    ) -> io::Result<Observed> {
        let unsupported = |text| io::Error::new(io::ErrorKind::Unsupported, text);
        if !self.inner.observing {
            return Err(unsupported("this flusher was not built for observing"));
        }
        let file = description.open()?;
        let info = file_stat(file.as_fd())?;
        let block_device = match info.kind {
            FileKind::Regular => false,
            FileKind::Block => true,
            _ => return Err(unsupported("neither a regular file nor a block device")),
        };
        let size_bytes = info.size_bytes;
        let counted = residency::count(file.as_fd(), residency::whole(size_bytes))?;
        let device = if block_device {
            info.special_device
        } else {
            info.id.device
        };
        let disk = self.disk_of(file.as_fd(), device)?;
        let number = disk.next_number();
        let (before, provenance) = match &options.provenance {
            Provenance::Traced => (ResidencyMap::unknown(), ProvenanceKind::Traced),
            Provenance::ResidentAtOpen(before) => {
                let cached_bytes = before.cached_bytes;
                let kind = ProvenanceKind::ResidentAtOpen { cached_bytes };
                (before.map.clone(), kind)
            }
        };
        let stream = ObservedStream::new(ObservedStreamConfig {
            id: StreamId(number.into()),
            mode: options.mode,
            reads: options.reads,
            provenance,
            size_bytes,
            block_device,
            // Where readahead was doubled (`POSIX_FADV_SEQUENTIAL`), two windows are
            // four times the disk's.
            lag_bytes: (4 * disk.read_ahead_bytes()).clamp(LAG_MIN_BYTES, LAG_MAX_BYTES),
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
            mailbox: Arc::clone(&mailbox),
            state: Arc::clone(&state),
            brake: Arc::clone(&brake),
            writeback_sign: options.writeback_sign,
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
                ..StreamConfig::default()
            },
            before,
            entry: Entry {
                description: Arc::clone(&description),
                source: Source::Observed(Box::new(source)),
            },
        })?;
        Ok(Observed {
            disk,
            number,
            state,
            mailbox,
            description,
            brake,
        })
    }
}

/// Where little is read ahead, the lag is still this: btrfs reads 4 MiB ahead
/// whatever the disk's setting (fs/btrfs/disk-io.c), and others have settings
/// of their own.
const LAG_MIN_BYTES: u64 = 16 << 20;
/// A cap on what readers of one file may have cached behind their fronts.
const LAG_MAX_BYTES: u64 = 64 << 20;

impl Observed {
    /// Somebody is using it: look often.
    pub fn touched(&self) {
        self.disk.post(Message::Touched(self.number));
        if let Some(Some(brake)) = self.brake.get() {
            self.disk.watch_writers(brake);
        }
    }

    /// The file is used in another way from now on. A mode that drops, after one that does
    /// not, drops what is brought in from then on: before, [`Observed::brought`] is to say
    /// that all else stays.
    pub fn change(&self, mode: Mode, reads: bool) {
        self.tell([Told::Changed { mode, reads }]);
    }

    /// Who writes to the file waits for the disk from now on while more than this is dirty
    /// or on its way, of the observed files of that disk together (one of many may have
    /// 1 MiB in any case). All its writers do, since it is not known who wrote which page.
    /// Only on ext4, xfs and btrfs, and the first limit counts.
    pub fn hold_writers(&self, max_dirty_bytes: u64) {
        let mut brake = None;
        self.brake.get_or_init(|| {
            let counter = UnwrittenCounter::new(Arc::clone(&self.description));
            let (limit, sum) = (Limit(max_dirty_bytes), self.disk.brakes.sum());
            brake = Some(Arc::new(Brake::new(counter, limit, sum)));
            brake.clone()
        });
        if let Some(brake) = &brake {
            self.disk.add_brake(brake);
        }
    }

    /// Somebody closed it. Unless it is written on, all that is left is written
    /// and dropped, and the file is finished.
    pub fn closed(&self) {
        self.disk.post(Message::LastClosed(self.number));
    }

    /// These pages entered the cache, in this order ([`Provenance::Traced`]).
    pub fn brought(&self, brought: impl IntoIterator<Item = Brought>) {
        self.tell(brought.into_iter().map(Told::Brought));
    }

    fn tell(&self, news: impl IntoIterator<Item = Told>) {
        let was_empty = {
            let mut told = lock(&self.mailbox);
            let was_empty = told.is_empty();
            told.extend(news);
            was_empty && !told.is_empty()
        };
        if was_empty {
            self.disk.post(Message::Traced(self.number));
        }
    }

    /// What the trace said of a finished file, too late for it.
    pub fn take_unread(&self) -> Vec<Brought> {
        let told = std::mem::take(&mut *lock(&self.mailbox)).into_iter();
        let brought = told.filter_map(|told| match told {
            Told::Brought(brought) => Some(brought),
            Told::Changed { .. } => None,
        });
        brought.collect()
    }

    /// Somebody has read from it. Where what reads bring in is to stay, clean pages
    /// that appear from now on do.
    pub fn was_read(&self) {
        self.disk.post(Message::WasRead(self.number));
    }

    /// How it stands.
    pub fn state(&self) -> ObservedState {
        *lock(&self.state)
    }

    /// The name of its disk, as in `/sys/block`.
    pub fn disk_name(&self) -> &str {
        self.disk.name()
    }
}
