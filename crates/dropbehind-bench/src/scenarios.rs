//! The scenarios, a family a file.

mod append_log;
mod backup;
mod competing;
mod demonstration;
mod device;
mod multi_writer;
mod neighbour;
mod nfs;
mod random;
mod ring;
mod scale;
mod sequential;

use crate::mode::Mode;
use crate::scenario::Scenario;

/// Modes that make sense for a single writer.
const WRITE_MODES: &[Mode] = &[
    Mode::Buffered,
    Mode::Native,
    Mode::Direct,
    Mode::DirectQ16,
    Mode::Snippet,
    Mode::Cgroup,
    Mode::Nocache,
    Mode::Dontcache,
    Mode::Noreuse,
    Mode::WriteBehind,
    Mode::WriteThrough,
    Mode::Run,
];
/// And for readers, to whom writeback is nothing.
const READ_MODES: &[Mode] = &[
    Mode::Buffered,
    Mode::Native,
    Mode::Direct,
    Mode::DirectQ16,
    Mode::Snippet,
    Mode::Cgroup,
    Mode::Nocache,
    Mode::Dontcache,
    Mode::Run,
];
/// Where the question is what a writer does to others.
const NEIGHBOUR_MODES: &[Mode] = &[
    Mode::Buffered,
    Mode::Native,
    Mode::Direct,
    Mode::Cgroup,
    Mode::Dontcache,
    Mode::WriteBehind,
    Mode::WriteThrough,
    Mode::Run,
    Mode::Alone,
];

pub(crate) fn all() -> Vec<Scenario> {
    [
        sequential::SCENARIOS.as_slice(),
        &random::SCENARIOS,
        &ring::SCENARIOS,
        &append_log::SCENARIOS,
        &multi_writer::SCENARIOS,
        &neighbour::SCENARIOS,
        &competing::SCENARIOS,
        &backup::SCENARIOS,
        &device::SCENARIOS,
        &demonstration::SCENARIOS,
        &scale::SCENARIOS,
        &nfs::SCENARIOS,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::scenario::{Setting, Size};
    use std::path::Path;

    #[test]
    fn every_scenario_has_a_verdict_and_can_be_built() {
        let all = all();
        for scenario in &all {
            assert!(
                Metric::named(scenario.metric).is_some(),
                "{}",
                scenario.name
            );
            assert_eq!(scenario.modes[0], Mode::Buffered, "{}", scenario.name);
            let named = all.iter().filter(|one| one.name == scenario.name);
            assert_eq!(named.count(), 1, "{}", scenario.name);
            for mode in scenario.modes {
                let setting = Setting {
                    scenario,
                    dir: Path::new("/x"),
                    device: Some(Path::new("/dev/x")),
                    size_bytes: 64 << 20,
                    memory_bytes: 64 << 20,
                    quick: true,
                };
                let case = (scenario.build)(&setting, *mode);
                let tasks = case.processes.iter().flat_map(|process| &process.tasks);
                let roles: Vec<&str> = tasks.clone().map(|task| task.role.as_str()).collect();
                if *mode != Mode::Alone && scenario.role != "all" {
                    assert!(roles.contains(&scenario.role), "{} {mode}", scenario.name);
                }
                assert!(
                    tasks.clone().any(|task| task.foreground),
                    "{} {mode}",
                    scenario.name
                );
                for task in tasks {
                    assert_eq!(task.file_bytes % task.block_bytes, 0, "{}", scenario.name);
                    assert!(!task.files.is_empty() && task.file_bytes > 0);
                    let own = scenario.size == Size::Own;
                    let at_most = setting.size_bytes.max(8 << 20);
                    assert!(
                        own || !task.foreground || task.bytes <= at_most,
                        "{}",
                        scenario.name
                    );
                }
            }
        }
    }

    #[test]
    fn families_are_meant_by_their_name() {
        let meant = |name: &str| -> Vec<&str> {
            let all = all();
            let mut names: Vec<&str> = Vec::new();
            for scenario in &all {
                if scenario.is_meant_by(name) {
                    names.push(scenario.name);
                }
            }
            names
        };
        assert_eq!(
            meant("seq-write"),
            ["seq-write-1m", "seq-write-64k", "seq-write-4k"]
        );
        assert_eq!(meant("seq-write-4k"), ["seq-write-4k"]);
        assert_eq!(meant("seq-w"), [""; 0]);
    }
}
