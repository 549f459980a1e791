//! The rows of the table.

use super::{Kind, OptionSpec};
use dropbehind::{Mode, Strategy, WINDOW_MIN_BYTES};
use dropbehind_linux::IoPriority;

pub(super) const MODE: OptionSpec = OptionSpec {
    name: "mode",
    short: Some('m'),
    value_name: "MODE",
    env: Some("DROPBEHIND_MODE"),
    kind: Kind::Words {
        words: &[
            "buffered",
            "dontcache",
            "noreuse",
            "write-behind",
            "write-behind-any",
            "write-through",
        ],
        check: |text| {
            text.parse::<Mode>()
                .map(drop)
                .map_err(|error| error.to_string())
        },
    },
    default: Some("dontcache"),
    meaning: "When to write back, and what stays in the page cache",
    details: "buffered: as without dropbehind. dontcache: write back at once, and drop the pages \
              that this command brought in. noreuse: the kernel writes back when it likes, and the \
              pages are dropped then. write-behind: write back one window behind appending writes, \
              keep the pages. write-behind-any: the same for every sequential write. \
              write-through: write back at once, keep the pages. A pair such as behind+drop \
              (lazy, behind-appending, behind or eager; keep or drop) is allowed, too. Pages that \
              were in the cache before always stay.",
};

pub(super) const WINDOW: OptionSpec = OptionSpec {
    name: "window",
    short: None,
    value_name: "SIZE",
    env: Some("DROPBEHIND_WINDOW"),
    kind: Kind::Bytes {
        min: WINDOW_MIN_BYTES,
        max: 64 << 30,
    },
    default: None,
    meaning: "How far writeback may be behind the writer",
    details: "From 64KiB to 64GiB; unless set, what the disk writes in a quarter of a second, at \
              most 16MiB. Of a file, at most two windows and one write are dirty or on their way.",
};

pub(super) const REQUEST: OptionSpec = OptionSpec {
    name: "request",
    short: None,
    value_name: "SIZE",
    env: Some("DROPBEHIND_REQUEST"),
    kind: Kind::Bytes {
        min: 4 << 10,
        max: 1 << 30,
    },
    default: None,
    meaning: "How much to ask the disk for at once",
    details: "From 4KiB to 1GiB; unless set, the largest request that the disk takes \
              (max_sectors_kb).",
};

pub(super) const STRATEGY: OptionSpec = OptionSpec {
    name: "strategy",
    short: None,
    value_name: "STRATEGY",
    env: Some("DROPBEHIND_STRATEGY"),
    kind: Kind::Words {
        words: &["auto", "emulated", "native"],
        check: |text| {
            text.parse::<Strategy>()
                .map(drop)
                .map_err(|error| error.to_string())
        },
    },
    default: Some("auto"),
    meaning: "Who drops the pages: dropbehind or the kernel",
    details: "emulated: plain buffered I/O, with a flusher thread behind it. native: the kernel's \
              own RWF_DONTCACHE, where mode, kernel and file system allow it. auto: what is \
              measured to be better there; `dropbehind probe` tells which.",
};

pub(super) const BLOCK_SIZE: OptionSpec = OptionSpec {
    name: "block-size",
    short: None,
    value_name: "SIZE",
    env: Some("DROPBEHIND_BLOCK_SIZE"),
    kind: Kind::Bytes {
        min: 512,
        max: 1 << 30,
    },
    default: Some("1MiB"),
    meaning: "How much to read and write in one call",
    details: "From 512 to 1GiB.",
};

pub(super) const IO_PRIORITY: OptionSpec = OptionSpec {
    name: "io-priority",
    short: None,
    value_name: "PRIORITY",
    env: Some("DROPBEHIND_IO_PRIORITY"),
    kind: Kind::Words {
        words: &[
            "inherit",
            "idle",
            "best-effort:0",
            "best-effort:1",
            "best-effort:2",
            "best-effort:3",
            "best-effort:4",
            "best-effort:5",
            "best-effort:6",
            "best-effort:7",
        ],
        check: |text| {
            text.parse::<IoPriority>()
                .map(drop)
                .map_err(|error| error.to_string())
        },
    },
    default: Some("inherit"),
    meaning: "The I/O priority of writeback",
    details: "best-effort:0 comes first, best-effort:7 last; idle is for when nobody else wants \
              the disk. Only disks with the bfq or mq-deadline scheduler heed it.",
};

pub(super) const STATS: OptionSpec = OptionSpec {
    name: "stats",
    short: None,
    value_name: "FILE",
    env: None,
    kind: Kind::Path,
    default: None,
    meaning: "Write the run's figures to FILE, as JSON",
    details: "- is standard error. Sizes are in bytes, times in nanoseconds; peak_dirty_bytes and \
              peak_cached_bytes are those of the file written (of the file read, for read).",
};

pub(super) const PROGRESS: OptionSpec = OptionSpec {
    name: "progress",
    short: None,
    value_name: "WHEN",
    env: Some("DROPBEHIND_PROGRESS"),
    kind: Kind::Words {
        words: &["auto", "always", "never"],
        check: |text| match text {
            "auto" | "always" | "never" => Ok(()),
            _ => Err("expected auto, always or never".to_owned()),
        },
    },
    default: Some("auto"),
    meaning: "Whether to show a progress bar",
    details: "auto: if standard error is a terminal. It counts what was written, and what of it \
              has left the page cache for the disk.",
};

pub(super) const QUIET: OptionSpec = OptionSpec {
    name: "quiet",
    short: Some('q'),
    value_name: "",
    env: None,
    kind: Kind::Flag,
    default: None,
    meaning: "Show errors only: no progress bar, no notes",
    details: "",
};

/// Not settable by a variable: whether data is safe when a command returns must
/// not depend on something set long ago.
pub(super) const NO_SYNC: OptionSpec = OptionSpec {
    name: "no-sync",
    short: None,
    value_name: "",
    env: None,
    kind: Kind::Flag,
    default: None,
    meaning: "Return without waiting for the disk",
    details: "Without it, what was written has been synced when the command ends (fsync; also of \
              the directory of a new file), errors of the disk included. With it, the data may \
              still be lost in a crash, such errors go unseen, and what is not written back yet \
              stays in the page cache.",
};

/// The options of every command that moves data.
pub(super) const TRANSFER: [&OptionSpec; 9] = [
    &MODE,
    &WINDOW,
    &REQUEST,
    &STRATEGY,
    &BLOCK_SIZE,
    &IO_PRIORITY,
    &STATS,
    &PROGRESS,
    &QUIET,
];

/// The options of the commands that write files, besides.
pub(super) const WRITE_END: [&OptionSpec; 1] = [&NO_SYNC];
