//! What the log and the service manager are told of an observer.

use super::journal::Journal;
use crate::size::show;
use dropbehind_observer::snapshot::Snapshot;
use std::collections::BTreeSet;

/// What was logged already, so that it is not logged again.
#[derive(Debug, Default)]
pub(super) struct Reports {
    notes: BTreeSet<String>,
    overflows: u64,
}

impl Reports {
    /// Logs what is new.
    pub(super) fn log_news(&mut self, snapshot: &Snapshot, journal: Journal) {
        for note in &snapshot.notes {
            if self.notes.insert(note.clone()) {
                journal.warning(note);
            }
        }
        // A note that has disappeared may come again.
        self.notes.retain(|note| snapshot.notes.contains(note));
        let overflows = snapshot.totals.overflows;
        if overflows > self.overflows {
            journal.warning(format!(
                "the kernel's queue of events was full {} more times: open files were looked for \
                 in /proc",
                overflows - self.overflows
            ));
            self.overflows = overflows;
        }
    }
}

/// One line about the state now.
pub(super) fn status(snapshot: &Snapshot) -> String {
    let totals = &snapshot.totals;
    format!(
        "{} files observed now, {} so far; {} written, {} dropped, {} kept for others",
        snapshot.disks.iter().map(|disk| disk.files).sum::<u64>(),
        totals.files,
        show(totals.written_bytes),
        show(totals.dropped_bytes),
        show(totals.kept_bytes),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_observer::snapshot::DiskSnapshot;

    #[test]
    fn files_that_are_not_listed_are_counted() {
        let disk = |files| DiskSnapshot {
            files,
            ..DiskSnapshot::default()
        };
        let snapshot = Snapshot {
            disks: vec![disk(1), disk(300)],
            ..Snapshot::default()
        };
        assert!(status(&snapshot).starts_with("301 files observed now, "));
    }
}
