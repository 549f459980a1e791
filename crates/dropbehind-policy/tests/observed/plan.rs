//! What a seed's machine is like, and which faults it has.

use dropbehind_policy::Mode;

use crate::random::Random;

pub(crate) const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The most pages of each file.
    pub(crate) files: Vec<FilePlan>,
    pub(crate) observed: usize,
    pub(crate) outsiders: usize,
    /// What programs do, in all.
    pub(crate) deeds: u64,
    pub(crate) readahead_pages: usize,
    pub(crate) lag_bytes: u64,
    /// Time passes up to so much between two things that happen.
    pub(crate) step_ns: u64,
    /// Pages written in one lump, and how often one comes, in thousand.
    pub(crate) lump_pages: usize,
    pub(crate) lump_in_thousand: u64,
    pub(crate) reclaim_in_thousand: u64,
    /// A page just added sits in a processor's batch so long.
    pub(crate) batch_ns: u64,
    pub(crate) batch_in_thousand: u64,
    pub(crate) lost_in_thousand: u64,
    pub(crate) late_close_in_thousand: u64,
    pub(crate) untold_close_in_thousand: u64,
    pub(crate) merge_in_thousand: u64,
    /// Something happens in the middle of what our threads do.
    pub(crate) meddle_in_thousand: u64,
    pub(crate) refuse_in_thousand: u64,
    pub(crate) fail_in_thousand: u64,
    pub(crate) map_for_good_in_thousand: u64,
    pub(crate) wish_in_thousand: u64,
    /// Memory for pages that may be used again.
    pub(crate) memory_bytes: u64,
    /// The kernel reports uses of cached pages.
    pub(crate) sees_uses: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FilePlan {
    pub(crate) most_pages: usize,
    pub(crate) mode: Mode,
    /// What reads bring in is dropped, too.
    pub(crate) reads: bool,
}

impl Plan {
    pub(crate) fn new(random: &mut Random) -> Plan {
        let files = (0..random.between(1, 6)).map(|_| {
            let most_pages = match random.below(3) {
                0 => random.between(1, 64),
                1 => random.between(64, 512),
                _ => random.between(512, 3072),
            };
            FilePlan {
                most_pages: most_pages as usize,
                mode: random.pick(&[
                    Mode::DONTCACHE,
                    Mode::DONTCACHE,
                    Mode::DONTCACHE,
                    Mode::NOREUSE,
                    Mode::AUTO,
                    Mode::AUTO,
                    Mode {
                        writeback: dropbehind_policy::Writeback::Behind,
                        ..Mode::DONTCACHE
                    },
                ]),
                reads: random.chance(700),
            }
        });
        let files = files.collect();
        let mut sometimes = |in_thousand: u64, most: u64| match random.chance(in_thousand) {
            true => 1 + random.below(most),
            false => 0,
        };
        Plan {
            files,
            lost_in_thousand: sometimes(200, 200),
            late_close_in_thousand: sometimes(300, 500),
            untold_close_in_thousand: sometimes(200, 300),
            merge_in_thousand: sometimes(400, 1000),
            meddle_in_thousand: sometimes(700, 200),
            refuse_in_thousand: sometimes(100, 500),
            fail_in_thousand: sometimes(100, 50),
            map_for_good_in_thousand: sometimes(100, 300),
            batch_in_thousand: sometimes(400, 500),
            reclaim_in_thousand: sometimes(700, 150),
            wish_in_thousand: sometimes(400, 50),
            memory_bytes: random.pick(&[0, 1 << 20, 64 << 20, 1 << 40]),
            sees_uses: random.chance(800),
            observed: random.between(1, 3) as usize,
            outsiders: random.below(3) as usize,
            deeds: random.between(10, 250),
            readahead_pages: random.pick(&[1, 8, 32, 128]),
            lag_bytes: random.pick(&[64 << 10, 512 << 10, 4 << 20, 16 << 20]),
            step_ns: random.pick(&[20_000, MS / 5, 2 * MS, 20 * MS]),
            lump_pages: random.pick(&[16, 128, 1024]),
            lump_in_thousand: random.pick(&[20, 100, 500]),
            batch_ns: random.pick(&[MS, 20 * MS, 80 * MS]),
        }
    }
}
