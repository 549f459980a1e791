//! Globs over paths, names, units and cgroups.

use std::path::Path;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

/// Globs of which one has to match.
#[derive(Clone, Debug)]
pub(super) struct Patterns {
    /// As they were written, for people.
    texts: Vec<String>,
    set: GlobSet,
}

impl Patterns {
    /// # Errors
    ///
    /// Together, they are too large to be compiled.
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

    pub(super) fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// True if a text is more than its own letters.
pub(super) fn is_glob(text: &str) -> bool {
    text.contains(['*', '?', '[', '{', '\\'])
}

/// A glob over whole paths: `*` stays within one name, `**` crosses folders.
pub(super) fn path_glob(text: &str) -> Result<Glob, String> {
    check_rooted(text)?;
    check_double_stars(text)?;
    if text.len() > 1 && text.ends_with('/') {
        return Err(format!(
            "{text:?} ends with a slash, and files do not; write \"{text}**\" for all that is in it"
        ));
    }
    compile(GlobBuilder::new(text).literal_separator(true), text)
}

/// A glob over a single name.
pub(super) fn name_glob(text: &str) -> Result<Glob, String> {
    compile(&mut GlobBuilder::new(text), text)
}

/// The same for names in which a backslash is a letter, as in systemd's.
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

/// Paths begin with a slash, and what cannot match is a mistake.
fn check_rooted(text: &str) -> Result<(), String> {
    if text.starts_with(['/', '{', '[']) || text.starts_with("**") {
        return Ok(());
    }
    Err(format!(
        "{text:?} matches no path: paths begin with a slash; write \"**/{text}\" for that name in \
         any folder"
    ))
}

/// `**` stands for any number of whole folders; elsewhere it would quietly mean
/// a single `*`.
fn check_double_stars(text: &str) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut from = 0;
    while let Some(found) = text[from..].find("**") {
        let start = from + found;
        let end = start + 2;
        let opens = start == 0 || matches!(bytes[start - 1], b'/' | b'{' | b',');
        let closes = end == bytes.len() || matches!(bytes[end], b'/' | b'}' | b',');
        if !opens || !closes {
            return Err(format!(
                "{text:?} has a ** that is not a whole part of the path; write /**/ or a single *"
            ));
        }
        from = end;
    }
    Ok(())
}
