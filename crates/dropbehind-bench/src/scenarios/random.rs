//! One program that writes or reads the blocks of a file in random order, each
//! once.

use super::{READ_MODES, WRITE_MODES};
use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

const fn scenario(
    name: &'static str,
    summary: &'static str,
    write: bool,
    block_bytes: u64,
    size: Size,
) -> Scenario {
    Scenario {
        name,
        summary,
        role: if write { "writer" } else { "reader" },
        metric: "speed",
        modes: if write { WRITE_MODES } else { READ_MODES },
        stage: Stage::Directory,
        size,
        block_bytes,
        count: 1,
        build: if write {
            |setting, mode| case(setting, mode, Operation::Write, 0)
        } else {
            |setting, mode| case(setting, mode, Operation::Read, 0)
        },
    }
}

pub(super) const SCENARIOS: [Scenario; 4] = [
    scenario(
        "rand-write-4k",
        "an existing file written over in random order, 4 KiB a call",
        true,
        4 << 10,
        Size::OfLimit(50),
    ),
    scenario(
        "rand-write-64k",
        "an existing file written over in random order, 64 KiB a call",
        true,
        64 << 10,
        Size::OfLimit(200),
    ),
    scenario(
        "rand-read-4k",
        "a file read in random order, 4 KiB a call",
        false,
        4 << 10,
        Size::OfLimit(50),
    ),
    scenario(
        "rand-read-64k",
        "a file read in random order, 64 KiB a call",
        false,
        64 << 10,
        Size::OfLimit(200),
    ),
];

/// By io_uring, if so many requests are made at a time.
pub(super) fn case(
    setting: &Setting<'_>,
    mode: Mode,
    operation: Operation,
    ring_depth: u32,
) -> Case {
    let bytes = setting.part_bytes(1);
    let mut task = Task::new(
        setting.scenario.role,
        operation,
        Pattern::Random,
        vec![setting.file("file")],
        bytes,
        setting.scenario.block_bytes,
    );
    task.ring_depth = ring_depth;
    Case::of(mode, task, bytes)
}
