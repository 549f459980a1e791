//! The machine's accounts before and after a case, and who is charged for what.

use dropbehind_linux::{DiskCounters, DiskInfo, DiskStatistics};

use crate::clock::now_ns;
use crate::job::Done;
use crate::machine::{MachineCpu, OtherLoad, Programs, children_cpu_ns, own_cpu_ns};
use crate::mode::Mode;
use crate::nfs::SERVER_NAME;
use crate::reclaim::ReclaimFigures;
use crate::results::CpuFigures;
use crate::scenario::Case;

/// The accounts of the machine at one moment.
pub(super) struct Accounts {
    pub(super) at_ns: u64,
    pub(super) machine: MachineCpu,
    pub(super) programs: Programs,
    pub(super) own_ns: u64,
    pub(super) children_ns: u64,
    pub(super) disk: Option<DiskCounters>,
    pub(super) reclaim: Option<ReclaimFigures>,
}

impl Accounts {
    pub(super) fn now(disk: &DiskInfo) -> Self {
        Self {
            programs: Programs::now(),
            disk: DiskStatistics::of(disk).and_then(|disk| disk.read()).ok(),
            reclaim: ReclaimFigures::now(),
            machine: MachineCpu::now(),
            own_ns: own_cpu_ns(),
            children_ns: children_cpu_ns(),
            at_ns: now_ns(),
        }
    }
}

/// The programs' own threads, what works behind them, and all of the machine.
pub(super) fn cpu(
    case: &Case,
    done: &[Done],
    before: &Accounts,
    after: &Accounts,
    machine_ns: u64,
    others: &OtherLoad,
) -> CpuFigures {
    let tasks = done.iter().flat_map(|one| &one.tasks);
    let program_ns: u64 = tasks.map(|task| task.cpu_ns).sum();
    let process_ns: u64 = done.iter().map(|one| one.process_cpu_ns).sum();
    let mut flusher_ns = process_ns.saturating_sub(program_ns);
    // What watches from outside is our child, and not the worker.
    if case.processes.iter().any(|plan| plan.mode == Mode::Run) {
        let whole_ns: u64 = done.iter().map(|one| one.whole_cpu_ns).sum();
        let children_ns = after.children_ns.saturating_sub(before.children_ns);
        flusher_ns += children_ns.saturating_sub(whole_ns);
    }
    let own_ns = after.own_ns.saturating_sub(before.own_ns);
    // A slow disk's server is no part of the machine that is measured.
    let not_ours_ns = others.cpu_ns + others.kin_cpu_ns.values().sum::<u64>();
    CpuFigures {
        program_ns,
        flusher_ns,
        machine_ns: machine_ns.saturating_sub(own_ns + not_ours_ns),
    }
}

/// A server is the program, and what else it runs under the flusher; its clients
/// stand for other machines.
pub(super) fn server_cpu(
    done: &[Done],
    before: &Accounts,
    after: &Accounts,
    machine_ns: u64,
    others: &OtherLoad,
) -> CpuFigures {
    let kin_ns: u64 = others.kin_cpu_ns.values().sum();
    let program_ns = others.kin_cpu_ns.get(SERVER_NAME).copied().unwrap_or(0);
    let own_ns = after.own_ns.saturating_sub(before.own_ns);
    let clients_ns: u64 = done.iter().map(|one| one.process_cpu_ns).sum();
    CpuFigures {
        program_ns,
        flusher_ns: kin_ns - program_ns,
        machine_ns: machine_ns.saturating_sub(own_ns + clients_ns + others.cpu_ns),
    }
}
