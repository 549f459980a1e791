//! What is shown of disks and files.

use super::header::time;
use super::history::SAMPLES;
use super::table::{Column, Fill, cut};
use crate::error::shown;
use crate::size::show;
use dropbehind_observer::snapshot::{DiskSnapshot, FileSnapshot};
use std::path::Path;
use unicode_width::UnicodeWidthStr;

/// A disk, with its speed since the last sample.
pub(super) struct DiskRow<'a> {
    pub(super) disk: &'a DiskSnapshot,
    pub(super) speed: Option<u64>,
}

/// A file, with its speed since the last sample.
pub(super) struct FileRow<'a> {
    pub(super) file: &'a FileSnapshot,
    pub(super) history: String,
    pub(super) speed: Option<u64>,
}

/// As wide as the widest size and speed: `1023 MiB/s`.
const SIZE: usize = 8;
const SPEED: usize = 10;
/// A process's number, and most of its program's name.
const WHO: usize = 18;

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

/// `4711 rsync +2`: a writer of the file if one is known, and how many others use it. Only the name
/// is cut.
fn who(file: &FileSnapshot) -> String {
    let Some((first, others)) = file.users.split_first() else {
        return "-".to_owned();
    };
    let process = format!("{} ", first.process);
    let more = match others.len() {
        0 => String::new(),
        count => format!(" +{count}"),
    };
    let room = WHO.saturating_sub(process.width() + more.width());
    process + &cut(&text(&first.program), room, Fill::Left) + &more
}

/// What gave the mode.
fn rule(file: &FileSnapshot) -> String {
    match file.advised {
        true => "advice".to_owned(),
        false => text(&file.rule),
    }
}

/// The unit of the first of these users.
fn unit(file: &FileSnapshot) -> String {
    text(file.users.first().map_or("", |user| &user.unit))
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
pub(super) const fn files<'a>() -> [Column<FileRow<'a>>; 18] {
    [
        number("SPEED", SPEED, 2, |row| speed(row.speed)),
        words("HISTORY", SAMPLES, Fill::Left, 4, |row| row.history.clone()),
        number("WRITTEN", SIZE, 1, |row| size(row.file.written_bytes)),
        number("READ", SIZE, 10, |row| size(row.file.read_bytes)),
        number("DIRTY", SIZE, 6, |row| size(row.file.dirty_bytes)),
        number("WRITEBACK", 9, 9, |row| size(row.file.writeback_bytes)),
        number("CACHED", SIZE, 5, |row| size(row.file.cached_bytes)),
        number("DROPPED", SIZE, 7, |row| size(row.file.dropped_bytes)),
        number("KEPT", SIZE, 11, |row| size(row.file.kept_bytes)),
        number("WAITS", 6, 12, |row| row.file.waits.to_string()),
        number("WINDOW", SIZE, 15, |row| size(row.file.window_bytes)),
        words("DISK", 8, Fill::Left, 16, |row| text(&row.file.disk)),
        words("MODE", 16, Fill::Left, 14, |row| text(&row.file.mode)),
        words("RULE", 10, Fill::Left, 13, |row| rule(row.file)),
        words("STATE", 6, Fill::Left, 17, |row| text(&row.file.state)),
        words("UNIT", 20, Fill::Left, 8, |row| unit(row.file)),
        words("WHO", WHO, Fill::Left, 3, |row| who(row.file)),
        words("FILE", 20, Fill::Rest, 0, |row| shown(&row.file.path)),
    ]
}

/// What becomes of a file, and why, as sentences.
pub(super) fn reason(file: &FileSnapshot) -> String {
    let rule = match file.rule.as_str() {
        "" if file.mode == "buffered" => "since no rule applies any more".to_owned(),
        "" => "as the run has it".to_owned(),
        "others" => "as for all that no rule matches".to_owned(),
        rule => format!("by rule {}", text(rule)),
    };
    let window = match file.window_bytes {
        0 => String::new(),
        bytes => format!(", window {}", show(bytes)),
    };
    let users = file.users.iter().map(|user| {
        let unit = match user.unit.as_str() {
            "" => String::new(),
            unit => format!(" of {}", text(unit)),
        };
        let writes = match user.writes {
            Some(true) => ", which writes",
            Some(false) => ", which reads",
            None => "",
        };
        let rule = match user.rule.as_str() {
            rule if rule == file.rule => String::new(),
            "" => String::new(),
            "others" => ", which no rule matches".to_owned(),
            rule => format!(", by rule {}", text(rule)),
        };
        let program = text(&user.program);
        format!("{} {program}{unit}{writes}{rule}", user.process)
    });
    let users: Vec<String> = users.collect();
    let users = match users.is_empty() {
        true => "not known".to_owned(),
        false => users.join("; "),
    };
    format!(
        "{}: {}. Mode {}, {rule}{window}. Used by: {users}.",
        shown(&file.path),
        text(&file.reason),
        text(&file.mode),
    )
}
