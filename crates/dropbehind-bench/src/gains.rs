//! What was gained and what was lost, in sentences for people who do not know the words of the
//! tables. Every one follows from the figures.

use crate::change::Change;
use crate::compare::{Compared, compared};
use crate::metric::{Metric, shown};
use crate::mode::Mode;
use crate::results::ScenarioResults;

/// How many of each are told.
const MOST: usize = 3;
/// Larger factors are taken for this one when gains are put in order: from 0 it would be infinite.
const LARGEST_FACTOR: f64 = 1000.0;
/// Changes by less are not worth a sentence.
const SMALLEST_FACTOR: f64 = 1.1;

/// What a gain is about. The best of each is told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Speed,
    Memory,
    Waits,
    Processor,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Speed, Kind::Memory, Kind::Waits, Kind::Processor];
}

/// A metric that is worth telling.
struct Subject {
    key: &'static str,
    kind: Kind,
    /// Smaller differences do not matter to anybody, in the metric's unit.
    smallest: f64,
    /// What it means if it is better, and if it is worse.
    titles: [&'static str; 2],
    /// The sentence: `{role}`, `{after}` and `{before}` are replaced.
    sentence: &'static str,
}

impl Subject {
    /// What says the same is told once.
    fn topic(&self) -> &'static str {
        match self.key {
            "total" => "speed",
            key => key,
        }
    }
}

const SUBJECTS: [Subject; 9] = [
    Subject {
        key: "speed",
        kind: Kind::Speed,
        smallest: 1.0,
        titles: ["Faster", "Slower"],
        sentence: "The {role} moves {after} instead of {before}",
    },
    Subject {
        key: "total",
        kind: Kind::Speed,
        smallest: 0.1,
        titles: ["Done earlier", "Done later"],
        sentence: "The {role} has its data safely on the disk after {after} instead of {before}",
    },
    Subject {
        key: "sync",
        kind: Kind::Waits,
        smallest: 0.1,
        titles: ["Shorter wait at the end", "Longer wait at the end"],
        sentence: "The {role}'s closing sync takes {after} instead of {before}",
    },
    Subject {
        key: "p99",
        kind: Kind::Waits,
        smallest: 10.0,
        titles: ["Shorter waits", "Longer waits"],
        sentence: "99 of 100 calls of the {role} end within {after} instead of {before}",
    },
    Subject {
        key: "peak_dirty",
        kind: Kind::Memory,
        smallest: 1.0,
        titles: [
            "Less data not yet on the disk",
            "More data not yet on the disk",
        ],
        sentence: "At most {after} wait to be written at once instead of {before}",
    },
    Subject {
        key: "left_cached",
        kind: Kind::Memory,
        smallest: 1.0,
        titles: ["Less memory taken", "More memory taken"],
        sentence: "In the end {after} of the files are left in memory instead of {before}",
    },
    Subject {
        key: "hot_evicted",
        kind: Kind::Memory,
        smallest: 1.0,
        titles: ["Others keep their memory", "Others lose their memory"],
        sentence: "{after} of another program's hot data are pushed out of memory instead of \
                   {before}",
    },
    Subject {
        key: "cpu_machine",
        kind: Kind::Processor,
        smallest: 0.02,
        titles: ["Less processor time", "More processor time"],
        sentence: "The processors work for {after} instead of {before}",
    },
    Subject {
        key: "idle_cpu",
        kind: Kind::Processor,
        smallest: 0.1,
        titles: ["Idle files cost less", "Idle files cost more"],
        sentence: "While files lie open and idle, they take {after} instead of {before}",
    },
];

/// A gain or a loss.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gain {
    pub(crate) title: &'static str,
    /// With its numbers and units.
    pub(crate) sentence: String,
    /// Where it was measured, and how.
    pub(crate) scenario: String,
    pub(crate) mode: Mode,
    /// How the same metric did everywhere.
    pub(crate) elsewhere: String,
}

/// The largest gains and losses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gains {
    pub(crate) gained: Vec<Gain>,
    pub(crate) lost: Vec<Gain>,
    /// Whether they are more than chance; single runs prove nothing.
    pub(crate) is_proof: bool,
}

/// dropbehind, in the mode of the verdicts, against plain buffered I/O: all figures of it.
pub(crate) fn against_plain(scenario: &ScenarioResults) -> Vec<Compared> {
    let measured = |wanted: Mode| {
        let mut modes = scenario.modes.iter();
        modes.find(|mode| mode.mode == wanted && !mode.runs.is_empty())
    };
    let ours = measured(Mode::Dontcache).or_else(|| measured(Mode::Run));
    let Some((plain, ours)) = measured(Mode::Buffered).zip(ours) else {
        return Vec::new();
    };
    let metrics = Metric::ALL.map(|metric| metric.key);
    compared(scenario, plain, ours, &metrics)
}

/// Finds the largest gains and losses.
pub(crate) fn gains(compared: &[Compared]) -> Gains {
    let is_proof = compared.iter().any(|one| !one.change.is_single());
    let of = |better: bool| {
        let mut found: Vec<(&Compared, &Subject)> = compared
            .iter()
            .filter_map(|one| Some((one, subject(&one.change)?)))
            .filter(|(one, _)| one.change.is_better() == better && is_told(&one.change, is_proof))
            .collect();
        found.sort_by(|a, b| size(&b.0.change).total_cmp(&size(&a.0.change)));
        let mut chosen: Vec<(&Compared, &Subject)> = Vec::new();
        // First the largest of each kind, then whatever is largest; nothing is told twice.
        let kinds = Kind::ALL.map(Some).into_iter().chain([None; MOST]);
        for kind in kinds {
            let is_new = |(_, new): &&(&Compared, &Subject)| {
                kind.is_none_or(|kind| new.kind == kind)
                    && chosen.iter().all(|(_, old)| old.topic() != new.topic())
            };
            if chosen.len() < MOST {
                chosen.extend(
                    found
                        .iter()
                        .find(is_new)
                        .copied()
                        .into_iter()
                        .collect::<Vec<_>>(),
                );
            }
        }
        let told = chosen.iter();
        told.map(|(one, subject)| gain(one, subject, compared, is_proof))
            .collect()
    };
    Gains {
        gained: of(true),
        lost: of(false),
        is_proof,
    }
}

fn subject(change: &Change) -> Option<&'static Subject> {
    static ALL: [Subject; 9] = SUBJECTS;
    ALL.iter().find(|one| one.key == change.metric.key)
}

/// The factor between the medians, whichever is larger.
fn size(change: &Change) -> f64 {
    let (before, after) = (change.before.median, change.after.median);
    let (low, high) = (before.min(after), before.max(after));
    if low > 0.0 {
        (high / low).min(LARGEST_FACTOR)
    } else {
        LARGEST_FACTOR
    }
}

/// Whether it is real, where that can be known, and large enough to be told.
fn is_told(change: &Change, is_proof: bool) -> bool {
    let difference = (change.after.median - change.before.median).abs();
    (change.is_apart() || !is_proof)
        && size(change) >= SMALLEST_FACTOR
        && subject(change).is_some_and(|subject| difference >= subject.smallest)
}

fn gain(one: &Compared, subject: &Subject, all: &[Compared], is_proof: bool) -> Gain {
    let Change {
        metric,
        before,
        after,
    } = &one.change;
    let value = |value: f64| match metric.key {
        "cpu_machine" => format!("{} s per GiB", shown(value)),
        "p99" if before.median.max(after.median) >= 1e3 => format!("{} ms", shown(value / 1e3)),
        _ => format!("{} {}", shown(value), metric.unit),
    };
    let role = match one.role.as_str() {
        "all" => "group of all programs",
        role => role,
    };
    let sentence = subject
        .sentence
        .replace("{role}", role)
        .replace("{after}", &value(after.median))
        .replace("{before}", &value(before.median));
    let size = one.change.size();
    // "to 0" has been said.
    let sentence = match size.as_str() {
        "to 0" | "from 0" => format!("{sentence}."),
        size => format!("{sentence}: {size}."),
    };
    let same = || {
        all.iter()
            .filter(|other| other.change.metric.key == metric.key)
    };
    let count = |better: bool| {
        let is = |other: &&Compared| other.change.is_better() == better;
        same()
            .filter(is)
            .filter(|other| is_told(&other.change, is_proof))
            .count()
    };
    let elsewhere = match same().count() {
        1 => String::new(),
        all => format!(
            "Better in {}, worse in {} of {all} comparisons.",
            count(true),
            count(false)
        ),
    };
    Gain {
        title: subject.titles[usize::from(!one.change.is_better())],
        sentence,
        scenario: one.scenario.clone(),
        mode: one.mode,
        elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Spread;

    fn one(scenario: &str, key: &str, before: &[f64], after: &[f64]) -> Compared {
        let spread = |values: &[f64]| Spread::of(values.iter().copied()).unwrap();
        Compared {
            scenario: scenario.to_owned(),
            mode: Mode::Dontcache,
            role: "writer".to_owned(),
            change: Change {
                metric: Metric::named(key).unwrap(),
                before: spread(before),
                after: spread(after),
            },
        }
    }

    #[test]
    fn the_best_of_each_kind_is_told_and_losses_are_not_kept_quiet() {
        let found = gains(&[
            one("a", "left_cached", &[247.0; 2], &[0.0; 2]),
            one("a", "peak_dirty", &[247.0; 2], &[17.0; 2]),
            one("a", "speed", &[1000.0, 1010.0], &[1400.0, 1410.0]),
            one("b", "speed", &[1000.0, 1010.0], &[600.0, 610.0]),
            one("a", "p99", &[100.0, 200.0], &[150.0, 300.0]),
            one("a", "cpu_machine", &[0.3; 2], &[0.4; 2]),
            one("a", "cpu_flusher", &[0.001; 2], &[0.4; 2]),
        ]);
        assert!(found.is_proof);
        let told: Vec<&str> = found
            .gained
            .iter()
            .map(|one| one.sentence.as_str())
            .collect();
        assert_eq!(
            told,
            [
                "The writer moves 1405 MB/s instead of 1005 MB/s: +40 %.",
                "In the end 0 MiB of the files are left in memory instead of 247 MiB.",
                "At most 17.0 MiB wait to be written at once instead of 247 MiB: 1/15 as much.",
            ]
        );
        assert_eq!(
            found.gained[0].elsewhere,
            "Better in 1, worse in 1 of 2 comparisons."
        );
        // The p99 is within the noise, and the flusher is part of the machine.
        let lost: Vec<&str> = found.lost.iter().map(|one| one.title).collect();
        assert_eq!(lost, ["Slower", "More processor time"]);
        assert_eq!(found.lost[0].scenario, "b");
    }

    #[test]
    fn nothing_lost_and_nothing_proven() {
        let found = gains(&[one("a", "speed", &[1000.0; 2], &[1400.0; 2])]);
        assert!(found.lost.is_empty() && found.gained.len() == 1);
        let found = gains(&[one("a", "speed", &[1000.0], &[600.0])]);
        assert!(!found.is_proof && found.gained.is_empty());
        assert_eq!(found.lost[0].title, "Slower");
        let found = gains(&[]);
        assert!(found.lost.is_empty() && found.gained.is_empty());
    }
}
