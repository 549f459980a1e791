//! What of a file is in the page cache.
//!
//! Three witnesses that know nothing of each other: the cachestat system call
//! made by another process ([`cached`]), the mincore system call
//! ([`resident_map`]) and util-linux's `fincore`. Page cache belongs to the
//! inode, so any process's answer is everyone's.

mod cachestat;
mod mincore;
mod sampler;
mod warmth;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;

use crate::command::{output_of, tool};
use crate::context::Context;
use crate::helper_process::{self, Role};

pub use cachestat::Counts;
pub use mincore::{resident_map, resident_map_of};
pub use sampler::{Peaks, Sampler};
pub use warmth::{evict, warm};

pub(crate) use cachestat::missing;

/// Counts the cached, dirty and writeback pages of a file or block device.
/// A process of its own does the counting, and opens the file anew.
///
/// A block device that nobody else has open loses its cache before the
/// witness can open it.
pub fn cached(path: &Path) -> io::Result<Counts> {
    cached_range(path, 0..u64::MAX)
}

/// Like [`cached`], for the pages that a range of bytes touches.
pub fn cached_range(path: &Path, range: Range<u64>) -> io::Result<Counts> {
    let said = output_of(
        helper_process::command(Role::CachestatWitness)
            .arg(path)
            .arg(range.start.to_string())
            .arg((range.end - range.start).to_string()),
    )?;
    said.parse()
}

/// Counts the pages of an open file in this process, at the cost of one
/// system call, which neither waits nor touches the file's error state.
pub fn sample(file: impl AsFd) -> io::Result<Counts> {
    cachestat::count(file.as_fd(), 0..u64::MAX)
}

/// The resident pages of a regular file, as util-linux's `fincore` counts
/// them. It takes block devices for empty.
pub fn fincore(path: &Path) -> io::Result<u64> {
    let said = output_of(
        tool("fincore")
            .args(["--raw", "--noheadings", "--output", "PAGES"])
            .arg(path),
    )?;
    said.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("fincore said {said:?}")))
}

/// The page size in bytes.
pub fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// The program `cachestat-witness FILE [OFFSET LENGTH]`: prints the cached,
/// dirty, writeback and recently evicted pages. Returns the exit code.
pub fn witness_main(arguments: &[OsString]) -> i32 {
    match testimony(arguments) {
        Ok(counts) => {
            println!("{counts}");
            0
        }
        Err(error) => {
            eprintln!("cachestat-witness: {error}");
            1
        }
    }
}

fn testimony(arguments: &[OsString]) -> io::Result<Counts> {
    let number = |argument: &OsString| {
        argument
            .to_str()
            .and_then(|text| text.parse::<u64>().ok())
            .ok_or_else(|| io::Error::other(format!("{} is no number", argument.to_string_lossy())))
    };
    let (path, range) = match arguments {
        [path] => (path, 0..u64::MAX),
        [path, offset, length] => {
            let offset = number(offset)?;
            (path, offset..offset.saturating_add(number(length)?))
        }
        _ => {
            return Err(io::Error::other(
                "usage: cachestat-witness FILE [OFFSET LENGTH]",
            ));
        }
    };
    let file = File::open(path).context(|| Path::new(path).display().to_string())?;
    cachestat::count(file.as_fd(), range)
}
