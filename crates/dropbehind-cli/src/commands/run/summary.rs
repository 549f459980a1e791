//! The report on a run when it is over.

use super::supervisor::{Account, NoAccount};
use crate::size::show;
use crate::stats_file::RunStats;
use dropbehind_observer::snapshot::Snapshot;
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of a run, under the names that the other commands use.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ObservedStats {
    #[serde(flatten)]
    run: RunStats,
    /// Bytes of those read that had been dropped before.
    reread_bytes: u64,
    /// Bytes that were to stay, since they were used again.
    reused_bytes: u64,
    /// Bytes still to be dropped at the end.
    cached_bytes: u64,
    /// Processes that the program left behind.
    processes_left: usize,
    /// CPU time of the observer, including its start and end.
    observer_cpu_ns: u64,
    /// Files that were observed.
    files: u64,
    /// Events read from the kernel.
    events: u64,
    /// Times the kernel had no room for events.
    overflows: u64,
    /// The program's exit status; none if it died of a signal.
    exit_status: Option<i32>,
    /// The signal it died of.
    signal: Option<i32>,
    /// All that could be was written and dropped.
    settled: bool,
    /// The observer died before the end: its figures are missing.
    observer_died: bool,
    /// The observer did not answer at the end, such as when a file system's server does not: its
    /// figures are incomplete, or missing.
    observer_hung: bool,
    /// What was not possible, and why.
    notes: Vec<String>,
}

impl ObservedStats {
    pub(super) fn new(
        account: Result<&Account, &NoAccount>,
        elapsed: std::time::Duration,
        exit_status: Option<i32>,
        signal: Option<i32>,
    ) -> Self {
        let empty = Snapshot::default();
        let snapshot = account.map_or(&empty, |account| &account.snapshot);
        let hung = match account {
            Ok(account) => account.hung,
            Err(reason) => *reason == NoAccount::Silent,
        };
        let totals = &snapshot.totals;
        let mut run = RunStats {
            bytes_read: totals.read_bytes,
            bytes_written: totals.written_bytes,
            peak_dirty_bytes: totals.peak_dirty_bytes,
            peak_cached_bytes: totals.peak_cached_bytes,
            brought_bytes: totals.brought_bytes,
            dropped_bytes: totals.dropped_bytes,
            kept_bytes: totals.kept_bytes,
            left_bytes: totals.left_bytes,
            waits: totals.waits,
            wait_ns: totals.wait_ns,
            writeback_bytes: reasons(&totals.writeback_bytes),
            ..RunStats::default()
        };
        run.set_elapsed(elapsed);
        Self {
            run,
            reread_bytes: totals.reread_bytes,
            reused_bytes: totals.reused_bytes,
            cached_bytes: totals.cached_bytes,
            processes_left: account.map_or(0, |account| account.processes),
            observer_cpu_ns: snapshot.cpu_ns,
            files: totals.files,
            events: totals.events,
            overflows: totals.overflows,
            exit_status,
            signal,
            settled: account.is_ok_and(|account| account.settled),
            observer_died: account.is_err_and(|reason| *reason == NoAccount::Died),
            observer_hung: hung,
            notes: snapshot.notes.clone(),
        }
    }
}

fn reasons(bytes: &BTreeMap<String, u64>) -> BTreeMap<std::borrow::Cow<'static, str>, u64> {
    bytes
        .iter()
        .map(|(reason, &bytes)| (reason.clone().into(), bytes))
        .collect()
}

/// The lines of `-v`. If the mode keeps pages, none of them is to be dropped, and those that stay
/// are not counted.
pub(super) fn lines(account: &Account, keeps: bool) -> Vec<String> {
    let totals = &account.snapshot.totals;
    let files = match totals.files {
        1 => "1 file".to_owned(),
        files => format!("{files} files"),
    };
    // Without the trace, nobody looks for what was read and stays.
    let read = match keeps && !account.snapshot.traced && totals.read_bytes == 0 {
        true => "did not count what was read".to_owned(),
        false => format!("read {} into the cache", show(totals.read_bytes)),
    };
    let written = format!("wrote {}, {read}, in {files}", show(totals.written_bytes));
    // These bytes do not include what could not be dropped of finished files.
    let end_bytes = match account.settled {
        true => totals.cached_bytes + totals.left_bytes,
        false => totals.cached_bytes,
    };
    let at_the_end = match (keeps, account.settled) {
        (true, _) => "and it stays there".to_owned(),
        (false, true) if totals.reused_bytes > 0 => {
            format!(
                "{} at the end, besides what was used again",
                show(end_bytes)
            )
        }
        (false, true) => format!("{} at the end", show(end_bytes)),
        // The observer stays with the processes that were left.
        (false, false) if account.processes > 0 && !account.hung => {
            format!("{} at the end, not dropped yet", show(end_bytes))
        }
        (false, false) => format!("{} at the end, left to the kernel", show(end_bytes)),
    };
    let most = show(totals.peak_cached_bytes);
    let cached = format!("page cache: at most {most}, {at_the_end}");
    let mut possible = Vec::new();
    if totals.left_bytes > 0 {
        possible.push(format!("{} could not be dropped", show(totals.left_bytes)));
    }
    if totals.overflows > 0 {
        possible.push(format!(
            "events were lost {} times, and files looked for instead",
            totals.overflows
        ));
    }
    let notes = account.snapshot.notes.iter();
    possible.extend(notes.map(|note| note.trim_end_matches('.').to_owned()));
    let reused_bytes = totals.reused_bytes.min(totals.kept_bytes);
    let again = match reused_bytes {
        0 => String::new(),
        bytes => format!("{} that was used again, and ", show(bytes)),
    };
    let kept = format!(
        "kept {again}{} for others; {}",
        show(totals.kept_bytes - reused_bytes),
        match (possible.is_empty(), account.hung) {
            (true, false) => "nothing went wrong".to_owned(),
            (true, true) => "the rest is not known".to_owned(),
            (false, _) => format!("not possible: {}", possible.join("; ")),
        }
    );
    let reread = (totals.reread_bytes > 0)
        .then(|| format!("re-read {} of what was dropped", show(totals.reread_bytes)));
    [written, cached]
        .into_iter()
        .chain(reread)
        .chain([kept])
        .collect()
}
