//! What is wrong with a rules file, and where.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::shown;
use crate::texts::ConfigText;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What is wrong, with the offending word and what would be right.
    pub message: String,
}

impl Problem {
    /// A problem at this byte of the file's text.
    pub fn at(text: &str, offset: usize, message: String) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message,
        }
    }
}

/// Why the configuration is not in force.
#[derive(Debug)]
pub enum FileError {
    /// A file could not be read.
    Unreadable(PathBuf, io::Error),
    /// The files were read, and some have these problems, in the order of their lines.
    Wrong(Vec<(PathBuf, Vec<Problem>)>),
}

impl FileError {
    /// Parses each file's text.
    ///
    /// # Errors
    /// The problems of all that have any.
    pub fn of_each<T>(
        texts: &[ConfigText],
        parse: impl Fn(&str) -> Result<T, Vec<Problem>>,
    ) -> Result<Vec<T>, FileError> {
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        for ConfigText { path, text } in texts {
            match parse(text) {
                Ok(parsed) => right.push(parsed),
                Err(problems) => wrong.push((path.clone(), problems)),
            }
        }
        match wrong.is_empty() {
            true => Ok(right),
            false => Err(FileError::Wrong(wrong)),
        }
    }
}

/// One line for each problem, `FILE:LINE:COLUMN: what is wrong`.
impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => {
                write!(f, "{}: cannot be read: {error}", shown(path))
            }
            Self::Wrong(files) => {
                let of_file = |(path, problems): &(PathBuf, Vec<Problem>)| {
                    let lines = problems.iter().map(|problem| {
                        let Problem { line, column, .. } = problem;
                        format!(
                            "{}:{line}:{column}: {}",
                            shown(path),
                            shown(&problem.message)
                        )
                    });
                    lines.collect::<Vec<_>>()
                };
                let lines: Vec<String> = files.iter().flat_map(of_file).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(_, error) => Some(error),
            Self::Wrong(..) => None,
        }
    }
}
