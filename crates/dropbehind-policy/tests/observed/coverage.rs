//! What the seeds made happen. What never occurs is not tested.

use std::collections::BTreeMap;

/// Everything that has to occur in some seed.
const KINDS: [&str; 62] = [
    "opens by observed programs",
    "opens by outsiders",
    "reads",
    "writes",
    "writes by outsiders",
    "mappings",
    "mappings for good",
    "fsyncs",
    "truncations",
    "deletions",
    "closes told late",
    "closes never told",
    "merged events",
    "opens in the last moment",
    "reclaimed pages",
    "lost records",
    "records of unknown files",
    "files found by a record",
    "files nobody has open",
    "files opened again while done with",
    "all closed at once",
    "flushes",
    "streams",
    "streams refused",
    "streams that failed",
    "streams done with",
    "streams that left pages",
    "streams done with something unread",
    "streams of closed files",
    "looks that could not be made",
    "told to streams",
    "others told to streams",
    "shelved",
    "shelved twice",
    "not shelved",
    "others told to the shelf",
    "shelf counts that failed",
    "shelf looks that could not be made",
    "shelf writes",
    "shelf drops",
    "shelf drops of several",
    "shelf drops to try again",
    "shelf files that left pages",
    "shelf files that were deleted",
    "shelf files the disk was too slow for",
    "stream drops",
    "stream drops of dirty pages",
    "stream drops to try again",
    "pages kept",
    "drops of mapped pages",
    "stream drops put off for reports",
    "stream drops put off for losses",
    "stream drops put off for arrivals",
    "shelf drops put off for reports",
    "shelf drops that could not be made",
    "shelf files that wait for a decision",
    "pages held by streams",
    "pages held on the shelf",
    "used again and kept",
    "used once and dropped",
    "decisions for shelved files",
    "files opened again while their streams live",
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub(crate) fn saw(&mut self, kind: &'static str) {
        self.saw_times(kind, 1);
    }

    pub(crate) fn saw_times(&mut self, kind: &'static str, times: u64) {
        debug_assert!(KINDS.contains(&kind), "{kind}");
        if times > 0 {
            *self.0.entry(kind).or_default() += times;
        }
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let times = |kind| self.0.get(kind).copied().unwrap_or(0);
        KINDS.into_iter().map(move |kind| (kind, times(kind)))
    }
}
