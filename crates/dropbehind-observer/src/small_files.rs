//! The threads that write and drop small files once they are closed, as the
//! [shelf](dropbehind_policy::shelf) says. Each disk has its own, since writeback waits for a disk
//! that is slow or gone.

use std::collections::{BTreeMap, HashMap};
use std::mem::take;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use dropbehind_flusher::trace::{Begun, Deed, DropReason, Label};
use dropbehind_flusher::{Arrivals, ReportedTrace, WritebackSign, residency};
use dropbehind_linux::{
    Description, IoPriority, KernelInode, Visit, drop_clean, file_stat, start_writeback,
};
use dropbehind_policy::{ByteRange, Counted, Mode, RangeSet, Reason, Writeback};
use dropbehind_policy::{Fate, FileNumber, Shelf, ShelfAction, ShelfPlace};

use crate::board::lock;
use crate::observer::{Input, Inputs};

/// Files that come within this time are taken together: waking the thread costs more than taking
/// one. When none has come for this long, the thread closes the descriptors of waiting files.
/// Reopening one takes some 40 us of a processor, but where thousands of files come each second,
/// they do not wait for long. It is twice the pause between the observer's rounds, each of which
/// brings files.
const GATHER: Duration = Duration::from_millis(8);

/// How often waiting files that hold a descriptor are searched for deleted ones, whose blocks become
/// free once that is closed. Asking one takes some 0.5 us of a processor.
const DELETED: Duration = Duration::from_millis(500);

/// At most this many disks have a thread of their own. File systems without a disk count as one
/// each.
const DISKS: usize = 64;

/// Sums over all small files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SmallTotals {
    /// Bytes of pages that were to be dropped.
    pub(crate) brought_bytes: u64,
    pub(crate) dropped_bytes: u64,
    pub(crate) left_bytes: u64,
    pub(crate) reused_bytes: u64,
    /// Bytes for which writeback was started.
    pub(crate) writeback_bytes: u64,
    /// Bytes that wait now.
    pub(crate) waiting_bytes: u64,
    /// Bytes of them that were not on the disk when they were last counted.
    pub(crate) unwritten_bytes: u64,
    /// Files that were handed over and hold a descriptor, until the observer
    /// [forgets](SmallFiles::forgotten) them.
    pub(crate) files_with_descriptor: usize,
}

/// A small file that was closed.
#[derive(Debug)]
pub(crate) struct SmallFile {
    pub(crate) number: FileNumber,
    pub(crate) file: Arc<Description>,
    pub(crate) label: Label,
    pub(crate) mode: Mode,
    /// What of it the observed programs brought in.
    pub(crate) ours: RangeSet,
    /// What of that is not dropped before it is decided.
    pub(crate) held: RangeSet,
    /// It may be dirty.
    pub(crate) written: bool,
    /// Bytes that are not on the disk, as last counted.
    pub(crate) unwritten_bytes: u64,
    pub(crate) writeback_sign: Option<WritebackSign>,
    /// The inode by which the trace names it.
    pub(crate) inode: Option<KernelInode>,
}

/// A file that waits.
struct Shelved {
    /// The shelf has what is ours of it.
    small: SmallFile,
    /// The file, open from a look on, for as long as more is to be done with it right away.
    visited: Option<Arc<OwnedFd>>,
    /// Its writeback was started.
    was_written: bool,
    /// After the last drop, nothing of the file was cached.
    is_out_of_the_cache: bool,
    /// It has released its descriptor.
    is_released: bool,
}

impl Shelved {
    /// Closes its descriptor. Returns whether it had one and can be opened again.
    fn release(&mut self) -> bool {
        self.small.file.release();
        let can_be = self.small.file.can_be_released();
        !std::mem::replace(&mut self.is_released, can_be) && can_be
    }

    /// Returns whether nothing of the file is cached, as far as the kernel tells.
    fn has_nothing_cached(&self) -> bool {
        let Some(file) = &self.visited else {
            return false;
        };
        let counted = || residency::count_seen(file.as_fd(), ByteRange::WHOLE);
        self.small.file.cachestat_sees(file.as_fd())
            && counted().is_ok_and(|counted| counted.cached_bytes == 0)
    }
}

/// What a disk's thread is told.
pub(crate) enum Message {
    /// By [`SmallFiles::closed`].
    File(SmallFile),
    /// It is known what becomes of this.
    Decided(FileNumber, ByteRange, Fate),
    /// The oldest half is not to wait for its grace.
    Hurry,
    /// Everything is to be written and dropped now; answered when it is.
    Flush(mpsc::Sender<()>),
}

/// What became of a file that was on the shelf.
#[derive(Debug)]
pub(crate) struct Unshelved {
    pub(crate) number: FileNumber,
    pub(crate) dropped_bytes: u64,
    /// Bytes that should have been dropped, and stayed.
    pub(crate) left_bytes: u64,
    /// No page of the file was cached then, whoever had brought it in.
    pub(crate) is_out_of_the_cache: bool,
    /// It still holds a descriptor, until the observer [forgets](SmallFiles::forgotten) it.
    pub(crate) has_descriptor: bool,
}

/// The small files of an observer, and the threads that write and drop them.
#[derive(Clone, Debug)]
pub(crate) struct SmallFiles {
    /// By the name of the disk; the first one has none.
    disks: Arc<Mutex<HashMap<String, mpsc::Sender<Message>>>>,
    settings: Settings,
}

/// What each thread is started with.
#[derive(Clone, Debug)]
struct Settings {
    io_priority: IoPriority,
    observer: Inputs,
    totals: Arc<Mutex<SmallTotals>>,
    /// Shows what enters the cache before the observer reports it.
    trace: Option<ReportedTrace>,
    /// Once so many files hold a descriptor, the oldest half of a disk does not wait for its grace.
    crowd: usize,
}

impl SmallFiles {
    /// Once `crowd` files hold a descriptor, the oldest half does not wait for its grace.
    pub(crate) fn start(
        io_priority: IoPriority,
        observer: Inputs,
        trace: Option<ReportedTrace>,
        crowd: usize,
    ) -> std::io::Result<SmallFiles> {
        let settings = Settings {
            io_priority,
            observer,
            totals: Arc::default(),
            trace,
            crowd,
        };
        let first = Server::start(&settings)?;
        Ok(SmallFiles {
            disks: Arc::new(Mutex::new(HashMap::from([(String::new(), first)]))),
            settings,
        })
    }

    /// Sends a message to a disk's thread, or to the first one if none could be started.
    pub(crate) fn send(&self, disk: &str, message: Message) {
        let mut disks = lock(&self.disks);
        if !disks.contains_key(disk) {
            let started = match disks.len() < DISKS {
                true => Server::start(&self.settings).ok(),
                false => None,
            };
            // All messages about a file go to the same thread.
            let messages = started.unwrap_or_else(|| disks[""].clone());
            disks.insert(disk.to_owned(), messages);
        }
        let _ = disks[disk].send(message);
    }

    /// Takes in a file of this disk that was closed.
    pub(crate) fn closed(&self, disk: &str, small: SmallFile) {
        let bytes = small.ours.bytes();
        {
            let mut totals = lock(&self.settings.totals);
            totals.waiting_bytes += bytes;
            totals.files_with_descriptor += 1;
            totals.unwritten_bytes += small.unwritten_bytes;
            totals.brought_bytes += if small.mode.drops() { bytes } else { 0 };
        }
        self.send(disk, Message::File(small));
    }

    /// On each disk, has the oldest half not wait for its grace.
    pub(crate) fn hurry(&self) {
        for messages in lock(&self.disks).values() {
            let _ = messages.send(Message::Hurry);
        }
    }

    /// The observer has forgotten so many files that held a descriptor, which is closed by that.
    pub(crate) fn forgotten(&self, files_with_descriptor: usize) {
        lock(&self.settings.totals).files_with_descriptor -= files_with_descriptor;
    }

    /// Writes and drops what waits. Returns false if `timeout` passed first.
    pub(crate) fn flush(&self, timeout: Duration) -> bool {
        let (done, flushed) = mpsc::channel();
        for messages in lock(&self.disks).values() {
            let _ = messages.send(Message::Flush(done.clone()));
        }
        drop(done);
        flushed.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Disconnected)
    }

    pub(crate) fn totals(&self) -> SmallTotals {
        *lock(&self.settings.totals)
    }
}

struct Server {
    shelf: Shelf,
    files: BTreeMap<ShelfPlace, Shelved>,
    /// The first file that came since the descriptors of waiting files were closed.
    held_from: Option<ShelfPlace>,
    /// When to search for deleted files, if files may hold a descriptor.
    next_search: Option<Instant>,
    settings: Settings,
    flushing: Vec<mpsc::Sender<()>>,
    visit: Visit,
    started: Instant,
}

impl Server {
    fn start(settings: &Settings) -> std::io::Result<mpsc::Sender<Message>> {
        let (messages, inbox) = mpsc::channel();
        let mut server = Server {
            shelf: Shelf::default(),
            files: BTreeMap::new(),
            held_from: None,
            next_search: None,
            settings: settings.clone(),
            flushing: Vec::new(),
            visit: Visit::default(),
            started: Instant::now(),
        };
        std::thread::Builder::new()
            .name("dropbehind-smal".into())
            .spawn(move || {
                // If it is refused, the flusher has said so.
                let _ = dropbehind_linux::set_thread_io_priority(server.settings.io_priority);
                server.serve(&inbox);
            })?;
        Ok(messages)
    }

    fn serve(&mut self, inbox: &mpsc::Receiver<Message>) {
        loop {
            let mut timeout = match self.shelf.next_due(self.now_ns(), self.is_flushing()) {
                Some(due_ns) => Duration::from_nanos(due_ns.saturating_sub(self.now_ns())),
                None => Duration::from_secs(3600),
            };
            if let Some(next) = self.next_search {
                timeout = timeout.min(next.saturating_duration_since(Instant::now()));
            }
            let gathers = self.held_from.is_some() && timeout > GATHER;
            if gathers {
                timeout = GATHER;
            }
            match inbox.recv_timeout(timeout) {
                Ok(message) => {
                    self.take(message);
                    self.take_all(inbox);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if gathers => self.release(),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
            self.find_deleted();
            while let Some(action) = self.shelf.next(self.now_ns(), self.is_flushing()) {
                self.execute(action, inbox);
            }
            self.visit = Visit::default();
            if self.shelf.is_empty() {
                self.flushing.clear();
            }
            if !self.is_flushing() {
                std::thread::sleep(GATHER);
            }
        }
    }

    fn release(&mut self) {
        if let Some(place) = self.held_from.take() {
            let late = self.files.range_mut(place..);
            let released = late.map(|(_, shelved)| shelved.release());
            let released = released.filter(|released| *released).count();
            lock(&self.settings.totals).files_with_descriptor -= released;
        }
    }

    fn find_deleted(&mut self) {
        let now = Instant::now();
        if self.next_search.is_none_or(|next| now < next) {
            return;
        }
        let mut holds = false;
        self.shelf.find_deleted(|place| {
            let file = self.files.get(&place).map(|shelved| &shelved.small.file);
            let Some(file) = file.filter(|file| file.is_held()) else {
                return false;
            };
            holds = true;
            let stat = file.open().and_then(|file| file_stat(file.as_fd()));
            stat.is_ok_and(|stat| stat.links == 0)
        });
        self.next_search = holds.then(|| now + DELETED);
    }

    fn take_all(&mut self, inbox: &mpsc::Receiver<Message>) {
        while let Ok(message) = inbox.try_recv() {
            self.take(message);
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn is_flushing(&self) -> bool {
        !self.flushing.is_empty()
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::File(mut small) => {
                let (ours, held) = (take(&mut small.ours), take(&mut small.held));
                let (now_ns, number, mode) = (self.now_ns(), small.number, small.mode);
                let written = small.written;
                let place = self.shelf.put(now_ns, number, mode, ours, held, written);
                let shelved = Shelved {
                    small,
                    visited: None,
                    was_written: false,
                    is_out_of_the_cache: false,
                    is_released: false,
                };
                self.files.insert(place, shelved);
                self.held_from.get_or_insert(place);
                self.next_search
                    .get_or_insert_with(|| Instant::now() + DELETED);
                if lock(&self.settings.totals).files_with_descriptor >= self.settings.crowd {
                    self.shelf.hurry();
                }
            }
            Message::Decided(number, range, fate) => self.shelf.decided(number, range, fate),
            Message::Hurry => self.shelf.hurry(),
            // Nothing is ever sent; the other end notices when this one is gone.
            Message::Flush(done) => self.flushing.push(done),
        }
    }

    /// A file that has a place.
    fn shelved(&mut self, place: ShelfPlace) -> &mut Shelved {
        let shelved = self.files.get_mut(&place);
        shelved.expect("a file stays until the shelf is done with it")
    }

    fn execute(&mut self, action: ShelfAction, inbox: &mpsc::Receiver<Message>) {
        match action {
            ShelfAction::Look(place) => self.look(place),
            ShelfAction::Write(place) => self.write(place),
            ShelfAction::Park(place) => self.park(place),
            ShelfAction::Drop(places) => self.drop_together(&places, inbox),
            ShelfAction::Done {
                place,
                dropped_bytes,
                left_bytes,
                reused_bytes,
            } => {
                self.is_unwritten(place, 0);
                let Some(shelved) = self.files.remove(&place) else {
                    return;
                };
                let drops = shelved.small.mode.drops();
                let if_drops = |bytes| if drops { bytes } else { 0 };
                let unshelved = Unshelved {
                    number: shelved.small.number,
                    dropped_bytes: if_drops(dropped_bytes),
                    left_bytes: if_drops(left_bytes),
                    is_out_of_the_cache: drops && shelved.is_out_of_the_cache,
                    has_descriptor: !shelved.is_released,
                };
                {
                    let mut totals = lock(&self.settings.totals);
                    totals.waiting_bytes -= dropped_bytes + left_bytes + reused_bytes;
                    totals.dropped_bytes += unshelved.dropped_bytes;
                    totals.left_bytes += unshelved.left_bytes;
                    totals.reused_bytes += if_drops(reused_bytes);
                }
                self.settings.observer.send(Input::Unshelved(unshelved));
            }
        }
    }

    fn look(&mut self, place: ShelfPlace) {
        let now_ns = self.now_ns();
        let flush = self.is_flushing();
        let description = Arc::clone(&self.shelved(place).small.file);
        let Ok(file) = description.open_on(&mut self.visit) else {
            return self.shelf.look_again(now_ns, place, flush);
        };
        let shelved = self.shelved(place);
        shelved.visited = Some(Arc::clone(&file));
        let is_lazy = shelved.small.mode.writeback == Writeback::Lazy && !flush;
        let may_be_held = shelved.small.mode.keeps_reused();
        let Some(counted) = self.count(place) else {
            return self.shelf.failed(place);
        };
        self.is_unwritten(place, counted.unwritten_bytes());
        // What is clean goes at once in any case.
        let may_wait = counted.unwritten_bytes() > 0 || may_be_held;
        if may_wait && file_stat(file.as_fd()).is_ok_and(|stat| stat.links == 0) {
            return self.shelf.looked(now_ns, place, None, flush);
        }
        let is_waited_for = counted.writeback_bytes > 0 || is_lazy && counted.dirty_bytes > 0;
        self.shelf.looked(now_ns, place, Some(counted), flush);
        if is_waited_for {
            self.shelved(place).visited = None;
        }
    }

    /// Closes the descriptor of a file that can be opened again.
    fn park(&mut self, place: ShelfPlace) {
        let shelved = self.shelved(place);
        shelved.visited = None;
        if shelved.release() {
            lock(&self.settings.totals).files_with_descriptor -= 1;
        }
    }

    /// Records how much of a file is not on the disk.
    fn is_unwritten(&mut self, place: ShelfPlace, bytes: u64) {
        let before = std::mem::replace(&mut self.shelved(place).small.unwritten_bytes, bytes);
        let mut totals = lock(&self.settings.totals);
        totals.unwritten_bytes = totals.unwritten_bytes + bytes - before;
    }

    /// Counts what is ours. Where it cannot be told what is still to be written, all of it is
    /// until its writeback was started; a drop leaves what is under way.
    fn count(&self, place: ShelfPlace) -> Option<Counted> {
        let shelved = self.files.get(&place)?;
        let fd = shelved.visited.as_ref()?.as_fd();
        let is_seen = shelved.small.file.cachestat_sees(fd);
        let mut counted = Counted::default();
        for range in self.shelf.ours(place)?.iter() {
            let pages = match is_seen {
                true => residency::count_seen(fd, range),
                false => residency::count_observed(fd, range),
            };
            let mut pages = pages.ok()?;
            let is_unclear = !is_seen && !shelved.was_written && pages.cached_bytes > 0;
            if is_unclear && !residency::tells_unwritten(fd, range) {
                pages.dirty_bytes = pages.cached_bytes;
            }
            counted.cached_bytes += pages.cached_bytes;
            counted.dirty_bytes += pages.dirty_bytes;
            counted.writeback_bytes += pages.writeback_bytes;
        }
        Some(counted)
    }

    fn write(&mut self, place: ShelfPlace) {
        let Some(shelved) = self.files.get_mut(&place) else {
            return;
        };
        let Some(file) = shelved.visited.take() else {
            return;
        };
        let Some(ours) = self.shelf.ours(place) else {
            return;
        };
        shelved.was_written = true;
        for range in ours.iter() {
            let begun = Begun::now();
            if start_writeback(file.as_fd(), range.start, range.len()).is_ok() {
                let deed = Deed::Writeback(Reason::Budget);
                begun.made(deed, &shelved.small.label, file.as_fd(), range, range.len());
                lock(&self.settings.totals).writeback_bytes += range.len();
            }
        }
    }

    /// Drops what is still ours of these files. What has entered the cache and was not reported
    /// yet stays for now: others may have brought it in.
    fn drop_together(&mut self, places: &[ShelfPlace], inbox: &mpsc::Receiver<Message>) {
        let inodes = places
            .iter()
            .filter_map(|place| self.files.get(place)?.small.inode);
        let trace = self.settings.trace.as_ref();
        let mut arrivals = trace.map(|trace| trace.unreported(inodes));
        // After that, so that nothing falls between the two.
        self.take_all(inbox);
        for place in places {
            self.drop_ours(*place, arrivals.as_mut());
        }
    }

    fn drop_ours(&mut self, place: ShelfPlace, arrivals: Option<&mut Arrivals>) {
        let (now_ns, flush) = (self.now_ns(), self.is_flushing());
        if self.shelved(place).visited.is_none() {
            let description = Arc::clone(&self.shelved(place).small.file);
            match description.open_on(&mut self.visit) {
                Ok(file) => self.shelved(place).visited = Some(file),
                Err(_) => return self.shelf.look_again(now_ns, place, flush),
            }
        }
        // It may have been written again since the last look.
        let Some(counted) = self.count(place) else {
            return self.shelf.failed(place);
        };
        let is_clean = counted.dirty_bytes + counted.writeback_bytes == 0;
        let mut is_reported = true;
        if is_clean
            && let Some(shelved) = self.files.get(&place)
            && let Some(file) = &shelved.visited
        {
            let ours = self.shelf.ours(place).into_iter();
            let ours: Vec<ByteRange> = ours.flat_map(RangeSet::iter).collect();
            let file = file.as_fd();
            let Ok(cached) = residency::cached_of(file, &ours, counted.cached_bytes) else {
                return self.shelf.failed(place);
            };
            let sign = shelved.small.writeback_sign.as_ref();
            // The pages are clean, so an earlier failure shows by now.
            let asked = cached.first().zip(sign);
            if asked.is_some_and(|(range, sign)| sign.has_failed_for(*range).unwrap_or(true)) {
                return self.shelf.failed(place);
            }
            let parts = match (arrivals, shelved.small.inode) {
                (Some(arrivals), Some(inode)) => arrivals.without(inode, &cached),
                // The trace has named it, so its inode is known.
                (Some(_), None) => return self.shelf.failed(place),
                (None, _) => cached.clone(),
            };
            is_reported = parts == cached;
            for part in parts {
                let begun = Begun::now();
                if drop_clean(file, part.start, part.len()).is_ok() {
                    let deed = Deed::Drop(DropReason::Done);
                    begun.made(deed, &shelved.small.label, file, part, part.len());
                }
            }
        }
        let shelved = self.shelved(place);
        shelved.is_out_of_the_cache = shelved.has_nothing_cached();
        if shelved.is_out_of_the_cache {
            return self.shelf.dropped(now_ns, place, 0);
        }
        let counted = self.count(place);
        self.shelved(place).visited = None;
        match counted {
            Some(Counted { cached_bytes, .. }) if cached_bytes > 0 && !is_reported => {
                self.shelf.unreported(now_ns, place);
            }
            Some(counted) => self.shelf.dropped(now_ns, place, counted.cached_bytes),
            None => self.shelf.failed(place),
        }
    }
}
