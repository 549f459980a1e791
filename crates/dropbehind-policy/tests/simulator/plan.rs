//! What a seed makes of the world: the machine, its faults and its programs.

use dropbehind_policy::{DiskConfig, Mode, Residency, Writeback};

use crate::cache::PAGE;
use crate::disk::Nature;
use crate::random::Random;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;

/// How a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    Sequential,
    Append,
    Random,
    /// The same few pages again and again, and then and now a new one.
    Hot,
    /// Overlapping and backward.
    Overlapping,
    /// A single byte in each page.
    Sparse,
    /// Many short-lived small files.
    SmallFiles,
    /// A file is read from start to end.
    Reading,
    /// Writes, truncates, writes again.
    Rewriting,
}

const HABITS: [Habit; 9] = [
    Habit::Sequential,
    Habit::Append,
    Habit::Random,
    Habit::Hot,
    Habit::Overlapping,
    Habit::Sparse,
    Habit::SmallFiles,
    Habit::Reading,
    Habit::Rewriting,
];

#[derive(Clone, Debug)]
pub(crate) struct ProgramPlan {
    pub(crate) habit: Habit,
    pub(crate) mode: Mode,
    /// It looks what is cached before each write.
    pub(crate) looks: bool,
    /// A mode for single writes, and how many of a thousand.
    pub(crate) other_mode: (Mode, u64),
    pub(crate) write_bytes: (u64, u64),
    pub(crate) think_ns: u64,
    pub(crate) budget_bytes: u64,
    pub(crate) openings: u64,
    pub(crate) file: usize,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) random_advice: bool,
    pub(crate) sync_in_thousand: u64,
    pub(crate) flush_in_thousand: u64,
    pub(crate) truncate_in_thousand: u64,
    pub(crate) unlink_early: bool,
    /// Deleted so long after closing.
    pub(crate) unlink_after_ns: Option<u64>,
    pub(crate) cached_before_in_thousand: u64,
    pub(crate) residency_unknown: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) policy: DiskConfig,
    pub(crate) nature: Nature,
    pub(crate) programs: Vec<ProgramPlan>,
    pub(crate) files: usize,
    pub(crate) pages: usize,
    pub(crate) largest_folio: u32,
    pub(crate) folio_tags: bool,
    /// How long an action, its answer and a wake-up take, at most.
    pub(crate) shell_ns: u64,
    /// Events reach the policy between an action and its answer.
    pub(crate) interleaved: bool,
    pub(crate) ring: usize,
    pub(crate) locked_in_thousand: u64,
    pub(crate) pinned_in_thousand: u64,
    pub(crate) pinned_ns: u64,
    pub(crate) failing_in_thousand: u64,
    pub(crate) unanswered_in_thousand: u64,
    /// Flushers of other programs come and go.
    pub(crate) peers_in_thousand: u64,
    /// Programs that read from the disk come and go.
    pub(crate) neighbours_in_thousand: u64,
    /// The disk counts no writes in flight.
    pub(crate) idle_in_thousand: u64,
    pub(crate) reclaim_ns: Option<u64>,
    pub(crate) readers_ns: Option<u64>,
    pub(crate) writers_ns: Option<u64>,
    pub(crate) cutter_ns: Option<u64>,
    pub(crate) crash_ns: Option<u64>,
}

fn mode(random: &mut Random) -> Mode {
    match random.below(10) {
        0..=3 => Mode::DONTCACHE,
        4 => Mode::NOREUSE,
        5 => Mode::WRITE_BEHIND,
        6 => Mode::WRITE_BEHIND_ANY,
        7 => Mode::WRITE_THROUGH,
        8 => Mode::new(Writeback::Behind, Residency::Drop),
        _ => Mode::from_bits(random.below(12) as u8),
    }
}

/// One of a thousand in a third of the seeds, otherwise none: faults are to be
/// seen alone, too.
fn sometimes(random: &mut Random, choices: &[u64]) -> u64 {
    if random.below(3) == 0 {
        random.pick(choices)
    } else {
        0
    }
}

fn every(random: &mut Random, one_in: u64, choices: &[u64]) -> Option<u64> {
    (random.below(one_in) == 0).then(|| random.pick(choices) * MS)
}

impl Plan {
    pub(crate) fn new(random: &mut Random) -> Plan {
        let count = match random.below(20) {
            0 => random.between(17, 64),
            1..=4 => random.between(5, 12),
            _ => random.between(1, 4),
        };
        let pages = match count {
            0..=4 => random.pick(&[512, 1024, 2048, 4096]),
            _ => random.pick(&[64, 256, 512]),
        };
        let window_bytes = random.pick(&[256 << 10, 1 << 20, 1 << 20, 4 << 20, 16 << 20]);
        let policy = DiskConfig {
            window_bytes,
            request_bytes: random.pick(&[64 << 10, 128 << 10, 1 << 20, 1 << 20, 1_310_720, 5000]),
            page_bytes: PAGE,
            ..DiskConfig::default()
        };
        let bytes_per_second = random.pick(&[4, 20, 60, 200, 500, 2400]) * 1_000_000;
        let nature = Nature {
            bytes_per_second,
            per_request_ns: random.pick(&[10_000, 50_000, 300_000]),
            slowest_percent: random.pick(&[20, 60, 100, 100]),
            reorder: random.pick(&[1, 1, 8, 64]),
            stall_in_thousand: sometimes(random, &[1, 5]),
            stall_ns: random.pick(&[50, 400, 3000]) * MS,
            error_in_thousand: sometimes(random, &[1, 10, 200]),
            redirty: random.below(2) == 0,
        };
        let files = random.between(1, count) as usize;
        let programs = (0..count)
            .map(|_| program(random, files, pages, count, nature.bytes_per_second))
            .collect();
        Plan {
            policy,
            nature,
            programs,
            files,
            pages,
            largest_folio: random.pick(&[1, 1, 4, 64, 512]),
            folio_tags: random.below(2) == 0,
            shell_ns: random.pick(&[1_000, 5_000, 5_000, 50_000, 2 * MS]),
            interleaved: random.below(3) == 0,
            ring: random.pick(&[4, 64, 1024]),
            locked_in_thousand: sometimes(random, &[1, 30]),
            pinned_in_thousand: sometimes(random, &[20, 300]),
            pinned_ns: random.pick(&[3, 200, 1_000_000]) * MS,
            failing_in_thousand: sometimes(random, &[2, 50, 500]),
            unanswered_in_thousand: sometimes(random, &[0, 0, 20]),
            peers_in_thousand: sometimes(random, &[1, 20]),
            neighbours_in_thousand: sometimes(random, &[1, 20, 500]),
            idle_in_thousand: sometimes(random, &[20, 500]),
            reclaim_ns: every(random, 4, &[2, 50, 500]),
            readers_ns: every(random, 4, &[2, 50, 500]),
            writers_ns: every(random, 6, &[1, 20, 500]),
            cutter_ns: every(random, 12, &[20, 200]),
            crash_ns: every(random, 6, &[3, 40, 300]),
        }
    }

    /// The window a stream has before the disk's speed is known.
    pub(crate) fn window_bytes(&self, program: &ProgramPlan) -> u64 {
        program.window_bytes.unwrap_or(self.policy.window_bytes)
    }
}

fn program(
    random: &mut Random,
    files: usize,
    pages: usize,
    count: u64,
    bytes_per_second: u64,
) -> ProgramPlan {
    let habit = random.pick(&HABITS);
    let most = pages as u64 * PAGE;
    let small = (1, 5_000);
    let write_bytes = match habit {
        Habit::Sparse => (1, 1),
        Habit::Random | Habit::Hot => random.pick(&[small, (PAGE, PAGE), (100, 60_000)]),
        Habit::SmallFiles => random.pick(&[small, (1, 100_000)]),
        _ => random.pick(&[
            (1, 20_000),
            (PAGE, PAGE),
            (65_536, 65_536),
            (1 << 18, 1 << 20),
        ]),
    };
    let calls = random.pick(&[10, 200, 800]) * 4 / (count + 3) + 4;
    // A slow disk is simulated for a few seconds, not for an hour.
    let most_bytes = (bytes_per_second * 3 / count).clamp(256 << 10, 24 << 20);
    let budget_bytes = (calls * (write_bytes.0 + write_bytes.1) / 2 + 1).min(most_bytes);
    let own = mode(random);
    let unlink_after_ns = every(random, 4, &[0, 100, 1500, 5000]);
    let openings = match (habit, unlink_after_ns) {
        // More small files than the budget allows.
        (Habit::SmallFiles, None) if count <= 2 && random.below(2) == 0 => 300,
        (Habit::SmallFiles, None | Some(0)) => random.between(3, 300) / count + 1,
        (Habit::SmallFiles, Some(_)) => random.between(3, 8),
        _ => random.pick(&[1, 1, 2, 4]),
    };
    ProgramPlan {
        habit,
        mode: own,
        looks: random.below(3) > 0,
        other_mode: if random.below(5) == 0 {
            (mode(random), random.pick(&[10, 300]))
        } else {
            (own, 0)
        },
        write_bytes,
        think_ns: random.pick(&[2_000, 2_000, 50_000, 5 * MS, 300 * MS]) * 16
            / (calls.clamp(8, 400) * openings),
        budget_bytes: if openings == 300 {
            1
        } else {
            budget_bytes.min(4 * most)
        },
        openings,
        file: random.below(files as u64) as usize,
        window_bytes: random.pick(&[
            None,
            None,
            None,
            Some(0),
            Some(5000),
            Some(64 << 10),
            Some(1 << 20),
            Some(3 << 20),
            Some(u64::MAX),
        ]),
        request_bytes: random.pick(&[None, None, Some(1), Some(100_000), Some(u64::MAX)]),
        random_advice: random.below(12) == 0,
        sync_in_thousand: sometimes(random, &[3, 50]),
        flush_in_thousand: sometimes(random, &[1, 20]),
        truncate_in_thousand: if habit == Habit::Rewriting {
            10
        } else {
            sometimes(random, &[0, 0, 5])
        },
        unlink_early: random.below(12) == 0,
        unlink_after_ns,
        cached_before_in_thousand: random.pick(&[0, 0, 100, 500, 1000]),
        residency_unknown: random.below(8) == 0,
    }
}
