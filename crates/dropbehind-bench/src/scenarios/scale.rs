//! Many files or many threads: the cost of a call should stay what it is.

use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

const MODES: &[Mode] = &[
    Mode::Buffered,
    Mode::Native,
    Mode::Dontcache,
    Mode::WriteBehind,
    Mode::WriteThrough,
    Mode::Run,
];

const IDLE_MODES: &[Mode] = &[
    Mode::Buffered,
    Mode::Native,
    Mode::Dontcache,
    Mode::WriteBehind,
    Mode::WriteThrough,
];

const fn scenario(
    name: &'static str,
    summary: &'static str,
    count: u64,
    build: fn(&Setting<'_>, Mode) -> Case,
) -> Scenario {
    Scenario {
        name,
        summary,
        role: "writer",
        // Of many files the sync costs most, in all modes; the question is
        // what a call costs.
        metric: "p50",
        modes: MODES,
        stage: Stage::Directory,
        size: Size::OfLimit(200),
        block_bytes: 16 << 10,
        count,
        build,
    }
}

pub(super) const SCENARIOS: [Scenario; 8] = [
    scenario(
        "scale-files-1",
        "one thread writes 1 new file, 16 KiB a call",
        1,
        files,
    ),
    scenario(
        "scale-files-10",
        "one thread writes 10 new files in turn, 16 KiB a call",
        10,
        files,
    ),
    scenario(
        "scale-files-100",
        "one thread writes 100 new files in turn, 16 KiB a call",
        100,
        files,
    ),
    scenario(
        "scale-files-1000",
        "one thread writes 1000 new files in turn, 16 KiB a call",
        1000,
        files,
    ),
    scenario(
        "scale-threads-1",
        "1 thread writes a new file, 16 KiB a call",
        1,
        threads,
    ),
    scenario(
        "scale-threads-4",
        "4 threads write one new file together, 16 KiB a call",
        4,
        threads,
    ),
    scenario(
        "scale-threads-16",
        "16 threads write one new file together, 16 KiB a call",
        16,
        threads,
    ),
    Scenario {
        metric: "idle_cpu",
        // What watches from outside lives in another process.
        modes: IDLE_MODES,
        size: Size::Own,
        ..scenario(
            "scale-idle",
            "1000 new files with 16 KiB each lie open and idle",
            1000,
            idle,
        )
    },
];

fn write(setting: &Setting<'_>, mode: Mode, files: u64, file_bytes: u64) -> Case {
    let paths = (0..files)
        .map(|number| setting.file(&format!("file-{number}")))
        .collect();
    let task = Task::new(
        "writer",
        Operation::Write,
        Pattern::RoundRobin,
        paths,
        file_bytes,
        setting.scenario.block_bytes,
    );
    Case::of(mode, task, 0)
}

fn files(setting: &Setting<'_>, mode: Mode) -> Case {
    let count = setting.scenario.count;
    write(setting, mode, count, setting.part_bytes(count))
}

fn threads(setting: &Setting<'_>, mode: Mode) -> Case {
    let mut case = write(setting, mode, 1, setting.part_bytes(1));
    for task in case.processes.iter_mut().flat_map(|one| &mut one.tasks) {
        task.threads = setting.scenario.count as u32;
        task.pattern = Pattern::Sequential;
    }
    case
}

fn idle(setting: &Setting<'_>, mode: Mode) -> Case {
    let block = setting.scenario.block_bytes;
    let mut case = write(setting, mode, setting.scenario.count, block);
    for task in case.processes.iter_mut().flat_map(|one| &mut one.tasks) {
        task.idle_ms = if setting.quick { 500 } else { 5000 };
    }
    case
}
