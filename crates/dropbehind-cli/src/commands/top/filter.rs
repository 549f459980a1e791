//! A text that narrows down which files are shown.

use crate::error::shown;
use dropbehind_observer::snapshot::FileSnapshot;
use ratatui::crossterm::event::KeyCode;
use std::path::Path;

/// More is not taken in.
const LETTERS: usize = 100;

/// Shows the files that have this text somewhere in what is known of them, in letters of either
/// case.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    text: String,
    /// Keys belong to the text.
    pub(super) typing: bool,
}

impl Filter {
    /// The text, in small letters; empty if all files are shown.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Begins a new text.
    pub(super) fn begin(&mut self) {
        self.text.clear();
        self.typing = true;
    }

    /// Acts on a key if it belongs to the text, or clears it.
    pub(super) fn takes(&mut self, key: KeyCode, control: bool) -> bool {
        match key {
            KeyCode::Esc if self.typing || !self.text.is_empty() => {
                *self = Self::default();
            }
            _ if !self.typing => return false,
            KeyCode::Enter => self.typing = false,
            KeyCode::Backspace => self.typing = self.text.pop().is_some(),
            KeyCode::Char('u') if control => self.text.clear(),
            KeyCode::Char(letter) if !control => {
                if self.text.chars().count() < LETTERS {
                    self.text.extend(letter.to_lowercase());
                }
            }
            // The others scroll.
            _ => return false,
        }
        true
    }

    /// Whether a file is shown.
    pub(super) fn shows(&self, file: &FileSnapshot) -> bool {
        let has = |text: &str| text.to_lowercase().contains(&self.text);
        let of_file = [&file.disk, &file.mode, &file.rule, &file.state];
        let mut users = file.users.iter();
        self.text.is_empty()
            || has(&shown(&file.path))
            || of_file.into_iter().any(|text| has(text))
            || users.any(|user| {
                let text = format!("{} {}", user.process, shown(Path::new(&user.program)));
                has(&text) || has(&user.unit)
            })
    }

    /// The parts of a line from one place to the next where the text begins or ends, and whether
    /// they are the text.
    pub(super) fn split<'a>(&self, line: &'a str) -> Vec<(&'a str, bool)> {
        let mut parts = Vec::new();
        let (mut begin, mut place) = (0, 0);
        while let Some(letter) = line[place..].chars().next() {
            match self.len_at(&line[place..]) {
                Some(len) => {
                    parts.push((&line[begin..place], false));
                    parts.push((&line[place..place + len], true));
                    place += len;
                    begin = place;
                }
                None => place += letter.len_utf8(),
            }
        }
        parts.push((&line[begin..], false));
        parts.retain(|(part, _)| !part.is_empty());
        parts
    }

    /// How many bytes of the line's start are the text.
    fn len_at(&self, line: &str) -> Option<usize> {
        let mut rest = self.text.as_str();
        if rest.is_empty() {
            return None;
        }
        for (place, letter) in line.char_indices() {
            let small: String = letter.to_lowercase().collect();
            rest = rest.strip_prefix(&small)?;
            if rest.is_empty() {
                return Some(place + letter.len_utf8());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(text: &str) -> Filter {
        let mut filter = Filter::default();
        filter.begin();
        for letter in text.chars() {
            assert!(filter.takes(KeyCode::Char(letter), false));
        }
        filter
    }

    #[test]
    fn a_line_is_split_where_the_text_is() {
        let of = |text: &str, line: &str| {
            let parts = filter(text).split(line).into_iter();
            let parts = parts.map(|(part, is_text)| match is_text {
                true => format!("[{part}]"),
                false => part.to_owned(),
            });
            parts.collect::<String>()
        };
        assert_eq!(of("ab", "xABaabx"), "x[AB]a[ab]x");
        assert_eq!(of("", "xy"), "xy");
        assert_eq!(of("É", "caféÉ"), "caf[é][É]");
        // One letter whose small form has two.
        assert_eq!(of("i\u{307}", "x\u{130}x"), "x[\u{130}]x");
        assert_eq!(of("abc", "ab"), "ab");
    }

    #[test]
    fn its_length_is_limited() {
        assert_eq!(filter(&"x".repeat(1000)).text().len(), LETTERS);
    }
}
