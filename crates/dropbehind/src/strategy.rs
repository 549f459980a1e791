//! Emulated or native uncached I/O: plain buffered I/O with our flusher, or `RWF_DONTCACHE`.

use std::fmt;
use std::str::FromStr;

#[cfg(target_os = "linux")]
pub use choice::{Choice, choose};

#[cfg(target_os = "linux")]
mod choice;

/// How uncached I/O is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// [`choose`] picks one for each file system and operation.
    #[default]
    Auto,
    /// Plain buffered I/O; the flusher writes, counts and drops.
    Emulated,
    /// `RWF_DONTCACHE` on each call where the file system supports it, emulated elsewhere.
    Native,
}

impl Strategy {
    /// All strategies, in the order in which they are documented.
    pub const ALL: [Strategy; 3] = [Strategy::Auto, Strategy::Emulated, Strategy::Native];

    /// The name, as parsed by `FromStr`.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Auto => "auto",
            Strategy::Emulated => "emulated",
            Strategy::Native => "native",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownStrategy;

impl fmt::Display for UnknownStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a strategy; the strategies are auto, emulated and native")
    }
}

impl std::error::Error for UnknownStrategy {}

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(text: &str) -> Result<Strategy, UnknownStrategy> {
        Strategy::ALL
            .into_iter()
            .find(|strategy| strategy.name() == text)
            .ok_or(UnknownStrategy)
    }
}
