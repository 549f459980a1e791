//! Which strategy is the better one.

use dropbehind_linux::{FsKind, KernelVersion, Operation};

use super::Strategy;

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
