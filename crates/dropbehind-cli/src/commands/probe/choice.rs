//! Which strategy each operation would use, and why.

use dropbehind::strategy::choose;
use dropbehind_linux::{FsKind, Operation, Probe, Support};
use serde::Serialize;

/// An operation's strategy; the names are those of the JSON output.
#[derive(Debug, Serialize)]
pub(super) struct Choice {
    pub(super) operation: &'static str,
    pub(super) strategy: String,
    pub(super) why: String,
}

/// What the library chooses for `--strategy auto`, given what was found.
pub(super) fn choices(found: &Probe) -> Vec<Choice> {
    let here = found.filesystem;
    let of = |operation, filesystem, kind, support: Option<&Support>| {
        let choice = choose(found.kernel, filesystem, kind, support.and_then(known));
        Choice {
            operation,
            strategy: choice.strategy.to_string(),
            why: choice.why.to_owned(),
        }
    };
    let mut all = Vec::new();
    if here != FsKind::BlockDevice {
        all.push(of(
            "write a new file",
            here,
            Operation::Write,
            Some(&found.dontcache_write),
        ));
        all.push(of(
            "overwrite",
            here,
            Operation::Overwrite,
            Some(&found.dontcache_overwrite),
        ));
        all.push(of(
            "read",
            here,
            Operation::Read,
            Some(&found.dontcache_read),
        ));
    }
    // Asking a device takes its name, so nothing was tried on a file's disk.
    let read = (here == FsKind::BlockDevice).then_some(&found.dontcache_read);
    let device = FsKind::BlockDevice;
    all.push(of(
        "write a block device",
        device,
        Operation::Overwrite,
        None,
    ));
    all.push(of("read a block device", device, Operation::Read, read));
    all
}

/// Whether something works, if that is known.
fn known(support: &Support) -> Option<bool> {
    match support {
        Support::Works => Some(true),
        Support::Missing { .. } | Support::Ineffective { .. } => Some(false),
        Support::Untested { .. } => None,
    }
}
