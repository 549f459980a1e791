//! Plots, as SVG.

use std::fmt::Write;

use super::markup::Escaped;
use crate::metric::shown;
use crate::mode::Mode;
use crate::statistics::Spread;

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
    pub(super) points: Vec<(f64, f64)>,
}

/// An axis: where its ticks are, on the scale of the points.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to a round number above `high`.
    pub(super) fn from_zero(label: &str, high: f64) -> Self {
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
            label: label.to_owned(),
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

/// A round number without the digits that say nothing.
fn tick(value: f64) -> String {
    let text = shown(value);
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
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

fn class(mode: Mode) -> &'static str {
    if mode.is_ours() {
        " class=\"ours\""
    } else {
        ""
    }
}

/// Lines over two axes, with what they show in words for those who cannot see
/// them.
pub(super) fn lines(caption: &str, x: &Axis, y: &Axis, lines: &[Line]) -> String {
    let mut svg = String::new();
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let at_x = |value: f64| LEFT + x.share(value) * (right - LEFT);
    let at_y = |value: f64| bottom - y.share(value) * (bottom - TOP);
    let names: Vec<&str> = lines.iter().map(|line| line.mode.name()).collect();
    let _ = write!(
        svg,
        "<figure><figcaption>{0}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{0}: {1} over {2}, of {3}; the figures are in the tables\">",
        Escaped(caption),
        Escaped(&y.label),
        Escaped(&x.label),
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
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, right),
        HEIGHT - 4.0,
        Escaped(&x.label)
    );
    for line in lines {
        let points: Vec<String> = thinned(&line.points)
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", at_x(*x), at_y(*y)))
            .collect();
        let _ = write!(
            svg,
            "<polyline{} data-mode=\"{1}\" stroke=\"var(--{1})\" stroke-dasharray=\"{2}\" \
             points=\"{3}\"><title>{1}</title></polyline>",
            class(line.mode),
            line.mode,
            dashes(line.mode),
            points.join(" ")
        );
    }
    svg.push_str("</svg></figure>\n");
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

/// A bar for each mode, with its range.
pub(super) fn bars(caption: &str, unit: &str, values: &[(Mode, Spread)]) -> String {
    const ROW: f64 = 22.0;
    const NAME: f64 = 92.0;
    const VALUE: f64 = 52.0;
    let height = ROW * values.len() as f64 + 4.0;
    let most = values
        .iter()
        .map(|(_, spread)| spread.high)
        .fold(0.0, f64::max);
    let scale = if most > 0.0 {
        (WIDTH - NAME - VALUE) / most
    } else {
        0.0
    };
    let texts: Vec<String> = values
        .iter()
        .map(|(mode, spread)| format!("{mode} {}", shown(spread.median)))
        .collect();
    let mut svg = format!(
        "<figure><figcaption>{0}, {1}</figcaption><svg viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"{0} in {1}: {2}\">",
        Escaped(caption),
        Escaped(unit),
        texts.join(", ")
    );
    for (index, (mode, spread)) in values.iter().enumerate() {
        let top = ROW * index as f64 + 3.0;
        let middle = top + 8.0;
        let (low, high) = (NAME + spread.low * scale, NAME + spread.high * scale);
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{mode}</text>\
             <rect class=\"track\" x=\"{NAME}\" y=\"{top}\" width=\"{:.1}\" height=\"16\"/>\
             <rect x=\"{NAME}\" y=\"{top}\" width=\"{:.1}\" height=\"16\" fill=\"var(--{mode})\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            NAME - 6.0,
            top + 12.0,
            WIDTH - NAME - VALUE,
            spread.median * scale,
            WIDTH - 2.0,
            top + 12.0,
            shown(spread.median)
        );
        if spread.count > 1 {
            let _ = write!(
                svg,
                "<path class=\"whisker\" d=\"M{low:.1} {middle}H{high:.1}M{low:.1} {:.1}v6M{high:.1} \
                 {:.1}v6\"/>",
                middle - 3.0,
                middle - 3.0
            );
        }
    }
    svg.push_str("</svg></figure>\n");
    svg
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
