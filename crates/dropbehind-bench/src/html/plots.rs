//! The plots of a scenario: over time, and of latencies. Each shows one run of
//! a mode, that with the median speed.

use std::fmt::Write;

use super::chart::{Axis, Line, RunName, Scale, dashes, lines};
use crate::clock::SERIES_STEP_NS;
use crate::metric::Metric;
use crate::mode::Mode;
use crate::results::{ModeResults, Run, ScenarioResults};
use crate::sampler::MemorySample;
use crate::series::steady;
use crate::table::roles;

/// Modes whose lines are shown at first.
const SHOWN: [Mode; 6] = [
    Mode::Buffered,
    Mode::Native,
    Mode::DirectQ16,
    Mode::Dontcache,
    Mode::Run,
    Mode::Alone,
];

/// The run in the middle.
fn typical<'a>(mode: &'a ModeResults, role: &str) -> Option<&'a Run> {
    let speed = Metric::named("speed")?;
    let mut runs: Vec<&Run> = mode.runs.iter().collect();
    let of = |run: &Run| speed.of(run, role).unwrap_or(0.0);
    runs.sort_by(|a, b| of(a).total_cmp(&of(b)));
    runs.get(runs.len() / 2).copied()
}

/// A scenario's results, or those of two benchmarks.
pub(super) type Sources<'a> = [(RunName, &'a ScenarioResults)];

fn each_mode(
    sources: &Sources<'_>,
    role: &str,
    points: impl Fn(&Run) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let mut lines = Vec::new();
    for (run, results) in sources {
        for mode in &results.modes {
            let points = typical(mode, role).map(&points).unwrap_or_default();
            if points.len() > 1 {
                lines.push(Line {
                    mode: mode.mode,
                    run: *run,
                    points,
                });
            }
        }
    }
    lines
}

fn most(lines: &[Line], of: fn(&(f64, f64)) -> f64) -> f64 {
    let values = lines.iter().flat_map(|line| &line.points).map(of);
    values.fold(0.0, f64::max)
}

type Of = fn(&MemorySample) -> u64;
const MEMORY: [(&str, Of); 2] = [
    ("In the page cache", |sample| sample.cached_bytes),
    ("Dirty or under writeback", |sample| sample.dirty_bytes),
];

/// All of them.
pub(super) fn plots(sources: &Sources<'_>) -> String {
    let mut figures = String::new();
    let first = sources[0].1;
    for role in roles(first) {
        figures.push_str(&speed_over_time(sources, &role));
        figures.push_str(&latencies(sources, &role));
    }
    let role = &first.role;
    for (caption, of) in MEMORY {
        figures.push_str(&memory(sources, role, caption, of));
    }
    figures
}

/// What the lines are, and which of them and of the rows of the table are shown.
pub(super) fn legend(results: &ScenarioResults) -> String {
    let mut text = String::from(
        "<fieldset class=\"legend\"><legend>Lines are of each mode's run with the median speed\
         </legend>",
    );
    for mode in results.modes.iter().filter(|mode| !mode.runs.is_empty()) {
        let mode = mode.mode;
        let checked = ["", " checked"][usize::from(SHOWN.contains(&mode))];
        let _ = write!(
            text,
            "<label><input type=\"checkbox\" value=\"{mode}\"{checked} hidden>\
             <svg viewBox=\"0 0 32 8\" aria-hidden=\"true\"><path d=\"M0 4H32\" \
             stroke=\"var(--{mode})\" stroke-width=\"3\" stroke-dasharray=\"{}\"/></svg>{mode}\
             </label>",
            dashes(mode)
        );
    }
    text.push_str("</fieldset>\n");
    text
}

pub(super) fn whose(role: &str) -> String {
    match role {
        "all" => "of all together".to_owned(),
        role => format!("of the {role}"),
    }
}

fn speed_over_time(sources: &Sources<'_>, role: &str) -> String {
    let lines_ = each_mode(sources, role, |run| {
        let Some(role) = run.roles.get(role) else {
            return Vec::new();
        };
        let steps = steady(&role.series_bytes);
        let speeds = steps.mb_per_s().into_iter().enumerate();
        speeds
            .map(|(step, speed)| ((step as f64 + 1.0) * steps.seconds, speed))
            .collect()
    });
    if lines_.is_empty() {
        return String::new();
    }
    let x = Axis::from_zero("s", most(&lines_, |point| point.0));
    let y = Axis::from_zero("MB/s", most(&lines_, |point| point.1));
    lines(&format!("Speed {}, MB/s", whose(role)), &x, &y, &lines_)
}

/// Percentiles on a scale on which each further nine takes as much room.
fn nines(percentile: f64) -> f64 {
    const LAST: f64 = 5.5;
    if percentile >= 100.0 {
        return LAST;
    }
    (100.0 / (100.0 - percentile)).log10()
}

fn latencies(sources: &Sources<'_>, role: &str) -> String {
    let lines_ = each_mode(sources, role, |run| {
        let Some(role) = run.roles.get(role).filter(|role| role.operations > 0) else {
            return Vec::new();
        };
        let curve = role.latency.curve.iter();
        curve
            .map(|&(percentile, ns)| (nines(percentile), (ns.max(1) as f64 / 1e3).log10()))
            .collect()
    });
    if lines_.is_empty() {
        return String::new();
    }
    let points = || lines_.iter().flat_map(|line| &line.points);
    let values = || points().map(|point| point.1);
    let low = values().fold(f64::MAX, f64::min).floor();
    let high = values().fold(f64::MIN, f64::max).ceil().max(low + 1.0);
    let ticks = (low as i32..=high as i32).map(|power| (f64::from(power), time(power)));
    let y = Axis {
        label: "latency",
        scale: Scale::Time,
        low,
        high,
        ticks: ticks.collect(),
    };
    let named = [
        (50.0, "50 %"),
        (90.0, "90"),
        (99.0, "99"),
        (99.9, "99.9"),
        (99.99, "99.99"),
        (100.0, "max"),
    ];
    let x = Axis {
        label: "percentile of the calls",
        scale: Scale::Nines,
        low: 0.0,
        high: nines(100.0),
        ticks: named
            .iter()
            .map(|&(percentile, name)| (nines(percentile), name.to_owned()))
            .collect(),
    };
    lines(
        &format!("Latency of calls {}", whose(role)),
        &x,
        &y,
        &lines_,
    )
}

/// A power of ten of microseconds.
fn time(power: i32) -> String {
    match power {
        6.. => format!("{} s", 10_u64.pow(power as u32 - 6)),
        3..6 => format!("{} ms", 10_u64.pow(power as u32 - 3)),
        0..3 => format!("{} µs", 10_u64.pow(power as u32)),
        -3..0 => format!("{} ns", 10_u64.pow((power + 3) as u32)),
        _ => String::new(),
    }
}

fn memory(sources: &Sources<'_>, role: &str, caption: &str, of: Of) -> String {
    let seconds = SERIES_STEP_NS as f64 / 1e9;
    let lines_ = each_mode(sources, role, |run| {
        let samples = run.memory.series.iter().enumerate();
        samples
            .map(|(step, sample)| {
                let mib = of(sample) as f64 / f64::from(1 << 20);
                ((step as f64 + 1.0) * seconds, mib)
            })
            .collect()
    });
    if lines_.is_empty() {
        return String::new();
    }
    let x = Axis::from_zero("s", most(&lines_, |point| point.0));
    let y = Axis::from_zero("MiB", most(&lines_, |point| point.1));
    lines(&format!("{caption}, MiB"), &x, &y, &lines_)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_have_units() {
        let names: Vec<String> = (-3..8).map(time).collect();
        assert_eq!(
            names,
            [
                "1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms",
                "1 s", "10 s"
            ]
        );
        assert!((nines(90.0) - 1.0).abs() < 1e-9);
        assert!((nines(99.9) - 3.0).abs() < 1e-9);
        assert!(nines(100.0) > nines(99.999));
    }
}
