//! Globs over paths, names, units and cgroups.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use crate::path_pattern::PathPattern;

/// Characters that stand for more than themselves.
const GLOBS: [char; 5] = ['*', '?', '[', '{', '\\'];

/// Globs, one of which has to match.
#[derive(Clone, Debug)]
pub(super) struct Patterns {
    /// As written, for people.
    texts: Vec<String>,
    set: GlobSet,
}

impl Patterns {
    /// # Errors
    ///
    /// Together, the globs are too large to compile.
    pub(super) fn new(texts: Vec<String>, globs: Vec<Glob>) -> Result<Self, String> {
        let mut builder = GlobSetBuilder::new();
        for glob in globs {
            builder.add(glob);
        }
        let set = builder.build().map_err(|error| error.kind().to_string())?;
        Ok(Self { texts, set })
    }

    pub(super) fn matches(&self, text: impl AsRef<Path>) -> bool {
        self.set.is_match(text)
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
    let pattern =
        PathPattern::new(text).map_err(|wrong| format!("{text:?} is no glob: {wrong}"))?;
    Ok(pattern.into_glob())
}

/// A glob over a single name.
pub(super) fn name_glob(text: &str) -> Result<Glob, String> {
    compile(&mut GlobBuilder::new(text), text)
}

/// The same for names in which a backslash is an ordinary character, as in systemd's.
pub(super) fn unit_glob(text: &str) -> Result<Glob, String> {
    compile(GlobBuilder::new(text).backslash_escape(false), text)
}

/// A glob that matches this text and nothing else.
pub(super) fn literal(text: &str) -> Result<Glob, String> {
    name_glob(&globset::escape(text))
}

fn compile(builder: &mut GlobBuilder<'_>, text: &str) -> Result<Glob, String> {
    builder
        .build()
        .map_err(|error| format!("{text:?} is no glob: {}", error.kind()))
}
