//! `dropbehind drop`: clean pages out of the page cache.

use super::stat::open;
use super::{print, report};
use crate::error::{Doing, Exit, Failure, shown};
use crate::size::show;
use clap::Args;
use dropbehind_linux::{FsKind, cached_pages, count_own_pages, drop_clean, filesystem, page_size};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Pages that were just read are still on some CPU's list. A drop drains these lists, and the
/// next attempt finds the pages free.
const ATTEMPTS: u32 = 3;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(5);

#[derive(Debug, Args)]
pub(super) struct DropArgs {
    /// The files or block devices
    #[arg(value_name = "FILE", required = true, value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Bring dirty pages to the disk first (fsync), so that they can be dropped, too; without it,
    /// nothing is written
    #[arg(long)]
    sync: bool,
    /// Show errors only
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &DropArgs) -> Exit {
    let mut exit = Exit::Done;
    for path in &args.files {
        match drop_pages(path, args.sync) {
            Ok(line) if !args.quiet => exit = exit.and(print(line.as_bytes())),
            Ok(_) => {}
            Err(failure) => exit = exit.and(report(&failure)),
        }
    }
    exit
}

fn drop_pages(path: &Path, sync: bool) -> Result<String, Failure> {
    let file = open(path)?;
    let count = || counted(&file).map_err(|error| Failure::io(Doing::Count, path, &error));
    // Counted first: a user who may not count pages must not cause writing either.
    let before = count()?;
    if matches!(filesystem(file.as_fd()), Ok(FsKind::Tmpfs)) {
        return Ok(format!(
            "{}: dropped 0 B; {} stayed: tmpfs has no disk to read them from again\n",
            shown(path),
            show(before.cached_bytes)
        ));
    }
    if sync && before.unwritten != Some(Unwritten::default()) {
        file.sync_data()
            .map_err(|error| Failure::io(Doing::Sync, path, &error))?;
    }
    let mut after = before;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
        let clean = match before.unwritten {
            Some(_) => clean_ranges(&file),
            None => Ok(std::iter::once(0..u64::MAX >> 1).collect()),
        };
        for range in clean.map_err(|error| Failure::io(Doing::Count, path, &error))? {
            drop_clean(file.as_fd(), range.start, range.end - range.start)
                .map_err(|error| Failure::io(Doing::Drop, path, &error))?;
        }
        after = count()?;
        if after.clean_bytes() == 0 {
            break;
        }
    }
    Ok(outcome(path, before, after, sync))
}

/// What is cached of a file.
#[derive(Clone, Copy)]
struct Counts {
    cached_bytes: u64,
    /// `None` where it cannot be told: then a drop starts writing what is dirty.
    unwritten: Option<Unwritten>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Unwritten {
    dirty_bytes: u64,
    writeback_bytes: u64,
}

impl Counts {
    fn clean_bytes(&self) -> u64 {
        let unwritten = self.unwritten.unwrap_or_default();
        let unwritten_bytes = unwritten.dirty_bytes + unwritten.writeback_bytes;
        self.cached_bytes.saturating_sub(unwritten_bytes)
    }
}

fn counted(file: &File) -> io::Result<Counts> {
    let bytes = |pages: u64| pages * page_size();
    match count_own_pages(file.as_fd(), 0, 0) {
        Ok(pages) => Ok(Counts {
            cached_bytes: bytes(pages.cached_pages),
            unwritten: Some(Unwritten {
                dirty_bytes: bytes(pages.dirty_pages),
                writeback_bytes: bytes(pages.writeback_pages),
            }),
        }),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSYS) => Ok(Counts {
            cached_bytes: bytes(cached_pages(file.as_fd(), 0, 0)?),
            unwritten: None,
        }),
        Err(error) => Err(error),
    }
}

/// The largest ranges of cached pages of which none is dirty or under writeback. A drop skips
/// folios that reach out of its range, and starts writing what is dirty in it.
fn clean_ranges(file: &File) -> io::Result<Vec<Range<u64>>> {
    let size = dropbehind_linux::size_bytes(file.as_fd())?;
    let mut found: Vec<Range<u64>> = Vec::new();
    // Ranges that are only partly clean are halved, the first half on top of the stack.
    let whole = 0..size.next_multiple_of(page_size());
    let mut ahead = vec![whole];
    while let Some(range) = ahead.pop() {
        let len = range.end - range.start;
        if len == 0 {
            continue;
        }
        let state = count_own_pages(file.as_fd(), range.start, len)?;
        if state.is_clean() {
            match found.last_mut() {
                // Uncached pages in between do not end a range.
                Some(last) if last.end == range.start => last.end = range.end,
                _ => found.push(range),
            }
        } else if state.clean_pages() > 0 && len > page_size() {
            let middle = range.start + (len / 2).next_multiple_of(page_size());
            ahead.push(middle..range.end);
            ahead.push(range.start..middle);
        }
    }
    Ok(found)
}

/// "dropped 1.0 GiB; 12 MiB stayed: 8.0 MiB dirty (--sync writes them first)".
fn outcome(path: &Path, before: Counts, after: Counts, sync: bool) -> String {
    let dropped_bytes = before.cached_bytes.saturating_sub(after.cached_bytes);
    let mut line = format!("{}: dropped {}", shown(path), show(dropped_bytes));
    let mut reasons = Vec::new();
    let clean_bytes = after.clean_bytes();
    match after.unwritten {
        Some(unwritten) => {
            if unwritten.dirty_bytes > 0 {
                let hint = if sync {
                    "written meanwhile"
                } else {
                    "--sync writes them first"
                };
                reasons.push(format!("{} dirty ({hint})", show(unwritten.dirty_bytes)));
            }
            if unwritten.writeback_bytes > 0 {
                let bytes = show(unwritten.writeback_bytes);
                reasons.push(format!("{bytes} under writeback"));
            }
            if clean_bytes > 0 {
                reasons.push(format!("{} mapped or in use", show(clean_bytes)));
            }
        }
        None if clean_bytes > 0 => {
            reasons.push("dirty, under writeback, mapped or in use".to_owned());
        }
        None => {}
    }
    if !reasons.is_empty() {
        line += &format!(
            "; {} stayed: {}",
            show(after.cached_bytes),
            reasons.join(", ")
        );
    }
    line + "\n"
}
