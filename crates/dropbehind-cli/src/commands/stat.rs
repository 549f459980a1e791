//! `dropbehind stat`: what the page cache holds of files.

use super::named_files::{NamedFiles, uncounted};
use super::{json, note, print, report};
use crate::error::{Doing, Exit, Failure, shown};
use crate::input::is_cached_kind;
use crate::place::proc_path;
use crate::size;
use clap::Args;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

#[derive(Debug, Args)]
pub(super) struct StatArgs {
    #[command(flatten)]
    files: NamedFiles,
    /// Print a JSON array of objects instead of a table
    #[arg(long)]
    json: bool,
}

/// What is known of one file; the names are those of the JSON output.
#[derive(Debug, Serialize)]
struct FileState {
    path: String,
    size_bytes: u64,
    /// `None`, as all that follows, if we may not count the file's pages.
    cached_bytes: Option<u64>,
    /// `None` also where it cannot be told what is still to be written.
    dirty_bytes: Option<u64>,
    writeback_bytes: Option<u64>,
    /// Percent of the file's pages.
    cached_percent: Option<f64>,
    dirty_percent: Option<f64>,
    writeback_percent: Option<f64>,
    /// `None` if the file system has no extents to report.
    extents: Option<u64>,
}

pub(super) fn run(args: &StatArgs) -> Exit {
    let names = match args.files.names() {
        Ok(names) => names,
        Err(failure) => return report(&failure),
    };
    let mut exit = Exit::Done;
    let (mut states, mut blind) = (Vec::new(), Vec::new());
    for name in names {
        args.files.each(&name, |named| {
            let state = named.and_then(|(path, file)| {
                let state = look(&path, &file)?;
                blind.extend(state.cached_bytes.is_none().then_some(path));
                Ok(state)
            });
            match state {
                Ok(state) => states.push(state),
                Err(failure) => exit = exit.and(report(&failure)),
            }
        });
    }
    if let Some(sentence) = uncounted(&blind) {
        note(&sentence);
    }
    let text = if args.json {
        match json(serde_json::to_string_pretty(&states)) {
            Ok(text) => text,
            Err(failure) => return report(&failure),
        }
    } else {
        table(&states)
    };
    exit.and(print(text.as_bytes()))
}

/// Opens a file whose pages are to be counted or dropped.
pub(super) fn open(path: &Path) -> Result<File, Failure> {
    let failed = |error: io::Error| Failure::io(Doing::Open, path, &error);
    let path = if path == Path::new("-") {
        Path::new("/dev/stdin")
    } else {
        path
    };
    // Checked before opening, which would wait for a pipe's other end. Somebody may put a pipe in
    // the file's place between the two, so what was checked is opened, whatever its name.
    let pinned = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed(errno.into()))?;
    let pinned = File::from(pinned);
    let metadata = pinned.metadata().map_err(failed)?;
    if !is_cached_kind(&metadata) {
        let kind = if metadata.is_dir() {
            "it is a directory. Use -r for all files in it"
        } else {
            "it is neither a regular file nor a block device. Name one"
        };
        return Err(Failure::new(format!(
            "cannot look into the page cache for {}: {kind}.",
            shown(path)
        )));
    }
    File::open(proc_path(pinned.as_fd())).map_err(failed)
}

fn look(path: &Path, file: &File) -> Result<FileState, Failure> {
    let fd = file.as_fd();
    let failed = |error: io::Error| Failure::io(Doing::Count, path, &error);
    let size_bytes = dropbehind_linux::size_bytes(fd).map_err(failed)?;
    let cached_pages = match dropbehind_linux::cached_pages(fd, 0, 0) {
        Err(error) if error.raw_os_error() == Some(nix::libc::EPERM) => None,
        pages => Some(pages.map_err(failed)?),
    };
    // Without cachestat(2), what is under writeback counts as dirty.
    let unwritten = dropbehind_linux::count_own_pages(fd, 0, 0).ok();
    let dirty_pages = unwritten.map(|pages| pages.dirty_pages);
    let writeback_pages = unwritten.map(|pages| pages.writeback_pages);
    let extents = match dropbehind_linux::extent_count(fd) {
        Ok(count) => Some(count),
        Err(error) if dropbehind_linux::extents::is_unsupported(&error) => None,
        Err(error) => return Err(Failure::io(Doing::Open, path, &error)),
    };
    let page = dropbehind_linux::page_size();
    let percent = |some: u64| match size_bytes.div_ceil(page) {
        0 => 0.0,
        // Nobody reads more than tenths.
        all => (some as f64 * 1000.0 / all as f64).round() / 10.0,
    };
    Ok(FileState {
        path: path.to_string_lossy().into_owned(),
        size_bytes,
        cached_bytes: cached_pages.map(|pages| pages * page),
        dirty_bytes: dirty_pages.map(|pages| pages * page),
        writeback_bytes: writeback_pages.map(|pages| pages * page),
        cached_percent: cached_pages.map(percent),
        dirty_percent: dirty_pages.map(percent),
        writeback_percent: writeback_pages.map(percent),
        extents,
    })
}

/// One line a file, under a heading.
fn table(states: &[FileState]) -> String {
    if states.is_empty() {
        return String::new();
    }
    let heading = [
        "SIZE",
        "CACHED",
        "",
        "DIRTY",
        "",
        "WRITEBACK",
        "",
        "EXTENTS",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    for state in states {
        let unknown = || "-".to_owned();
        let bytes = |bytes: Option<u64>| bytes.map_or_else(unknown, size::show);
        let percent =
            |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.0}%"));
        rows.push([
            size::show(state.size_bytes),
            bytes(state.cached_bytes),
            percent(state.cached_percent),
            bytes(state.dirty_bytes),
            percent(state.dirty_percent),
            bytes(state.writeback_bytes),
            percent(state.writeback_percent),
            state
                .extents
                .map_or_else(unknown, |count| count.to_string()),
        ]);
    }
    let mut widths = [0; 8];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let paths = states.iter().map(|state| shown(Path::new(&state.path)));
    let names = std::iter::once("FILE".to_owned()).chain(paths);
    let mut text = String::new();
    for (row, name) in rows.iter().zip(names) {
        for (column, (width, cell)) in widths.iter().zip(row).enumerate() {
            // A percentage belongs to the size before it.
            let gap = if matches!(column, 2 | 4 | 6) {
                " "
            } else {
                "  "
            };
            let gap = if column == 0 { "" } else { gap };
            // Writing to a string cannot fail.
            let _ = write!(text, "{gap}{cell:>width$}");
        }
        let _ = writeln!(text, "  {name}");
    }
    text
}
