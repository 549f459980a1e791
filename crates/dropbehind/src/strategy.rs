//! Emulated or native uncached I/O: plain buffered I/O with our flusher, or `RWF_DONTCACHE`.

use std::fmt;
use std::str::FromStr;

use dropbehind_linux::{FsKind, KernelVersion, Operation};

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

/// A strategy and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Never [`Strategy::Auto`].
    pub strategy: Strategy,
    /// One sentence, which `probe` prints.
    pub why: &'static str,
}

/// What [`Strategy::Auto`] means on this kernel, file system and operation.
///
/// `works` says whether `RWF_DONTCACHE` was found to work there; `None` if nobody has tried.
pub fn choose(
    kernel: KernelVersion,
    filesystem: FsKind,
    operation: Operation,
    works: Option<bool>,
) -> Choice {
    let emulated = |why| Choice {
        strategy: Strategy::Emulated,
        why,
    };
    if works == Some(false) {
        return emulated("RWF_DONTCACHE does not work here");
    }
    if kernel
        < (KernelVersion {
            major: 6,
            minor: 16,
        })
    {
        return emulated("kernels before 6.16 have no RWF_DONTCACHE, or one with known bugs");
    }
    match (filesystem, operation) {
        (FsKind::Ext4, Operation::Overwrite) => {
            emulated("on ext4 native overwrites leave most pages cached")
        }
        (_, Operation::Read) => emulated(
            "native reads below 4 MiB fetch parts of the file twice, and drop pages that others \
             read meanwhile",
        ),
        (_, Operation::Write | Operation::Overwrite) => emulated(
            "native writes start disk I/O inside each call: small writes are not combined, and \
             large ones have the longer tail",
        ),
    }
}
