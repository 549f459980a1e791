//! Random operations on our file and on a plain one.

use dropbehind_testbed::{Fs, need};

use crate::common::{Kind, Place};
use crate::twins::Twins;
use crate::{FAST_OPS, SIZE_BYTES, SLOW_OPS, ops, seed};

fn random_operations(kind: Kind, ops: u64) {
    need!(all kind.needs());
    let seed = seed();
    // Each on its own disk: a raw device takes up all of one.
    let (ours, plain) = (Place::new(kind, SIZE_BYTES), Place::new(kind, SIZE_BYTES));
    let mut twins = Twins::new(&ours, &plain, seed);
    for _ in 0..ops {
        twins.step();
    }
    twins.end();
}

#[test]
fn random_operations_on_a_file_do_the_same() {
    random_operations(Kind::Mounted(Fs::Ext4), ops(FAST_OPS));
}

#[test]
fn random_operations_on_a_raw_device_do_the_same() {
    random_operations(Kind::RawDevice, ops(FAST_OPS));
}

#[test]
#[ignore = "a million operations take minutes: cargo test --release --test same_program -- --ignored"]
fn a_million_operations_do_the_same() {
    let each = ops(SLOW_OPS) / 4;
    for kind in [
        Kind::Mounted(Fs::Ext4),
        Kind::Mounted(Fs::Xfs),
        Kind::Mounted(Fs::Btrfs),
        Kind::RawDevice,
    ] {
        random_operations(kind, each);
    }
}
