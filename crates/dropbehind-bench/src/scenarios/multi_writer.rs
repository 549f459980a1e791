//! Several writers at once, a file and a process each.

use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

const MODES: &[Mode] = &[
    Mode::Buffered,
    Mode::Native,
    Mode::Direct,
    Mode::Snippet,
    Mode::Cgroup,
    Mode::Nocache,
    Mode::Dontcache,
    Mode::Noreuse,
    Mode::WriteBehind,
    Mode::WriteThrough,
    Mode::Run,
];

pub(super) const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "multi-writer",
        summary: "4 programs that write a new file each, 1 MiB a call",
        role: "writer",
        metric: "speed",
        modes: MODES,
        stage: Stage::Directory,
        size: Size::OfLimit(400),
        block_bytes: 1 << 20,
        count: 4,
        build,
    },
    Scenario {
        name: "files-32",
        summary: "32 programs that write a new file each, 64 KiB a call, long enough to see \
                  every second",
        role: "writer",
        metric: "speed",
        modes: MODES,
        stage: Stage::Directory,
        size: Size::OfLimit(1200),
        block_bytes: 64 << 10,
        count: 32,
        build,
    },
];

fn build(setting: &Setting<'_>, mode: Mode) -> Case {
    let writers = setting.scenario.count;
    let mut case = Case::default();
    for number in 0..writers {
        let file = vec![setting.file(&format!("file-{number}"))];
        case.has_watched(&file, 0);
        let task = Task::new(
            "writer",
            Operation::Write,
            Pattern::Sequential,
            file,
            setting.part_bytes(writers),
            setting.scenario.block_bytes,
        );
        case.runs(mode, vec![task]);
    }
    case
}
