//! Whether anybody else used the machine during a case.

use crate::environment::cpus;
use crate::machine::{MachineCpu, OtherLoad};

/// Shares from which on a run counts as disturbed, in percent of the machine.
const STOLEN_PERCENT: f64 = 2.0;
const OTHERS_PERCENT: f64 = 5.0;
/// Other programs' disk traffic from which on it does, as a share of ours and
/// at least so much.
const DISK_PERCENT: f64 = 5.0;
const DISK_BYTES: u64 = 4 << 20;
/// Shorter runs cannot be judged: the kernel counts in hundredths of a second.
const SHORTEST_NS: u64 = 200_000_000;

/// What disturbed a run of this length that moved so much, in words.
pub(crate) fn disturbances(
    wall_ns: u64,
    moved_bytes: u64,
    machine: MachineCpu,
    others: &OtherLoad,
) -> Vec<String> {
    let mut found = Vec::new();
    let percent = |ns: u64| ns as f64 * 100.0 / (wall_ns.max(1) * cpus()) as f64;
    if wall_ns >= SHORTEST_NS {
        let stolen = percent(machine.steal_ns);
        if stolen > STOLEN_PERCENT {
            found.push(format!(
                "the hypervisor gave {stolen:.0} % of the processors to others"
            ));
        }
        let others_share = percent(others.cpu_ns);
        if others_share > OTHERS_PERCENT {
            let by = &others.cpu_by;
            found.push(format!(
                "other programs used {others_share:.0} % of the processors, {by} most"
            ));
        }
    }
    let disk_share = others.disk_bytes as f64 * 100.0 / moved_bytes.max(1) as f64;
    if others.disk_bytes >= DISK_BYTES && disk_share > DISK_PERCENT {
        found.push(format!(
            "other programs moved {} MiB to and from disks, {} most",
            others.disk_bytes >> 20,
            others.disk_by
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_disturbed() {
        let second = 1_000_000_000;
        let quiet = MachineCpu::default();
        let nobody = OtherLoad::default();
        assert!(disturbances(second, 1 << 30, quiet, &nobody).is_empty());
        let stolen = MachineCpu {
            steal_ns: second * cpus() / 10,
            ..quiet
        };
        let found = disturbances(second, 1 << 30, stolen, &nobody);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("10 %"), "{found:?}");
        let busy = OtherLoad {
            cpu_ns: second * cpus() / 2,
            cpu_by: "cc".to_owned(),
            disk_bytes: 512 << 20,
            disk_by: "tar".to_owned(),
            ..OtherLoad::default()
        };
        let found = disturbances(second, 1 << 30, quiet, &busy);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("cc most") && found[1].contains("tar most"));
        // Too short to be judged by hundredths of a second.
        assert_eq!(disturbances(1000, 1 << 30, stolen, &nobody), [""; 0]);
    }
}
