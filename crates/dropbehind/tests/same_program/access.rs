//! How a file is open.

use std::fs;
use std::path::Path;

use dropbehind::strategy::Strategy;
use dropbehind::{File, Mode, OpenOptions};

use crate::common::{Dice, KIB, MIB};

/// How a file is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) mode: Mode,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) strategy: Strategy,
    pub(crate) random: bool,
}

impl Access {
    pub(crate) fn draw(dice: &mut Dice) -> Access {
        let (read, write) = dice.pick(&[
            (true, true),
            (true, true),
            (true, true),
            (true, true),
            (false, true),
            (true, false),
        ]);
        Access {
            read,
            write,
            append: write && dice.once_in(5),
            mode: Mode::from_bits(dice.below(12) as u8),
            window_bytes: dice.pick(&[None, Some(64 * KIB), Some(256 * KIB), Some(2 * MIB)]),
            strategy: dice.pick(&[Strategy::Auto, Strategy::Emulated, Strategy::Native]),
            random: dice.once_in(8),
        }
    }

    pub(crate) fn open_ours(self, path: &Path) -> File {
        let mut options = OpenOptions::new();
        options
            .read(self.read)
            .write(self.write)
            .append(self.append)
            .cache_mode(self.mode)
            .strategy(self.strategy)
            .random(self.random);
        if let Some(bytes) = self.window_bytes {
            options.window_bytes(bytes);
        }
        options.open(path).unwrap()
    }

    pub(crate) fn open_plain(self, path: &Path) -> fs::File {
        fs::OpenOptions::new()
            .read(self.read)
            .write(self.write)
            .append(self.append)
            .open(path)
            .unwrap()
    }
}
