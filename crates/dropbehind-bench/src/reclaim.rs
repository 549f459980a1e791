//! What the kernel did to find free memory, from `/proc/vmstat`.

use std::fs;

use serde::{Deserialize, Serialize};

/// Pages that were looked at, taken and read again, in bytes, on the whole machine. Reclaim
/// within memory cgroups is included.
///
/// Source: include/linux/vm_event_item.h, mm/vmscan.c, mm/workingset.c.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReclaimFigures {
    /// Looked at by kswapd, in the background.
    pub kswapd_scanned_bytes: u64,
    /// Looked at by programs that needed memory: direct reclaim.
    pub direct_scanned_bytes: u64,
    /// Taken by either.
    pub reclaimed_bytes: u64,
    /// File pages that programs needed again soon after they were taken
    /// (`workingset_refault_file`).
    pub refaulted_bytes: u64,
}

impl ReclaimFigures {
    /// Since the machine started. `None` where the kernel does not count (before Linux 5.9).
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/vmstat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let page_bytes = dropbehind_linux::page_size();
        let bytes = |name: &str| {
            let mut lines = text.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            Some(value?.parse::<u64>().ok()? * page_bytes)
        };
        let scanned_bytes = bytes("pgscan_file")? + bytes("pgscan_anon")?;
        let kswapd_scanned_bytes = bytes("pgscan_kswapd")?;
        Some(Self {
            kswapd_scanned_bytes,
            direct_scanned_bytes: scanned_bytes.saturating_sub(kswapd_scanned_bytes),
            reclaimed_bytes: bytes("pgsteal_file")? + bytes("pgsteal_anon")?,
            refaulted_bytes: bytes("workingset_refault_file")?,
        })
    }

    pub(crate) fn since(self, before: Self) -> Self {
        let since = |of: fn(&Self) -> u64| of(&self).saturating_sub(of(&before));
        Self {
            kswapd_scanned_bytes: since(|figures| figures.kswapd_scanned_bytes),
            direct_scanned_bytes: since(|figures| figures.direct_scanned_bytes),
            reclaimed_bytes: since(|figures| figures.reclaimed_bytes),
            refaulted_bytes: since(|figures| figures.refaulted_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kswapd_did_not_look_at_programs_did() {
        let text = "workingset_refault_anon 9\nworkingset_refault_file 2\npgsteal_kswapd 3\n\
                    pgscan_kswapd 5\npgscan_direct 1\npgscan_anon 1\npgscan_file 11\n\
                    pgsteal_anon 1\npgsteal_file 6\n";
        let page_bytes = dropbehind_linux::page_size();
        let before = ReclaimFigures::parse(text).unwrap();
        let expected = ReclaimFigures {
            kswapd_scanned_bytes: 5 * page_bytes,
            direct_scanned_bytes: 7 * page_bytes,
            reclaimed_bytes: 7 * page_bytes,
            refaulted_bytes: 2 * page_bytes,
        };
        assert_eq!(before, expected);
        let more = text.replace("pgscan_file 11", "pgscan_file 21");
        let since = ReclaimFigures::parse(&more).unwrap().since(before);
        assert_eq!(since.direct_scanned_bytes, 10 * page_bytes);
        assert_eq!(since.reclaimed_bytes, 0);
        assert_eq!(ReclaimFigures::parse("pgscan_kswapd 5\n"), None);
        assert!(ReclaimFigures::now().is_some(), "Linux 5.9 and later count");
    }
}
