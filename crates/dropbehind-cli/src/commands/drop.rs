//! `dropbehind drop`: clean pages out of the page cache.

use super::named_files::{NamedFiles, uncounted};
use super::{note, print, report};
use crate::error::{Doing, Exit, Failure, shown};
use crate::progress::{answer, take_question};
use crate::size::show;
use clap::Args;
use dropbehind_linux::{
    Askable, FsKind, cached_pages, count_own_pages, drop_clean, filesystem, page_size,
    prepare_to_ask, writeback_error,
};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Pages that were just read are still on some CPU's list. A drop drains these lists, and the
/// next attempt finds the pages free.
const ATTEMPTS: u32 = 3;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(5);

#[derive(Debug, Args)]
pub(super) struct DropArgs {
    #[command(flatten)]
    files: NamedFiles,
    /// Bring dirty pages to the disk first (fsync), so that they can be dropped, too; without it,
    /// they stay
    #[arg(long)]
    sync: bool,
    /// Show errors only
    #[arg(short, long)]
    quiet: bool,
}

pub(super) fn run(args: &DropArgs) -> Exit {
    take_question();
    let so_far = Arc::new(SoFar::default());
    let asked = Arc::clone(&so_far);
    answer(move || complain!("dropbehind: {}", asked.line()));
    // It may wait for standard input.
    let names = match args.files.names() {
        Ok(names) => names,
        Err(failure) => return report(&failure),
    };
    let (mut exit, mut blind) = (Exit::Done, Vec::new());
    for name in names {
        let mut sum = Outcome::default();
        args.files.each(&name, |named| {
            let dropped = named.and_then(|(path, file)| {
                let dropped = drop_pages(&path, &file, args.sync)?;
                blind.extend(matches!(dropped, Dropped::Blind).then_some(path));
                Ok(dropped)
            });
            match dropped {
                Ok(dropped) => {
                    so_far.add(&dropped);
                    sum.add(&dropped);
                }
                Err(failure) => exit = exit.and(report(&failure)),
            }
        });
        if !args.quiet && sum.files + sum.blind > 0 {
            exit = exit.and(print(sum.line(&name, args.sync).as_bytes()));
        }
    }
    if let Some(sentence) = uncounted(&blind) {
        note(&sentence);
    }
    exit
}

/// What was done by now, of all names together.
#[derive(Debug, Default)]
struct SoFar {
    files: AtomicU64,
    dropped_bytes: AtomicU64,
}

impl SoFar {
    fn add(&self, dropped: &Dropped) {
        self.files.fetch_add(1, Relaxed);
        self.dropped_bytes.fetch_add(dropped.bytes(), Relaxed);
    }

    fn line(&self) -> String {
        let (files, bytes) = (&self.files, &self.dropped_bytes);
        format!(
            "dropped {} of {} files so far",
            show(bytes.load(Relaxed)),
            files.load(Relaxed)
        )
    }
}

/// What became of one file.
enum Dropped {
    /// What was cached before and after.
    Counted(Counts, Counts),
    /// We may not count its pages.
    Blind,
    /// There is no disk that its pages could be read from again.
    NoDisk(Counts),
}

impl Dropped {
    /// How much less is cached than before.
    fn bytes(&self) -> u64 {
        match self {
            Self::Counted(before, after) => before.cached_bytes.saturating_sub(after.cached_bytes),
            Self::Blind | Self::NoDisk(_) => 0,
        }
    }
}

fn drop_pages(path: &Path, file: &File, sync: bool) -> Result<Dropped, Failure> {
    let failed = |error: io::Error| Failure::io(Doing::Count, path, &error);
    let before = match counted(file) {
        // Its clean pages go all the same.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            if sync {
                synced(path, file)?;
            }
            ask(path, file, 0)?;
            drop_clean(file.as_fd(), 0, 0)
                .map_err(|error| Failure::io(Doing::Drop, path, &error))?;
            return Ok(Dropped::Blind);
        }
        before => before.map_err(failed)?,
    };
    if matches!(filesystem(file.as_fd()), Ok(FsKind::Tmpfs)) {
        return Ok(Dropped::NoDisk(before));
    }
    let count = || counted(file).map_err(failed);
    let clean_ranges = || match before.unwritten {
        Some(_) => clean_ranges(file).map_err(failed),
        None => Ok(std::iter::once(0..u64::MAX >> 1).collect()),
    };
    if sync {
        // Also where nothing is dirty: pages whose writeback failed look clean.
        synced(path, file)?;
    }
    let mut after = before;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
        let clean = clean_ranges()?;
        if let Some(first) = clean.first() {
            ask(path, file, first.start)?;
        }
        for range in clean {
            drop_clean(file.as_fd(), range.start, range.end - range.start)
                .map_err(|error| Failure::io(Doing::Drop, path, &error))?;
        }
        after = count()?;
        if after.clean_bytes() == 0 {
            break;
        }
    }
    Ok(Dropped::Counted(before, after))
}

fn synced(path: &Path, file: &File) -> Result<(), Failure> {
    match file.sync_data() {
        // A file system that is never written has no such call.
        Err(error) if Errno::from_io_error(&error) != Some(Errno::INVAL) => {
            Err(only_copy(path, &error))
        }
        _ => Ok(()),
    }
}

/// Finds out whether writing back the file failed. `at` is a page that was counted as clean before.
fn ask(path: &Path, file: &File, at: u64) -> Result<(), Failure> {
    if prepare_to_ask(file.as_fd()) != Askable::Yes {
        return Ok(());
    }
    match writeback_error(file.as_fd(), at) {
        Ok(None) => Ok(()),
        // The file ends before it.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::NXIO) => Ok(()),
        Ok(Some(error)) => Err(only_copy(path, &error)),
        Err(error) => Err(Failure::io(Doing::Drop, path, &error)),
    }
}

fn only_copy(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!(
        "{} stays cached: writing it back failed ({error}), so the disk may not have it. Copy it \
         to another disk before you drop it.",
        shown(path)
    ))
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

/// What became of the files that one name stands for.
#[derive(Debug, Default)]
struct Outcome {
    files: u64,
    dropped_bytes: u64,
    cached_bytes: u64,
    dirty_bytes: u64,
    writeback_bytes: u64,
    clean_bytes: u64,
    /// Stayed, and it cannot be told what is still to be written.
    unknown_bytes: u64,
    no_disk_bytes: u64,
    /// Files whose pages we may not count.
    blind: u64,
}

impl Outcome {
    fn add(&mut self, dropped: &Dropped) {
        let after = match dropped {
            Dropped::Blind => {
                self.blind += 1;
                return;
            }
            Dropped::NoDisk(counts) => {
                self.files += 1;
                self.cached_bytes += counts.cached_bytes;
                self.no_disk_bytes += counts.cached_bytes;
                return;
            }
            Dropped::Counted(_, after) => after,
        };
        self.files += 1;
        self.dropped_bytes += dropped.bytes();
        self.cached_bytes += after.cached_bytes;
        match after.unwritten {
            Some(unwritten) => {
                self.dirty_bytes += unwritten.dirty_bytes;
                self.writeback_bytes += unwritten.writeback_bytes;
                self.clean_bytes += after.clean_bytes();
            }
            None => self.unknown_bytes += after.cached_bytes,
        }
    }

    /// "dropped 1.0 GiB; 12 MiB stayed: 8.0 MiB dirty (--sync writes them first)".
    fn line(&self, path: &Path, sync: bool) -> String {
        if self.files == 0 {
            let name = shown(path);
            return format!("{name}: dropped its clean pages; how many is not known\n");
        }
        let mut line = format!("{}: dropped {}", shown(path), show(self.dropped_bytes));
        if self.files + self.blind > 1 {
            line += &format!(" of {} files", self.files);
        }
        let hint = match sync {
            true => "dirty (written meanwhile)",
            false => "dirty (--sync writes them first)",
        };
        let reasons: Vec<String> = [
            (self.dirty_bytes, hint),
            (self.writeback_bytes, "under writeback"),
            (self.clean_bytes, "mapped or in use"),
            (
                self.unknown_bytes,
                "dirty, under writeback, mapped or in use",
            ),
            (
                self.no_disk_bytes,
                "on tmpfs, which has no disk to read them from again",
            ),
        ]
        .into_iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, reason)| format!("{} {reason}", show(bytes)))
        .collect();
        if !reasons.is_empty() {
            line += &format!(
                "; {} stayed: {}",
                show(self.cached_bytes),
                reasons.join(", ")
            );
        }
        line + "\n"
    }
}
