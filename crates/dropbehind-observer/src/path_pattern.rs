//! Patterns for whole paths, or for any end of a path.

use crate::glob::Glob;
use std::path::Path;

/// Reads a pattern, as [`PathPatterns`] explains.
pub(crate) fn glob(text: &str) -> Result<Glob, String> {
    if text.is_empty() {
        return Err("expected a pattern such as *.iso or /srv/**".to_owned());
    }
    if text.split('/').any(|part| part == "." || part == "..") {
        return Err("a pattern begins with / or with a name; . and .. are not resolved".to_owned());
    }
    if has_partial_double_star(text) {
        return Err(
            "** stands for whole folders, as in /srv/**; within a name, write *".to_owned(),
        );
    }
    let mut whole = String::new();
    if !text.starts_with('/') {
        whole.push_str("**/");
    }
    whole.push_str(text);
    if text.ends_with('/') {
        whole.push_str("**");
    }
    Glob::new(&whole)
}

/// Within a name, `**` would quietly mean a single `*`.
fn has_partial_double_star(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.match_indices("**").any(|(start, stars)| {
        let before = start.checked_sub(1).map(|before| bytes[before]);
        let after = bytes.get(start + stars.len()).copied();
        let opens = matches!(before, None | Some(b'/' | b'{' | b','));
        let closes = matches!(after, None | Some(b'/' | b'}' | b','));
        !opens || !closes
    })
}

/// Patterns, one of which has to match. One that does not begin with a slash matches any end of a
/// path, and one that ends with a slash all that is in that folder.
#[derive(Clone, Debug)]
pub struct PathPatterns(Vec<Glob>);

impl PathPatterns {
    /// Reads patterns.
    ///
    /// # Errors
    ///
    /// What is wrong with one.
    pub fn new(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, String> {
        let globs = texts.into_iter().map(|text| glob(text.as_ref()));
        globs.collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them matches this path.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        self.0.iter().any(|glob| glob.matches(path.as_os_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        glob(pattern).unwrap().matches(path.as_ref())
    }

    #[test]
    fn the_end_of_a_path_or_all_of_it() {
        for (pattern, path) in [
            ("*.iso", "/a/b.iso"),
            ("*.iso", "/b.iso"),
            ("b", "/a/b"),
            ("backup/*", "/srv/backup/x"),
            ("backup/", "/srv/backup/x/y"),
            ("/srv/**", "/srv/a/b"),
            ("/srv/*/b", "/srv/a/b"),
            ("**/x", "/a/b/x"),
            ("/srv/**/x", "/srv/x"),
            ("{/a,/b/**}/x", "/b/c/d/x"),
            ("[a-c].{log,txt}", "/d/b.txt"),
            (r"\*", "/a/*"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("*.iso", "/a/b.iso.part"),
            ("*.iso", "/a.iso/b"),
            ("b", "/a/xb"),
            ("backup/*", "/srv/backup/x/y"),
            ("/backup/*", "/srv/backup/x"),
            ("/srv/*", "/srv/a/b"),
            (r"\*", "/a/b"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn says_what_is_no_pattern() {
        for (pattern, saying) in [
            ("", "such as"),
            ("../x", "not resolved"),
            ("a/./b", "not resolved"),
            ("a[", "unclosed"),
            ("{a", "unclosed"),
            ("/a/b**", "whole folders"),
            ("/a/***", "whole folders"),
        ] {
            let error = glob(pattern).unwrap_err();
            assert!(error.contains(saying), "{pattern}: {error}");
        }
    }

    #[test]
    fn any_pattern_is_read_or_refused() {
        dropbehind_testbed::fuzz("tests/corpus/path_pattern", |text| {
            let text = String::from_utf8_lossy(text).into_owned();
            let plain = |c: char| c.is_alphanumeric() || "/_ -".contains(c);
            let is_plain = text.chars().all(plain) && !text.is_empty();
            let patterns = PathPatterns::new([&text]);
            let Ok(patterns) = patterns else {
                assert!(!is_plain, "{text}");
                return;
            };
            let _ = patterns.matches(Path::new("/srv/a/b.iso"));
            // Without special characters, it matches the path of that name.
            if is_plain && text.starts_with('/') && !text.ends_with('/') {
                assert!(patterns.matches(Path::new(&text)), "{text}");
            }
        });
    }
}
