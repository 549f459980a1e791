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
    let before = |major, minor| kernel < KernelVersion { major, minor };
    if before(6, 16) {
        return emulated("kernels before 6.16 have no RWF_DONTCACHE, or one with known bugs");
    }
    match (filesystem, operation) {
        (FsKind::BlockDevice, _) if before(7, 3) && works.is_none() => {
            emulated("before Linux 7.3, RWF_DONTCACHE does not work on raw devices")
        }
        (FsKind::Ext4, Operation::Overwrite) => {
            emulated("on ext4 native overwrites leave most pages cached")
        }
        (_, Operation::Read) => emulated(
            "native reads below 4 MiB fetch parts of the file twice, and drop pages that others \
             read meanwhile",
        ),
        (_, Operation::Write | Operation::Overwrite) if before(7, 2) => emulated(
            "native writes start disk I/O inside each call: small writes are not combined, and \
             large ones have the longer tail",
        ),
        (_, Operation::Write | Operation::Overwrite) => emulated(
            "native writes are left to the kernel's flusher and not held back: what is dirty grows \
             to the limits of the whole machine",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_that_of_the_running_kernel() {
        let why = |major, minor, filesystem, works| {
            let kernel = KernelVersion { major, minor };
            let choice = choose(kernel, filesystem, Operation::Write, works);
            assert_eq!(choice.strategy, Strategy::Emulated);
            choice.why
        };
        assert!(why(6, 15, FsKind::Xfs, None).contains("before 6.16"));
        assert!(why(7, 1, FsKind::Xfs, Some(true)).contains("inside each call"));
        assert!(why(7, 2, FsKind::Xfs, Some(true)).contains("not held back"));
        assert!(why(7, 2, FsKind::BlockDevice, None).contains("before Linux 7.3"));
        assert!(why(7, 3, FsKind::BlockDevice, None).contains("not held back"));
        assert!(why(7, 3, FsKind::Btrfs, Some(false)).contains("does not work here"));
    }
}
