//! Who wins a scenario, by how much, and whether that is more than chance.

use crate::metric::{Better, Metric, shown};
use crate::mode::Mode;
use crate::results::ScenarioResults;
use crate::statistics::Spread;

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
    let Some(ours) = of(Mode::Dontcache).or_else(|| of(Mode::Run)) else {
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
    let apart = ours.1.is_apart(&rival.1) && ours.1.count > 1;
    let outcome = match (apart, is_better(metric, ours, rival)) {
        (true, true) => Outcome::Won,
        (true, false) => Outcome::Lost,
        (false, _) => Outcome::Even,
    };
    let relation = match outcome {
        Outcome::Won => format!("{} of the best other", ratio(ours.1.median, rival.1.median)),
        Outcome::Lost => format!("only {} of the best", ratio(ours.1.median, rival.1.median)),
        _ if ours.1.count > 1 => "as good as the best other, within the spread".to_owned(),
        _ => format!(
            "{} of the best other, in a single run, which proves nothing",
            ratio(ours.1.median, rival.1.median)
        ),
    };
    let mut sentence = format!(
        "{}: {}, {relation}, {} with {}",
        ours.0,
        value(metric, &ours.1),
        rival.0,
        value(metric, &rival.1)
    );
    if let Some(plain) = of(Mode::Buffered).filter(|_| rival.0 != Mode::Buffered) {
        sentence.push_str(&format!(
            "; {} of buffered, {}",
            ratio(ours.1.median, plain.1.median),
            value(metric, &plain.1)
        ));
    }
    sentence.push('.');
    Verdict { outcome, sentence }
}

fn is_better(metric: &Metric, one: &(Mode, Spread), other: &(Mode, Spread)) -> bool {
    match metric.better {
        Better::Higher => one.1.median > other.1.median,
        Better::Lower => one.1.median < other.1.median,
    }
}

fn ratio(ours: f64, theirs: f64) -> String {
    if theirs == 0.0 {
        return "a multiple".to_owned();
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
    let name = if matches!(metric.key, "speed") {
        String::new()
    } else {
        format!("{} ", metric.label.split(' ').next().unwrap_or(""))
    };
    format!("{name}{} {unit}{range}", shown(spread.median))
}
