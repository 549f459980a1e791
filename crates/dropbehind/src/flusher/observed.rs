//! Files that other processes read and write, observed from outside.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use dropbehind_linux::{FileKind, Sharing, file_stat};
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{
    Brought, ByteRange, Counted, Mode, RangeSet, ReadFronts, StreamConfig, StreamCounters,
    Writeback,
};

use super::brake::Brake;
use super::disk_thread::Attachment;
use super::processor_time::processor_time;
use super::unwritten::UnwrittenCounter;
use super::{Flusher, Message};
use crate::cache_map::CacheMap;
use crate::handle::{Handle, lock};
use crate::residency;

/// How a file is to be observed.
#[derive(Clone, Debug)]
pub struct ObserveOptions {
    /// When to write back, and what stays cached.
    pub mode: Mode,
    /// Window in bytes; `None` follows the disk's speed.
    pub window_bytes: Option<u64>,
    /// Request in bytes; `None` is the disk's.
    pub request_bytes: Option<u64>,
    /// Who writes to the file waits for the disk while more than this is dirty or
    /// on its way, of the observed files of that disk together (one of many may have
    /// 1 MiB in any case); `None` lets the kernel decide. Only where the mode writes
    /// back early, and on ext4, xfs and btrfs.
    pub max_dirty_bytes: Option<u64>,
    /// What reads bring in is dropped, too, where the mode drops. Otherwise what
    /// appears in a file that is written counts as written until
    /// [`Observed::was_read`].
    pub reads: bool,
    /// The file's size in bytes when the observed programs opened it.
    pub opened_size_bytes: u64,
    /// How it is known whose a page is.
    pub provenance: Provenance,
    /// What the notices say of the file.
    pub key: u64,
    /// Where the notices go.
    pub notices: NoticeSink,
}

/// How it is known which pages of a file the observed programs brought in.
#[derive(Clone, Debug)]
pub enum Provenance {
    /// [`Observed::told`] says so, and nothing else does.
    Told,
    /// What was resident at the open stays, and the rest goes.
    ResidentAtOpen(CacheMap),
}

/// Takes what is told of observed files, in the disk's thread: it is to hand it on
/// and not to wait.
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
    /// or [`Observed::told`] ends that.
    Idle {
        /// The file.
        key: u64,
    },
    /// The observer said that nobody has it open, and everything is written and
    /// dropped: its stream has ended.
    Finished {
        /// The file.
        key: u64,
        /// What it was observed by.
        description: OwnedFd,
        /// What was done with it.
        state: ObservedState,
    },
}

/// An observed file at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedState {
    /// Its size when it was last looked at.
    pub size_bytes: u64,
    /// Its pages when they were last counted.
    pub counted: Counted,
    /// Bytes seen written.
    pub written_bytes: u64,
    /// Bytes seen read in from the disk.
    pub read_bytes: u64,
    /// What was done.
    pub counters: StreamCounters,
    /// Nothing has changed for a second.
    pub idle: bool,
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
    handle: Arc<Handle>,
    state: Arc<Mutex<ObservedState>>,
    told: Mailbox,
    brake: Option<Arc<Brake>>,
}

/// What was told of a file and not read by the disk's thread yet.
pub(super) type Mailbox = Arc<Mutex<Vec<Brought>>>;

impl fmt::Debug for Observed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed")
            .field("number", &self.handle.number)
            .finish_non_exhaustive()
    }
}

/// What the disk's thread keeps of an observed file.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) options: ObserveOptions,
    pub(super) fronts: ReadFronts,
    pub(super) told: Mailbox,
    /// Told to be ours, and not looked at yet.
    pub(super) fresh: RangeSet,
    /// Found dirty, and not told to be ours yet.
    pub(super) suspects: Vec<ByteRange>,
    /// Told to be ours, and counted neither as written nor as read yet.
    pub(super) uncounted: RangeSet,
    pub(super) state: Arc<Mutex<ObservedState>>,
    /// Holds its writers.
    pub(super) brake: Option<Arc<Brake>>,
    pub(super) block_device: bool,
    /// Bytes in the cache that others had.
    pub(super) before_bytes: u64,
    pub(super) size_bytes: u64,
    pub(super) counted: Counted,
    /// Of these, what the disk's sums have: without what others had before.
    pub(super) accounted: Counted,
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
    /// Somebody has read it.
    pub(super) was_read: bool,
    /// Where the search for pages that were read goes on.
    pub(super) read_cursor: u64,
    /// A look that finds everything was asked for, and may be made from then on.
    pub(super) thorough_wanted: bool,
    pub(super) thorough_from_ns: u64,
    /// To be told the policy after it.
    pub(super) flushed: bool,
    /// Where the last write that was found ended.
    pub(super) write_cursor: u64,
    pub(super) interval_ns: u64,
    pub(super) next_look_ns: u64,
    pub(super) next_count_ns: u64,
    pub(super) searched_ns: u64,
    pub(super) changed_ns: u64,
    pub(super) idle_told: bool,
    pub(super) closed: bool,
}

impl Watch {
    /// True where the kernel says who brought in what.
    pub(super) fn is_told(&self) -> bool {
        matches!(self.options.provenance, Provenance::Told)
    }

    /// True where clean pages that appear are to be dropped.
    pub(super) fn drops_what_appears(&self) -> bool {
        self.options.mode.drops() && (self.options.reads || self.is_only_written())
    }

    /// Nobody reads it, so clean pages were written: to be found dirty they would have to
    /// be looked for before the program, or a request for what is beside them, has them
    /// written.
    pub(super) fn is_only_written(&self) -> bool {
        self.written_bytes > 0 && !self.was_read
    }

    /// This part is counted now, as one or the other.
    pub(super) fn count_moved(&mut self, bytes: u64, written: bool) {
        match written {
            true => self.written_bytes += bytes,
            false => self.read_bytes += bytes,
        }
    }
}

impl Flusher {
    /// Looks after a file that others read and write, through `description`.
    ///
    /// The description is a separate one, for reading, and belongs to the
    /// flusher until the file is finished. Nothing of the others' descriptions,
    /// positions, locks and errors is touched.
    ///
    /// # Errors
    /// `Unsupported` where this flusher was not built for
    /// [observing](super::FlusherBuilder::observing), where the file is neither
    /// a regular file nor a block device, or where its pages cannot be counted
    /// (cachestat(2), since Linux 6.5).
    pub fn observe(&self, description: OwnedFd, options: ObserveOptions) -> io::Result<Observed> {
        let unsupported = |text| io::Error::new(io::ErrorKind::Unsupported, text);
        if !self.inner.observing {
            return Err(unsupported("this flusher was not built for observing"));
        }
        let info = file_stat(description.as_fd())?;
        let block_device = match info.kind {
            FileKind::Regular => false,
            FileKind::Block => true,
            _ => return Err(unsupported("neither a regular file nor a block device")),
        };
        let size_bytes = info.size_bytes;
        let before_count = processor_time();
        let counted = residency::count(description.as_fd(), residency::whole(size_bytes))?;
        let count_cost = processor_time() - before_count;
        let device = if block_device {
            info.special_device
        } else {
            info.id.device
        };
        let disk = self.disk_of(description.as_fd(), device)?;
        let (before, before_bytes) = match &options.provenance {
            Provenance::Told => (ResidencyMap::unknown(), 0),
            Provenance::ResidentAtOpen(before) => (before.map.clone(), before.cached_bytes),
        };
        let told = Mailbox::default();
        let config = StreamConfig {
            window_bytes: options.window_bytes,
            request_bytes: options.request_bytes,
            size_bytes: options.opened_size_bytes.min(size_bytes),
            block_device,
            told: matches!(options.provenance, Provenance::Told),
            ..StreamConfig::default()
        };
        let handle = Arc::new(Handle::new(
            self.clone(),
            Arc::clone(&disk),
            info.id,
            config,
        ));
        // Where readahead was doubled (`POSIX_FADV_SEQUENTIAL`), two windows
        // are four times the disk's.
        let lag_bytes = (4 * disk.read_ahead_bytes()).clamp(LAG_MIN_BYTES, LAG_MAX_BYTES);
        let state = Arc::new(Mutex::new(ObservedState {
            size_bytes,
            counted,
            ..ObservedState::default()
        }));
        let waits = options.mode.writeback != Writeback::Lazy && !block_device;
        let brake = match options.max_dirty_bytes {
            Some(limit_bytes) if waits => {
                let mut counter = UnwrittenCounter::new(description.try_clone()?);
                if counted.unwritten_bytes() == 0 {
                    counter.was_written(size_bytes, count_cost);
                }
                Some(Arc::new(Brake::new(
                    counter,
                    limit_bytes,
                    disk.brakes.sum(),
                )))
            }
            _ => None,
        };
        let watch = Watch {
            fronts: ReadFronts::new(lag_bytes),
            told: Arc::clone(&told),
            fresh: RangeSet::new(),
            suspects: Vec::new(),
            uncounted: RangeSet::new(),
            state: Arc::clone(&state),
            brake: brake.clone(),
            block_device,
            before_bytes,
            // Where nothing was cached before, all that is dirty is new.
            size_bytes,
            counted: Counted::default(),
            accounted: Counted::default(),
            written_bytes: 0,
            read_bytes: 0,
            was_read: false,
            read_cursor: 0,
            thorough_wanted: false,
            thorough_from_ns: 0,
            flushed: false,
            write_cursor: 0,
            interval_ns: 0,
            next_look_ns: 0,
            next_count_ns: 0,
            searched_ns: 0,
            changed_ns: 0,
            idle_told: false,
            closed: false,
            options,
        };
        let attachment = Attachment {
            handle: Arc::clone(&handle),
            description,
            sharing: Sharing::Own,
            before,
            watch: Some(Box::new(watch)),
        };
        disk.attach(attachment)?;
        handle.registered(true);
        if let Some(brake) = &brake {
            disk.add_brake(brake);
        }
        Ok(Observed {
            handle,
            state,
            told,
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
        self.handle.disk.post(Message::Touched(self.handle.number));
        if let Some(brake) = &self.brake {
            self.handle.disk.watch_writers(brake);
        }
    }

    /// Somebody closed it. Unless it is written on, all that is left is written
    /// and dropped, and the file is finished.
    pub fn closed(&self) {
        self.handle.disk.post(Message::Left(self.handle.number));
    }

    /// These pages entered the cache, in this order ([`Provenance::Told`]).
    pub fn told(&self, brought: impl IntoIterator<Item = Brought>) {
        let was_empty = {
            let mut told = lock(&self.told);
            let was_empty = told.is_empty();
            told.extend(brought);
            was_empty && !told.is_empty()
        };
        if was_empty {
            self.handle.disk.post(Message::Told(self.handle.number));
        }
    }

    /// What was told of a finished file and came too late for it.
    pub fn take_unread(&self) -> Vec<Brought> {
        std::mem::take(&mut *lock(&self.told))
    }

    /// Somebody has read from it. Where what reads bring in is to stay, clean pages
    /// that appear from now on do.
    pub fn was_read(&self) {
        self.handle.disk.post(Message::WasRead(self.handle.number));
    }

    /// How it stands.
    pub fn state(&self) -> ObservedState {
        *lock(&self.state)
    }

    /// The name of its disk, as in `/sys/block`.
    pub fn disk_name(&self) -> &str {
        self.handle.disk.name()
    }
}
