//! What it means that something is missing.

use dropbehind_linux::{Probe, Support};

/// A sentence for each thing that is missing here.
pub(super) fn consequences(found: &Probe) -> Vec<&'static str> {
    let needed = [
        (
            &found.cachestat,
            "without cachestat, stat and drop cannot count pages, and the flusher waits for \
             writeback with sync_file_range on a description of its own: an error that this marks \
             as seen is reported by the library to files opened later in the same process, and to \
             nobody else",
        ),
        (
            &found.mincore,
            "without mincore, it cannot be told which part of a file was cached before, and all \
             of a file that was partly cached stays cached",
        ),
        (
            &found.sync_file_range,
            "without sync_file_range, the kernel writes back when it likes, whatever the mode",
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
