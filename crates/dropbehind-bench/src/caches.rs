//! The same start for every case: nothing dirty, nothing cached, and memory
//! that the machine has used before.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;

use crate::machine::meminfo_bytes;
use crate::sampler::Watched;

/// How the page cache is emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Emptying {
    /// `sync; echo 3 > /proc/sys/vm/drop_caches`.
    Machine,
    /// Only the files of the case.
    Files,
}

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

impl Emptying {
    /// All of the machine's, where one may; a quick benchmark lets others'
    /// caches be.
    pub(crate) fn choose(quick: bool) -> Self {
        let allowed = fs::OpenOptions::new().write(true).open(DROP_CACHES).is_ok();
        if allowed && !quick {
            Self::Machine
        } else {
            Self::Files
        }
    }

    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Machine => "before each case: sync, then all of the machine's (drop_caches 3)",
            Self::Files => "before each case: those of its own files, after a sync of the disk",
        }
    }

    /// Empties it. `place` is on the file system, or is the device.
    pub(crate) fn empty(self, place: &Path, watched: &Watched) {
        if let Ok(opened) = fs::File::open(place) {
            // Only a clean start; what fails here fails in the case, too.
            let _ = rustix::fs::syncfs(opened.as_fd());
            let _ = opened.sync_all();
        }
        watched.drop_clean();
        if self == Self::Machine {
            rustix::fs::sync();
            let _ = fs::write(DROP_CACHES, "3");
        }
    }
}

/// At first touch a virtual machine gets about a gigabyte a second.
const MOST_TOUCHED_BYTES: u64 = 2 << 30;

/// Uses so much memory and gives it back, so that the first cases do not pay
/// for pages that a virtual machine gets from its host at first touch. Returns
/// how much it was.
pub(crate) fn touch_memory(bytes: u64) -> u64 {
    let available = meminfo_bytes("MemAvailable").unwrap_or(0);
    let bytes = bytes.min(available / 2).min(MOST_TOUCHED_BYTES);
    let mut memory: Vec<u8> = Vec::new();
    if memory.try_reserve_exact(bytes as usize).is_ok() {
        memory.resize(bytes as usize, 1);
        std::hint::black_box(&memory);
    }
    memory.len() as u64
}
