//! Samples as text: lines of JSON, or one table.

use super::super::{json, print};
use super::choice;
use super::columns;
use super::header::{self, BETWEEN};
use super::table::{Column, fit};
use super::view::View;
use crate::error::{Exit, Failure, shown};
use crate::options::TopSettings;
use dropbehind_observer::snapshot::Snapshot;
use std::path::Path;

/// How wide the figures above the tables may be.
const WIDTH: usize = 100;

pub(super) fn run(settings: &TopSettings) -> Result<Exit, Failure> {
    let endpoint = choice::only(choice::candidates(settings.socket.as_deref())?)?;
    let mut samples = choice::connect(&endpoint, settings.interval)?.peekable();
    if samples.peek().is_none() {
        return Err(Failure::new(format!(
            "the observer at {} ended before it answered. Run the command again.",
            shown(&endpoint.path)
        )));
    }
    for sample in samples {
        let sample = sample.map_err(|error| choice::no_sample(&endpoint.path, &error))?;
        let text = if settings.json {
            json(serde_json::to_string(&sample))?
        } else {
            table(sample)
        };
        let exit = print(text.as_bytes());
        if settings.once || exit != Exit::Done {
            return Ok(exit);
        }
    }
    complain!(
        "dropbehind: the observer at {} has ended.",
        shown(&endpoint.path)
    );
    Ok(Exit::Done)
}

/// All columns, all files, all notes.
pub(super) fn table(sample: Snapshot) -> String {
    let mut view = View::default();
    view.take(sample);
    let mut lines = Vec::new();
    if let Some(sample) = &view.sample {
        let figures = header::figures(sample, view.speeds());
        lines.extend(header::packed(&figures, BETWEEN, WIDTH, usize::MAX));
    }
    lines.push(String::new());
    add_rows(&mut lines, &columns::disks(), &view.disks());
    lines.push(String::new());
    add_rows(&mut lines, &columns::files(), &view.files());
    if !view.notes().is_empty() {
        lines.push(String::new());
    }
    for note in view.notes() {
        lines.push(format!("note: {}", shown(Path::new(note))));
    }
    lines.join("\n") + "\n"
}

fn add_rows<R>(lines: &mut Vec<String>, columns: &[Column<R>], rows: &[R]) {
    // Without a screen, paths are not cut.
    let longest = rows.iter().flat_map(|row| {
        let last = columns.last();
        last.map(|last| (last.cell)(row).len())
    });
    let widths: usize = columns.iter().map(|column| column.width + 1).sum();
    let fitted = fit(columns, widths + longest.max().unwrap_or(0), "");
    lines.push(fitted.heading(""));
    lines.extend(rows.iter().map(|row| fitted.row(row)));
}
