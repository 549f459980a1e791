//! A raw block device, written or read from start to end under the memory limit.

use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

const MODES: &[Mode] = &[
    Mode::Buffered,
    Mode::Native,
    Mode::Direct,
    Mode::DirectQ16,
    Mode::Snippet,
    Mode::Cgroup,
    Mode::Dontcache,
    Mode::WriteBehind,
    Mode::WriteThrough,
    Mode::Run,
];

const fn scenario(
    name: &'static str,
    summary: &'static str,
    role: &'static str,
    build: fn(&Setting<'_>, Mode) -> Case,
) -> Scenario {
    Scenario {
        name,
        summary,
        role,
        metric: "speed",
        modes: MODES,
        stage: Stage::Device,
        size: Size::OfLimit(600),
        block_bytes: 1 << 20,
        count: 1,
        build,
    }
}

pub(super) const SCENARIOS: [Scenario; 2] = [
    scenario(
        "device-write",
        "a raw block device written from its start, 1 MiB a call",
        "writer",
        |setting, mode| build(setting, mode, "writer", Operation::Write),
    ),
    scenario(
        "device-read",
        "a raw block device read from its start, 1 MiB a call",
        "reader",
        |setting, mode| build(setting, mode, "reader", Operation::Read),
    ),
];

fn build(setting: &Setting<'_>, mode: Mode, role: &str, operation: Operation) -> Case {
    let device: Vec<_> = setting.device.map(Into::into).into_iter().collect();
    let task = Task::new(
        role,
        operation,
        Pattern::Sequential,
        device.clone(),
        setting.part_bytes(1),
        setting.scenario.block_bytes,
    );
    let mut case = Case {
        watch: device,
        ..Case::default()
    };
    case.runs(mode, vec![task]);
    case
}
