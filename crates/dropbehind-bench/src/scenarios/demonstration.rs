//! The demonstration of the write-behind proposal: 3.2 GB to a disk of 100 MB/s,
//! without a memory limit. Plain writes pile up in memory, and the sync pays.

use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

/// So many files has the folder that the proposal copies.
const FILES: u64 = 100;

const MODES: &[Mode] = &[
    Mode::Buffered,
    Mode::Native,
    Mode::Direct,
    Mode::Dontcache,
    Mode::WriteBehind,
    Mode::WriteBehindAny,
    Mode::WriteThrough,
    Mode::Run,
];

pub(super) const SCENARIOS: [Scenario; 2] = [
    scenario(
        "demonstration",
        "3.2 GB written to a disk slowed to 100 MB/s, 1 MiB a call: write, sync, peak dirty",
        |setting, mode| file_after_file(setting, mode, 1, Pattern::Sequential),
    ),
    scenario(
        "slow-folder",
        "the demonstration in 100 files, each opened, written and closed; its sync is of the file system",
        |setting, mode| {
            let blocks = setting.size_bytes / setting.scenario.block_bytes;
            file_after_file(setting, mode, blocks.clamp(1, FILES), Pattern::Tree)
        },
    ),
];

const fn scenario(
    name: &'static str,
    summary: &'static str,
    build: fn(&Setting<'_>, Mode) -> Case,
) -> Scenario {
    Scenario {
        name,
        summary,
        role: "writer",
        metric: "total",
        modes: MODES,
        stage: Stage::SlowDisk {
            bytes_per_second: 100_000_000,
        },
        size: Size::Unlimited(3_200_000_000),
        block_bytes: 1 << 20,
        count: 1,
        build,
    }
}

fn file_after_file(setting: &Setting<'_>, mode: Mode, files: u64, pattern: Pattern) -> Case {
    let paths = (0..files).map(|number| setting.file(&format!("file-{number}")));
    let task = Task::new(
        "writer",
        Operation::Write,
        pattern,
        paths.collect(),
        setting.part_bytes(files),
        setting.scenario.block_bytes,
    );
    Case::of(mode, task, 0)
}
