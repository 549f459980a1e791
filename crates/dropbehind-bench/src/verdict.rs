//! Who wins a scenario, by how much, and whether that is more than chance.

use crate::metric::{Better, Metric, shown};
use crate::mode::Mode;
use crate::results::ScenarioResults;
use crate::statistics::Spread;
use crate::table::roles;

/// How ours does against the best of the others and against plain I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Ours is best, beyond the spread.
    Won,
    /// No difference beyond the spread.
    Even,
    /// Another is better, beyond the spread.
    Lost,
    /// There is nothing to compare.
    Unknown,
}

/// The verdict of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Of `dontcache`, or of `run` where programs are measured as they are.
    pub outcome: Outcome,
    /// In a sentence.
    pub sentence: String,
}

/// The verdict on a scenario's own metric.
#[must_use]
pub fn verdict(results: &ScenarioResults) -> Verdict {
    let unknown = |sentence: String| Verdict {
        outcome: Outcome::Unknown,
        sentence,
    };
    if let Some(why) = &results.skipped {
        return unknown(format!("Skipped: {why}."));
    }
    let Some(metric) = Metric::named(&results.metric) else {
        return unknown(format!("The metric {} is not known.", results.metric));
    };
    let spreads: Vec<(Mode, Spread)> = results
        .modes
        .iter()
        .filter(|mode| mode.mode != Mode::Alone)
        .filter_map(|mode| Some((mode.mode, metric.spread(mode, &results.role)?)))
        .collect();
    let of = |wanted: Mode| spreads.iter().find(|(mode, _)| *mode == wanted);
    let ours = [Mode::Dontcache, Mode::Run].into_iter().find_map(of);
    let Some(ours) = ours.or_else(|| spreads.iter().find(|(mode, _)| mode.is_ours())) else {
        return unknown("No mode of dropbehind was measured.".to_owned());
    };
    let others = spreads.iter().filter(|(mode, _)| !mode.is_ours());
    let Some(rival) = others.reduce(|best, one| {
        if is_better(metric, one, best) {
            one
        } else {
            best
        }
    }) else {
        return unknown(format!(
            "{} has {}; nothing was measured to compare it with.",
            ours.0,
            value(metric, &ours.1)
        ));
    };
    let is_proof = ours.1.count.min(rival.1.count) > 1;
    let outcome = match (ours.1.is_apart(&rival.1), is_better(metric, ours, rival)) {
        _ if !is_proof => Outcome::Unknown,
        (true, true) => Outcome::Won,
        (true, false) => Outcome::Lost,
        (false, _) => Outcome::Even,
    };
    let mut sentence = format!(
        "{} {}: {} {}, the best other, {}",
        ours.0,
        value(metric, &ours.1),
        ratio(ours.1.median, rival.1.median),
        rival.0,
        value(metric, &rival.1)
    );
    if let Some(plain) = of(Mode::Buffered).filter(|_| rival.0 != Mode::Buffered) {
        sentence.push_str(&format!(
            "; {} buffered, {}",
            ratio(ours.1.median, plain.1.median),
            value(metric, &plain.1)
        ));
    }
    sentence.push_str(match outcome {
        Outcome::Even => ". The ranges overlap.",
        Outcome::Unknown => ". A single run proves nothing.",
        _ => ".",
    });
    for role in roles(results).iter().filter(|role| **role != results.role) {
        sentence.push_str(&aside(results, role, ours.0, rival.0));
    }
    Verdict { outcome, sentence }
}

/// How fast another role of the scenario was meanwhile: who wins at others'
/// cost has not won.
fn aside(results: &ScenarioResults, role: &str, ours: Mode, rival: Mode) -> String {
    let Some(speed) = Metric::named("speed") else {
        return String::new();
    };
    let of = |wanted: Mode| {
        let mode = results.modes.iter().find(|mode| mode.mode == wanted)?;
        speed.spread(mode, role)
    };
    let Some(mine) = of(ours) else {
        return String::new();
    };
    let mut text = format!(" Its {role}: {}", value(speed, &mine));
    let mut others = vec![rival, Mode::Buffered, Mode::Alone];
    others.dedup();
    for other in others {
        if let Some(theirs) = of(other) {
            let ratio = ratio(mine.median, theirs.median);
            text.push_str(&format!(", {ratio} {other}"));
        }
    }
    text.push('.');
    text
}

fn is_better(metric: &Metric, one: &(Mode, Spread), other: &(Mode, Spread)) -> bool {
    match metric.better {
        Better::Higher => one.1.median > other.1.median,
        Better::Lower => one.1.median < other.1.median,
    }
}

fn ratio(ours: f64, theirs: f64) -> String {
    if theirs == 0.0 {
        return "a multiple of".to_owned();
    }
    format!("{}×", shown(ours / theirs))
}

/// A median with its range: `719 MB/s (586-758)`.
fn value(metric: &Metric, spread: &Spread) -> String {
    let range = match spread.count {
        1 => String::new(),
        _ => format!(" {}", crate::table::range(spread)),
    };
    let unit = metric.unit;
    let name = match metric.key {
        "speed" => String::new(),
        // The unit is said anyway.
        _ => format!("{} ", metric.name()),
    };
    format!("{name}{} {unit}{range}", shown(spread.median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{ModeResults, RoleFigures, Run};

    fn results(speeds: &[(Mode, &[u64])]) -> ScenarioResults {
        let run = |&speed: &u64| {
            let reader = RoleFigures {
                bytes: 1_000_000_000 / speed,
                total_ns: 1_000_000_000,
                ..RoleFigures::default()
            };
            let role = RoleFigures {
                bytes: speed * 1_000_000,
                total_ns: 1_000_000_000,
                ..RoleFigures::default()
            };
            Run {
                roles: [("writer".to_owned(), role), ("reader".to_owned(), reader)].into(),
                ..Run::default()
            }
        };
        ScenarioResults {
            name: "x".to_owned(),
            summary: String::new(),
            role: "writer".to_owned(),
            metric: "speed".to_owned(),
            size_bytes: 0,
            block_bytes: 0,
            skipped: None,
            notes: Vec::new(),
            modes: speeds
                .iter()
                .map(|(mode, speeds)| ModeResults {
                    mode: *mode,
                    unavailable: None,
                    failed: None,
                    runs: speeds.iter().map(run).collect(),
                })
                .collect(),
        }
    }

    #[test]
    fn any_mode_of_ours_is_compared() {
        let ours: &[u64] = &[100, 101];
        let verdict = verdict(&results(&[
            (Mode::Buffered, &[90, 91]),
            (Mode::WriteBehind, ours),
        ]));
        assert_eq!(verdict.outcome, Outcome::Won, "{}", verdict.sentence);
    }

    #[test]
    fn wins_and_losses_are_beyond_the_spread() {
        use Mode::{Buffered, Dontcache, Native};
        let of = |ours: &[u64]| {
            let native: &[u64] = &[190, 200, 210];
            verdict(&results(&[
                (Buffered, &[90, 100, 110]),
                (Native, native),
                (Dontcache, ours),
            ]))
        };
        let won = of(&[390, 400, 410]);
        assert_eq!(won.outcome, Outcome::Won);
        assert_eq!(
            won.sentence,
            "dontcache 400 MB/s (390-410): 2.00× native, the best other, 200 MB/s (190-210); 4.00× \
             buffered, 100 MB/s (90.0-110). Its reader: 2.50 MB/s (2.44-2.56), 0.500× native, \
             0.250× buffered."
        );
        assert_eq!(of(&[200, 205, 300]).outcome, Outcome::Even);
        assert_eq!(of(&[120, 130, 150]).outcome, Outcome::Lost);
        assert_eq!(of(&[400]).outcome, Outcome::Unknown);
        assert_eq!(of(&[]).outcome, Outcome::Unknown);
    }
}
