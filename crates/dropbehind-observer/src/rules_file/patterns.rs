//! Globs over paths, names, units and cgroups.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::glob::Glob;
use crate::path_pattern;

/// Characters that stand for more than themselves.
const GLOBS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Globs, one of which has to match.
#[derive(Clone, Debug)]
pub(super) struct Patterns {
    /// As written, for people.
    texts: Vec<String>,
    globs: Vec<Glob>,
}

impl Patterns {
    pub(super) fn new(texts: Vec<String>, globs: Vec<Glob>) -> Self {
        Self { texts, globs }
    }

    pub(super) fn matches(&self, text: impl AsRef<OsStr>) -> bool {
        self.globs.iter().any(|glob| glob.matches(text.as_ref()))
    }

    /// Returns whether one of them matches a name, in which a slash is nothing special, as in
    /// "kworker/0:1".
    pub(super) fn match_name(&self, name: &OsStr) -> bool {
        let bytes = name.as_bytes();
        if !bytes.contains(&b'/') {
            return self.matches(name);
        }
        // No name has a NUL, and no glob over names a slash.
        let flat = bytes
            .iter()
            .map(|&byte| if byte == b'/' { 0 } else { byte });
        self.matches(OsStr::from_bytes(&flat.collect::<Vec<u8>>()))
    }

    /// Returns whether one of them begins with this folder, letter by letter.
    pub(super) fn name(&self, folder: &Path) -> bool {
        self.texts.iter().any(|text| {
            let plain = match text.find(GLOBS) {
                // If a glob is part of a folder's name, that name is not known in full.
                Some(end) => text[..end].rsplit_once('/').map_or("", |(plain, _)| plain),
                None => text,
            };
            Path::new(plain).starts_with(folder)
        })
    }

    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// Returns whether a text may match more than itself.
pub(super) fn is_glob(text: &str) -> bool {
    text.contains(GLOBS)
}

/// A glob over whole paths.
pub(super) fn path_glob(text: &str) -> Result<Glob, String> {
    path_pattern::glob(text).map_err(|wrong| format!("{text:?} is no glob: {wrong}"))
}

/// A glob over a single name.
pub(super) fn name_glob(text: &str) -> Result<Glob, String> {
    Glob::new(text).map_err(|wrong| format!("{text:?} is no glob: {wrong}"))
}

/// The same for names in which a backslash is an ordinary character, as in systemd's.
pub(super) fn unit_glob(text: &str) -> Result<Glob, String> {
    Glob::new(&text.replace('\\', "\\\\")).map_err(|wrong| format!("{text:?} is no glob: {wrong}"))
}
