//! When to hold processes that write to observed files faster than the disk, and how soon
//! they can reach the limit.

/// One of many files may have this much unwritten,
const SHARE_BYTES: u64 = 8 << 20;
/// or this much if that is too much for all of them together: each file that is held takes a
/// thread.
const SHARE_MIN_BYTES: u64 = 1 << 20;
/// A file is watched if this share of the limit is unwritten, or if it has any unwritten
/// bytes and all files together have half of the limit.
const WATCHED: u64 = 8;
/// Files are counted again as soon as writers can have reached the limit, at this speed,
const WRITERS_BYTES_PER_MS: u64 = 8 << 20;
/// but no more often than this,
pub const COUNT_MIN_NS: u64 = 1_000_000;
/// and no less often than this.
pub const COUNT_MAX_NS: u64 = 8_000_000;
/// Counts take at most one part in this many of the time,
const COUNT_SHARE: u64 = 25;
/// and near the limit one in this many. A count once took 2.5 ms because interrupts took the
/// processor. In 25 times as long, writers dirtied 80 MiB.
const NEAR_COUNT_SHARE: u64 = 4;
/// After this many failures in a row, a file's writers are not held any more.
const FAILURES: u32 = 4;
/// After the first failure nobody is held for this long, and longer after each further one:
/// the program should get to where it learns of the failing disk.
const FAILURE_PAUSE_NS: u64 = 250_000_000;

/// What is dirty or under writeback, and how much may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The limit that a file's writers share with those of the disk's other observed files.
    pub limit_bytes: u64,
    /// In one file.
    pub own_bytes: u64,
    /// In all observed files on its disk.
    pub sum_bytes: u64,
    /// How many of these files have much unwritten.
    pub writers: u64,
}

impl Load {
    /// How many bytes of the file may currently be unwritten.
    pub fn share_bytes(self) -> u64 {
        let Load { limit_bytes, .. } = self;
        if self.sum_bytes <= limit_bytes {
            return limit_bytes;
        }
        let part_of_limit = |bytes: u64| {
            let part = u128::from(limit_bytes) * u128::from(bytes) / u128::from(self.sum_bytes);
            u64::try_from(part).unwrap_or(limit_bytes)
        };
        // Equal parts for all would be too much, together with what some have beyond theirs.
        let equal_bytes = part_of_limit(limit_bytes / self.writers.max(1));
        part_of_limit(self.own_bytes).max(equal_bytes.clamp(SHARE_MIN_BYTES, SHARE_BYTES))
    }

    /// Returns whether the file's writers should wait.
    pub fn is_beyond(self) -> bool {
        self.own_bytes > self.share_bytes()
    }

    /// Returns whether all files together have more than they may have, and those that nobody has
    /// open, which have `closed_bytes`, a good part of it.
    pub fn is_excess(self, closed_bytes: u64) -> bool {
        self.sum_bytes > self.limit_bytes && closed_bytes > self.limit_bytes / 2
    }

    /// Waiting writers go on when no more than this is unwritten, so that the disk has
    /// something to do until they wait again.
    pub fn release_bytes(self) -> u64 {
        self.share_bytes() / 4 * 3
    }

    /// Returns whether the disk's files together are not far from the limit.
    pub fn is_near(self) -> bool {
        self.sum_bytes >= self.limit_bytes / 2
    }

    /// Returns whether so much of the file is unwritten that it should be counted often.
    pub fn wants_watching(self) -> bool {
        self.own_bytes >= self.limit_bytes / WATCHED || self.own_bytes > 0 && self.is_near()
    }

    /// The least time that writers need to reach the limit, in nanoseconds.
    pub fn room_ns(self) -> u64 {
        let room_bytes = u128::from(self.limit_bytes.saturating_sub(self.sum_bytes));
        let room_ns = room_bytes * 1_000_000 / u128::from(WRITERS_BYTES_PER_MS);
        let room_ns = u64::try_from(room_ns).unwrap_or(u64::MAX);
        room_ns.clamp(COUNT_MIN_NS, COUNT_MAX_NS)
    }
}

/// How long to wait, in nanoseconds, after a count that took `cost_ns` of processor time.
/// Writers need `room_ns` to reach the limit, and may already be `near` it.
pub fn pause_ns(cost_ns: u64, room_ns: u64, near: bool) -> u64 {
    let share_ns = cost_ns.saturating_mul(COUNT_SHARE);
    let near_share_ns = cost_ns.saturating_mul(NEAR_COUNT_SHARE);
    match near {
        true => room_ns.max(share_ns.min(COUNT_MAX_NS.max(near_share_ns))),
        false => room_ns.max(share_ns),
    }
}

/// Failed attempts in a row to hold a file's writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldFailures {
    in_a_row: u32,
    again_from_ns: u64,
}

impl HoldFailures {
    /// Returns whether it is time for another attempt.
    pub fn may_try(&self, now_ns: u64) -> bool {
        now_ns >= self.again_from_ns
    }

    /// Records that the writers were held.
    pub fn succeeded(&mut self) {
        self.in_a_row = 0;
    }

    /// Records a failure, and returns whether to give up. `passes` says that the error may
    /// not come again.
    pub fn is_final(&mut self, now_ns: u64, passes: bool) -> bool {
        self.in_a_row += 1;
        self.again_from_ns = now_ns + FAILURE_PAUSE_NS * u64::from(self.in_a_row);
        !passes || self.in_a_row >= FAILURES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT_BYTES: u64 = 64 * MIB;

    fn unwritten(own_bytes: u64, sum_bytes: u64, writers: u64) -> Load {
        Load {
            limit_bytes: LIMIT_BYTES,
            own_bytes,
            sum_bytes,
            writers,
        }
    }

    #[test]
    fn many_writers_of_little_are_beyond_together() {
        // Less than the amount from which a single file is watched.
        let each_bytes = LIMIT_BYTES / WATCHED - MIB;
        assert!(!unwritten(each_bytes, each_bytes, 1).wants_watching());
        let many = unwritten(each_bytes, 16 * each_bytes, 16);
        assert!(many.wants_watching() && many.is_beyond());
        // Until they are down to what they may have together.
        let few = unwritten(LIMIT_BYTES / 16, LIMIT_BYTES, 16);
        assert!(!few.is_beyond());
    }

    #[test]
    fn one_of_little_goes_on_beside_one_of_much() {
        let (much, little) = (2 * LIMIT_BYTES, SHARE_BYTES / 2);
        assert!(unwritten(much, much + little, 2).is_beyond());
        assert!(!unwritten(little, much + little, 2).is_beyond());
    }

    #[test]
    fn near_the_limit_the_next_count_comes_soon_after_a_costly_one() {
        let cost_ns = 2_600_000;
        let far = pause_ns(cost_ns, COUNT_MIN_NS, false);
        assert_eq!(far, cost_ns * COUNT_SHARE);
        let near = pause_ns(cost_ns, COUNT_MIN_NS, true);
        assert_eq!(near, cost_ns * NEAR_COUNT_SHARE);
        assert_eq!(pause_ns(10_000, COUNT_MIN_NS, true), COUNT_MIN_NS);
    }

    #[test]
    fn what_may_pass_is_tried_again_a_few_times() {
        let mut failures = HoldFailures::default();
        let mut now_ns = 0;
        for _ in 0..10 {
            for _ in 1..FAILURES {
                assert!(failures.may_try(now_ns));
                assert!(!failures.is_final(now_ns, true));
                assert!(!failures.may_try(now_ns));
                now_ns += FAILURE_PAUSE_NS * u64::from(FAILURES);
            }
            failures.succeeded();
        }
        let mut given_up = (0..FAILURES).map(|_| failures.is_final(now_ns, true));
        assert!(given_up.by_ref().take(3).all(|over| !over) && given_up.all(|over| over));
        assert!(HoldFailures::default().is_final(0, false));
    }

    /// Writers faster than the disk, counted and held as the shell does it, in steps of a
    /// millisecond.
    #[test]
    fn writers_of_any_number_and_speed_stay_near_the_limit_and_all_go_on() {
        for (writers, each_bytes_per_ms, disk_bytes_per_ms) in
            [(1, 4 * MIB, MIB), (2, 3 * MIB, MIB / 4), (40, MIB / 8, MIB)]
        {
            let mut dirty = alloc::vec![0_u64; writers];
            let mut wrote = alloc::vec![0_u64; writers];
            let mut held = alloc::vec![false; writers];
            let (mut next_ms, mut peak_bytes) = (0, 0);
            for now_ms in 0..5000_u64 {
                for at in (0..writers).filter(|at| !held[*at]) {
                    dirty[at] += each_bytes_per_ms;
                    wrote[at] += each_bytes_per_ms;
                }
                let mut room = disk_bytes_per_ms;
                for at in 0..writers {
                    let at = (at + now_ms as usize) % writers;
                    let written = dirty[at].min(room);
                    dirty[at] -= written;
                    room -= written;
                }
                let sum_bytes: u64 = dirty.iter().sum();
                let busy = dirty.iter().filter(|bytes| **bytes >= MIB).count() as u64;
                peak_bytes = sum_bytes.max(peak_bytes);
                for at in 0..writers {
                    let now = unwritten(dirty[at], sum_bytes, busy);
                    if held[at] {
                        held[at] = dirty[at] > now.release_bytes();
                    } else if now_ms >= next_ms {
                        held[at] = now.is_beyond();
                    }
                }
                if now_ms >= next_ms {
                    let now = unwritten(0, sum_bytes, busy);
                    let pause = pause_ns(20_000, now.room_ns(), now.is_near());
                    next_ms = now_ms + pause.div_ceil(1_000_000);
                }
            }
            let overshoot = COUNT_MAX_NS / 1_000_000 * each_bytes_per_ms * writers as u64;
            assert!(
                peak_bytes <= LIMIT_BYTES + overshoot,
                "{writers}: {peak_bytes}"
            );
            let least = wrote.iter().min().copied().unwrap_or(0);
            let fair_bytes = 5000 * disk_bytes_per_ms / writers as u64;
            assert!(
                least >= fair_bytes / 4,
                "{writers}: {least} of {fair_bytes}"
            );
        }
    }
}
