//! A log: small records at the end of a file.

use super::WRITE_MODES;
use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Size, Stage};

/// A line of a web server's log, about.
const RECORD_BYTES: u64 = 256;

pub(super) const SCENARIOS: [Scenario; 1] = [Scenario {
    name: "append-log",
    summary: "records of 256 bytes appended to a new file, without a sync until the end",
    role: "writer",
    metric: "speed",
    modes: WRITE_MODES,
    stage: Stage::Directory,
    // Calls are what counts here, and there are 4096 in a MiB.
    size: Size::OfLimit(20),
    block_bytes: RECORD_BYTES,
    count: 1,
    build: |setting, mode: Mode| {
        let task = Task::new(
            "writer",
            Operation::Write,
            Pattern::Append,
            vec![setting.file("log")],
            setting.part_bytes(1),
            RECORD_BYTES,
        );
        Case::of(mode, task, 0)
    },
}];
