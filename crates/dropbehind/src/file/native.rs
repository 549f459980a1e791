//! Which operations use `RWF_DONTCACHE`, for as long as the file system accepts it.

use std::io;
use std::sync::atomic::Ordering;

use dropbehind_linux::{FsKind, Operation, dontcache, kernel_version, remember_dontcache};

use super::File;
use crate::strategy::{Strategy, choose};

impl File {
    pub(super) fn write_operation(&self, start: u64) -> Operation {
        if start < self.shared.size_bytes.load(Ordering::Relaxed) {
            Operation::Overwrite
        } else {
            Operation::Write
        }
    }

    pub(super) fn native_wanted(&self, operation: Operation) -> bool {
        let native = self.shared.native.load(Ordering::Relaxed);
        native & native_bit(operation) != 0
    }

    /// After a call that may have been refused for its flag, and the same one without: what fails
    /// either way, such as a negative offset, says nothing about the flag.
    pub(super) fn learn_refusal(&self, without: &io::Result<usize>, operation: Operation) {
        if without.is_ok() {
            remember_dontcache(self.shared.facts.device, operation, false);
            self.shared.native.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns whether this may be the file system's answer to `RWF_DONTCACHE`.
pub(super) fn may_be_refusal(result: &io::Result<usize>) -> bool {
    let refuses =
        |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL));
    result.as_ref().is_err_and(refuses)
}

fn native_bit(operation: Operation) -> u8 {
    match operation {
        Operation::Read => 1,
        Operation::Write => 2,
        Operation::Overwrite => 4,
    }
}

/// The bits of the operations that use `RWF_DONTCACHE` on a file.
pub(super) fn native_operations(strategy: Strategy, filesystem: FsKind, device: u64) -> u8 {
    let wanted = |operation: &Operation| {
        let works = dontcache(device, *operation);
        match strategy {
            Strategy::Emulated => false,
            Strategy::Native => works != Some(false),
            Strategy::Auto => {
                let choice = choose(kernel_version(), filesystem, *operation, works);
                choice.strategy == Strategy::Native
            }
        }
    };
    [Operation::Read, Operation::Write, Operation::Overwrite]
        .iter()
        .filter(|operation| wanted(operation))
        .fold(0, |bits, operation| bits | native_bit(*operation))
}
