//! Each test on each kind of place.

/// Runs each test on each kind of place, on a disk of its own.
macro_rules! everywhere {
    ($($name:ident: $size:expr;)*) => {
        everywhere!(@on ext4, Kind::Mounted(Fs::Ext4), $($name: $size;)*);
        everywhere!(@on xfs, Kind::Mounted(Fs::Xfs), $($name: $size;)*);
        everywhere!(@on btrfs, Kind::Mounted(Fs::Btrfs), $($name: $size;)*);
        everywhere!(@on raw_device, Kind::RawDevice, $($name: $size;)*);
    };
    (@on $place:ident, $kind:expr, $($name:ident: $size:expr;)*) => {
        mod $place {
            use crate::common::{Kind, MIB, Place};
            #[allow(unused_imports, reason = "a raw device has no file system")]
            use dropbehind_testbed::{Fs, need};

            $(
                #[test]
                fn $name() {
                    need!(all $kind.needs());
                    super::$name(&Place::new($kind, $size * MIB));
                }
            )*
        }
    };
}
