//! The figures above the tables.

use super::speeds::Speeds;
use crate::error::shown;
use crate::size::show;
use dropbehind_observer::snapshot::Snapshot;
use std::path::Path;
use unicode_width::UnicodeWidthStr;

/// Stands between two figures.
pub(super) const BETWEEN: &str = " · ";

/// What is worth showing of an observer, the most important first.
pub(super) fn figures(sample: &Snapshot, speeds: &Speeds) -> Vec<String> {
    let totals = &sample.totals;
    let cpu = match speeds.cpu_percent {
        Some(percent) => format!("CPU {percent:.1} %"),
        None => format!("CPU {}", time(sample.cpu_ns)),
    };
    let events = match speeds.events_per_second {
        Some(rate) => format!("events {} ({rate}/s)", totals.events),
        None => format!("events {}", totals.events),
    };
    vec![
        format!("{} {}", shown(Path::new(&sample.kind)), sample.process),
        time(sample.elapsed_ns),
        cpu,
        format!("overflows {}", totals.overflows),
        events,
        format!("files {}", totals.files),
        format!("written {}", show(totals.written_bytes)),
        format!("read {}", show(totals.read_bytes)),
        format!(
            "cached {} (peak {})",
            show(totals.cached_bytes),
            show(totals.peak_cached_bytes)
        ),
        format!("peak dirty {}", show(totals.peak_dirty_bytes)),
        format!("dropped {}", show(totals.dropped_bytes)),
        format!("kept {}", show(totals.kept_bytes)),
        format!("re-read {}", show(totals.reread_bytes)),
        format!("left {}", show(totals.left_bytes)),
    ]
}

/// As many of the figures as this many lines have room for, in order.
pub(super) fn packed(figures: &[String], between: &str, width: usize, lines: usize) -> Vec<String> {
    let mut packed: Vec<String> = Vec::new();
    for figure in figures {
        let is_room = packed.len() < lines;
        match packed.last_mut() {
            Some(last) if last.width() + between.width() + figure.width() <= width => {
                last.push_str(between);
                last.push_str(figure);
            }
            _ if is_room => packed.push(figure.clone()),
            _ => break,
        }
    }
    packed
}

/// `0.2 s`, `59 s`, `12m03s`, `5h07m`, `3d04h`.
pub(super) fn time(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..10 => format!("{:.1} s", ns as f64 / 1e9),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}
