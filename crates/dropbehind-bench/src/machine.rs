//! The machine's own accounts: CPU, memory, other programs.

use std::collections::HashMap;
use std::fs;

use nix::sys::resource::{UsageWho, getrusage};

/// Ticks of `/proc/stat` a second: `USER_HZ`, the same on all of Linux's
/// architectures that matter here.
const TICK_NS: u64 = 10_000_000;

/// CPU time of the machine since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MachineCpu {
    /// All but idle, waiting for I/O, and stolen time.
    pub(crate) busy_ns: u64,
    /// Time the hypervisor gave to others.
    pub(crate) steal_ns: u64,
}

impl MachineCpu {
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or("");
        let ticks: Vec<u64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|word| word.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal; the guest's are in user.
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0) * TICK_NS;
        Self {
            busy_ns: at(0) + at(1) + at(2) + at(5) + at(6),
            steal_ns: at(7),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            busy_ns: self.busy_ns.saturating_sub(before.busy_ns),
            steal_ns: self.steal_ns.saturating_sub(before.steal_ns),
        }
    }
}

fn rusage_ns(who: UsageWho) -> u64 {
    let Ok(usage) = getrusage(who) else { return 0 };
    let ns = |time: nix::sys::time::TimeVal| {
        let (seconds, micros) = (time.tv_sec(), time.tv_usec());
        u64::try_from(seconds).unwrap_or(0) * 1_000_000_000
            + u64::try_from(micros).unwrap_or(0) * 1000
    };
    ns(usage.user_time()) + ns(usage.system_time())
}

/// CPU time of this process.
pub(crate) fn own_cpu_ns() -> u64 {
    rusage_ns(UsageWho::RUSAGE_SELF)
}

/// CPU time of our children that have ended, and theirs.
pub(crate) fn children_cpu_ns() -> u64 {
    rusage_ns(UsageWho::RUSAGE_CHILDREN)
}

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo_bytes(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// What a program used so far.
#[derive(Clone, Debug, Default)]
struct Used {
    name: String,
    parent: u32,
    cpu_ns: u64,
    disk_bytes: u64,
}

/// The programs that run, kernel threads aside, and what they used so far.
#[derive(Debug, Default)]
pub(crate) struct Programs(HashMap<u32, Used>);

/// What programs that are not ours used meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherLoad {
    pub(crate) cpu_ns: u64,
    /// CPU time of our own children and theirs that still run, by their name.
    pub(crate) kin_cpu_ns: HashMap<String, u64>,
    /// Who used most of the others'.
    pub(crate) cpu_by: String,
    pub(crate) disk_bytes: u64,
    pub(crate) disk_by: String,
}

/// In the flags of `/proc/PID/stat`: a kernel thread (`PF_KTHREAD`).
const KERNEL_THREAD: u64 = 0x0020_0000;

impl Programs {
    pub(crate) fn now() -> Self {
        let mut programs = HashMap::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
            else {
                continue;
            };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let Some((flags, mut used)) = parse_stat(&stat) else {
                continue;
            };
            if flags & KERNEL_THREAD != 0 {
                continue;
            }
            let io = fs::read_to_string(entry.path().join("io")).unwrap_or_default();
            used.disk_bytes = ["read_bytes: ", "write_bytes: "]
                .iter()
                .filter_map(|name| io.lines().find_map(|line| line.strip_prefix(name)))
                .filter_map(|number| number.parse::<u64>().ok())
                .sum();
            programs.insert(pid, used);
        }
        Self(programs)
    }

    /// What the programs that run now used meanwhile, the process `own` left
    /// out. Of programs that have ended nothing is known.
    pub(crate) fn load_since(&self, before: &Self, own: u32) -> OtherLoad {
        let mut load = OtherLoad::default();
        let (mut most_cpu, mut most_disk) = (0, 0);
        for (pid, now) in &self.0 {
            if *pid == own {
                continue;
            }
            let started = Used::default();
            let then = before.0.get(pid).unwrap_or(&started);
            let cpu_ns = now.cpu_ns.saturating_sub(then.cpu_ns);
            let disk_bytes = now.disk_bytes.saturating_sub(then.disk_bytes);
            if self.is_below(*pid, own) {
                let kin = load.kin_cpu_ns.entry(now.name.clone()).or_default();
                *kin += cpu_ns;
                continue;
            }
            load.cpu_ns += cpu_ns;
            load.disk_bytes += disk_bytes;
            if cpu_ns > most_cpu {
                (most_cpu, load.cpu_by) = (cpu_ns, now.name.clone());
            }
            if disk_bytes > most_disk {
                (most_disk, load.disk_by) = (disk_bytes, now.name.clone());
            }
        }
        load
    }

    /// Whether a process is a child, grandchild and so on of another.
    fn is_below(&self, pid: u32, ancestor: u32) -> bool {
        let mut at = pid;
        // Numbers may be used anew while the table is read: no circles.
        for _ in 0..64 {
            match self.0.get(&at).map(|used| used.parent) {
                Some(parent) if parent == ancestor => return true,
                Some(parent) => at = parent,
                None => return false,
            }
        }
        false
    }
}

/// The processes below another.
pub(crate) fn descendants_of(ancestor: u32) -> Vec<u32> {
    let programs = Programs::now();
    let pids = programs.0.keys().copied();
    pids.filter(|&pid| programs.is_below(pid, ancestor))
        .collect()
}

/// Flags, name and CPU time of `/proc/PID/stat`.
fn parse_stat(stat: &str) -> Option<(u64, Used)> {
    let (head, rest) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    // Counted from the state, which is field 3 of proc(5).
    let ticks: u64 = (11..13).filter_map(number).sum();
    let used = Used {
        name: name.to_owned(),
        parent: u32::try_from(number(1)?).ok()?,
        cpu_ns: ticks * TICK_NS,
        disk_bytes: 0,
    };
    Some((number(6)?, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_accounts() {
        let cpu = MachineCpu::parse("cpu  10 1 20 500 60 2 3 4 0 0\ncpu0 1 2");
        assert_eq!(cpu.busy_ns, 36 * TICK_NS);
        assert_eq!(cpu.steal_ns, 4 * TICK_NS);
        let stat = "17 (a) b (c) S 1 2 3 4 5 4194560 7 8 9 10 11 12 13 14 20 0 1";
        let (flags, used) = parse_stat(stat).unwrap();
        assert_eq!(flags, 4_194_560);
        assert_eq!(used.name, "a) b (c");
        assert_eq!(used.cpu_ns, 23 * TICK_NS);
        assert!(meminfo_bytes("MemTotal").unwrap() > 64 << 20);
    }

    #[test]
    fn others_are_told_apart_from_us() {
        let programs = |cpu_ns| {
            let used = |name: &str, cpu_ns| Used {
                name: name.to_owned(),
                parent: 0,
                cpu_ns,
                disk_bytes: 0,
            };
            let list = [(1, used("us", cpu_ns)), (2, used("them", cpu_ns / 2))];
            Programs(list.into())
        };
        let load = programs(3000).load_since(&programs(1000), 1);
        assert_eq!((load.cpu_ns, load.cpu_by.as_str()), (1000, "them"));
        assert_eq!(load.disk_by, "");
    }
}
