//! Which block comes next.

use crate::job::{Pattern, Task};

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The file's index.
    pub(super) file: usize,
    pub(super) offset: u64,
}

/// The blocks of a task in order; any thread can take any number of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockOrder {
    pattern: Pattern,
    files: u64,
    blocks_per_file: u64,
    block_bytes: u64,
    seed: u64,
}

impl BlockOrder {
    pub(super) fn of(task: &Task) -> Self {
        Self {
            pattern: task.pattern,
            files: task.files.len() as u64,
            blocks_per_file: (task.file_bytes / task.block_bytes).max(1),
            block_bytes: task.block_bytes,
            seed: task.seed,
        }
    }

    /// The place of the block with this number; after the last the first comes
    /// again, in another order if it is random.
    pub(super) fn place(&self, number: u64) -> Place {
        let all = self.files * self.blocks_per_file;
        let (file, block) = match self.pattern {
            Pattern::RoundRobin | Pattern::Append => (
                number % self.files,
                number / self.files % self.blocks_per_file,
            ),
            Pattern::Sequential | Pattern::Tree => self.split(number % all),
            Pattern::Random => {
                let seed = self.seed.wrapping_add(number / all);
                self.split(shuffled(number % all, all, seed))
            }
        };
        Place {
            file: file as usize,
            offset: block * self.block_bytes,
        }
    }

    fn split(&self, block: u64) -> (u64, u64) {
        (block / self.blocks_per_file, block % self.blocks_per_file)
    }
}

/// Where a number below `count` goes in a shuffle of all of them: steps that
/// can each be undone on as many bits as needed, repeated until the result is
/// below `count` again.
fn shuffled(number: u64, count: u64, seed: u64) -> u64 {
    let bits = (64 - count.saturating_sub(1).leading_zeros()).max(2);
    let mask = u64::MAX >> (64 - bits);
    let mut at = number;
    loop {
        for round in 0..3_u64 {
            // Odd, so that the product can be undone (the constant is 2^64
            // divided by the golden ratio, as in Knuth's hashing).
            let factor = seed.wrapping_add(round).wrapping_mul(2) | 1;
            at = at.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(factor)) & mask;
            at ^= at >> (bits / 2);
            at = at.wrapping_add(seed >> round) & mask;
        }
        if at < count {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_meets_every_block_once() {
        for count in [1, 2, 3, 100, 4096, 10_007] {
            let mut seen = vec![false; count as usize];
            for number in 0..count {
                let at = shuffled(number, count, 42);
                assert!(!std::mem::replace(&mut seen[at as usize], true));
            }
        }
    }

    #[test]
    fn a_shuffle_is_not_sequential() {
        let count = 100_000;
        let next_to = (1..count)
            .filter(|&n| shuffled(n, count, 1).abs_diff(shuffled(n - 1, count, 1)) < 16)
            .count();
        assert!(next_to < 1000, "{next_to}");
        assert_ne!(shuffled(5, count, 1), shuffled(5, count, 2));
    }

    #[test]
    fn files_follow_each_other_or_take_turns() {
        let mut order = BlockOrder {
            pattern: Pattern::Sequential,
            files: 2,
            blocks_per_file: 3,
            block_bytes: 10,
            seed: 0,
        };
        let places = |order: BlockOrder| -> Vec<(usize, u64)> {
            (0..7)
                .map(|number| order.place(number))
                .map(|place| (place.file, place.offset))
                .collect()
        };
        assert_eq!(
            places(order),
            [(0, 0), (0, 10), (0, 20), (1, 0), (1, 10), (1, 20), (0, 0)]
        );
        order.pattern = Pattern::RoundRobin;
        assert_eq!(
            places(order),
            [(0, 0), (1, 0), (0, 10), (1, 10), (0, 20), (1, 20), (0, 0)]
        );
    }
}
