//! Names from outside, made fit to print.

use std::ffi::OsStr;
use std::fmt::Write;
use std::ops::RangeInclusive;

/// Characters that end a line, or that are invisible but change what is seen: they reverse the
/// direction of writing, or make two names look the same. Unicode's
/// `Default_Ignorable_Code_Point`, its line and paragraph separators, and its annotation marks.
const UNSEEN: [RangeInclusive<char>; 17] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

/// A path or another name as it may appear on one line of a terminal or a log. Whoever chose it
/// may have put line ends, escape sequences and direction marks into it.
#[must_use]
pub fn shown(name: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for character in name.as_ref().to_string_lossy().chars() {
        match is_escaped(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// A JSON text as it may be printed: what [`shown`] escapes is escaped in JSON's way.
#[must_use]
pub fn shown_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        // Outside of its strings, JSON is all ASCII.
        match !character.is_ascii() && is_escaped(character) || character == '\u{7f}' {
            true => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            }
            false => shown.push(character),
        }
    }
    shown
}

fn is_escaped(character: char) -> bool {
    character.is_control() || UNSEEN.iter().any(|range| range.contains(&character))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn nothing_controls_the_terminal() {
        let name = Path::new("a\n\u{1b}[2J\u{9b}\t b\u{e9}");
        assert_eq!(shown(name), "a\\n\\u{1b}[2J\\u{9b}\\t b\u{e9}");
    }

    #[test]
    fn nothing_is_turned_round_or_hidden() {
        let marks = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\
                     \u{2068}\u{2069}\u{200b}\u{feff}\u{2028}\u{ad}\u{e0041}\u{3164}";
        let escaped: String = marks.chars().flat_map(char::escape_unicode).collect();
        assert_eq!(shown(marks), escaped);
        // Right-to-left letters, accents, and Devanagari signs.
        let names = "\u{5d0}\u{627} e\u{301} \u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940} \u{4e2d}";
        assert_eq!(shown(names), names);
    }

    #[test]
    fn escaped_json_is_the_same_json() {
        let name = "a\n\u{7f}\u{9b}2J\u{202e}\u{e0041}\u{e9}\"\\";
        let json = serde_json::to_string(&[name]).unwrap();
        let shown = shown_json(&json);
        assert_eq!(shown, r#"["a\n\u007f\u009b2J\u202e\udb40\udc41é\"\\"]"#);
        assert_eq!(serde_json::from_str::<[String; 1]>(&shown).unwrap(), [name]);
    }

    /// Covers all that the observer and the commands tell users.
    #[test]
    fn paths_are_printed_in_no_other_way() {
        let mut folders = Vec::from(
            ["config", "observer", "cli"].map(|name| format!("../dropbehind-{name}/src").into()),
        );
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            let folder: std::path::PathBuf = folder;
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                files += 1;
                let source = std::fs::read_to_string(&path).unwrap();
                let source = source.split("#[cfg(test)]").next().unwrap_or_default();
                assert!(!source.contains(".display()"), "{path:?}");
            }
        }
        assert!(files > 100, "{files}");
    }
}
