//! What is wrong with a rules file, and where.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::shown;

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

/// Why the file is not in force.
#[derive(Debug)]
pub enum FileError {
    /// The file could not be read.
    Unreadable(PathBuf, io::Error),
    /// The file was read, and has these problems, in the order of its lines.
    Wrong(PathBuf, Vec<Problem>),
}

impl FileError {
    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable(path, _) | Self::Wrong(path, _) => path,
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
            Self::Wrong(path, problems) => {
                for (number, problem) in problems.iter().enumerate() {
                    let Problem {
                        line,
                        column,
                        message,
                    } = problem;
                    let newline = if number == 0 { "" } else { "\n" };
                    let (path, message) = (shown(path), shown(message));
                    write!(f, "{newline}{path}:{line}:{column}: {message}")?;
                }
                Ok(())
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
