//! What it means that something is missing.

use dropbehind_linux::{FsKind, Probe, Support};

/// A sentence for each thing that is missing here.
pub(super) fn consequences(found: &Probe) -> Vec<&'static str> {
    let needed = [
        (
            &found.cachestat,
            "without cachestat, mincore counts what is cached, and reads around the page cache \
             find what is still to be written: that takes longer, and before Linux 5.13 and on \
             overlayfs such a read waits for the disk, and the file's writers with it",
        ),
        (
            &found.mincore,
            "without mincore, it cannot be told which part of a file was cached before, and all \
             of a file that was partly cached stays cached",
        ),
        (
            &found.sync_file_range,
            match found.filesystem {
                FsKind::Overlay => "without sync_file_range, posix_fadvise starts writeback",
                _ => {
                    "without sync_file_range, the kernel writes back when it likes, whatever the mode"
                }
            },
        ),
        (
            &found.fadvise_dontneed,
            "without posix_fadvise DONTNEED, only the native strategy drops pages",
        ),
        (
            &found.own_description,
            "without an open file description of its own, the flusher works on copies of the \
             program's descriptors",
        ),
        (
            &found.descriptor_table,
            "without a descriptor table of its own, the flusher's descriptors are in the \
             program's, and closing one releases the program's record locks on that file",
        ),
    ];
    let is_missing = |support: &Support| {
        matches!(
            support,
            Support::Missing { .. } | Support::Ineffective { .. }
        )
    };
    needed
        .into_iter()
        .filter(|(support, _)| is_missing(support))
        .map(|(_, sentence)| sentence)
        .collect()
}
