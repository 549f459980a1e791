//! Slowing down a writer that gets ahead of its disk, before it has to stop.
//!
//! Disks finish in lumps, virtual ones most of all: nothing for 20 to 30 ms, and then
//! everything they were given. A writer that runs at the speed of memory until it reaches its
//! limit stands still for the rest of the lump. With longer and longer pauses on the last
//! quarter of the way, the same time is spread over many writes, and mostly the lump ends
//! before the writer reaches the limit. The kernel does something similar in
//! `balance_dirty_pages` (mm/page-writeback.c).

/// Up to this share of the limit, in eighths, there are no pauses. What is on its way by then
/// keeps the disk busy during the writer's pauses. With less, a disk whose lumps vary much
/// would finish a short one before the next arrives.
pub const FREE_EIGHTHS: u64 = 6;
/// The same for scattered writes: the more of them wait, the more of them are neighbours.
pub const SCATTERED_FREE_EIGHTHS: u64 = 7;
/// The longest pause; the limit does the rest.
pub const PAUSE_MAX_NS: u64 = 20_000_000;

/// How long a write of `bytes` bytes should take, in nanoseconds, while `outstanding_bytes`
/// of at most `limit_bytes` are outstanding. The disk writes `bytes_per_second` for this
/// writer (0 if unknown).
///
/// It is 0 up to `free_eighths` of the limit. Halfway through the rest, it is as long as the
/// disk takes for the write, and it grows from there on. So a writer reaches its limit late,
/// if at all.
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
        // A MiB at a GiB per second.
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

    /// The longest time of one 1 MiB write, and the time for all, on a disk that takes
    /// whatever there is, works on it, and reports nothing until all of it is done. Every
    /// 100th time it stands still for another 30 ms.
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
