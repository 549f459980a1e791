//! Values of the file's tables, and what is wrong with them.

use std::ops::RangeInclusive;

use dropbehind_policy::Mode;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::nearest::nearest;
use crate::problem::Problem;
use crate::size;

/// A text and its position.
pub type Text<'t> = Spanned<&'t str>;

/// The mistakes found so far, and the text they are in.
#[derive(Debug, Default)]
pub struct Mistakes<'t> {
    text: &'t str,
    found: Vec<Problem>,
}

impl<'t> Mistakes<'t> {
    /// None yet.
    pub fn in_text(text: &'t str) -> Self {
        Self {
            text,
            found: Vec::new(),
        }
    }

    /// Parses the text's tables.
    ///
    /// # Errors
    /// What is no TOML. What is left of the tables would only cause more mistakes.
    pub fn tables(&mut self, text: &'t str) -> Result<Spanned<DeTable<'t>>, Vec<Problem>> {
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let offset = error.span().map_or(0, |span| span.start);
            // TOML's own words for it do not name the key.
            let key = error.span().and_then(|span| text.get(span));
            match (error.message(), key) {
                ("duplicate key", Some(key)) => {
                    self.note(
                        offset,
                        format!("{key} is given a second time here; keep one of the two"),
                    );
                }
                (message, _) => self.note(offset, message),
            }
        }
        match errors.is_empty() {
            true => Ok(table),
            false => Err(std::mem::take(self).sorted()),
        }
    }

    /// Notes a mistake at this byte of the text.
    pub fn note(&mut self, offset: usize, message: impl Into<String>) {
        let problem = Problem::at(self.text, offset, message.into());
        self.found.push(problem);
    }

    /// Returns the value, or notes why there is none.
    pub fn take<T>(&mut self, offset: usize, value: Result<T, String>) -> Option<T> {
        value.map_err(|message| self.note(offset, message)).ok()
    }

    /// The mistakes, in the order of their lines.
    pub fn sorted(mut self) -> Vec<Problem> {
        self.found.sort();
        // The parser says some things once for each level of what is nested.
        self.found.dedup();
        self.found
    }
}

/// A table of the file.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a, 't> {
    table: &'a DeTable<'t>,
}

impl<'a, 't> Section<'a, 't> {
    /// Reads a table that may have these keys.
    pub fn new(
        table: &'a DeTable<'t>,
        place: &str,
        keys: &[&str],
        mistakes: &mut Mistakes<'_>,
    ) -> Self {
        for key in table.keys() {
            let name = key.get_ref();
            if !keys.contains(&&**name) {
                let hint = nearest(name, keys.iter().copied()).map_or_else(
                    || ".".to_owned(),
                    |near| format!("; did you mean {near:?}?"),
                );
                mistakes.note(
                    key.span().start,
                    format!(
                        "{place} has no key {name:?}{hint} The keys are {}",
                        keys.join(", ")
                    ),
                );
            }
        }
        Self { table }
    }

    /// The value of a key.
    pub fn value(self, key: &str) -> Option<&'a Spanned<DeValue<'t>>> {
        self.table.get(key)
    }

    /// True or false.
    pub fn flag(self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<bool> {
        let value = self.value(key)?;
        let found = value.get_ref().as_bool().ok_or_else(|| {
            format!(
                "{key} is {}; it takes true or false",
                shown_value(value.get_ref())
            )
        });
        mistakes.take(value.span().start, found)
    }

    /// A text.
    pub fn text(self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<Text<'a>> {
        let value = self.value(key)?;
        let found = value.get_ref().as_str().ok_or_else(|| {
            format!(
                "{key} is {}; it takes a text in quotes",
                shown_value(value.get_ref())
            )
        });
        let text = mistakes.take(value.span().start, found)?;
        Some(Spanned::new(value.span(), text))
    }

    /// One text, or a list of them.
    pub fn texts(self, key: &str, mistakes: &mut Mistakes<'_>) -> Option<Vec<Text<'a>>> {
        let value = self.value(key)?;
        let Some(list) = value.get_ref().as_array() else {
            return Some(vec![self.text(key, mistakes)?]);
        };
        if list.is_empty() {
            mistakes.note(
                value.span().start,
                format!(
                    "{key} is an empty list, which nothing matches; leave the key out to match all"
                ),
            );
        }
        let mut texts = Vec::new();
        for item in list.iter() {
            match item.get_ref().as_str() {
                Some(text) => texts.push(Spanned::new(item.span(), text)),
                None => mistakes.note(
                    item.span().start,
                    format!(
                        "{key} has {} in its list; it takes texts in quotes",
                        shown_value(item.get_ref())
                    ),
                ),
            }
        }
        Some(texts)
    }

    /// The key `mode`.
    pub fn mode(self, mistakes: &mut Mistakes<'_>) -> Option<Mode> {
        let text = self.text("mode", mistakes)?;
        let mode = text.get_ref().parse::<Mode>();
        let mode = mode.map_err(|error| {
            let names = Mode::ALL.iter().filter_map(|mode| mode.name());
            let hint = nearest(text.get_ref(), names)
                .map_or_else(String::new, |near| format!(". Did you mean {near:?}?"));
            format!("{:?} is {error}{hint}", text.get_ref())
        });
        mistakes.take(text.span().start, mode)
    }

    /// A size as text, or a plain number of bytes.
    pub fn size(
        self,
        key: &str,
        range: &RangeInclusive<u64>,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<u64> {
        let value = self.value(key)?;
        let found = read_size(value.get_ref(), range).map_err(|wrong| format!("{key} {wrong}"));
        mistakes.take(value.span().start, found)
    }
}

fn read_size(value: &DeValue<'_>, range: &RangeInclusive<u64>) -> Result<u64, String> {
    let bytes = match value {
        DeValue::String(text) => size::parse(text).ok(),
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    };
    match bytes {
        Some(bytes) if range.contains(&bytes) => Ok(bytes),
        Some(_) => Err(format!(
            "is {}; it can be from {} to {}",
            shown_value(value),
            size::show(*range.start()),
            size::show(*range.end())
        )),
        None => Err(format!(
            "is {}; it takes {}",
            shown_value(value),
            size::ALLOWED
        )),
    }
}

/// A value as errors show it.
pub fn shown_value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
