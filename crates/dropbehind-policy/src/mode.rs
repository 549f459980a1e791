//! The two independent controls, and the names of their useful pairs.
//!
//! The review of the kernel's uncached buffered I/O asked for writeback control
//! and cache residency to be separate; here they are two fields.

use core::fmt;
use core::str::FromStr;

/// When a write's dirty pages are sent to the disk, from latest to earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Writeback {
    /// The kernel decides.
    Lazy,
    /// A window behind the writer, for writes that append (mode 1 of the proposal).
    BehindAppending,
    /// A window behind the writer, for every sequential write (mode 2).
    Behind,
    /// As soon as there is a batch.
    Eager,
}

/// What happens to pages that this I/O brought into the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Residency {
    /// They stay until the kernel needs the memory.
    Keep = 0,
    /// They wait for a while, and are dropped unless they are used again meanwhile or come back
    /// soon after that. Pages that were cached before stay.
    Reuse = 4,
    /// They are dropped once they are clean. Pages that were cached before stay.
    Drop = 8,
}

/// A writeback policy and a residency policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// When dirty pages are sent to the disk.
    pub writeback: Writeback,
    /// What happens to the pages afterwards.
    pub residency: Residency,
}

impl Mode {
    /// Plain buffered I/O: dropbehind does nothing.
    pub const BUFFERED: Mode = Mode::new(Writeback::Lazy, Residency::Keep);
    /// Eager writeback, drop: `RWF_DONTCACHE` with the flusher kick.
    pub const DONTCACHE: Mode = Mode::new(Writeback::Eager, Residency::Drop);
    /// Lazy writeback, drop: what `POSIX_FADV_NOREUSE` should mean.
    pub const NOREUSE: Mode = Mode::new(Writeback::Lazy, Residency::Drop);
    /// Write-behind of appending writes, keep: `dirty_write_behind=1`.
    pub const WRITE_BEHIND: Mode = Mode::new(Writeback::BehindAppending, Residency::Keep);
    /// Write-behind of every sequential write, keep: `dirty_write_behind=2`.
    pub const WRITE_BEHIND_ANY: Mode = Mode::new(Writeback::Behind, Residency::Keep);
    /// Eager writeback, keep: automatic cache write-through.
    pub const WRITE_THROUGH: Mode = Mode::new(Writeback::Eager, Residency::Keep);
    /// Eager writeback, drop what is used once, and keep what is used again.
    pub const AUTO: Mode = Mode::new(Writeback::Eager, Residency::Reuse);

    /// All named modes, in the order in which they are documented.
    pub const ALL: [Mode; 7] = [
        Mode::BUFFERED,
        Mode::DONTCACHE,
        Mode::NOREUSE,
        Mode::WRITE_BEHIND,
        Mode::WRITE_BEHIND_ANY,
        Mode::WRITE_THROUGH,
        Mode::AUTO,
    ];

    /// Combines any two controls.
    pub const fn new(writeback: Writeback, residency: Residency) -> Mode {
        Mode {
            writeback,
            residency,
        }
    }

    /// The mode's name, or `None` for a pair that has none.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Mode::BUFFERED => "buffered",
            Mode::DONTCACHE => "dontcache",
            Mode::NOREUSE => "noreuse",
            Mode::WRITE_BEHIND => "write-behind",
            Mode::WRITE_BEHIND_ANY => "write-behind-any",
            Mode::WRITE_THROUGH => "write-through",
            Mode::AUTO => "auto",
            _ => return None,
        })
    }

    /// Returns whether there is nothing for dropbehind to do.
    pub fn is_buffered(self) -> bool {
        self == Mode::BUFFERED
    }

    /// Returns whether dirty pages are written back a window behind the writer.
    pub fn is_behind(self) -> bool {
        matches!(
            self.writeback,
            Writeback::BehindAppending | Writeback::Behind
        )
    }

    /// Returns whether a program's advice on how it uses a file changes anything.
    pub fn heeds_advice(self) -> bool {
        !self.is_buffered() && (self.is_behind() || !self.drops())
    }

    /// Returns whether pages that this I/O brought in are to be dropped, at once or unless they
    /// are used again.
    pub fn drops(self) -> bool {
        self.residency != Residency::Keep
    }

    /// Returns whether they stay if they are used again.
    pub fn keeps_reused(self) -> bool {
        self.residency == Residency::Reuse
    }

    /// A mode that serves both: the earlier writeback, and the residency that keeps less.
    #[must_use]
    pub fn and(self, other: Mode) -> Mode {
        Mode {
            writeback: self.writeback.max(other.writeback),
            residency: self.residency.max(other.residency),
        }
    }

    /// Packs the mode into four bits, as in a slot: values up to 11.
    pub const fn to_bits(self) -> u8 {
        self.writeback as u8 | self.residency as u8
    }

    /// Unpacks a mode from four bits; higher bits are ignored.
    pub const fn from_bits(bits: u8) -> Mode {
        let writeback = match bits & 3 {
            0 => Writeback::Lazy,
            1 => Writeback::BehindAppending,
            2 => Writeback::Behind,
            _ => Writeback::Eager,
        };
        let residency = match bits & 12 {
            0 => Residency::Keep,
            4 => Residency::Reuse,
            _ => Residency::Drop,
        };
        Mode::new(writeback, residency)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name() {
            return f.pad(name);
        }
        let writeback = match self.writeback {
            Writeback::Lazy => "lazy",
            Writeback::BehindAppending => "behind-appending",
            Writeback::Behind => "behind",
            Writeback::Eager => "eager",
        };
        let residency = match self.residency {
            Residency::Keep => "keep",
            Residency::Drop => "drop",
            Residency::Reuse => "reuse",
        };
        write!(f, "{writeback}+{residency}")
    }
}

/// The text is not a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMode;

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a mode; the modes are buffered, dontcache, noreuse, write-behind, \
             write-behind-any, write-through, auto, or a pair such as behind+drop",
        )
    }
}

impl core::error::Error for UnknownMode {}

impl FromStr for Mode {
    type Err = UnknownMode;

    /// Parses a mode's name, or a pair `WRITEBACK+RESIDENCY`.
    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        if let Some(mode) = Mode::ALL.iter().find(|mode| mode.name() == Some(text)) {
            return Ok(*mode);
        }
        let (writeback, residency) = text.split_once('+').ok_or(UnknownMode)?;
        let writeback = match writeback {
            "lazy" => Writeback::Lazy,
            "behind-appending" => Writeback::BehindAppending,
            "behind" => Writeback::Behind,
            "eager" => Writeback::Eager,
            _ => return Err(UnknownMode),
        };
        let residency = match residency {
            "keep" => Residency::Keep,
            "drop" => Residency::Drop,
            "reuse" => Residency::Reuse,
            _ => return Err(UnknownMode),
        };
        Ok(Mode::new(writeback, residency))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_pair_survives_text_and_bits() {
        for bits in 0..12 {
            let mode = Mode::from_bits(bits);
            assert_eq!(mode.to_bits(), bits);
            assert_eq!(mode.to_string().parse::<Mode>(), Ok(mode));
        }
        assert_eq!("dont-cache".parse::<Mode>(), Err(UnknownMode));
        assert_eq!("eager+".parse::<Mode>(), Err(UnknownMode));
    }
}
