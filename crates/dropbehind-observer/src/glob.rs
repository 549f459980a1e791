//! One glob, over a path or a name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Escaped by a backslash, these stand for something else in the crate's syntax, and for
/// themselves in ours.
const ESCAPED_LETTERS: &str = "bnrt";

/// A glob that was found to be valid.
#[derive(Clone, Debug)]
pub(crate) struct Glob(String);

impl Glob {
    /// Reads a glob: `*` and `?` match no slash, `**` matches whole folders.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn new(text: &str) -> Result<Glob, String> {
        let mut glob = String::with_capacity(text.len() + 1);
        // At the start it would negate the glob.
        if text.starts_with('!') {
            glob.push('\\');
        }
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            let next = letters.peek();
            let is_letter = |next: &char| ESCAPED_LETTERS.contains(*next);
            match letter {
                '\\' if next.is_some_and(is_letter) => {}
                '\\' => {
                    glob.push('\\');
                    glob.extend(letters.next());
                }
                _ => glob.push(letter),
            }
        }
        match fast_glob::validate(&glob) {
            Ok(()) => Ok(Glob(glob)),
            Err(error) => {
                // Its place counts what was put in front of the pattern.
                let text = error.to_string();
                Err(match text.split_once(" at byte ") {
                    Some((what, rest)) => {
                        what.to_owned() + rest.trim_start_matches(char::is_numeric)
                    }
                    None => text,
                })
            }
        }
    }

    /// Returns whether it matches all of this text.
    pub(crate) fn matches(&self, text: &OsStr) -> bool {
        fast_glob::glob_match(&self.0, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_can_be_escaped() {
        for text in [
            "b", "n", "r", "t", "a", "*", "?", "[", "]", "{", "}", "!", "\\", ",",
        ] {
            let glob = Glob::new(&format!("\\{text}")).unwrap();
            assert!(glob.matches(OsStr::new(text)), "{text}");
            assert!(!glob.matches(OsStr::new("x")), "{text}");
        }
        let plain = "!a]}!,b";
        assert!(Glob::new(plain).unwrap().matches(OsStr::new(plain)));
        assert!(!Glob::new("!a").unwrap().matches(OsStr::new("b")));
    }
}
