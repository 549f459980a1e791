//! Two writers for one disk, one of them plain.

use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

pub(super) const SCENARIOS: [Scenario; 1] = [Scenario {
    name: "competing-writers",
    summary: "a writer in the mode and a rival with plain buffered I/O, a new file each, 1 MiB a \
              call; the baseline is two plain ones",
    role: "all",
    metric: "speed",
    modes: &[
        Mode::Buffered,
        Mode::Native,
        Mode::Direct,
        Mode::Cgroup,
        Mode::Dontcache,
        Mode::WriteBehind,
        Mode::WriteThrough,
        Mode::Run,
    ],
    stage: Stage::Directory,
    size: Size::OfLimit(400),
    block_bytes: 1 << 20,
    count: 2,
    build,
}];

fn build(setting: &Setting<'_>, mode: Mode) -> Case {
    let mut case = Case::default();
    for (role, mode) in [("writer", mode), ("rival", Mode::Buffered)] {
        let file = vec![setting.file(role)];
        case.has_watched(&file, 0);
        let task = Task::new(
            role,
            Operation::Write,
            Pattern::Sequential,
            file,
            setting.part_bytes(2),
            setting.scenario.block_bytes,
        );
        case.runs(mode, vec![task]);
    }
    case
}
