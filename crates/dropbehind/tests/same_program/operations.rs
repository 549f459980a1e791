//! Random operations, each done on both files.

use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use dropbehind::{File, Mode};
use dropbehind_testbed::pattern;

use crate::access::Access;
use crate::common::{KIB, MIB};
use crate::twins::{Twins, outcome, read_all};
use crate::{LONGEST_IO_BYTES, SIZE_BYTES};

impl Twins {
    pub(crate) fn step(&mut self) {
        self.step += 1;
        match self.dice.below(1000) {
            0..200 => self.write(),
            200..380 => self.write_at(),
            380..430 => self.write_vectored(),
            430..580 => self.read(),
            580..760 => self.read_at(),
            760..810 => self.read_vectored(),
            810..880 => self.seek(),
            880..895 => self.set_len(),
            // Each of these two takes as long as a hundred of the others.
            895..898 => self.sync(),
            898..901 => self.settle(),
            901..930 => self.control(),
            930..955 => {
                let mode = Mode::from_bits(self.dice.below(12) as u8);
                self.ours.set_mode(mode);
                self.same("mode", self.ours.mode(), mode);
            }
            955..970 => self.clone_and_drop(),
            970..985 => self.reopen(),
            985..990 => self.through_std(),
            _ => self.whole(),
        }
        self.places();
    }

    fn offset(&mut self) -> u64 {
        match self.dice.below(300) {
            // Beyond the largest size that any file can have.
            0 => self
                .dice
                .pick(&[u64::MAX, i64::MAX as u64 + 1, i64::MAX as u64 - 10]),
            1 => SIZE_BYTES + self.dice.below(MIB),
            2..60 => self.dice.below(64) * 4096,
            _ => self.dice.below(SIZE_BYTES),
        }
    }

    /// An offset at which a write cannot make the file huge.
    fn write_offset(&mut self) -> u64 {
        let offset = self.offset();
        // xfs allows files of 8 EiB, and writes whatever fits below that.
        if self.raw || i64::try_from(offset).is_err() {
            offset
        } else {
            offset.min(SIZE_BYTES - LONGEST_IO_BYTES)
        }
    }

    fn length(&mut self) -> usize {
        let length = match self.dice.below(10) {
            0 => self.dice.pick(&[0, 1, 4095, 4096, 4097]),
            1..7 => self.dice.below(16 * KIB),
            _ => self.dice.below(LONGEST_IO_BYTES),
        };
        length as usize
    }

    /// Some reads are long enough to be split into pieces.
    fn read_length(&mut self) -> usize {
        if self.dice.once_in(60) {
            (2 * MIB + self.dice.below(4 * MIB)) as usize
        } else {
            self.length()
        }
    }

    fn data(&mut self, length: usize) -> Vec<u8> {
        pattern::filled(self.seed ^ self.step, 0, length)
    }

    /// Cuts a buffer into pieces for a vectored call; some are empty.
    fn cuts(&mut self, length: usize) -> Vec<usize> {
        let mut cuts: Vec<usize> = (0..self.dice.below(6))
            .map(|_| self.dice.below(length as u64 + 1) as usize)
            .collect();
        cuts.extend([0, length]);
        cuts.sort_unstable();
        cuts
    }

    /// Returns whether a write at the position would make the file too large.
    fn no_room(&mut self) -> bool {
        let position = if self.access.append {
            self.size_plain()
        } else {
            (&self.plain).stream_position().unwrap()
        };
        !self.raw && position + LONGEST_IO_BYTES > SIZE_BYTES
    }

    fn write(&mut self) {
        if self.no_room() {
            self.seek_to(SeekFrom::Start(0));
            if self.access.append {
                self.set_len_to(0);
            }
        }
        let length = self.length();
        let data = self.data(length);
        self.same(
            "write",
            outcome((&self.ours).write(&data)),
            outcome((&self.plain).write(&data)),
        );
    }

    fn write_at(&mut self) {
        if self.access.append && self.no_room() {
            // Linux appends here too.
            self.set_len_to(0);
        }
        let (offset, length) = (self.write_offset(), self.length());
        let data = self.data(length);
        let mode = Mode::from_bits(self.dice.below(12) as u8);
        let ours = match self.dice.below(3) {
            0 => self.ours.write_at_with(&data, offset, mode),
            _ => self.ours.write_at(&data, offset),
        };
        let plain = self.plain.write_at(&data, offset);
        self.same("write_at", outcome(ours), outcome(plain));
    }

    fn write_vectored(&mut self) {
        if self.no_room() {
            self.seek_to(SeekFrom::Start(0));
            if self.access.append {
                self.set_len_to(0);
            }
        }
        let (offset, length) = (self.write_offset(), self.length());
        let data = self.data(length);
        let slices: Vec<IoSlice<'_>> = self
            .cuts(length)
            .windows(2)
            .map(|ends| IoSlice::new(&data[ends[0]..ends[1]]))
            .collect();
        if self.dice.once_in(2) {
            self.same(
                "write_vectored",
                outcome((&self.ours).write_vectored(&slices)),
                outcome((&self.plain).write_vectored(&slices)),
            );
        } else {
            // The standard library has no such call; the plain file gets one write of the
            // same bytes.
            self.same(
                "write_vectored_at",
                outcome(self.ours.write_vectored_at(&slices, offset)),
                outcome(self.plain.write_at(&data, offset)),
            );
        }
    }

    fn read(&mut self) {
        let length = self.read_length();
        let (mut ours, mut plain) = (vec![1; length], vec![1; length]);
        self.same(
            "read",
            outcome((&self.ours).read(&mut ours)),
            outcome((&self.plain).read(&mut plain)),
        );
        self.same("bytes read", ours == plain, true);
    }

    fn read_at(&mut self) {
        let (offset, length) = (self.offset(), self.read_length());
        let (mut ours, mut plain) = (vec![1; length], vec![1; length]);
        let mode = Mode::from_bits(self.dice.below(12) as u8);
        let result = match self.dice.below(3) {
            0 => self.ours.read_at_with(&mut ours, offset, mode),
            _ => self.ours.read_at(&mut ours, offset),
        };
        self.same(
            "read_at",
            outcome(result),
            outcome(self.plain.read_at(&mut plain, offset)),
        );
        self.same("bytes read at an offset", ours == plain, true);
    }

    fn read_vectored(&mut self) {
        let (offset, length) = (self.offset(), self.length());
        let cuts = self.cuts(length);
        let (mut ours, mut plain) = (vec![1; length], vec![1; length]);
        let at_position = self.dice.once_in(2);
        let mut slices = slices_of(&mut ours, &cuts);
        let result = if at_position {
            (&self.ours).read_vectored(&mut slices)
        } else {
            self.ours.read_vectored_at(&mut slices, offset)
        };
        let expected = if at_position {
            (&self.plain).read_vectored(&mut slices_of(&mut plain, &cuts))
        } else {
            self.plain.read_at(&mut plain, offset)
        };
        self.same("read_vectored", outcome(result), outcome(expected));
        self.same("bytes of a vectored read", ours == plain, true);
    }

    fn seek(&mut self) {
        let to = match self.dice.below(4) {
            0 => SeekFrom::Current(self.dice.below(2 * MIB) as i64 - MIB as i64),
            1 => SeekFrom::End(-(self.dice.below(MIB) as i64)),
            _ => SeekFrom::Start(self.offset()),
        };
        self.seek_to(to);
        // Without this, writes would make the file grow without bounds.
        if !self.raw && (&self.plain).stream_position().unwrap() > SIZE_BYTES {
            self.seek_to(SeekFrom::Start(0));
        }
    }

    fn seek_to(&mut self, to: SeekFrom) {
        self.same(
            "seek",
            outcome((&self.ours).seek(to)),
            outcome((&self.plain).seek(to)),
        );
    }

    fn set_len(&mut self) {
        let length = match self.dice.below(4) {
            0 => u64::MAX / 2 + 1,
            _ => self.dice.below(SIZE_BYTES),
        };
        self.set_len_to(length);
    }

    fn set_len_to(&mut self, length: u64) {
        self.same(
            "set_len",
            outcome(self.ours.set_len(length).map(|()| 0_u64)),
            outcome(self.plain.set_len(length).map(|()| 0_u64)),
        );
    }

    fn sync(&mut self) {
        let (ours, plain) = if self.dice.once_in(2) {
            (self.ours.sync_all(), self.plain.sync_all())
        } else {
            (self.ours.sync_data(), self.plain.sync_data())
        };
        self.same(
            "sync",
            outcome(ours.map(|()| 0_u64)),
            outcome(plain.map(|()| 0_u64)),
        );
    }

    pub(crate) fn settle(&mut self) {
        // It may wait for pages that are still marked dirty although a truncation has left
        // them nothing to write.
        self.ours.settle(Duration::from_secs(1)).unwrap();
    }

    /// Whatever these return, the bytes must not change.
    fn control(&mut self) {
        let start = self.dice.below(SIZE_BYTES);
        let range = start..start + self.dice.below(SIZE_BYTES);
        let done = match self.dice.below(4) {
            0 => self.ours.start_writeback(range),
            1 => self.ours.wait_clean(range),
            2 => self.ours.drop_behind(range).map(drop),
            _ => self.ours.residency(range).map(drop),
        };
        self.same("control", outcome(done.map(|()| 0_u64)), Ok(0));
    }

    fn clone_and_drop(&mut self) {
        let clones = (
            self.ours.try_clone().unwrap(),
            self.plain.try_clone().unwrap(),
        );
        // The position is shared, and outlives the original descriptor.
        if self.dice.once_in(2) {
            (self.ours, self.plain) = clones;
        }
    }

    fn reopen(&mut self) {
        self.access = Access::draw(&mut self.dice);
        let closed = std::mem::replace(&mut self.ours, self.access.open_ours(&self.ours_path));
        self.plain = self.access.open_plain(&self.plain_path);
        if self.dice.once_in(2) {
            closed.close().unwrap();
        }
    }

    fn through_std(&mut self) {
        let ours = std::mem::replace(&mut self.ours, self.access.open_ours(&self.ours_path));
        let std = ours.into_std();
        self.ours = File::from_std(std, self.access.mode).unwrap();
    }

    /// Reads all of both files, through new descriptors.
    fn whole(&mut self) {
        if self.dice.once_in(3) {
            let ours = read_all(&self.ours_path);
            let plain = read_all(&self.plain_path);
            self.same("whole file", ours == plain, true);
        }
    }
}

fn slices_of<'a>(data: &'a mut [u8], cuts: &[usize]) -> Vec<IoSliceMut<'a>> {
    let mut rest = data;
    let mut slices = Vec::new();
    for ends in cuts.windows(2) {
        let (now, later) = rest.split_at_mut(ends[1] - ends[0]);
        slices.push(IoSliceMut::new(now));
        rest = later;
    }
    slices
}
