//! Errors that say what was attempted.

use std::fmt::Display;
use std::io;

/// Puts what was attempted in front of an error's text.
pub(crate) trait Context<T> {
    /// `what` is evaluated only for errors.
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> io::Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context<D: Display>(self, what: impl FnOnce() -> D) -> io::Result<T> {
        self.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", what())))
    }
}
