//! Where everything is on the screen, whatever its size.

use super::columns;
use super::filter::Filter;
use super::header::{self, BETWEEN};
use super::table::fit;
use super::view::{Panel, View};
use crate::error::shown;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Wrap};
use std::path::Path;

const HELP: [&str; 25] = [
    "q        quit",
    "/        show only files with a text in their name, disk,",
    "         mode, rule or users; enter keeps it, esc clears",
    "s, S     sort by the next, the previous column (>, <)",
    "r        sort the other way round",
    "i        what becomes of each file, and why",
    "n        notes: what is not possible here, and why",
    "tab      the next observer, back tab the previous",
    "up, down, page up, page down, home, end: scroll",
    "         (k, j, -, space, g, G)",
    "?, h     this list",
    "ctrl-z   stop until fg",
    "",
    "SPEED    written and read, a second",
    "HISTORY  the last 8 speeds, the newest to the right",
    "DIRTY    to be written; WRITEBACK: on its way",
    "CACHED   in the page cache; KEPT: for others",
    "DROPPED  taken out of the page cache",
    "WAITS    how often its writers waited for the disk",
    "WINDOW   how far writeback may be behind the writer",
    "RULE     that gives the mode; others: no rule does;",
    "         advice: the program that uses the file does",
    "UNIT     systemd's, or the control group",
    "WHO      process and program that use the file, a known",
    "         writer first, and how many others there are",
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
        Panel::Reasons => draw_reasons(frame, panel, view),
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
            let packed = header::packed(&figures, BETWEEN, area.width.into(), area.height.into());
            packed
                .into_iter()
                .map(|line| Line::from(line).bold())
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

/// A heading, and rows of text below, in which the filter's text is underlined.
fn draw_rows(
    frame: &mut Frame<'_>,
    area: Rect,
    heading: String,
    rows: Vec<String>,
    filter: &Filter,
) {
    let width = usize::from(area.width);
    let heading = format!("{heading:<width$}").reversed();
    let row = |row: &String| {
        let parts = filter.split(row).into_iter();
        let spans = parts.map(|(part, is_text)| match is_text {
            true => part.to_owned().bold().underlined(),
            false => Span::from(part.to_owned()),
        });
        Line::from_iter(spans)
    };
    let lines = std::iter::once(Line::from(heading)).chain(rows.iter().map(row));
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
    draw_rows(frame, area, fitted.heading(""), rows, &Filter::default());
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
        rows.push(match view.filter.text() {
            "" => "no file is observed now".to_owned(),
            _ => "no file has this text (esc clears it)".to_owned(),
        });
    }
    draw_rows(frame, area, fitted.heading(mark), rows, &view.filter);
}

fn draw_reasons(frame: &mut Frame<'_>, area: Rect, view: &mut View) {
    let files = view.files();
    let reasons = files.iter().map(|row| columns::reason(row.file));
    let mut lines: Vec<Line<'_>> = reasons.map(Line::from).collect();
    if lines.is_empty() {
        lines.push(Line::from("no file is observed now"));
    }
    draw_text(frame, area, view, "WHAT BECOMES OF FILES", lines);
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
    let none = Filter::default();
    draw_rows(frame, heading, title.to_owned(), Vec::new(), &none);
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
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    let width = usize::from(area.width);
    let mut line = header::packed(&words, " ", width.saturating_sub(2), 1).concat();
    if line.len() < text.len() {
        line += " …";
    }
    frame.render_widget(Line::from(line).bold(), area);
}

fn draw_footer(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let filter = shown(Path::new(view.filter.text()));
    if view.filter.typing {
        let line = Line::from(vec![
            Span::from(format!("/{filter}")),
            Span::from(" ").reversed(),
            Span::from("  enter keeps, esc clears").dim(),
        ]);
        return frame.render_widget(line, area);
    }
    let count = view.files().len();
    let last = count.min(view.scroll + view.page);
    let order = &view.order;
    let mut parts = vec!["q quit".to_owned(), "? keys".to_owned()];
    if !filter.is_empty() {
        parts.push(format!("/{filter} (esc clears)"));
    }
    if view.panel == Panel::Files && count > view.page {
        parts.push(format!("{}-{last} of {count}", view.scroll + 1));
    }
    parts.push(format!("s sort: {}", order.key.name()));
    parts.push("/ filter".to_owned());
    parts.push("i why".to_owned());
    if view.endpoints.len() > 1 {
        parts.push("tab: next observer".to_owned());
    }
    // Only whole parts.
    let text = header::packed(&parts, "  ", area.width.into(), 1).concat();
    frame.render_widget(Line::from(text).dim(), area);
}
