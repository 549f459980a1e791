//! What was learned about file systems earlier in this process.
//!
//! Whether a file system supports `RWF_DONTCACHE` is known only after trying it. This
//! remembers the answer for each device, so that one refused call serves all later files.
//!
//! The table is a fixed array of atomics: it can be used in signal handlers and after
//! fork(2), and never allocates. When it is full, further devices are not remembered. Device
//! numbers are reused after an unmount, so an answer is a hint: callers must handle a refusal
//! that contradicts it, and remember that.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What `RWF_DONTCACHE` was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reading.
    Read,
    /// Writing where the file had no blocks.
    Write,
    /// Writing over allocated blocks: ext4 accepts the flag but keeps the pages.
    Overwrite,
}

const SLOTS: usize = 64;

struct Slot {
    /// The device number plus one; 0 while the slot is free.
    key: AtomicU64,
    /// Two bits for each operation: known, and works.
    facts: AtomicU32,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        key: AtomicU64::new(0),
        facts: AtomicU32::new(0),
    }
}; SLOTS];

fn bits(operation: Operation) -> (u32, u32) {
    let shift = 2 * operation as u32;
    (1 << shift, 2 << shift)
}

/// The device's slot. With `claim`, takes a free one if it has none.
fn slot(device: u64, claim: bool) -> Option<&'static Slot> {
    let key = device.checked_add(1)?;
    let start = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % SLOTS;
    for step in 0..SLOTS {
        let slot = &TABLE[(start + step) % SLOTS];
        // Relaxed: the facts are in a separate word, whose initial value (nothing known) is
        // right for any thread that sees the key first.
        let mut found = slot.key.load(Ordering::Relaxed);
        if found == 0 {
            if !claim {
                return None;
            }
            found = match slot
                .key
                .compare_exchange(0, key, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => key,
                Err(other) => other,
            };
        }
        if found == key {
            return Some(slot);
        }
    }
    None
}

/// Whether `RWF_DONTCACHE` is known to work, or not to, on the file system with this device
/// number ([`FileId::device`](crate::FileId)). For block devices, pass the number of the
/// device itself, [`FileInfo::special_device`](crate::FileInfo).
#[must_use]
pub fn dontcache(device: u64, operation: Operation) -> Option<bool> {
    let (known, works) = bits(operation);
    let facts = slot(device, false)?.facts.load(Ordering::Relaxed);
    (facts & known != 0).then_some(facts & works != 0)
}

/// Remembers whether `RWF_DONTCACHE` works, replacing an earlier answer.
pub fn remember_dontcache(device: u64, operation: Operation, does_work: bool) {
    let (known, works) = bits(operation);
    if let Some(slot) = slot(device, true) {
        let set = |facts: u32| {
            let facts = facts | known;
            Some(if does_work {
                facts | works
            } else {
                facts & !works
            })
        };
        let _ = slot
            .facts
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test, since the table is global to the process.
    #[test]
    fn remembers_until_full() {
        assert_eq!(dontcache(0, Operation::Read), None);
        remember_dontcache(0, Operation::Read, true);
        assert_eq!(dontcache(0, Operation::Read), Some(true));
        assert_eq!(dontcache(0, Operation::Write), None);
        assert_eq!(dontcache(1, Operation::Read), None);
        remember_dontcache(0, Operation::Overwrite, false);
        assert_eq!(dontcache(0, Operation::Overwrite), Some(false));
        remember_dontcache(0, Operation::Read, false);
        assert_eq!(dontcache(0, Operation::Read), Some(false));
        remember_dontcache(u64::MAX, Operation::Read, true);
        assert_eq!(dontcache(u64::MAX, Operation::Read), None);

        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for device in 0..SLOTS as u64 {
                        remember_dontcache(device * 4 + thread, Operation::Write, true);
                    }
                });
            }
        });
        let remembered = (0..4 * SLOTS as u64)
            .filter(|&device| dontcache(device, Operation::Write) == Some(true))
            .count();
        assert!((SLOTS - 1..=SLOTS).contains(&remembered), "{remembered}");
        assert_eq!(dontcache(0, Operation::Read), Some(false));
    }
}
