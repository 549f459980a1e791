//! The rows of the table.

use super::{Kind, OpenSource, OptionSpec};
use crate::path_pattern::PathPatterns;
use dropbehind::Mode;
use dropbehind::strategy::Strategy;
use dropbehind_linux::IoPriority;
use dropbehind_observer::rules::{MAX_DIRTY_RANGE_BYTES, REQUEST_RANGE_BYTES, WINDOW_RANGE_BYTES};
use std::fmt::Display;
use std::str::FromStr;

/// Whether a text is a value of this type.
fn parses<T: FromStr<Err: Display>>(text: &str) -> Result<(), String> {
    let value = text.parse::<T>();
    value.map(drop).map_err(|error| error.to_string())
}

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
            "auto",
        ],
        check: parses::<Mode>,
    },
    default: Some("dontcache"),
    meaning: "When to write back, and what stays in the page cache",
    details: "buffered: as without dropbehind. dontcache: write back at once, and drop the pages \
              that this command brought in. noreuse: the kernel decides when to write back, and the \
              pages are dropped then. write-behind: write back one window behind appending writes, \
              keep the pages. write-behind-any: the same for every sequential write. \
              write-through: write back at once, keep the pages. auto: write back at once, and \
              drop the pages unless they are used again; only run and watch can tell, elsewhere it \
              is as dontcache. A pair such as behind+drop (lazy, behind-appending, behind or eager; \
              keep, drop or reuse) is allowed, too. Pages that \
              were in the cache before always stay. The disk's mode in the configuration file \
              overrides this default.",
};

pub(super) const WINDOW: OptionSpec = OptionSpec {
    name: "window",
    value_name: "SIZE",
    env: Some("DROPBEHIND_WINDOW"),
    kind: Kind::Bytes {
        min: *WINDOW_RANGE_BYTES.start(),
        max: *WINDOW_RANGE_BYTES.end(),
    },
    meaning: "How far writeback may be behind the writer",
    details: "From 64KiB to 64GiB. Of a file, at most two windows and one write are dirty or under \
              writeback, except in the modes that leave writeback to the kernel (buffered, noreuse). \
              Unless set, what the disk writes in a quarter of a second, at most 16MiB, in the \
              write-behind modes, and what keeps it busy in the others: 8MiB on most.",
    ..OptionSpec::PLAIN
};

pub(super) const REQUEST: OptionSpec = OptionSpec {
    name: "request",
    value_name: "SIZE",
    env: Some("DROPBEHIND_REQUEST"),
    kind: Kind::Bytes {
        min: *REQUEST_RANGE_BYTES.start(),
        max: *REQUEST_RANGE_BYTES.end(),
    },
    meaning: "How much to ask the disk for at once",
    details: "From 4KiB to 1GiB; unless set, the largest request that the disk takes \
              (max_sectors_kb).",
    ..OptionSpec::PLAIN
};

pub(super) const STRATEGY: OptionSpec = OptionSpec {
    name: "strategy",
    value_name: "STRATEGY",
    env: Some("DROPBEHIND_STRATEGY"),
    kind: Kind::Words {
        words: &["auto", "emulated", "native"],
        check: parses::<Strategy>,
    },
    default: Some("auto"),
    meaning: "Who drops the pages: dropbehind or the kernel",
    details: "emulated: plain buffered I/O, with a flusher thread behind it. native: the kernel's \
              own RWF_DONTCACHE, where mode, kernel and file system allow it. auto: what is \
              measured to be better there; `dropbehind probe` says which.",
    ..OptionSpec::PLAIN
};

pub(super) const BLOCK_SIZE: OptionSpec = OptionSpec {
    name: "block-size",
    value_name: "SIZE",
    env: Some("DROPBEHIND_BLOCK_SIZE"),
    kind: Kind::Bytes {
        min: 512,
        max: 1 << 30,
    },
    default: Some("1MiB"),
    meaning: "How much to read and write in one call",
    details: "From 512 to 1GiB.",
    ..OptionSpec::PLAIN
};

pub(super) const IO_PRIORITY: OptionSpec = OptionSpec {
    name: "io-priority",
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
        check: parses::<IoPriority>,
    },
    default: Some("inherit"),
    meaning: "The I/O priority of writeback",
    details: "best-effort:0 comes first, best-effort:7 last; idle is for when nobody else wants \
              the disk. Only disks with the bfq or mq-deadline scheduler heed it.",
    ..OptionSpec::PLAIN
};

pub(super) const STATS: OptionSpec = OptionSpec {
    name: "stats",
    value_name: "FILE",
    kind: Kind::Path,
    meaning: "Write the figures to FILE, as JSON",
    details: "- is standard error. Sizes are in bytes, times in nanoseconds. peak_dirty_bytes and \
              peak_cached_bytes are of the file that is written (read: of the file that is read; run: \
              of all files together).",
    ..OptionSpec::PLAIN
};

pub(super) const STATS_JSON: OptionSpec = OptionSpec {
    name: "json",
    kind: Kind::Flag,
    meaning: "Write the figures to standard error, as --stats - does",
    details: "One line, the last one of dropbehind's own.",
    ..OptionSpec::PLAIN
};

pub(super) const CONFIG: OptionSpec = OptionSpec {
    name: "config",
    value_name: "FILE",
    env: Some("DROPBEHIND_CONFIG"),
    kind: Kind::Path,
    meaning: "Take each disk's mode, window and request from FILE, unless set otherwise",
    details: "Its [disk] tables, as `watch` has them; unless set, those of /etc/dropbehind.toml, if \
              that exists. An empty name means no file. An option overrides its variable, and a \
              variable overrides the file; but on a disk with enabled = false, all files are left \
              alone.",
    ..OptionSpec::PLAIN
};

pub(super) const TRACE: OptionSpec = OptionSpec {
    name: "trace",
    value_name: "FILE",
    kind: Kind::Path,
    meaning: "Write each writeback and drop to FILE: when, which range, why",
    details: "A line of JSON each; or, where FILE ends in .json, an array of trace events, which \
              ui.perfetto.dev shows. docs/traces.md in the source describes both.",
    ..OptionSpec::PLAIN
};

pub(super) const PROGRESS: OptionSpec = OptionSpec {
    name: "progress",
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
    ..OptionSpec::PLAIN
};

pub(super) const QUIET: OptionSpec = OptionSpec {
    name: "quiet",
    short: Some('q'),
    kind: Kind::Flag,
    meaning: "Show errors only: no progress bar, no notes",
    ..OptionSpec::PLAIN
};

/// No variable sets this: whether data is safe when a command returns must not depend on
/// something set long ago.
pub(super) const NO_SYNC: OptionSpec = OptionSpec {
    name: "no-sync",
    kind: Kind::Flag,
    meaning: "Return without waiting for the disk",
    details: "Without it, what was written has been synced when the command ends (fsync; also of \
              the directory of a new file), errors of the disk included. With it, the data is on \
              its way, unless the mode leaves that to the kernel. It may still be lost in a crash, \
              such errors go unseen, and what is not written back yet stays in the page cache.",
    ..OptionSpec::PLAIN
};

/// The options of every command that moves data.
pub(super) const TRANSFER: [&OptionSpec; 12] = [
    &MODE,
    &WINDOW,
    &REQUEST,
    &STRATEGY,
    &CONFIG,
    &BLOCK_SIZE,
    &IO_PRIORITY,
    &STATS,
    &STATS_JSON,
    &TRACE,
    &PROGRESS,
    &QUIET,
];

/// The further options of the commands that write files.
pub(super) const WRITE_END: [&OptionSpec; 1] = [&NO_SYNC];

pub(super) const READS: OptionSpec = OptionSpec {
    name: "reads",
    kind: Kind::Flag,
    meaning: "Drop what reads bring into the page cache, too (the default)",
    ..OptionSpec::PLAIN
};

pub(super) const NO_READS: OptionSpec = OptionSpec {
    name: "no-reads",
    kind: Kind::Flag,
    meaning: "Keep what reads bring into the page cache",
    details: "Files that are only read are left alone. Of a file that is also written, what was \
              written is dropped and what was read stays, except what is read through a mapping.",
    ..OptionSpec::PLAIN
};

pub(super) const ONLY: OptionSpec = OptionSpec {
    name: "only",
    value_name: "GLOB",
    kind: Kind::Pattern {
        check: |text| PathPatterns::new([text]).map(drop),
    },
    meaning: "Observe files that match GLOB, and no others; may be repeated",
    details: "A pattern that begins with / matches the whole path, as the program sees it. Any other \
              pattern matches the end of the path: *.iso is any such file, backup/* any file directly \
              in a directory of that name. A pattern that ends with / matches everything below such a \
              directory. * and ? do not match /, and ** does; [a-z] and {a,b} work, too.",
    ..OptionSpec::PLAIN
};

pub(super) const EXCEPT: OptionSpec = OptionSpec {
    name: "except",
    value_name: "GLOB",
    kind: Kind::Pattern {
        check: |text| PathPatterns::new([text]).map(drop),
    },
    meaning: "Leave files alone that match GLOB; may be repeated",
    details: "Takes precedence over --only; same pattern syntax.",
    ..OptionSpec::PLAIN
};

pub(super) const SETTLE: OptionSpec = OptionSpec {
    name: "settle",
    value_name: "SECONDS",
    env: Some("DROPBEHIND_SETTLE"),
    kind: Kind::Seconds {
        min_ms: 0,
        max_ms: 86_400_000,
    },
    default: Some("10"),
    meaning: "How long to wait, when the program has ended, until all is written and dropped",
    details: "From 0 (do not wait) to 86400; fractions are allowed. The wait ends as soon as nothing \
              is left to do, or at ^C. What is still dirty then is left to the kernel. The exit status \
              is the program's in any case. If the program left processes running, run does not wait.",
    ..OptionSpec::PLAIN
};

pub(super) const MAX_DIRTY: OptionSpec = OptionSpec {
    name: "max-dirty",
    value_name: "SIZE",
    env: Some("DROPBEHIND_MAX_DIRTY"),
    kind: Kind::Bytes {
        min: *MAX_DIRTY_RANGE_BYTES.start(),
        max: *MAX_DIRTY_RANGE_BYTES.end(),
    },
    meaning: "Make writers wait for the disk while more than SIZE is dirty",
    details: "From 16MiB to 1PiB, for all files of a disk. Unless set: two windows of each file in \
              the write-behind modes; in the others 96MiB, or two windows if that is more. The limit \
              is not exact. Writers wait as they do at the kernel's own limits (vm.dirty_ratio); to \
              have only these, give a size beyond the machine's memory. It has no effect in the modes \
              that leave writeback to the kernel (noreuse), and works fully on ext4, xfs and btrfs \
              only: elsewhere writers wait at most when they open the next file.",
    ..OptionSpec::PLAIN
};

pub(super) const SOURCE: OptionSpec = OptionSpec {
    name: "source",
    value_name: "SOURCE",
    kind: Kind::Words {
        words: &["auto", "fanotify", "seccomp"],
        check: parses::<OpenSource>,
    },
    default: Some("auto"),
    meaning: "How to learn which files the program opens",
    details: "fanotify takes CAP_SYS_ADMIN, which root has; the kernel then also reports which \
              process brings which page into the cache. seccomp takes no privilege: it stops the \
              program at each open for some microseconds. What was cached then stays, and the rest \
              is dropped. auto takes fanotify if that is permitted, otherwise seccomp.",
    ..OptionSpec::PLAIN
};

pub(super) const BEST_EFFORT: OptionSpec = OptionSpec {
    name: "best-effort",
    kind: Kind::Flag,
    meaning: "If dropbehind itself fails, start the program unobserved, and say so",
    details: "That is, if the program cannot be observed, the configuration has a mistake, or --stats \
              or --trace cannot be written. Without this option, the program is not started then.",
    ..OptionSpec::PLAIN
};

pub(super) const VERBOSE: OptionSpec = OptionSpec {
    name: "verbose",
    short: Some('v'),
    kind: Kind::Flag,
    meaning: "End with some lines about what was done, on standard error",
    details: "What was written and read; how much of it was in the page cache at most and at the \
              end; what was kept because it was cached before or others brought it in; and what was \
              not possible, and why. --json has the same for programs.",
    ..OptionSpec::PLAIN
};

/// An option of [`RUN`].
const RUN_WINDOW: OptionSpec = OptionSpec {
    details: "From 64KiB to 64GiB. Writers may be further ahead: --max-dirty limits that. Unless \
              set, what the disk writes in a quarter of a second, at most 16MiB, in the write-behind \
              modes, and what keeps it busy in the others: 8MiB on most.",
    ..WINDOW
};

/// An option of [`RUN`].
const RUN_MODE: OptionSpec = OptionSpec {
    default: Some("auto"),
    details: "auto: write back at once, and drop what the program brought in unless it is used \
              again. Unless you ask for auto, that becomes dontcache where the kernel does not \
              report what is used again: without root, and on kernels without the tracepoint \
              filemap:mm_filemap_get_pages. buffered: as without dropbehind. dontcache: write back \
              at once, and drop the pages that the program brought in. noreuse: the kernel decides \
              when to write back, and the pages are dropped then. write-behind: write back one \
              window behind appending writes, keep the pages. write-behind-any: the same for every \
              sequential write. write-through: write back at once, keep the pages. A pair such as \
              behind+drop (lazy, behind-appending, behind or eager; keep, drop or reuse) is allowed, \
              too. Pages that were in the cache before always stay. The disk's mode in the \
              configuration file overrides this default.",
    ..MODE
};

/// An option of [`RUN`].
const RUN_CONFIG: OptionSpec = OptionSpec {
    meaning: "Take each disk's mode, window, request and max_dirty from FILE, unless set otherwise",
    ..CONFIG
};

/// The options of `run`.
pub(super) const RUN: [&OptionSpec; 17] = [
    &RUN_MODE,
    &RUN_WINDOW,
    &REQUEST,
    &MAX_DIRTY,
    &RUN_CONFIG,
    &IO_PRIORITY,
    &READS,
    &NO_READS,
    &ONLY,
    &EXCEPT,
    &SETTLE,
    &STATS,
    &STATS_JSON,
    &TRACE,
    &SOURCE,
    &BEST_EFFORT,
    &VERBOSE,
];

/// An option of [`TOP`].
pub(super) const SOCKET: OptionSpec = OptionSpec {
    name: "socket",
    value_name: "PATH",
    kind: Kind::Path,
    meaning: "The observer's socket; found by itself unless given",
    details: "Observers listen at watch.sock and run-PID.sock in /run/dropbehind for root, in \
              $XDG_RUNTIME_DIR/dropbehind for others, or in $DROPBEHIND_RUNTIME_DIR. Only the \
              observer's owner and root are answered.",
    ..OptionSpec::PLAIN
};

/// An option of [`TOP`].
pub(super) const INTERVAL: OptionSpec = OptionSpec {
    name: "interval",
    short: Some('i'),
    value_name: "SECONDS",
    kind: Kind::Seconds {
        min_ms: 100,
        max_ms: 60_000,
    },
    default: Some("1"),
    meaning: "The time between two samples",
    details: "From 0.1 to 60. Speeds are averages over it.",
    ..OptionSpec::PLAIN
};

/// An option of [`TOP`].
pub(super) const JSON: OptionSpec = OptionSpec {
    name: "json",
    kind: Kind::Flag,
    meaning: "Print samples as lines of JSON, until nobody reads them",
    details: "Sizes are in bytes, times in nanoseconds. It ends with exit code 0 when the \
              observer ends.",
    ..OptionSpec::PLAIN
};

/// An option of [`TOP`].
pub(super) const ONCE: OptionSpec = OptionSpec {
    name: "once",
    short: Some('1'),
    kind: Kind::Flag,
    meaning: "Print one sample and end",
    ..OptionSpec::PLAIN
};

/// The options of `top`.
pub(super) const TOP: [&OptionSpec; 4] = [&SOCKET, &INTERVAL, &JSON, &ONCE];
