//! `cachestats [-q|-v] FILE`: how many of a file's pages are cached.
//!
//! Unlike the original, it says so if the kernel does not report a file's pages to this user;
//! the original calls every page cached.

use super::named_file::{call_failed, open};
use crate::error::shown;
use dropbehind_linux::{page_size, resident_ranges};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

/// Pages on a line of the map.
const ROW: usize = 32;

pub(super) fn run(name: &OsStr, args: &[OsString]) -> ExitCode {
    let option = args.first().and_then(|first| first.to_str());
    let (quiet, verbose) = (option == Some("-q"), option == Some("-v"));
    let Some(path) = args.get(usize::from(quiet || verbose)) else {
        let name = shown(Path::new(name));
        complain!("usage: {name} [-qv] <file> -- print out cache statistics");
        complain!("\t-v\tprint verbose cache map");
        complain!("\t-q\texit code tells if file is fully cached");
        return ExitCode::FAILURE;
    };
    let (file, size) = match open(path) {
        Ok(opened) => opened,
        Err(code) => return code,
    };
    let pages = size.div_ceil(page_size());
    let counted = match verbose {
        true => map_of(&file, pages).map(|map| (count(&map), map)),
        false => cached_pages(&file, pages).map(|cached| (cached, Vec::new())),
    };
    let (cached, map) = match counted {
        Ok(counted) => counted,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => {
            complain!(
                "{}: the kernel shows its cached pages only to its owner, to who may write it, \
                 and to root",
                shown(Path::new(path))
            );
            return ExitCode::from(255);
        }
        Err(error) => return call_failed("mincore", &error),
    };
    // For an empty file, the original prints in any case.
    if quiet && pages > 0 {
        return ExitCode::from(u8::from(cached != pages));
    }
    print(&(summary(cached, pages, size) + &rows(&map)))
}

/// Counts only this many pages: beyond the end of the file, a large folio may have more.
fn cached_pages(file: &File, pages: u64) -> io::Result<u64> {
    if pages == 0 {
        return Ok(0);
    }
    dropbehind_linux::cached_pages(file.as_fd(), 0, pages * page_size())
}

fn map_of(file: &File, pages: u64) -> io::Result<Vec<bool>> {
    let mut map = vec![false; usize::try_from(pages).unwrap_or_default()];
    if map.is_empty() {
        return Ok(map);
    }
    for range in resident_ranges(file.as_fd(), 0, pages * page_size())? {
        let index = |offset: u64| usize::try_from(offset / page_size()).unwrap_or(usize::MAX);
        let end = index(range.end.next_multiple_of(page_size())).min(map.len());
        map[index(range.start).min(end)..end].fill(true);
    }
    Ok(map)
}

fn count(map: &[bool]) -> u64 {
    map.iter().map(|&cached| u64::from(cached)).sum()
}

fn summary(cached: u64, pages: u64, size: u64) -> String {
    // More digits than anybody reads.
    let percent = match pages {
        0 => 0.0,
        pages => 100.0 * cached as f64 / pages as f64,
    };
    format!(
        "pages in cache: {cached}/{pages} ({percent:.1}%)  [filesize={:.1}K, pagesize={}K]\n",
        size as f64 / 1024.0,
        page_size() / 1024
    )
}

fn rows(map: &[bool]) -> String {
    let mut text = String::new();
    if !map.is_empty() {
        text += "\ncache map:\n";
    }
    for (number, row) in map.chunks(ROW).enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:6}: |", number * ROW);
        for cached in row {
            text += if *cached { "x|" } else { " |" };
        }
        text += "\n";
    }
    text
}

fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => call_failed("write", &error),
    }
}
