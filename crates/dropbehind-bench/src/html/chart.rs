//! Plots, as SVG.

use std::fmt::Write;

use super::markup::Escaped;
use crate::metric::shown;
use crate::mode::Mode;

const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 34.0;
/// More points than pixels only make the file large.
const MOST_POINTS: usize = 160;

/// A line of a mode.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) mode: Mode,
    pub(super) run: RunName,
    pub(super) points: Vec<(f64, f64)>,
}

/// Of which benchmark something is where there are two: `A` or `B`.
pub(super) type RunName = Option<char>;

/// What a line or bar is called.
pub(super) fn name(mode: Mode, run: RunName) -> String {
    match run {
        Some(run) => format!("{mode} {run}"),
        None => mode.to_string(),
    }
}

/// Classes: whose it is, and whether it is the older one.
pub(super) fn class(mode: Mode, run: RunName) -> &'static str {
    match (mode.is_ours(), run) {
        (true, Some('A')) => "ours older",
        (false, Some('A')) => "older",
        (true, _) => "ours",
        (false, _) => "",
    }
}

/// How the values of an axis are to be read; the script must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// In this unit.
    Linear(&'static str),
    /// The power of ten of microseconds.
    Time,
    /// How many nines a percentile has.
    Nines,
}

impl Scale {
    fn name(self) -> &'static str {
        match self {
            Self::Linear(unit) => unit,
            Self::Time => "log-time",
            Self::Nines => "nines",
        }
    }

    fn number(self, value: f64) -> String {
        match self {
            Self::Linear(_) => tick(value),
            _ => trimmed(&format!("{value:.4}")),
        }
    }
}

/// An axis: where its ticks are, on the scale of the points.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) scale: Scale,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to a round number above `high`.
    pub(super) fn from_zero(unit: &'static str, high: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let power = 10_f64.powf((high / 4.0).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
        let step = steps
            .iter()
            .map(|step| step * power)
            .find(|step| high / step <= 4.0)
            .unwrap_or(high);
        let count = (high / step).ceil() as u32;
        Self {
            label: if unit == "s" { "seconds" } else { unit },
            scale: Scale::Linear(unit),
            low: 0.0,
            high: f64::from(count) * step,
            ticks: (0..=count)
                .map(|number| f64::from(number) * step)
                .map(|value| (value, tick(value)))
                .collect(),
        }
    }

    fn share(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

fn tick(value: f64) -> String {
    trimmed(&shown(value))
}

/// A number without the digits that say nothing.
fn trimmed(text: &str) -> String {
    if !text.contains('.') {
        return text.to_owned();
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// How a mode's line is dashed, so that colours need not be told apart.
pub(super) fn dashes(mode: Mode) -> &'static str {
    match mode {
        Mode::Native | Mode::WriteThrough => "6 3",
        Mode::Direct | Mode::Noreuse => "2 3",
        Mode::DirectQ16 | Mode::WriteBehind => "8 3 2 3",
        Mode::Cgroup | Mode::Run => "12 3",
        Mode::Snippet | Mode::WriteBehindAny => "1 3",
        Mode::Nocache => "4 2 1 2",
        Mode::Alone => "3 6",
        Mode::Buffered | Mode::Dontcache => "none",
    }
}

/// Lines over two axes, with what they show in words for those who cannot see
/// them.
pub(super) fn lines(caption: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let mut svg = String::new();
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let at_x = |value: f64| LEFT + x.share(value) * (right - LEFT);
    let at_y = |value: f64| bottom - y.share(value) * (bottom - TOP);
    let names: Vec<String> = lines.iter().map(|line| name(line.mode, line.run)).collect();
    let _ = write!(
        svg,
        "<figure><figcaption>{0}</figcaption><svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         role=\"img\" data-x=\"{1}\" data-y=\"{2}\" aria-label=\"{0}: {3} over {4}, of {5}; the \
         figures are in the tables\"><g class=\"ticks\">",
        Escaped(caption),
        x.scale.name(),
        y.scale.name(),
        y.label,
        x.label,
        names.join(", ")
    );
    for (value, text) in &y.ticks {
        let at = at_y(*value);
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 5.0,
            at + 4.0,
            Escaped(text)
        );
    }
    for (value, text) in &x.ticks {
        let at = at_x(*value);
        // The last one would stand out over the edge.
        let anchor = if at > right - 14.0 { "end" } else { "middle" };
        let _ = write!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            bottom + 14.0,
            Escaped(text)
        );
    }
    // The plot is a picture of its own, in the units of the axes: the script reads values from its
    // points, and zooms by its view box.
    let _ = write!(
        svg,
        "</g><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <svg class=\"plot\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{}\" height=\"{}\" \
         viewBox=\"{} {} {} {}\" preserveAspectRatio=\"none\"><g transform=\"scale(1 -1)\">",
        f64::midpoint(LEFT, right),
        HEIGHT - 4.0,
        x.label,
        right - LEFT,
        bottom - TOP,
        x.low,
        -y.high,
        x.high - x.low,
        y.high - y.low
    );
    for line in lines {
        let points: Vec<String> = thinned(&line.points)
            .iter()
            .map(|&(at, value)| format!("{},{}", x.scale.number(at), y.scale.number(value)))
            .collect();
        let _ = write!(
            svg,
            "<polyline class=\"{}\" data-mode=\"{1}\" data-name=\"{2}\" stroke=\"var(--{1})\" \
             stroke-dasharray=\"{3}\" points=\"{4}\"/>",
            class(line.mode, line.run),
            line.mode,
            name(line.mode, line.run),
            dashes(line.mode),
            points.join(" ")
        );
    }
    svg.push_str("</g></svg></svg></figure>\n");
    svg
}

/// Keeps the extremes: of each group of points the highest.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    points
        .chunks(points.len().div_ceil(MOST_POINTS))
        .filter_map(|group| group.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let axis = Axis::from_zero("MB/s", 1924.0);
        assert_eq!((axis.low, axis.high), (0.0, 2000.0));
        assert_eq!(axis.ticks.len(), 5);
        let axis = Axis::from_zero("s", 0.0);
        assert!(axis.high >= 1.0 && axis.ticks.len() >= 2);
        for high in [0.37, 1.0, 9.9, 31.0, 4096.0, 123_456.0] {
            let axis = Axis::from_zero("", high);
            assert!(axis.high >= high && axis.high <= high * 2.0, "{high}");
            assert!((2..=6).contains(&axis.ticks.len()), "{high}");
        }
    }

    #[test]
    fn thinning_keeps_the_peaks() {
        let mut points: Vec<(f64, f64)> = (0..5000).map(|x| (f64::from(x), 1.0)).collect();
        points[3217].1 = 99.0;
        let thin = thinned(&points);
        assert!(thin.len() <= MOST_POINTS);
        assert!(thin.contains(&(3217.0, 99.0)));
    }
}
