//! The slot's protocol, under every interleaving.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p dropbehind-slot --release
//! --test protocol`; without that flag there is nothing here. The rings are two
//! entries long then, so that the checker reaches a full one.
//!
//! Checked:
//! - a range that was pushed is told, or lies in the span of lost ranges;
//! - when a drain says it is complete, every byte count read before it belongs
//!   to ranges told by then;
//! - a write after the flusher went quiet, or to sleep, kicks or is seen;
//! - a waiting writer is woken, or sees on its second look that it need not
//!   wait;
//! - a slot enlisted is found in the list that the ring announces.
#![cfg(loom)]

use dropbehind_policy::Mode;
use dropbehind_slot::{Doorbell, Drained, NOBODY, Pause, Run, Slot};
use loom::sync::Arc;
use loom::thread;

const PAGE: u64 = 4096;

fn page(number: u64) -> Run {
    let range = (number * PAGE..(number + 1) * PAGE).into();
    Run::covering(range, Mode::DONTCACHE).next().unwrap()
}

/// Told pages as a bit mask, lost ones included.
fn drain(slot: &Slot, told: &mut u64) -> Drained {
    let mut tell = |start: u64, end: u64| {
        for number in start / PAGE..end.div_ceil(PAGE) {
            *told |= 1 << number;
        }
    };
    let drained = slot.writes.drain(|run| {
        let range = run.range();
        tell(range.start, range.end);
    });
    if let Some((span, _)) = drained.lost {
        tell(span.start, span.end);
    }
    drained
}

/// Two writers, far apart, so that no run extends another and the ring fills.
#[test]
fn nothing_pushed_is_lost() {
    loom::model(|| {
        let slot = Arc::new(Slot::new(u64::MAX, u64::MAX));
        let writers: Vec<_> = [0, 10]
            .into_iter()
            .map(|first| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    slot.wrote(page(first), PAGE);
                    slot.wrote(page(first + 2), PAGE);
                })
            })
            .collect();
        let mut told = 0;
        drain(&slot, &mut told);
        for writer in writers {
            writer.join().unwrap();
        }
        let last = drain(&slot, &mut told);
        assert!(last.complete, "{slot:?}");
        for number in [0, 2, 10, 12] {
            assert!(told & 1 << number != 0, "page {number} was lost");
        }
    });
}

/// A count read before a complete drain covers only ranges that were told.
#[test]
fn a_complete_drain_makes_the_count_exact() {
    loom::model(|| {
        let slot = Arc::new(Slot::new(u64::MAX, u64::MAX));
        let writers: Vec<_> = [0, 10]
            .into_iter()
            .map(|number| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    slot.wrote(page(number), PAGE);
                })
            })
            .collect();
        let mut told = 0;
        let total = slot.writes.total();
        let drained = drain(&slot, &mut told);
        if drained.complete {
            assert!(u64::from(told.count_ones()) * PAGE >= total);
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

/// The flusher goes quiet and to sleep while a write comes.
#[test]
fn a_write_is_kicked_or_seen() {
    loom::model(|| {
        let slot = Arc::new(Slot::new(u64::MAX, u64::MAX));
        let bell = Arc::new(Doorbell::new());
        slot.attend();
        let writer = {
            let (slot, bell) = (Arc::clone(&slot), Arc::clone(&bell));
            thread::spawn(move || {
                if slot.wrote(page(0), PAGE).kick {
                    bell.enlist(7, &slot.queued);
                    bell.ring();
                }
            })
        };
        bell.answer();
        let mut told = 0;
        let total = slot.writes.total();
        drain(&slot, &mut told);
        let quiet = told != 0 || slot.try_quiet(total, 0);
        let slept = quiet && bell.try_sleep().is_some();
        writer.join().unwrap();
        // Asleep for good with an untold write and no ring would be a hang.
        if slept && told == 0 {
            assert!(bell.is_rung(), "the write went unnoticed");
            bell.answer();
            assert_eq!(bell.take_list(), 7);
            assert_eq!(bell.delist(&slot.queued), NOBODY);
            drain(&slot, &mut told);
            assert_ne!(told, 0);
        }
    });
}

/// A writer over its limit and the flusher that releases it.
fn a_waiter_is_released_by(release: fn(&Slot) -> bool) {
    loom::model(move || {
        let slot = Arc::new(Slot::new(0, u64::MAX));
        assert_eq!(slot.wrote(page(0), PAGE).pause, Pause::Wait);
        let flusher = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || release(&slot))
        };
        let seen = slot.begin_wait();
        let waits = slot.over_limit();
        let woken = flusher.join().unwrap();
        if waits {
            let changed = slot.wait_word().load(loom::sync::atomic::Ordering::SeqCst) != seen;
            assert!(woken && changed, "the writer would sleep for ever");
        }
        slot.end_wait();
        assert!(!slot.over_limit());
    });
}

#[test]
fn a_waiter_is_woken_or_need_not_wait() {
    a_waiter_is_released_by(|slot| slot.publish_done(PAGE));
}

#[test]
fn a_waiter_hears_of_a_higher_limit() {
    a_waiter_is_released_by(|slot| slot.publish_pace(PAGE, u64::MAX, 0));
}

/// Two slots ring the same bell.
#[test]
fn an_enlisted_slot_is_found() {
    loom::model(|| {
        let slots = Arc::new([Slot::new(0, 0), Slot::new(0, 0)]);
        let bell = Arc::new(Doorbell::new());
        let ringers: Vec<_> = [0_u32, 1]
            .into_iter()
            .map(|number| {
                let (slots, bell) = (Arc::clone(&slots), Arc::clone(&bell));
                thread::spawn(move || {
                    bell.enlist(number, &slots[number as usize].queued);
                    bell.ring();
                })
            })
            .collect();
        let mut found = 0;
        let mut take = || {
            bell.answer();
            let mut number = bell.take_list();
            while number != NOBODY {
                found |= 1 << number;
                number = bell.delist(&slots[number as usize].queued);
            }
        };
        take();
        for ringer in ringers {
            ringer.join().unwrap();
        }
        if bell.is_rung() {
            take();
        }
        assert_eq!(found, 3);
    });
}
