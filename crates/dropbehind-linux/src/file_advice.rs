//! Advice that programs give on their files: the tracepoint `syscalls:sys_enter_fadvise64`,
//! through perf_event_open(2).
//!
//! posix_fadvise(2) leaves no trace that could be read later: the kernel keeps it in the open
//! file, and shows it nowhere. Only advice on how a whole file is used is recorded, not what
//! brings in or drops ranges of it.
//!
//! The kernel has a tracepoint for each system call only if it was built with
//! `CONFIG_FTRACE_SYSCALLS`. 32-bit programs of a 64-bit kernel do not pass this one. While it is
//! recorded, the kernel checks at each call of any program whether that one is to be recorded.

use crate::cache_trace::event::Recorded;
use crate::cache_trace::format::Field;
use crate::cache_trace::ring::Rings;
use crate::cache_trace::{CacheTraceError, records, tracefs};

const TRACEPOINT: &str = "syscalls/sys_enter_fadvise64";
/// Only this is recorded. The constants are the same on all architectures but s390, which has
/// another number for `POSIX_FADV_NOREUSE`.
const FILTER: &std::ffi::CStr = c"advice == 0 || advice == 1 || advice == 2 || advice == 5";

/// How a program says that it uses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// As any other (`POSIX_FADV_NORMAL`).
    Normal,
    /// At random places (`POSIX_FADV_RANDOM`).
    Random,
    /// From the start to the end (`POSIX_FADV_SEQUENTIAL`).
    Sequential,
    /// Once (`POSIX_FADV_NOREUSE`).
    Once,
}

/// Advice that a program gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAdvice {
    /// The process.
    pub process: i32,
    /// Its descriptor, which may lead to another file by now.
    pub descriptor: i32,
    /// What it said. The kernel has yet to accept it.
    pub usage: Usage,
}

/// A record of advice on the whole machine.
#[derive(Debug)]
pub struct FileAdviceTrace {
    rings: Rings,
    descriptor: Field,
    advice: Field,
}

impl FileAdviceTrace {
    /// Starts recording. Each online processor gets a ring of one page, for some forty records;
    /// what does not fit is lost without a word.
    ///
    /// # Errors
    ///
    /// Those of [`CacheTrace::open`](crate::CacheTrace::open), except
    /// [`CacheTraceError::NoOrder`].
    pub fn open() -> Result<Self, CacheTraceError> {
        let (tracepoint, text) = tracefs::tracepoint(TRACEPOINT)?;
        let (descriptor, advice) = (Field::find(&text, "fd")?, Field::find(&text, "advice")?);
        let rings = Rings::of_all_processors(Recorded::Tracepoint(tracepoint), 0)?;
        let filtered = rings.filter(FILTER);
        filtered.map_err(|error| CacheTraceError::Other("filter of an event", error))?;
        rings.enable()?;
        Ok(Self {
            rings,
            descriptor,
            advice,
        })
    }

    /// Takes what was said since the last call; in order for each processor.
    pub fn read(&mut self) -> Vec<FileAdvice> {
        let mut said = Vec::new();
        self.rings.drain(|record| {
            if let Some((process, raw)) = records::sampled_of(record)
                && let Some(descriptor) = self.descriptor.read(raw)
                && let Ok(descriptor) = i32::try_from(descriptor)
                && let Some(usage) = self.advice.read(raw).and_then(usage)
            {
                said.push(FileAdvice {
                    process,
                    descriptor,
                    usage,
                });
            }
        });
        said
    }
}

fn usage(advice: u64) -> Option<Usage> {
    Some(match i32::try_from(advice).ok()? {
        libc::POSIX_FADV_NORMAL => Usage::Normal,
        libc::POSIX_FADV_RANDOM => Usage::Random,
        libc::POSIX_FADV_SEQUENTIAL => Usage::Sequential,
        libc::POSIX_FADV_NOREUSE => Usage::Once,
        _ => return None,
    })
}
