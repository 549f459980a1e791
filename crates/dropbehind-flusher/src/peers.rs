//! Flushers of other programs that write back to the same disk.
//!
//! Each program has a flusher, which knows only its own files. Thirty-two of them with a
//! window each would keep as much on its way as thirty-two disks can take. So they count each
//! other, and share one window.
//!
//! Any process can be counted without writing a byte. So only a few are believed; more count
//! only if the disk's writes bear them out. If we wrote half of what the disk wrote, there
//! are two flushers of our size.

use std::time::Duration;

use dropbehind_linux::{DiskInfo, DiskStatistics, Presence};

/// Many programs start at once, so we look for others soon after our start,
const FIRST_NS: u64 = 5_000_000;
/// and then twice as long after each look, up to this. Who pauses for less does not look sooner.
const LAST_NS: u64 = 200_000_000;
/// Who began with us is there at the second look.
const STARTING_LOOKS: u64 = 2;
/// This many others are always believed: a disk serves one writer after another, so what it
/// wrote for us in a moment says little about them.
const BELIEVED: u64 = 7;
/// Shares don't get smaller beyond this many others.
const MOST: u64 = 63;
/// Counting stops after this much processor time. 63 locks take 0.1 ms. If one process held
/// fifty thousand in the worst order, they would take 300 ms.
const COUNT: Duration = Duration::from_millis(1);
/// What others write means nothing until we have written this much: the disk finishes in
/// lumps, and a lump may be another's.
const EVIDENCE_BYTES: u64 = 4 << 20;
/// How long that knowledge stays valid while we write nothing. A writer with a small share
/// has nothing on its way many times a second.
const KNOWN_NS: u64 = 1_000_000_000;

pub(crate) struct Peers {
    /// `None` where peers cannot be detected: then there are none.
    presence: Option<Presence>,
    present: bool,
    writers: Writers,
    /// As of the last look.
    others: u64,
    look_ns: u64,
    step_ns: u64,
    looks: u64,
}

impl Peers {
    pub(crate) fn of(disk: &DiskInfo) -> Peers {
        Peers {
            presence: Presence::new(disk).ok(),
            present: false,
            writers: Writers::default(),
            others: 0,
            look_ns: 0,
            step_ns: FIRST_NS,
            looks: 0,
        }
    }

    /// Returns whether others that began when we did may not have been counted yet.
    pub(crate) fn is_starting(&self) -> bool {
        self.presence.is_some() && self.looks < STARTING_LOOKS
    }

    /// Notes that we write back, and have written `own_bytes` so far. If it was time to look,
    /// or we did not write back before, returns how many flushers do so, including ourselves.
    pub(crate) fn busy(
        &mut self,
        now_ns: u64,
        own_bytes: u64,
        statistics: Option<&DiskStatistics>,
    ) -> Option<u64> {
        let is_due = now_ns >= self.look_ns;
        if self.present && !is_due {
            return None;
        }
        let presence = self.presence.as_mut()?;
        if !self.present {
            self.present = true;
            if now_ns.saturating_sub(self.look_ns) > KNOWN_NS {
                self.writers = Writers::default();
                self.step_ns = FIRST_NS;
            }
        }
        if presence.enter().is_err() {
            self.presence = None;
            return Some(1);
        }
        if is_due {
            if let Some(Ok(counters)) = statistics.map(DiskStatistics::read) {
                self.writers.wrote(counters.written_bytes, own_bytes);
            }
            let most = self.writers.others.unwrap_or(MOST);
            let Ok(others) = presence.others(most.clamp(BELIEVED, MOST), COUNT) else {
                self.presence = None;
                return Some(1);
            };
            self.others = others;
            self.looks += 1;
            self.look_ns = now_ns + self.step_ns;
            self.step_ns = (self.step_ns * 2).min(LAST_NS);
        }
        Some(1 + self.others)
    }

    /// Notes that we don't write back for now.
    pub(crate) fn idle(&mut self) {
        if let Some(presence) = &mut self.presence {
            presence.leave();
        }
        self.present = false;
    }
}

/// What the disk writes for us and for others.
#[derive(Debug, Default)]
struct Writers {
    /// What the disk and we had written at the last look.
    before: Option<(u64, u64)>,
    /// How many others of our size there can be; `None` until that is known.
    others: Option<u64>,
}

impl Writers {
    fn wrote(&mut self, disk_bytes: u64, own_bytes: u64) {
        let (disk_before, own_before) = *self.before.get_or_insert((disk_bytes, own_bytes));
        let own = own_bytes.saturating_sub(own_before);
        if own < EVIDENCE_BYTES {
            return;
        }
        let all = disk_bytes.wrapping_sub(disk_before);
        self.before = Some((disk_bytes, own_bytes));
        // A file system that compresses writes less, and some disks don't count.
        self.others = (all > own / 2)
            .then(|| (all + own / 2) / own)
            .map(|all| all.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use dropbehind_testbed::{SlowDisk, SlowDiskOptions, need};

    use super::*;

    #[test]
    fn who_pauses_does_not_look_sooner() {
        need!(all SlowDisk::needs());
        let slow = SlowDisk::new(SlowDiskOptions::default()).unwrap();
        let device = fs::metadata(slow.device()).unwrap().rdev();
        let disk = DiskInfo::from_device(device).unwrap();
        let mut peers = Peers::of(&disk);
        assert_eq!(peers.busy(1, 0, None), Some(1));
        assert!(peers.is_starting());
        let mut other = Presence::new(&disk).unwrap();
        other.enter().unwrap();
        peers.idle();
        assert_eq!(peers.busy(2, 0, None), Some(1), "as of the last look");
        assert_eq!(peers.busy(3, 0, None), None);
        assert!(peers.is_starting(), "a pause is no look");
        assert_eq!(peers.busy(1 + FIRST_NS, 0, None), Some(2));
        assert!(!peers.is_starting());
        other.leave();
        peers.idle();
        assert_eq!(peers.busy(2 + FIRST_NS, 0, None), Some(2));
        peers.idle();
        assert_eq!(peers.busy(2 * KNOWN_NS, 0, None), Some(1));
    }

    #[test]
    fn there_are_no_more_than_the_disk_writes_for() {
        let mut writers = Writers::default();
        let mut after = |disk_mib: u64, own_mib: u64| {
            writers.wrote(disk_mib << 20, own_mib << 20);
            writers.others
        };
        assert_eq!(after(1000, 0), None);
        assert_eq!(after(1100, 1), None, "a megabyte shows nothing");
        assert_eq!(after(1320, 10), Some(31));
        // Nobody else, apart from a journal.
        assert_eq!(after(1421, 110), Some(0));
        assert_eq!(after(2021, 310), Some(2));
        // Compressed.
        assert_eq!(after(2025, 410), None);
    }
}
