//! A writer, and readers who want the same disk and memory.

use super::NEIGHBOUR_MODES;
use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

const READERS: u64 = 3;
/// Calls of each reader where nobody writes.
const ALONE_CALLS: u64 = 20_000;

const fn scenario(
    name: &'static str,
    summary: &'static str,
    build: fn(&Setting<'_>, Mode) -> Case,
) -> Scenario {
    Scenario {
        name,
        summary,
        role: "reader",
        metric: "speed",
        modes: NEIGHBOUR_MODES,
        stage: Stage::Directory,
        size: Size::OfLimit(400),
        block_bytes: 1 << 20,
        count: READERS,
        build,
    }
}

pub(super) const SCENARIOS: [Scenario; 2] = [
    scenario(
        "noisy-neighbour",
        "a writer (1 MiB a call) and 3 readers (4 KiB, random, from a set of their own), all in \
         the mode",
        |setting, mode| build(setting, mode, mode),
    ),
    scenario(
        "noisy-neighbour-mixed",
        "a writer in the mode, and 3 readers with plain buffered I/O",
        |setting, mode| build(setting, mode, Mode::Buffered),
    ),
];

fn build(setting: &Setting<'_>, writer: Mode, readers: Mode) -> Case {
    let mut case = Case::default();
    let alone = writer == Mode::Alone;
    let output = vec![setting.file("output")];
    // 4 KiB at random: a quarter of the writer's work is more than readers get
    // through in seconds.
    let set_bytes = (setting.size_bytes / 4).next_multiple_of(1 << 20);
    let set = vec![setting.file("set")];
    if !alone {
        case.has_watched(&output, 0);
        let task = Task::new(
            "writer",
            Operation::Write,
            Pattern::Sequential,
            output,
            setting.part_bytes(1),
            setting.scenario.block_bytes,
        );
        case.runs(writer, vec![task]);
    }
    if readers == Mode::Buffered {
        case.has(&set, set_bytes);
    } else {
        case.has_watched(&set, set_bytes);
    }
    let readers_mode = if alone { Mode::Buffered } else { readers };
    let tasks = (0..READERS).map(|number| {
        let mut task = Task::new(
            "reader",
            Operation::Read,
            Pattern::Random,
            set.clone(),
            set_bytes,
            4 << 10,
        );
        task.foreground = alone;
        task.seed = 100 + number;
        let calls = if setting.quick {
            ALONE_CALLS / 10
        } else {
            ALONE_CALLS
        };
        task.bytes = task.bytes.min(calls * task.block_bytes);
        task
    });
    case.runs(readers_mode, tasks.collect());
    case
}
