//! Names from outside, as they may be printed.

use std::ffi::OsStr;

/// A path or another name as it may stand on one line of a terminal or a log: who chose it
/// may have put ends of lines and escape sequences into it.
#[must_use]
pub fn shown(name: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for character in name.as_ref().to_string_lossy().chars() {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
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

    /// What users are told by the observer and the commands.
    #[test]
    fn paths_are_printed_in_no_other_way() {
        let mut folders = vec!["src".into(), "../dropbehind-cli/src".into()];
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
