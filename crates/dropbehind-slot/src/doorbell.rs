//! The kick: one word for each disk.
//!
//! A kick while one is pending costs a load. The flusher clears the kick before it reads any
//! counter, so a later write kicks again and none is missed. The kicked slots are in a list,
//! linked by numbers inside the slots. The flusher takes the whole list at once, so a number
//! cannot come back while a writer still holds it.

use crate::atomic::{AtomicU32, Ordering, total_order};

/// The end of the list of kicked slots.
pub const NOBODY: u32 = u32::MAX;

const AWAKE: u32 = 0;
const KICKED: u32 = 1;
const ASLEEP: u32 = 2;

/// The flusher's bell.
#[repr(C)]
#[derive(Debug)]
pub struct Doorbell {
    word: AtomicU32,
    first: AtomicU32,
}

/// A slot's place in the list of kicked slots.
#[repr(C)]
#[derive(Debug)]
pub struct Queued {
    in_list: AtomicU32,
    next: AtomicU32,
}

impl Queued {
    pub(crate) fn new() -> Queued {
        Queued {
            in_list: AtomicU32::new(0),
            next: AtomicU32::new(NOBODY),
        }
    }
}

impl Default for Doorbell {
    fn default() -> Doorbell {
        Doorbell::new()
    }
}

impl Doorbell {
    /// A bell that nobody has rung, and a flusher that is awake.
    pub fn new() -> Doorbell {
        Doorbell {
            word: AtomicU32::new(AWAKE),
            first: AtomicU32::new(NOBODY),
        }
    }

    /// Adds a slot to the list, unless it is there already.
    pub fn enlist(&self, number: u32, queued: &Queued) {
        if queued.in_list.load(Ordering::SeqCst) != 0
            || queued.in_list.swap(1, Ordering::SeqCst) != 0
        {
            return;
        }
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            queued.next.store(first, Ordering::Relaxed);
            match self.first.compare_exchange_weak(
                first,
                number,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// Rings. `None` if it was already rung, otherwise whether the flusher sleeps and must be
    /// woken on [`Doorbell::word`].
    pub fn ring(&self) -> Option<bool> {
        total_order();
        if self.word.load(Ordering::SeqCst) == KICKED {
            return None;
        }
        match self.word.swap(KICKED, Ordering::SeqCst) {
            KICKED => None,
            ASLEEP => Some(true),
            _ => Some(false),
        }
    }

    /// The flusher's futex word.
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Clears the kick; the flusher is awake.
    pub fn answer(&self) {
        self.word.swap(AWAKE, Ordering::SeqCst);
        total_order();
    }

    /// Returns whether anybody has rung since the last [`Doorbell::answer`].
    pub fn is_rung(&self) -> bool {
        self.word.load(Ordering::SeqCst) == KICKED
    }

    /// The flusher goes to sleep. Returns the value to wait on, or `None` if anybody rang
    /// meanwhile.
    pub fn try_sleep(&self) -> Option<u32> {
        self.word
            .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
            .then_some(ASLEEP)
    }

    /// Takes the list of kicked slots, and returns the number of its first slot.
    pub fn take_list(&self) -> u32 {
        self.first.swap(NOBODY, Ordering::SeqCst)
    }

    /// Removes a slot from a list that was taken, and returns the number of the next. From
    /// here on, the slot can be enlisted again.
    pub fn delist(&self, queued: &Queued) -> u32 {
        let next = queued.next.load(Ordering::Relaxed);
        queued.in_list.swap(0, Ordering::SeqCst);
        total_order();
        next
    }
}
