//! A backup reads a tree while a server answers from its hot set.

use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

const FILE_BYTES: u64 = 1 << 20;
/// Descriptors are needed for counting each one's pages.
const MOST_FILES: u64 = 4096;
/// A server answers some thousand requests a second, and is not busy all the
/// time.
const PAUSE_US: u64 = 100;
/// Calls of the server where nobody makes a backup.
const ALONE_CALLS: u64 = 20_000;

pub(super) const SCENARIOS: [Scenario; 1] = [Scenario {
    name: "backup",
    summary: "a tree of files of 1 MiB is read in the mode, while a server reads 4 KiB at random \
              from a hot set, a quarter of the memory, with plain buffered I/O",
    role: "server",
    metric: "p99",
    modes: &[
        Mode::Buffered,
        Mode::Native,
        Mode::Direct,
        Mode::Snippet,
        Mode::Cgroup,
        Mode::Nocache,
        Mode::Dontcache,
        Mode::Run,
        Mode::Alone,
    ],
    stage: Stage::Directory,
    size: Size::OfLimit(300),
    block_bytes: 128 << 10,
    count: 1,
    build,
}];

fn build(setting: &Setting<'_>, mode: Mode) -> Case {
    let mut case = Case::default();
    let alone = mode == Mode::Alone;
    let files = (setting.size_bytes / FILE_BYTES).clamp(1, MOST_FILES);
    let tree: Vec<_> = (0..files)
        .map(|number| setting.file(&format!("tree-{number}")))
        .collect();
    case.has_watched(&tree, FILE_BYTES);
    if !alone {
        let task = Task::new(
            "backup",
            Operation::Read,
            Pattern::Tree,
            tree,
            FILE_BYTES,
            setting.scenario.block_bytes,
        );
        case.runs(mode, vec![task]);
    }
    let hot = vec![setting.file("hot")];
    let hot_bytes = (setting.memory_bytes.min(setting.size_bytes) / 4).next_multiple_of(1 << 20);
    case.has(&hot, hot_bytes);
    case.hot.clone_from(&hot);
    let mut server = Task::new(
        "server",
        Operation::Read,
        Pattern::Random,
        hot,
        hot_bytes,
        4 << 10,
    );
    server.foreground = alone;
    server.warm = true;
    server.pause_us = PAUSE_US;
    let calls = if setting.quick {
        ALONE_CALLS / 10
    } else {
        ALONE_CALLS
    };
    server.bytes = server.bytes.min(calls * server.block_bytes);
    case.runs(Mode::Buffered, vec![server]);
    case
}
