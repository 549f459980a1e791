//! One program that reads or writes blocks in random order through io_uring, so many at a
//! time. Native requests carry the flag; ours are reported to the library.

use super::random::case;
use crate::job::Operation;
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

/// Modes that a ring can have.
const MODES: &[Mode] = &[Mode::Buffered, Mode::Native, Mode::Dontcache];

const fn scenario(
    name: &'static str,
    summary: &'static str,
    write: bool,
    build: fn(&Setting<'_>, Mode) -> Case,
) -> Scenario {
    Scenario {
        name,
        summary,
        role: if write { "writer" } else { "reader" },
        metric: "speed",
        modes: MODES,
        stage: Stage::Directory,
        size: Size::OfLimit(200),
        block_bytes: 64 << 10,
        count: 1,
        build,
    }
}

pub(super) const SCENARIOS: [Scenario; 6] = [
    scenario(
        "ring-write-1",
        "an existing file written over in random order, 64 KiB a request, by io_uring, 1 at a time",
        true,
        |setting, mode| case(setting, mode, Operation::Write, 1),
    ),
    scenario(
        "ring-write-16",
        "an existing file written over in random order, 64 KiB a request, by io_uring, 16 at a time",
        true,
        |setting, mode| case(setting, mode, Operation::Write, 16),
    ),
    scenario(
        "ring-write-128",
        "an existing file written over in random order, 64 KiB a request, by io_uring, 128 at a time",
        true,
        |setting, mode| case(setting, mode, Operation::Write, 128),
    ),
    scenario(
        "ring-read-1",
        "a file read in random order, 64 KiB a request, by io_uring, 1 at a time",
        false,
        |setting, mode| case(setting, mode, Operation::Read, 1),
    ),
    scenario(
        "ring-read-16",
        "a file read in random order, 64 KiB a request, by io_uring, 16 at a time",
        false,
        |setting, mode| case(setting, mode, Operation::Read, 16),
    ),
    scenario(
        "ring-read-128",
        "a file read in random order, 64 KiB a request, by io_uring, 128 at a time",
        false,
        |setting, mode| case(setting, mode, Operation::Read, 128),
    ),
];
