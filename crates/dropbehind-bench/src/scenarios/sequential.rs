//! One program that writes or reads a file from start to end.

use super::{READ_MODES, WRITE_MODES};
use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

const fn scenario(
    name: &'static str,
    summary: &'static str,
    modes: &'static [Mode],
    block_bytes: u64,
    build: fn(&Setting<'_>, Mode) -> Case,
) -> Scenario {
    Scenario {
        name,
        summary,
        role: if modes.len() == WRITE_MODES.len() {
            "writer"
        } else {
            "reader"
        },
        metric: "speed",
        modes,
        stage: Stage::Directory,
        size: Size::OfLimit(400),
        block_bytes,
        count: 1,
        build,
    }
}

pub(super) const SCENARIOS: [Scenario; 7] = [
    scenario(
        "seq-write-1m",
        "a new file written from start to end, 1 MiB a call",
        WRITE_MODES,
        1 << 20,
        write,
    ),
    scenario(
        "seq-write-64k",
        "a new file written from start to end, 64 KiB a call",
        WRITE_MODES,
        64 << 10,
        write,
    ),
    scenario(
        "seq-write-4k",
        "a new file written from start to end, 4 KiB a call",
        WRITE_MODES,
        4 << 10,
        write,
    ),
    scenario(
        "seq-read-1m",
        "a file read from start to end, 1 MiB a call",
        READ_MODES,
        1 << 20,
        read,
    ),
    scenario(
        "seq-read-64k",
        "a file read from start to end, 64 KiB a call",
        READ_MODES,
        64 << 10,
        read,
    ),
    scenario(
        "seq-read-4k",
        "a file read from start to end, 4 KiB a call",
        READ_MODES,
        4 << 10,
        read,
    ),
    scenario(
        "overwrite",
        "an existing file written over from start to end, 1 MiB a call",
        WRITE_MODES,
        1 << 20,
        overwrite,
    ),
];

fn task(setting: &Setting<'_>, role: &str, operation: Operation) -> Task {
    Task::new(
        role,
        operation,
        Pattern::Sequential,
        vec![setting.file("file")],
        setting.part_bytes(1),
        setting.scenario.block_bytes,
    )
}

fn write(setting: &Setting<'_>, mode: Mode) -> Case {
    Case::of(mode, task(setting, "writer", Operation::Write), 0)
}

fn overwrite(setting: &Setting<'_>, mode: Mode) -> Case {
    let content_bytes = setting.part_bytes(1);
    Case::of(
        mode,
        task(setting, "writer", Operation::Write),
        content_bytes,
    )
}

fn read(setting: &Setting<'_>, mode: Mode) -> Case {
    let content_bytes = setting.part_bytes(1);
    Case::of(
        mode,
        task(setting, "reader", Operation::Read),
        content_bytes,
    )
}
