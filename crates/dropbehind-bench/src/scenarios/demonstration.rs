//! The demonstration of the write-behind proposal: 3.2 GB to a disk of 100 MB/s,
//! without a memory limit. Plain writes pile up in memory, and the sync pays.

use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Size, Stage};

pub(super) const SCENARIOS: [Scenario; 1] = [Scenario {
    name: "demonstration",
    summary: "3.2 GB written to a disk slowed to 100 MB/s, 1 MiB a call: write, sync, peak dirty",
    role: "writer",
    metric: "total",
    modes: &[
        Mode::Buffered,
        Mode::Native,
        Mode::Direct,
        Mode::Dontcache,
        Mode::WriteBehind,
        Mode::WriteBehindAny,
        Mode::WriteThrough,
        Mode::Run,
    ],
    stage: Stage::SlowDisk {
        bytes_per_second: 100_000_000,
    },
    size: Size::Unlimited(3_200_000_000),
    block_bytes: 1 << 20,
    count: 1,
    build: |setting, mode| {
        let task = Task::new(
            "writer",
            Operation::Write,
            Pattern::Sequential,
            vec![setting.file("file")],
            setting.part_bytes(1),
            setting.scenario.block_bytes,
        );
        Case::of(mode, task, 0)
    },
}];
