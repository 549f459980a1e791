//! What was learned about who uses pages again: files, directories and programs.
//!
//! A lesson saves the wait. What comes from a program whose output was nearly always used again
//! stays at once, so that the ten-thousandth object file of a build is not dropped.

use alloc::collections::{BTreeMap, VecDeque};

/// At most this many are remembered, and the oldest is forgotten: some 150 KB.
const LESSONS: usize = 1 << 11;
/// A prediction takes this many outcomes,
const OUTCOMES: u32 = 16;
/// of which at most one in this many was a page used once. A wrong prediction costs memory until
/// the kernel needs it, and a missing one costs a read. From 2 to 16, what `tests/hit_rates.rs`
/// finds in the cache differs by 0.2 percent of all uses at most.
const RARELY: u32 = 8;
/// At this many outcomes, both counts are halved, so that the latest count for most.
const MOST: u32 = 128;
/// Of what is expected to be used again, one piece in this many waits all the same: otherwise a
/// lesson could never be unlearned.
const SAMPLE: u32 = 8;

/// Whom a lesson is about: a hash of a file, a directory or a program.
pub type Subject = u64;

#[derive(Clone, Copy, Debug, Default)]
struct Score {
    again: u32,
    once: u32,
    expected: u32,
}

/// Outcomes by subject.
#[derive(Clone, Debug, Default)]
pub struct Lessons {
    scores: BTreeMap<Subject, Score>,
    order: VecDeque<Subject>,
}

impl Lessons {
    /// A piece was used `again` or only once.
    pub fn learn(&mut self, subject: Subject, again: bool) {
        if !self.scores.contains_key(&subject) {
            if self.order.len() >= LESSONS
                && let Some(oldest) = self.order.pop_front()
            {
                self.scores.remove(&oldest);
            }
            self.order.push_back(subject);
        }
        let score = self.scores.entry(subject).or_default();
        match again {
            true => score.again += 1,
            false => score.once += 1,
        }
        if score.again + score.once >= MOST {
            score.again /= 2;
            score.once /= 2;
        }
    }

    /// Returns whether the next piece need not wait to show that it is used again.
    pub fn expects_reuse(&mut self, subject: Subject) -> bool {
        let Some(score) = self.scores.get_mut(&subject) else {
            return false;
        };
        let outcomes = score.again + score.once;
        if outcomes < OUTCOMES || score.once * RARELY > outcomes {
            return false;
        }
        score.expected = score.expected.wrapping_add(1);
        !score.expected.is_multiple_of(SAMPLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(lessons: &mut Lessons, subject: Subject) -> u32 {
        (0..SAMPLE)
            .map(|_| u32::from(lessons.expects_reuse(subject)))
            .sum()
    }

    #[test]
    fn what_was_learned_can_be_unlearned() {
        let mut lessons = Lessons::default();
        for _ in 1..OUTCOMES {
            lessons.learn(1, true);
        }
        assert_eq!(expected(&mut lessons, 1), 0, "not yet");
        lessons.learn(1, true);
        assert_eq!(expected(&mut lessons, 1), SAMPLE - 1);
        assert_eq!(expected(&mut lessons, 2), 0);
        for _ in 0..OUTCOMES {
            lessons.learn(1, false);
        }
        assert_eq!(expected(&mut lessons, 1), 0);
        for _ in 0..10 * MOST {
            lessons.learn(1, true);
        }
        assert_eq!(expected(&mut lessons, 1), SAMPLE - 1);
    }

    #[test]
    fn old_lessons_make_room() {
        let mut lessons = Lessons::default();
        for subject in 0..2 * LESSONS as u64 {
            for _ in 0..OUTCOMES {
                lessons.learn(subject, true);
            }
        }
        assert_eq!(lessons.scores.len(), LESSONS);
        assert_eq!(expected(&mut lessons, 0), 0);
    }
}
