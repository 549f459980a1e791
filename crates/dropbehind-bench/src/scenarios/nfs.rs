//! An NFS server on the loopback and its clients: plain, under `run`, and in the modes of the kernel's
//! server (Linux 6.18: `io_cache_write` of nfsd, `fs/nfsd/vfs.c`).

use crate::job::{Operation, Pattern, Task};
use crate::mode::Mode;
use crate::scenario::{Case, Scenario, Setting, Size, Stage};

/// The mode is the server's; clients are what they are.
const MODES: &[Mode] = &[Mode::Buffered, Mode::Native, Mode::Direct, Mode::Run];
const READERS: u64 = 3;

const fn scenario(
    name: &'static str,
    summary: &'static str,
    block_bytes: u64,
    count: u64,
    build: fn(&Setting<'_>, Mode) -> Case,
) -> Scenario {
    Scenario {
        name,
        summary,
        role: "writer",
        metric: "speed",
        modes: MODES,
        stage: Stage::Nfs,
        size: Size::OfLimit(300),
        block_bytes,
        count,
        build,
    }
}

pub(super) const SCENARIOS: [Scenario; 5] = [
    scenario(
        "nfs-seq-write-1",
        "1 client writes a new file over NFS from start to end, 1 MiB a call",
        1 << 20,
        1,
        sequential,
    ),
    scenario(
        "nfs-seq-write-4",
        "4 clients write a new file each over NFS, 1 MiB a call",
        1 << 20,
        4,
        sequential,
    ),
    scenario(
        "nfs-rand-write-1",
        "1 client writes over an existing file over NFS in random order, 64 KiB a call",
        64 << 10,
        1,
        random,
    ),
    scenario(
        "nfs-rand-write-4",
        "4 clients write over an existing file each over NFS in random order, 64 KiB a call",
        64 << 10,
        4,
        random,
    ),
    Scenario {
        role: "reader",
        ..scenario(
            "nfs-noisy-neighbour",
            "1 client writes a new file over NFS, 1 MiB a call, and 3 read 4 KiB at random from a \
             set of a third of the server's memory, all of it cached before",
            1 << 20,
            1,
            neighbour,
        )
    },
];

fn writers(setting: &Setting<'_>, mode: Mode, pattern: Pattern, content: bool) -> Case {
    let count = setting.scenario.count;
    let mut case = Case::default();
    for number in 0..count {
        let file = vec![setting.file(&format!("file-{number}"))];
        let bytes = setting.part_bytes(count);
        case.has_watched(&file, if content { bytes } else { 0 });
        let block_bytes = setting.scenario.block_bytes;
        let mut task = Task::new(
            "writer",
            Operation::Write,
            pattern,
            file,
            bytes,
            block_bytes,
        );
        task.seed = number + 1;
        case.runs(mode, vec![task]);
    }
    case
}

fn sequential(setting: &Setting<'_>, mode: Mode) -> Case {
    writers(setting, mode, Pattern::Sequential, false)
}

fn random(setting: &Setting<'_>, mode: Mode) -> Case {
    writers(setting, mode, Pattern::Random, true)
}

fn neighbour(setting: &Setting<'_>, mode: Mode) -> Case {
    let mut case = writers(setting, mode, Pattern::Sequential, false);
    let set = vec![setting.file("set")];
    let set_bytes = (setting.memory_bytes.min(setting.size_bytes) / 3).next_multiple_of(1 << 20);
    case.has(&set, set_bytes);
    case.hot.clone_from(&set);
    for number in 0..READERS {
        let mut task = Task::new(
            "reader",
            Operation::Read,
            Pattern::Random,
            set.clone(),
            set_bytes,
            4 << 10,
        );
        task.foreground = false;
        task.warm = true;
        task.seed = 100 + number;
        case.runs(mode, vec![task]);
    }
    case
}
