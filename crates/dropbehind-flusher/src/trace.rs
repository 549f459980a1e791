//! What was written back and dropped, when and why: for a sink of the program's, and as probes
//! for tracers.
//!
//! Nothing of this happens on the write path: all records come from the flusher's threads, and
//! from readers that drop by themselves.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use dropbehind_linux::{FileId, file_stat, monotonic_ns, probe_drop, probe_writeback};
use dropbehind_policy::{ByteRange, Reason};

/// What was done with a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Its writeback was started.
    Writeback(Reason),
    /// It was dropped from the cache.
    Drop(DropReason),
}

/// Why a range was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It was clean, and its writers or readers were done with it.
    Done,
    /// A reader had read it, and the flusher was behind.
    Reader,
    /// The program asked for it (`drop_behind`).
    Asked,
}

impl DropReason {
    /// The name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Done => "done",
            DropReason::Reader => "reader",
            DropReason::Asked => "asked",
        }
    }
}

/// One call that started writeback, or dropped pages.
#[derive(Clone, Debug)]
pub struct Record {
    /// When the call began: nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// How long it took, counting of pages included.
    pub took_ns: u64,
    /// What was done.
    pub deed: Deed,
    /// The file.
    pub file: Arc<TracedFile>,
    /// The range.
    pub range: ByteRange,
    /// Bytes of the range that were to be written, or that left the cache: a range may have
    /// gaps, and pages that stay. 0 for writeback that the program asked for itself
    /// (`start_writeback`), since nobody counted.
    pub bytes: u64,
}

/// A file in records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedFile {
    /// Its device and inode.
    pub id: FileId,
    /// Its path when it was first traced, if it had one that we can see.
    pub path: Option<PathBuf>,
}

impl TracedFile {
    fn of(fd: BorrowedFd<'_>) -> TracedFile {
        let id = file_stat(fd).map(|stat| stat.id);
        TracedFile {
            id: id.unwrap_or(FileId {
                device: 0,
                inode: 0,
            }),
            path: SINK.get().and_then(|_| {
                std::fs::read_link(format!("/proc/thread-self/fd/{}", fd.as_raw_fd())).ok()
            }),
        }
    }
}

type Sink = Box<dyn Fn(Record) + Send + Sync>;

static SINK: OnceLock<Sink> = OnceLock::new();

/// Has all records of this process given to `sink` from now on. It is called by threads that
/// write back, so it must not wait. Returns false if there is a sink already.
pub fn trace_to(sink: impl Fn(Record) + Send + Sync + 'static) -> bool {
    SINK.set(Box::new(sink)).is_ok()
}

/// A file's name in records, found when first needed.
#[derive(Debug, Default)]
pub struct Label(OnceLock<Arc<TracedFile>>);

impl Label {
    /// The name of the file with this number, which saves asking for that.
    pub fn known(id: FileId) -> Label {
        let label = Label::default();
        // A sink wants its path, too.
        if SINK.get().is_none() {
            let _ = label.0.set(Arc::new(TracedFile { id, path: None }));
        }
        label
    }

    fn get(&self, fd: BorrowedFd<'_>) -> Arc<TracedFile> {
        Arc::clone(self.0.get_or_init(|| Arc::new(TracedFile::of(fd))))
    }
}

/// A call that is about to be made.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    at_ns: u64,
}

impl Begun {
    /// The time, if anybody wants to know.
    pub fn now() -> Begun {
        Begun {
            at_ns: SINK.get().map_or(0, |_| monotonic_ns()),
        }
    }

    /// The call has been made.
    pub fn made(self, deed: Deed, label: &Label, fd: BorrowedFd<'_>, range: ByteRange, bytes: u64) {
        let (start, length) = (range.start, range.len());
        // For a file that is traced already, this is a load. Another one is asked for its
        // number, once.
        let file = label.get(fd);
        match deed {
            Deed::Writeback(reason) => {
                probe_writeback(file.id, start, length, bytes, reason as u64);
            }
            Deed::Drop(reason) => probe_drop(file.id, start, length, bytes, reason as u64),
        }
        if let Some(sink) = SINK.get() {
            let now_ns = monotonic_ns();
            // 0 if the sink came during the call.
            let at_ns = if self.at_ns == 0 { now_ns } else { self.at_ns };
            sink(Record {
                at_ns,
                took_ns: now_ns - at_ns,
                deed,
                file,
                range,
                bytes,
            });
        }
    }
}

impl Record {
    /// The file's path, if it is known.
    pub fn path(&self) -> Option<&Path> {
        self.file.path.as_deref()
    }
}
