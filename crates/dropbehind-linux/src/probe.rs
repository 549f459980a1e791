//! What works here, found out by trying.
//!
//! Neither a kernel version nor a file system's name tells: distributions carry
//! features back, sandboxes refuse calls, and some file systems accept a call
//! and do nothing. So each call is made on a scratch file and its effect
//! counted.

use crate::advice::drop_clean;
use crate::block::logical_sector_bytes;
use crate::cachestat::{CacheStat, cachestat};
use crate::descriptor_table::unshare_descriptor_table;
use crate::disk::{Disk, disk_of};
use crate::extents::extents;
use crate::file::{FileId, FileKind, FsKind, file_info, filesystem, size_bytes};
use crate::io_priority::{IoPriority, set_thread_io_priority};
use crate::kernel::{KernelVersion, kernel_version};
use crate::mincore::resident_ranges;
use crate::page::page_size;
use crate::reopen::{Sharing, reopen};
use crate::vectored::{IoFlags, pread, preadv2, pwrite, pwritev2};
use crate::writeback::{start_writeback, write_and_wait};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The scratch file's size: enough to tell some from all, little to write.
const SCRATCH_PAGES: u64 = 64;
/// How long an effect may take before it counts as absent.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long pages may stay once they are clean and should be gone.
const DROP_PATIENCE: Duration = Duration::from_millis(200);

/// Whether something works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// Tried, and its effect was seen.
    Works,
    /// Refused.
    Missing {
        /// The errno.
        errno: i32,
        /// What that means here.
        why: String,
    },
    /// Accepted, without the effect.
    Ineffective {
        /// What was seen instead.
        why: String,
    },
    /// Not tried, or its effect cannot be seen from here.
    Untested {
        /// What stood in the way.
        why: String,
    },
}

impl Support {
    /// Whether it was tried and its effect was seen.
    #[must_use]
    pub fn works(&self) -> bool {
        *self == Self::Works
    }

    fn missing(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(errno) => {
                let why = match errno {
                    libc::ENOSYS => "not in this kernel, or refused by a sandbox".to_owned(),
                    libc::EOPNOTSUPP | libc::ENOTTY => {
                        "not supported by this kernel for this file system".to_owned()
                    }
                    libc::EPERM | libc::EACCES => "not permitted".to_owned(),
                    _ => Errno::from_raw_os_error(errno).to_string(),
                };
                Self::Missing { errno, why }
            }
            None => Self::Untested {
                why: error.to_string(),
            },
        }
    }

    fn ineffective(why: impl Into<String>) -> Self {
        Self::Ineffective { why: why.into() }
    }

    fn untested(why: impl Into<String>) -> Self {
        Self::Untested { why: why.into() }
    }

    fn of(result: io::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Works,
            Err(error) => Self::missing(&error),
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::Missing { errno, why } => write!(f, "missing: {why} (errno {errno})"),
            Self::Ineffective { why } => write!(f, "no effect: {why}"),
            Self::Untested { why } => write!(f, "untested: {why}"),
        }
    }
}

/// What [`probe()`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The running kernel.
    pub kernel: KernelVersion,
    /// The file system asked about.
    pub filesystem: FsKind,
    /// The disk below it.
    pub disk: Disk,
    /// cachestat(2), and whether it counts what was just written.
    pub cachestat: Support,
    /// mincore(2), and whether it sees what was just written.
    pub mincore: Support,
    /// sync_file_range(2), and whether it starts writeback.
    pub sync_file_range: Support,
    /// posix_fadvise(2) `DONTNEED`, and whether it drops clean pages.
    pub fadvise_dontneed: Support,
    /// `RWF_DONTCACHE` for writing a new file, and whether its pages go.
    pub dontcache_write: Support,
    /// `RWF_DONTCACHE` for writing over allocated blocks, and whether the pages
    /// go.
    pub dontcache_overwrite: Support,
    /// `RWF_DONTCACHE` for reading, and whether the pages go.
    pub dontcache_read: Support,
    /// `FS_IOC_FIEMAP`.
    pub fiemap: Support,
    /// `O_DIRECT`.
    pub direct_io: Support,
    /// A description of our own for an open file, see
    /// [`reopen()`](crate::reopen()).
    pub own_description: Support,
    /// A descriptor table of a thread's own.
    pub descriptor_table: Support,
    /// ioprio_set(2).
    pub io_priority: Support,
}

/// Finds out what works for the files in a directory, for a file (in its
/// directory; the file itself is not written), or for a block device (which is
/// only read).
///
/// Makes a scratch file of 64 pages without a name (`O_TMPFILE`, or one that is
/// unlinked at once), writes it, and watches what each call does to its pages.
/// Nothing is left behind. Takes some tens of milliseconds, and up to some
/// seconds where calls have no effect.
///
/// Where no scratch file can be made, what can be tried by reading alone is
/// tried on the file itself, and the rest is [`Support::Untested`].
///
/// # Errors
///
/// - Those of open(2) and stat(2) for the path.
/// - `EINVAL`: neither a directory, a regular file nor a block device.
pub fn probe(path: &Path) -> io::Result<Probe> {
    // A relative path's last component, or a link's, has no directory to see.
    let path = path.canonicalize()?;
    let kind = std::fs::metadata(&path)?.file_type();
    let directory = if kind.is_dir() {
        Some(path.as_path())
    } else if kind.is_file() {
        path.parent()
    } else {
        None
    };
    if let Some(directory) = directory {
        match Scratch::new(directory) {
            Ok(scratch) => return scratch.probe(directory),
            Err(error) => {
                let why = format!("no scratch file can be written in the directory: {error}");
                return probe_by_reading(&path, &why);
            }
        }
    }
    if std::os::unix::fs::FileTypeExt::is_block_device(&kind) {
        return probe_by_reading(&path, "a block device is not written for trying");
    }
    Err(Errno::INVAL.into())
}

/// Opens an unnamed scratch file.
fn unnamed_file(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let unnamed = rustix::fs::openat(CWD, directory, flags | OFlags::TMPFILE, mode);
    if let Ok(file) = unnamed {
        return Ok(file);
    }
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = directory.join(format!(
            ".dropbehind-probe-{}-{}",
            std::process::id(),
            COUNTER.fetch_add(1, Ordering::Relaxed)
        ));
        match rustix::fs::openat(CWD, &name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Ok(file) => {
                rustix::fs::unlink(&name)?;
                return Ok(file);
            }
            // Left behind by a namesake that was killed between the two calls.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Asks again until the condition holds or the time is up.
fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// How pages are counted on this file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counting {
    Cachestat,
    Mincore,
    Impossible,
}

impl Counting {
    /// The cached pages of the first `len` bytes.
    fn cached_pages(self, fd: BorrowedFd<'_>, offset: u64, len: u64) -> Option<u64> {
        match self {
            Self::Cachestat => Some(cachestat(fd, offset, len).ok()?.cached_pages),
            Self::Mincore => {
                let ranges = resident_ranges(fd, offset, len).ok()?;
                let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                Some(bytes / page_size())
            }
            Self::Impossible => None,
        }
    }

    fn is_empty(self, fd: BorrowedFd<'_>, offset: u64, len: u64) -> bool {
        self.cached_pages(fd, offset, len) == Some(0)
    }
}

struct Scratch {
    file: OwnedFd,
    data: Vec<u8>,
}

impl Scratch {
    /// Makes a scratch file and writes it the plain way.
    fn new(directory: &Path) -> io::Result<Self> {
        let len = usize::try_from(SCRATCH_PAGES * page_size()).map_err(|_| Errno::OVERFLOW)?;
        // Neither zeroes nor a pattern: not to be compressed away, or stored
        // among the metadata.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let data = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(len)
        .collect();
        let scratch = Self {
            file: unnamed_file(directory)?,
            data,
        };
        scratch.fill(|rest, offset| pwrite(scratch.fd(), rest, offset))?;
        Ok(scratch)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn len(&self) -> u64 {
        self.data.len() as u64
    }

    fn fill(&self, write: impl Fn(&[u8], u64) -> io::Result<usize>) -> io::Result<()> {
        let mut done = 0;
        while done < self.data.len() {
            match write(&self.data[done..], done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the whole file uncached.
    fn fill_uncached(&self) -> io::Result<()> {
        self.fill(|rest, offset| {
            pwritev2(
                self.fd(),
                &[IoSlice::new(rest)],
                Some(offset),
                IoFlags::DONTCACHE,
            )
        })
    }

    /// Makes the file clean. It is ours alone, so its errors are too, and
    /// nothing is wrong with syncing it where watching is not enough: without
    /// cachestat, or where a file system acts only on a sync.
    fn clean(&self) {
        let _ = start_writeback(self.fd(), 0, 0);
        let is_clean = || {
            cachestat(self.fd(), 0, 0).is_ok_and(|stat| stat.cached_pages > 0 && stat.is_clean())
        };
        if !wait_until(DROP_PATIENCE, is_clean) {
            let _ = write_and_wait(self.fd(), 0, 0);
            let _ = rustix::fs::fdatasync(self.fd());
        }
    }

    fn cachestat(&self) -> Support {
        match cachestat(self.fd(), 0, 0) {
            Ok(CacheStat {
                cached_pages: 0, ..
            }) => Support::ineffective("counts nothing of what was just written"),
            Ok(_) => Support::Works,
            Err(error) => Support::missing(&error),
        }
    }

    fn mincore(&self) -> Support {
        match resident_ranges(self.fd(), 0, self.len()) {
            Ok(ranges) if ranges.is_empty() => {
                Support::ineffective("sees nothing of what was just written")
            }
            Ok(_) => Support::Works,
            Err(error) => Support::missing(&error),
        }
    }

    /// To be called while the file is dirty.
    fn sync_file_range(&self, counts: &Support) -> Support {
        let dirty = || cachestat(self.fd(), 0, 0).map_or(0, |stat| stat.dirty_pages);
        let before = dirty();
        if let Err(error) = start_writeback(self.fd(), 0, 0) {
            return Support::missing(&error);
        }
        match counts {
            Support::Works if before == 0 => {
                Support::ineffective("what was just written is not dirty")
            }
            Support::Works => {
                let is_started = wait_until(PATIENCE, || {
                    // Pages that were locked or written at that moment are
                    // skipped.
                    let _ = start_writeback(self.fd(), 0, 0);
                    dirty() == 0
                });
                if is_started {
                    Support::Works
                } else {
                    Support::ineffective(format!("{} of {before} pages stay dirty", dirty()))
                }
            }
            // Both look at the descriptor's own mapping, which is empty on
            // overlayfs: there the layer's pages were seen to stay dirty.
            Support::Ineffective { .. } => {
                Support::ineffective("the file's pages are not where the call looks for them")
            }
            Support::Missing { .. } | Support::Untested { .. } => {
                Support::untested("accepted, but its effect cannot be seen without cachestat")
            }
        }
    }

    /// To be called while the file is clean and cached.
    fn fadvise_dontneed(&self, counting: Counting) -> Support {
        let Some(before) = counting.cached_pages(self.fd(), 0, self.len()) else {
            return Support::of(drop_clean(self.fd(), 0, 0));
        };
        let mut result = Ok(());
        let gone = wait_until(PATIENCE, || {
            result = drop_clean(self.fd(), 0, 0);
            result.is_err() || counting.is_empty(self.fd(), 0, self.len())
        });
        let after = counting.cached_pages(self.fd(), 0, self.len());
        match (result, after) {
            (Err(error), _) => Support::missing(&error),
            (Ok(()), _) if before == 0 => Support::untested("nothing is cached after a write"),
            (Ok(()), _) if gone => Support::Works,
            (Ok(()), after) => Support::ineffective(stayed(after, before)),
        }
    }

    /// Whether the pages of an uncached operation went, after making the file
    /// clean.
    fn gone_once_clean(&self, counting: Counting) -> Support {
        self.clean_uncached();
        went(self.fd(), 0, self.len(), counting)
    }

    /// As [`Scratch::clean`], but pages that leave once they are clean never
    /// show as cached and clean.
    fn clean_uncached(&self) {
        let _ = start_writeback(self.fd(), 0, 0);
        let is_clean = || cachestat(self.fd(), 0, 0).is_ok_and(|stat| stat.is_clean());
        if !wait_until(PATIENCE, is_clean) {
            let _ = write_and_wait(self.fd(), 0, 0);
        }
    }

    fn dontcache_write(&self, directory: &Path, counting: Counting) -> Support {
        let fresh = match unnamed_file(directory) {
            Ok(file) => Self {
                file,
                data: self.data.clone(),
            },
            Err(error) => return Support::untested(format!("no second scratch file: {error}")),
        };
        match fresh.fill_uncached() {
            Ok(()) => fresh.gone_once_clean(counting),
            Err(error) => Support::missing(&error),
        }
    }

    /// To be called while the file is written, clean and not cached.
    fn dontcache_overwrite(&self, counting: Counting) -> Support {
        if let Some(left) = pages_in_the_way(self.fd(), 0, self.len(), counting) {
            return left;
        }
        match self.fill_uncached() {
            Ok(()) => self.gone_once_clean(counting),
            Err(error) => Support::missing(&error),
        }
    }

    fn probe(&self, directory: &Path) -> io::Result<Probe> {
        let fd = self.fd();
        let info = file_info(fd)?;
        let alignment = direct_io_bytes(info.direct_io_alignment, info.kind, fd);

        // In this order: each step leaves the file as the next one needs it,
        // from dirty by way of clean to not cached.
        let cachestat = self.cachestat();
        let mincore = self.mincore();
        let counting = if cachestat.works() {
            Counting::Cachestat
        } else if mincore.works() {
            Counting::Mincore
        } else {
            Counting::Impossible
        };
        let sync_file_range = self.sync_file_range(&cachestat);
        self.clean();
        let fiemap = fiemap(fd);
        let fadvise_dontneed = self.fadvise_dontneed(counting);
        let dontcache_read = dontcache_read(fd, 0, self.len(), counting);
        // A read that did not drop its pages must not pass for such a write.
        let _ = drop_clean(fd, 0, 0);
        let dontcache_overwrite = self.dontcache_overwrite(counting);
        let dontcache_write = self.dontcache_write(directory, counting);
        Ok(Probe {
            kernel: kernel_version(),
            filesystem: info.filesystem,
            disk: disk_of(fd)?,
            cachestat,
            mincore,
            sync_file_range,
            fadvise_dontneed,
            dontcache_write,
            dontcache_overwrite,
            dontcache_read,
            fiemap,
            direct_io: direct_io(fd, alignment),
            own_description: own_description(fd, info.id),
            descriptor_table: descriptor_table(fd),
            io_priority: io_priority(),
        })
    }
}

fn stayed(after: Option<u64>, before: u64) -> String {
    format!("{} of {before} pages stay", after.unwrap_or(0))
}

/// Whether the pages of a range are gone, or go within a moment.
fn went(fd: BorrowedFd<'_>, offset: u64, len: u64, counting: Counting) -> Support {
    if counting == Counting::Impossible {
        return Support::untested("accepted, but its effect cannot be seen");
    }
    if wait_until(DROP_PATIENCE, || counting.is_empty(fd, offset, len)) {
        Support::Works
    } else {
        let after = counting.cached_pages(fd, offset, len);
        Support::ineffective(stayed(after, len.div_ceil(page_size())))
    }
}

/// Why dropping what an operation brings in cannot be told: pages are there
/// already, which it must leave.
fn pages_in_the_way(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: u64,
    counting: Counting,
) -> Option<Support> {
    match counting.cached_pages(fd, offset, len) {
        Some(0) | None => None,
        // Whether it is refused can be told all the same, by reading nothing
        // that is not there.
        Some(_) => Some(match read_uncached(fd, offset, len.min(page_size())) {
            Ok(()) => Support::untested("the file's pages cannot be dropped first"),
            Err(error) => Support::missing(&error),
        }),
    }
}

fn read_uncached(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let mut buf = vec![0; usize::try_from(len).map_err(|_| Errno::OVERFLOW)?];
    let bufs = &mut [IoSliceMut::new(&mut buf)];
    preadv2(fd, bufs, Some(offset), IoFlags::DONTCACHE)?;
    Ok(())
}

/// To be called while the range is not cached.
fn dontcache_read(fd: BorrowedFd<'_>, offset: u64, len: u64, counting: Counting) -> Support {
    if let Some(left) = pages_in_the_way(fd, offset, len, counting) {
        return left;
    }
    match read_uncached(fd, offset, len) {
        Ok(()) => went(fd, offset, len, counting),
        Err(error) => Support::missing(&error),
    }
}

fn fiemap(fd: BorrowedFd<'_>) -> Support {
    match extents(fd) {
        Ok(extents) if extents.is_empty() => Support::ineffective("tells of no extents"),
        Ok(_) => Support::Works,
        Err(error) => Support::missing(&error),
    }
}

/// What direct I/O of this file must be aligned to, in bytes.
fn direct_io_bytes(alignment: Option<(u32, u32)>, kind: FileKind, fd: BorrowedFd<'_>) -> usize {
    let told = alignment.map(|(memory, offset)| memory.max(offset));
    let sector = match kind {
        FileKind::Block => logical_sector_bytes(fd).ok(),
        FileKind::Regular | FileKind::Other => None,
    };
    let page = page_size() as usize;
    told.or(sector)
        .map_or(page, |bytes| (bytes as usize).max(page))
}

/// Reads past the page cache, through a description of its own where that can
/// be had, so that the flag is on for nobody else.
fn direct_io(fd: BorrowedFd<'_>, alignment: usize) -> Support {
    let link = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let direct = match rustix::fs::openat(CWD, link, flags, Mode::empty()) {
        Ok(direct) => direct,
        Err(Errno::NOENT) => return Support::untested("needs /proc"),
        Err(errno) => return Support::missing(&errno.into()),
    };
    let mut memory = vec![0; 2 * alignment];
    let start = memory.as_ptr().align_offset(alignment);
    let Some(buf) = memory.get_mut(start..start + alignment) else {
        return Support::untested("no aligned memory");
    };
    Support::of(pread(direct.as_fd(), buf, 0).map(drop))
}

fn own_description(fd: BorrowedFd<'_>, id: FileId) -> Support {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    match reopen(thread, fd.as_raw_fd(), id) {
        Ok((_, Sharing::Own)) => Support::Works,
        Ok((_, Sharing::Shared)) => {
            Support::ineffective("only a copy of the program's own description")
        }
        Err(error) => Support::missing(&error),
    }
}

/// Runs something in a thread that ends with it.
fn in_a_thread(run: impl FnOnce() -> Support + Send) -> Support {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .spawn_scoped(scope, run)
            .map_or_else(
                |error| Support::untested(format!("no thread: {error}")),
                |thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Support::untested("the thread panicked"))
                },
            )
    })
}

fn descriptor_table(open_here: BorrowedFd<'_>) -> Support {
    let fd = open_here.as_raw_fd();
    in_a_thread(move || {
        if let Err(error) = unshare_descriptor_table() {
            return Support::missing(&error);
        }
        // SAFETY: only asked whether it is open; the number is not taken for
        // more than that.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        if fd > 2 && flags >= 0 {
            Support::ineffective("the program's descriptors are still open there")
        } else {
            Support::Works
        }
    })
}

fn io_priority() -> Support {
    in_a_thread(|| Support::of(set_thread_io_priority(IoPriority::Idle)))
}

/// A range of the file of which nothing is cached, so that trying things on it
/// takes nothing from anybody.
fn untouched_range(fd: BorrowedFd<'_>, counting: Counting) -> Option<(u64, u64)> {
    let len = SCRATCH_PAGES * page_size();
    let size = size_bytes(fd).ok()?;
    let step = (size / 64).max(len).next_multiple_of(page_size());
    (0..64)
        .map(|index| index * step)
        .take_while(|offset| offset + len <= size)
        .find(|&offset| counting.is_empty(fd, offset, len))
        .map(|offset| (offset, len))
}

/// Tries what takes no writing, on the file itself.
fn probe_by_reading(path: &Path, why_not_written: &str) -> io::Result<Probe> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
    let fd = file.as_fd();
    let info = file_info(fd)?;
    let not_written = || Support::untested(why_not_written);
    let mut found = Probe {
        kernel: kernel_version(),
        filesystem: filesystem(fd)?,
        disk: disk_of(fd)?,
        cachestat: not_written(),
        mincore: not_written(),
        sync_file_range: not_written(),
        fadvise_dontneed: not_written(),
        dontcache_write: not_written(),
        dontcache_overwrite: not_written(),
        dontcache_read: not_written(),
        fiemap: not_written(),
        direct_io: not_written(),
        own_description: own_description(fd, info.id),
        descriptor_table: descriptor_table(fd),
        io_priority: io_priority(),
    };
    if info.kind == FileKind::Other {
        return Ok(found);
    }
    if info.size_bytes == 0 {
        found.cachestat = Support::untested("the file is empty");
        found.mincore = found.cachestat.clone();
        found.fadvise_dontneed = found.cachestat.clone();
        found.dontcache_read = found.cachestat.clone();
        found.fiemap = found.cachestat.clone();
        found.direct_io = found.cachestat.clone();
        return Ok(found);
    }
    found.fiemap = fiemap(fd);
    let alignment = direct_io_bytes(info.direct_io_alignment, info.kind, fd);
    found.direct_io = direct_io(fd, alignment);

    let counted = |result: io::Result<u64>, what: &str| match result {
        Ok(0) => Support::ineffective(format!("{what} nothing of what was just read")),
        Ok(_) => Support::Works,
        Err(error) => Support::missing(&error),
    };
    let counting = if cachestat(fd, 0, 1).is_ok() {
        Counting::Cachestat
    } else if resident_ranges(fd, 0, 1).is_ok() {
        Counting::Mincore
    } else {
        Counting::Impossible
    };
    let untouched = untouched_range(fd, counting);
    let (offset, len) = untouched.unwrap_or((0, SCRATCH_PAGES * page_size()));
    if untouched.is_some() {
        found.dontcache_read = dontcache_read(fd, offset, len, counting);
    } else {
        found.dontcache_read = Support::untested("no range is free of others' pages");
    }
    let mut buf = vec![0; usize::try_from(len).map_err(|_| Errno::OVERFLOW)?];
    pread(fd, &mut buf, offset)?;
    found.cachestat = counted(
        cachestat(fd, offset, len).map(|stat| stat.cached_pages),
        "counts",
    );
    found.mincore = counted(
        resident_ranges(fd, offset, len).map(|ranges| ranges.len() as u64),
        "sees",
    );
    // What others brought in is not dropped for trying.
    found.fadvise_dontneed = if untouched.is_none() {
        Support::untested("no range is free of others' pages")
    } else {
        match drop_clean(fd, offset, len) {
            Ok(()) => went(fd, offset, len, counting),
            Err(error) => Support::missing(&error),
        }
    };
    Ok(found)
}
