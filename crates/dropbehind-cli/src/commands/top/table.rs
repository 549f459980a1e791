//! Tables of text that fit a width.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands for what was cut off.
const CUT: char = '…';

/// How cells are aligned in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    /// Numbers: to the right.
    Right,
    /// Words: to the left, cut at the end.
    Left,
    /// Paths: to the left, cut at the start, and given all the room that is left.
    Rest,
}

/// A column for rows of this kind.
#[derive(Debug)]
pub(super) struct Column<R> {
    pub(super) title: &'static str,
    /// The minimum width.
    pub(super) width: usize,
    pub(super) fill: Fill,
    /// The smaller it is, the longer the column stays as room shrinks; with 0, it always stays.
    pub(super) rank: u8,
    pub(super) cell: fn(&R) -> String,
}

/// The columns that there is room for, with their widths.
#[derive(Debug)]
pub(super) struct Fitted<'a, R> {
    columns: Vec<(&'a Column<R>, usize)>,
    marked: &'a str,
}

/// Chooses columns for a width, with one blank between two. The one with the title `marked`
/// stays as well, since the rows are sorted by it.
pub(super) fn fit<'a, R>(columns: &'a [Column<R>], width: usize, marked: &'a str) -> Fitted<'a, R> {
    let rank = |column: &Column<R>| {
        if column.title == marked {
            0
        } else {
            column.rank
        }
    };
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|&index| rank(&columns[index]));
    let mut taken = 0;
    let mut chosen = Vec::new();
    for index in by_rank {
        let needed = columns[index].width + usize::from(taken > 0);
        // A column that always stays is cut rather than left out.
        if taken + needed > width && rank(&columns[index]) > 0 {
            break;
        }
        taken += needed;
        chosen.push(index);
    }
    chosen.sort_unstable();
    let rest = width.saturating_sub(taken);
    let columns = chosen.into_iter().map(|index| {
        let column = &columns[index];
        let more = if column.fill == Fill::Rest { rest } else { 0 };
        (column, column.width + more)
    });
    Fitted {
        columns: columns.collect(),
        marked,
    }
}

impl<R> Fitted<'_, R> {
    /// The titles; `mark` stands beside the one that the rows are sorted by.
    pub(super) fn heading(&self, mark: &str) -> String {
        self.line(|column| match column.title {
            title if title == self.marked && !title.is_empty() => format!("{title}{mark}"),
            title => title.to_owned(),
        })
    }

    /// One row.
    pub(super) fn row(&self, row: &R) -> String {
        self.line(|column| (column.cell)(row))
    }

    fn line(&self, cell: impl Fn(&Column<R>) -> String) -> String {
        let cells: Vec<String> = self
            .columns
            .iter()
            .map(|(column, width)| padded(&cell(column), *width, column.fill))
            .collect();
        cells.join(" ").trim_end().to_owned()
    }
}

fn padded(text: &str, width: usize, fill: Fill) -> String {
    let text = match fill {
        // A part of a number would be another number.
        Fill::Right if text.width() > width => CUT.to_string(),
        _ => cut(text, width, fill),
    };
    let blanks = " ".repeat(width.saturating_sub(text.width()));
    match fill {
        Fill::Right => blanks + &text,
        Fill::Left | Fill::Rest => text + &blanks,
    }
}

/// Cuts a text to this width.
pub(super) fn cut(text: &str, width: usize, fill: Fill) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut room = width.saturating_sub(1);
    let mut fits = |letter: &char| {
        let needed = letter.width().unwrap_or(0);
        let fits = needed <= room;
        room -= if fits { needed } else { 0 };
        fits
    };
    if fill == Fill::Rest {
        // The end of a path says more than its start.
        let kept: Vec<char> = text.chars().rev().take_while(&mut fits).collect();
        return std::iter::once(CUT).chain(kept.into_iter().rev()).collect();
    }
    let kept: String = text.chars().take_while(&mut fits).collect();
    kept + &CUT.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_wide_is_cut_where_it_says_least() {
        assert_eq!(cut("dropping", 8, Fill::Left), "dropping");
        assert_eq!(cut("dropping", 5, Fill::Left), "drop…");
        assert_eq!(cut("/srv/backup.img", 8, Fill::Rest), "…kup.img");
        assert_eq!(cut("/srv/日本", 5, Fill::Rest), "…日本");
        // A wide letter that fits only in part is left out.
        assert_eq!(cut("/srv/日本", 4, Fill::Rest), "…本");
        assert_eq!(padded("1", 3, Fill::Right), "  1");
        assert_eq!(padded("1234", 3, Fill::Right), "  …");
        assert_eq!(padded("本", 4, Fill::Left).width(), 4);
    }
}
