//! `dropbehind drop`: clean pages out of the page cache.

use super::stat::open;
use super::{print, report};
use crate::error::{Doing, Exit, Failure, shown};
use crate::size::show;
use clap::Args;
use dropbehind_linux::{CacheStat, cachestat, drop_clean, page_size};
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
    let count =
        || cachestat(file.as_fd(), 0, 0).map_err(|error| Failure::io(Doing::Count, path, &error));
    // Counted first: a user who may not count pages must not cause writing either.
    let before = count()?;
    if sync && !before.is_clean() {
        file.sync_data()
            .map_err(|error| Failure::io(Doing::Sync, path, &error))?;
    }
    let mut after = before;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
        for range in clean_ranges(&file).map_err(|error| Failure::io(Doing::Count, path, &error))? {
            drop_clean(file.as_fd(), range.start, range.end - range.start)
                .map_err(|error| Failure::io(Doing::Drop, path, &error))?;
        }
        after = count()?;
        if after.clean_pages() == 0 {
            break;
        }
    }
    Ok(outcome(path, before, after, sync))
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
        let state = cachestat(file.as_fd(), range.start, len)?;
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
fn outcome(path: &Path, before: CacheStat, after: CacheStat, sync: bool) -> String {
    let bytes = |pages: u64| show(pages * page_size());
    let dropped = before.cached_pages.saturating_sub(after.cached_pages);
    let mut line = format!("{}: dropped {}", shown(path), bytes(dropped));
    let mut reasons = Vec::new();
    if after.dirty_pages > 0 {
        let hint = if sync {
            "written meanwhile"
        } else {
            "--sync writes them first"
        };
        reasons.push(format!("{} dirty ({hint})", bytes(after.dirty_pages)));
    }
    if after.writeback_pages > 0 {
        reasons.push(format!("{} under writeback", bytes(after.writeback_pages)));
    }
    if after.clean_pages() > 0 {
        reasons.push(format!("{} mapped or in use", bytes(after.clean_pages())));
    }
    if !reasons.is_empty() {
        line += &format!(
            "; {} stayed: {}",
            bytes(after.cached_pages),
            reasons.join(", ")
        );
    }
    line + "\n"
}
