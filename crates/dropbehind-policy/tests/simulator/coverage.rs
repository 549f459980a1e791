//! What the seeds made happen. A fault that never occurs is not tested.

use dropbehind_policy::Reason;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) writes: u64,
    pub(crate) written_pages: u64,
    pub(crate) reads: u64,
    pub(crate) waits: u64,
    pub(crate) syncs: u64,
    pub(crate) flushes: u64,
    pub(crate) truncations: u64,
    pub(crate) unlinks: u64,
    pub(crate) pinned: u64,
    pub(crate) lost_ranges: u64,
    pub(crate) errors: u64,
    pub(crate) stalls: u64,
    pub(crate) reclaims: u64,
    pub(crate) foreign_reads: u64,
    pub(crate) foreign_writes: u64,
    pub(crate) foreign_cuts: u64,
    pub(crate) crashes: u64,
    pub(crate) unanswered: u64,
    pub(crate) failing: u64,
    pub(crate) looks: u64,
    pub(crate) drops: u64,
    pub(crate) drops_again: u64,
    pub(crate) drops_of_many: u64,
    pub(crate) not_clean: u64,
    pub(crate) bounds: u64,
    pub(crate) yielding: u64,
    pub(crate) idle: u64,
    pub(crate) forgotten: u64,
    pub(crate) left: u64,
    pub(crate) kept: u64,
    pub(crate) reasons: [u64; Reason::ALL.len()],
}

impl Coverage {
    pub(crate) fn kinds(&self) -> Vec<(&'static str, u64)> {
        let mut kinds = vec![
            ("writes", self.writes),
            ("written pages", self.written_pages),
            ("reads", self.reads),
            ("waits", self.waits),
            ("fsyncs", self.syncs),
            ("flushes", self.flushes),
            ("truncations", self.truncations),
            ("unlinks", self.unlinks),
            ("pinned folios", self.pinned),
            ("full rings", self.lost_ranges),
            ("disk errors", self.errors),
            ("disk stalls", self.stalls),
            ("reclaims", self.reclaims),
            ("reads of others", self.foreign_reads),
            ("writes of others", self.foreign_writes),
            ("truncations by others", self.foreign_cuts),
            ("crashes", self.crashes),
            ("unanswered actions", self.unanswered),
            ("failing calls", self.failing),
            ("looks", self.looks),
            ("drops", self.drops),
            ("drops to try again", self.drops_again),
            ("drops of many ranges", self.drops_of_many),
            ("drops of dirty pages", self.not_clean),
            ("bounds checked", self.bounds),
            ("requests beside readers", self.yielding),
            ("disks found idle", self.idle),
            ("streams done with", self.forgotten),
            ("streams that left pages", self.left),
            ("streams that kept pages", self.kept),
        ];
        for reason in Reason::ALL {
            kinds.push((reason.name(), self.reasons[reason as usize]));
        }
        kinds
    }
}
