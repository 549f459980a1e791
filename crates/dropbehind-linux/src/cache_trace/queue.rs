//! Merges the records of several rings into time order.

use super::TraceRecord;
use super::records::Stamped;

/// The memory of this many records is not given back, less than a megabyte. Full rings have
/// hundreds of thousands.
const KEPT: usize = 1 << 14;

/// Records that have not been passed on yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    records: Vec<Stamped>,
    /// Whether any record is older than the one before it.
    is_mixed: bool,
}

impl Queue {
    pub(super) fn push(&mut self, record: Stamped) {
        let last = self.records.last();
        self.is_mixed |= last.is_some_and(|last| last.time_ns > record.time_ns);
        self.records.push(record);
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &TraceRecord> {
        self.records.iter().map(|stamped| &stamped.record)
    }

    /// Passes on the records made up to that time, in order. Records with equal times keep
    /// their order.
    pub(super) fn take_until(&mut self, time_ns: u64, take: impl FnMut(TraceRecord)) {
        if std::mem::take(&mut self.is_mixed) {
            // A stable sort merges parts that are already in order, as each ring is.
            self.records.sort_by_key(|record| record.time_ns);
        }
        let due = self
            .records
            .partition_point(|record| record.time_ns <= time_ns);
        self.records
            .drain(..due)
            .map(|stamped| stamped.record)
            .for_each(take);
        if self.records.capacity() > 4 * self.records.len().max(KEPT) {
            self.records.shrink_to(KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Identifies each record by its time, as a loss of that many.
    fn push(queue: &mut Queue, times_ns: &[u64]) {
        for &time_ns in times_ns {
            let record = TraceRecord::Lost { records: time_ns };
            queue.push(Stamped { time_ns, record });
        }
    }

    fn taken(queue: &mut Queue, time_ns: u64) -> Vec<u64> {
        let mut taken = Vec::new();
        queue.take_until(time_ns, |record| match record {
            TraceRecord::Lost { records } => taken.push(records),
            other => panic!("{other:?}"),
        });
        taken
    }

    #[test]
    fn rings_are_merged_and_the_rest_is_kept() {
        let mut queue = Queue::default();
        push(&mut queue, &[1, 4, 9]);
        push(&mut queue, &[2, 3, 20]);
        assert_eq!(taken(&mut queue, 0), []);
        assert_eq!(taken(&mut queue, 4), [1, 2, 3, 4]);
        // One record that comes late, and one that falls between those kept.
        push(&mut queue, &[3, 10]);
        assert_eq!(taken(&mut queue, 10), [3, 9, 10]);
        assert_eq!(taken(&mut queue, u64::MAX), [20]);
        assert_eq!(taken(&mut queue, u64::MAX), []);
    }

    #[test]
    fn the_memory_of_many_is_given_back() {
        let mut queue = Queue::default();
        let many: Vec<u64> = (0..100_000).collect();
        push(&mut queue, &many);
        assert_eq!(taken(&mut queue, u64::MAX), many);
        assert!(queue.records.capacity() <= KEPT);
    }

    #[test]
    fn what_is_of_one_time_keeps_its_order() {
        let mut queue = Queue::default();
        let forked = |child| Stamped {
            time_ns: 5,
            record: TraceRecord::Forked { child, parent: 1 },
        };
        push(&mut queue, &[7]);
        queue.push(forked(2));
        queue.push(forked(3));
        let mut records = Vec::new();
        queue.take_until(5, |record| records.push(record));
        assert_eq!(records, [forked(2).record, forked(3).record]);
    }
}
