//! Where everything is on the screen, whatever its size.

use super::columns;
use super::header;
use super::table::fit;
use super::view::{Panel, View};
use crate::error::shown;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};
use std::path::Path;

const HELP: [&str; 9] = [
    "q        quit",
    "s, S     sort by the next, the previous column (also >, <)",
    "r        sort the other way round",
    "up, down, page up, page down, home, end (k, j, -, space, g, G)",
    "         scroll",
    "tab      the next observer, back tab the previous",
    "n        notes: what is not possible here, and why",
    "?        this list",
    "ctrl-z   stop until fg",
];

/// How many lines each part gets.
struct Heights {
    header: usize,
    tabs: usize,
    disks: usize,
    note: usize,
    footer: usize,
}

impl Heights {
    /// The files get at least half of what the header, tabs, note and footer leave.
    fn of(view: &View, height: usize) -> Self {
        let header = match height {
            0..8 => 1,
            8..20 => 2,
            _ => 3,
        };
        let tabs = usize::from(view.endpoints.len() > 1 && height >= 6);
        let has_note = view.message.is_some() || !view.notes().is_empty();
        let note = usize::from(has_note && height >= 7);
        let footer = usize::from(height >= 5);
        let left = height.saturating_sub(header + tabs + note + footer);
        let disks = match view.disks().len() {
            _ if left < 5 => 0,
            count => 1 + count.min((left / 2).saturating_sub(1)).max(1),
        };
        Self {
            header,
            tabs,
            disks,
            note,
            footer,
        }
    }
}

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let area = frame.area();
    let heights = Heights::of(view, area.height.into());
    let lines = |count: usize| Constraint::Length(u16::try_from(count).unwrap_or(u16::MAX));
    let [header, tabs, disks, panel, note, footer] = Layout::vertical([
        lines(heights.header),
        lines(heights.tabs),
        lines(heights.disks),
        Constraint::Fill(1),
        lines(heights.note),
        lines(heights.footer),
    ])
    .areas(area);
    draw_header(frame, header, view);
    draw_tabs(frame, tabs, view);
    draw_disks(frame, disks, view);
    match view.panel {
        Panel::Files => draw_files(frame, panel, view),
        Panel::Notes => draw_notes(frame, panel, view),
        Panel::Help => draw_help(frame, panel, view),
    }
    draw_note(frame, note, view);
    draw_footer(frame, footer, view);
}

fn draw_header(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let text = match &view.sample {
        None => vec![Line::from("waiting for the first figures")],
        Some(sample) => {
            let figures = header::figures(sample, view.speeds());
            let packed = header::packed(&figures, area.width.into(), area.height.into());
            let bad = sample.totals.overflows > 0;
            let style = |line: &String| {
                if bad && line.contains("overflows") {
                    Style::new().bold().yellow()
                } else {
                    Style::new().bold()
                }
            };
            let lines = packed.iter();
            lines
                .map(|line| Line::styled(line.clone(), style(line)))
                .collect()
        }
    };
    frame.render_widget(Text::from(text), area);
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let mut spans = Vec::new();
    // The current one is always in sight, however many there are.
    let room = usize::from(area.width) / 12;
    let first = view.current.saturating_sub(room.saturating_sub(1));
    for (index, endpoint) in view.endpoints.iter().enumerate().skip(first) {
        let name = format!(" {} ", endpoint.name());
        let span = Span::from(name);
        spans.push(if index == view.current {
            span.reversed()
        } else {
            span
        });
    }
    frame.render_widget(Line::from(spans), area);
}

/// A heading, and rows of text below.
fn draw_rows(frame: &mut Frame<'_>, area: Rect, heading: String, rows: Vec<String>) {
    let width = usize::from(area.width);
    let heading = format!("{heading:<width$}").reversed();
    let lines = std::iter::once(Line::from(heading)).chain(rows.into_iter().map(Line::from));
    frame.render_widget(Text::from_iter(lines), area);
}

fn draw_disks(frame: &mut Frame<'_>, area: Rect, view: &View) {
    if area.height == 0 {
        return;
    }
    let columns = columns::disks();
    let fitted = fit(&columns, area.width.into(), "");
    let disks = view.disks();
    let room = usize::from(area.height - 1);
    let mut rows: Vec<String> = disks.iter().take(room).map(|row| fitted.row(row)).collect();
    if let (true, Some(last)) = (disks.len() > room, rows.last_mut()) {
        *last = format!("and {} disks more", disks.len() - room + 1);
    }
    if rows.is_empty() {
        rows.push("no disk has work".to_owned());
    }
    draw_rows(frame, area, fitted.heading(""), rows);
}

fn draw_files(frame: &mut Frame<'_>, area: Rect, view: &mut View) {
    let count = view.files().len();
    view.fit_rows(count, usize::from(area.height.saturating_sub(1)));
    if area.height == 0 {
        return;
    }
    let columns = columns::files();
    let fitted = fit(&columns, area.width.into(), view.order.key.title());
    let mark = if view.order.reversed { "^" } else { "v" };
    let mut rows: Vec<String> = view
        .files()
        .iter()
        .skip(view.scroll)
        .take(view.page)
        .map(|row| fitted.row(row))
        .collect();
    if count == 0 && view.sample.is_some() {
        rows.push("no file is observed now".to_owned());
    }
    draw_rows(frame, area, fitted.heading(mark), rows);
}

fn draw_notes(frame: &mut Frame<'_>, area: Rect, view: &mut View) {
    let notes = view.notes().iter().map(|note| shown(Path::new(note)));
    let mut lines: Vec<Line<'_>> = notes.map(|note| Line::from(format!("- {note}"))).collect();
    if lines.is_empty() {
        lines.push(Line::from("no notes: all is possible here"));
    }
    draw_text(frame, area, view, "NOTES", lines);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect, view: &mut View) {
    let lines = HELP.iter().map(|&line| Line::from(line)).collect();
    draw_text(frame, area, view, "KEYS", lines);
}

/// Wrapped lines, which scroll by notes rather than by lines.
fn draw_text(
    frame: &mut Frame<'_>,
    area: Rect,
    view: &mut View,
    title: &str,
    lines: Vec<Line<'_>>,
) {
    view.fit_rows(lines.len(), 1);
    if area.height == 0 {
        return;
    }
    let [heading, below] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    draw_rows(frame, heading, title.to_owned(), Vec::new());
    let lines: Vec<Line<'_>> = lines.into_iter().skip(view.scroll).collect();
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), below);
}

fn draw_note(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let text = match (&view.message, view.notes()) {
        (Some(message), _) => message.clone(),
        (None, [note]) => format!("note: {}", shown(Path::new(note))),
        (None, [note, others @ ..]) => {
            format!("n: {} more. {}", others.len(), shown(Path::new(note)))
        }
        (None, []) => return,
    };
    frame.render_widget(Line::from(text).yellow(), area);
}

fn draw_footer(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let count = view.files().len();
    let last = count.min(view.scroll + view.page);
    let order = &view.order;
    let mut text = "q quit  ? keys".to_owned();
    if view.panel == Panel::Files && count > view.page {
        text += &format!("  {}-{last} of {count}", view.scroll + 1);
    }
    text += &format!("  s sort: {}  r reverse", order.key.name());
    if view.endpoints.len() > 1 {
        text += "  tab: next observer";
    }
    frame.render_widget(Line::from(text).dim(), area);
}
