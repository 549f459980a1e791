//! What is shown of disks and files.

use super::header::time;
use super::table::{Column, Fill};
use crate::error::shown;
use crate::size::show;
use dropbehind_observer::snapshot::{DiskSnapshot, FileSnapshot};
use std::path::Path;

/// A disk, with its speed since the last sample.
pub(super) struct DiskRow<'a> {
    pub(super) disk: &'a DiskSnapshot,
    pub(super) speed: Option<u64>,
}

/// A file, with its speed since the last sample.
pub(super) struct FileRow<'a> {
    pub(super) file: &'a FileSnapshot,
    pub(super) speed: Option<u64>,
}

/// As wide as the widest size and speed: `1023 MiB/s`.
const SIZE: usize = 8;
const SPEED: usize = 10;

fn speed(bytes_per_second: Option<u64>) -> String {
    match bytes_per_second {
        Some(0) => "0".to_owned(),
        Some(bytes) => format!("{}/s", show(bytes)),
        None => "-".to_owned(),
    }
}

/// A zero is easier to skip as `0` than as `0 B`.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        bytes => show(bytes),
    }
}

fn text(text: &str) -> String {
    shown(Path::new(text))
}

const fn number<R>(
    title: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&R) -> String,
) -> Column<R> {
    Column {
        title,
        width,
        fill: Fill::Right,
        rank,
        cell,
    }
}

const fn words<R>(
    title: &'static str,
    width: usize,
    fill: Fill,
    rank: u8,
    cell: fn(&R) -> String,
) -> Column<R> {
    Column {
        title,
        width,
        fill,
        rank,
        cell,
    }
}

/// The columns of the disks.
pub(super) const fn disks<'a>() -> [Column<DiskRow<'a>>; 14] {
    [
        words("DISK", 10, Fill::Left, 0, |row| text(&row.disk.name)),
        number("FILES", 6, 7, |row| row.disk.files.to_string()),
        number("SPEED", SPEED, 4, |row| speed(row.speed)),
        number("WRITTEN", SIZE, 1, |row| size(row.disk.written_bytes)),
        number("READ", SIZE, 8, |row| size(row.disk.read_bytes)),
        number("DIRTY", SIZE, 3, |row| size(row.disk.dirty_bytes)),
        number("WRITEBACK", 9, 6, |row| size(row.disk.writeback_bytes)),
        number("CACHED", SIZE, 2, |row| size(row.disk.cached_bytes)),
        number("DROPPED", SIZE, 5, |row| size(row.disk.dropped_bytes)),
        number("KEPT", SIZE, 9, |row| size(row.disk.kept_bytes)),
        number("LEFT", SIZE, 10, |row| size(row.disk.left_bytes)),
        number("WINDOW", SIZE, 11, |row| size(row.disk.window_bytes)),
        number("WRITES AT", SPEED, 12, |row| {
            match row.disk.writeback_bytes_per_second {
                0 => "-".to_owned(),
                known => speed(Some(known)),
            }
        }),
        number("YIELDED", 8, 13, |row| time(row.disk.yielded_ns)),
    ]
}

/// The columns of the files.
pub(super) const fn files<'a>() -> [Column<FileRow<'a>>; 13] {
    [
        number("SPEED", SPEED, 4, |row| speed(row.speed)),
        number("WRITTEN", SIZE, 1, |row| size(row.file.written_bytes)),
        number("READ", SIZE, 9, |row| size(row.file.read_bytes)),
        number("DIRTY", SIZE, 3, |row| size(row.file.dirty_bytes)),
        number("WRITEBACK", 9, 7, |row| size(row.file.writeback_bytes)),
        number("CACHED", SIZE, 2, |row| size(row.file.cached_bytes)),
        number("DROPPED", SIZE, 5, |row| size(row.file.dropped_bytes)),
        number("KEPT", SIZE, 8, |row| size(row.file.kept_bytes)),
        number("WAITS", 6, 10, |row| row.file.waits.to_string()),
        words("DISK", 8, Fill::Left, 12, |row| text(&row.file.disk)),
        words("MODE", 16, Fill::Left, 11, |row| text(&row.file.mode)),
        words("STATE", 20, Fill::Left, 6, |row| text(&row.file.state)),
        words("FILE", 12, Fill::Rest, 0, |row| shown(&row.file.path)),
    ]
}
