//! How a writer that gets ahead of its disk is slowed down before it has to stop.
//!
//! Disks finish in lumps, virtual ones most of all: nothing for 20 to 30 ms, and
//! then all they were given. A writer that runs on at the speed of memory until
//! its limit is reached stands still for the rest of the lump. One that takes
//! longer and longer pauses on the last quarter of the way spreads the same time
//! over many writes, and mostly meets the end of the lump before the limit. The
//! kernel does the like in `balance_dirty_pages` (mm/page-writeback.c).

/// Up to this share of the limit nobody pauses, in eighths. What is on its way
/// by then keeps the disk busy through the writer's pauses; with less, a disk
/// whose lumps vary much would be done with a short one before the next is there.
pub const FREE_EIGHTHS: u64 = 6;
/// The same for scattered writes: the more of them wait, the more of them are
/// neighbours.
pub const SCATTERED_FREE_EIGHTHS: u64 = 7;
/// No pause is longer; the limit does the rest.
pub const PAUSE_MAX_NS: u64 = 20_000_000;

/// How long a write of `bytes` bytes should take, in nanoseconds, with
/// `outstanding_bytes` of the `limit_bytes` that may be outstanding, on a disk
/// that writes `bytes_per_second` for this writer (0: not known).
///
/// Nothing up to `free_eighths` of the limit, what the disk takes for as much in
/// the middle of the rest, and ever more from there on, so that a writer comes
/// to its limit late, if at all.
pub fn pause_ns(
    bytes: u64,
    outstanding_bytes: u64,
    limit_bytes: u64,
    bytes_per_second: u64,
    free_eighths: u64,
) -> u64 {
    let free_bytes = limit_bytes / 8 * free_eighths;
    if bytes_per_second == 0 || limit_bytes == u64::MAX || outstanding_bytes <= free_bytes {
        return 0;
    }
    let over = u128::from(outstanding_bytes - free_bytes);
    let left = limit_bytes.saturating_sub(outstanding_bytes).max(bytes);
    let own_ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second);
    let pause_ns = own_ns * over / u128::from(left.max(1));
    u64::try_from(pause_ns).map_or(PAUSE_MAX_NS, |pause_ns| pause_ns.min(PAUSE_MAX_NS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 32 * MIB;
    const SPEED: u64 = 1 << 30;

    #[test]
    fn pauses_grow_on_the_last_quarter() {
        let pause = |mib: u64| pause_ns(MIB, mib * MIB, LIMIT, SPEED, FREE_EIGHTHS);
        assert_eq!(pause(0), 0);
        assert_eq!(pause(24), 0);
        assert!(pause(25) > 0);
        // A MiB at a GiB a second.
        assert_eq!(pause(28), 976_562);
        for mib in 24..LIMIT / MIB {
            assert!(pause(mib) <= pause(mib + 1), "{mib} MiB");
        }
        assert!(pause(1 << 20) <= PAUSE_MAX_NS);
    }

    #[test]
    fn scattered_writes_run_on_for_longer() {
        let pause = |mib: u64| pause_ns(MIB, mib * MIB, LIMIT, SPEED, SCATTERED_FREE_EIGHTHS);
        assert_eq!(pause(28), 0);
        assert_eq!(pause(30), 976_562);
    }

    #[test]
    fn no_pause_without_a_limit_or_a_speed() {
        assert_eq!(pause_ns(MIB, u64::MAX, u64::MAX, SPEED, FREE_EIGHTHS), 0);
        assert_eq!(pause_ns(MIB, LIMIT, LIMIT, 0, FREE_EIGHTHS), 0);
        assert_eq!(pause_ns(0, LIMIT, LIMIT, SPEED, FREE_EIGHTHS), 0);
        assert_eq!(
            pause_ns(u64::MAX, LIMIT, LIMIT, 1, FREE_EIGHTHS),
            PAUSE_MAX_NS
        );
        assert_eq!(pause_ns(1, 2, 0, 1, FREE_EIGHTHS), PAUSE_MAX_NS);
    }

    /// The longest that one write of 1 MiB takes, and the time for all, on a
    /// disk that takes what there is, works on it, and says nothing until all of
    /// it is done; every 100th time it stands still for 30 ms more.
    fn on_a_lumpy_disk(limit_bytes: u64, paces: bool) -> (u64, u64) {
        let copy_ns = 400_000;
        let disk_ns = |bytes: u64| bytes * 1_000_000_000 / SPEED;
        let (mut now_ns, mut longest_ns) = (0_u64, 0_u64);
        let (mut waiting, mut lump, mut lump_end_ns, mut lumps) = (0, 0, 0, 0_u64);
        for _ in 0..20_000 {
            let begun_ns = now_ns;
            now_ns += copy_ns;
            waiting += MIB;
            loop {
                if now_ns >= lump_end_ns {
                    lumps += u64::from(waiting > 0);
                    let stall_ns = if lumps.is_multiple_of(100) {
                        30_000_000
                    } else {
                        0
                    };
                    (lump, waiting) = (waiting, 0);
                    lump_end_ns = now_ns + disk_ns(lump) + stall_ns;
                }
                let outstanding = waiting + lump;
                let pause = pause_ns(MIB, outstanding, limit_bytes, SPEED, FREE_EIGHTHS);
                let paced = !paces || now_ns - begun_ns >= copy_ns + pause;
                if outstanding <= limit_bytes && paced {
                    break;
                }
                now_ns += 50_000;
            }
            longest_ns = longest_ns.max(now_ns - begun_ns);
        }
        (longest_ns, now_ns)
    }

    #[test]
    fn pauses_shorten_the_longest_wait_and_cost_no_time() {
        for windows in [2 * 16, 2 * 28] {
            let (halted_ns, without_ns) = on_a_lumpy_disk(windows * MIB, false);
            let (slowed_ns, with_ns) = on_a_lumpy_disk(windows * MIB, true);
            assert!(
                slowed_ns < halted_ns / 4 * 3,
                "{windows} MiB: {slowed_ns} ns at most, {halted_ns} without pauses"
            );
            assert!(
                with_ns < without_ns / 100 * 105,
                "{windows} MiB: {with_ns} ns in all, {without_ns} without pauses"
            );
        }
    }
}
