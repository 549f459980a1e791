//! Our file and the plain one, and the checks that both behave the same.

use std::fs;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};

use dropbehind::File;
use dropbehind_testbed::residency;

use crate::access::Access;
use crate::common::{Dice, Place};

/// An operation's outcome as a program sees it.
pub(crate) type Outcome = Result<u64, Option<i32>>;

pub(crate) fn outcome<T: TryInto<u64>>(result: io::Result<T>) -> Outcome {
    match result {
        Ok(value) => Ok(value.try_into().ok().expect("not negative")),
        Err(error) => Err(error.raw_os_error()),
    }
}

/// Our file and the plain one, and what has been done so far.
pub(crate) struct Twins {
    pub(crate) ours: File,
    pub(crate) plain: fs::File,
    pub(crate) access: Access,
    pub(crate) ours_path: PathBuf,
    pub(crate) plain_path: PathBuf,
    pub(crate) dice: Dice,
    pub(crate) raw: bool,
    /// A failure prints this, so that it can be repeated.
    pub(crate) seed: u64,
    pub(crate) step: u64,
}

impl Twins {
    pub(crate) fn new(ours: &Place, plain: &Place, seed: u64) -> Twins {
        let (ours_path, plain_path) = (ours.path(), plain.path());
        if !ours.is_raw() {
            fs::File::create(&ours_path).unwrap();
            fs::File::create(&plain_path).unwrap();
        }
        let mut dice = Dice::new(seed);
        let access = Access::draw(&mut dice);
        Twins {
            ours: access.open_ours(&ours_path),
            plain: access.open_plain(&plain_path),
            access,
            ours_path,
            plain_path,
            dice,
            raw: ours.is_raw(),
            seed,
            step: 0,
        }
    }

    #[track_caller]
    pub(crate) fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, ours: T, plain: T) {
        assert!(
            ours == plain,
            "{what}: {ours:?} with us, {plain:?} without; step {}, {:?}; \
             repeat with DROPBEHIND_SEED={}",
            self.step,
            self.access,
            self.seed
        );
    }

    pub(crate) fn places(&mut self) {
        self.same(
            "position",
            outcome((&self.ours).stream_position()),
            outcome((&self.plain).stream_position()),
        );
        self.same("size", self.size_ours(), self.size_plain());
    }

    pub(crate) fn size_ours(&self) -> u64 {
        self.ours.metadata().unwrap().len()
    }

    pub(crate) fn size_plain(&self) -> u64 {
        self.plain.metadata().unwrap().len()
    }

    /// Both disks must hold the same data, too.
    pub(crate) fn end(mut self) {
        self.settle();
        self.places();
        residency::evict(&self.ours_path);
        residency::evict(&self.plain_path);
        let (ours, plain) = (read_all(&self.ours_path), read_all(&self.plain_path));
        self.same("whole file on the disk", ours == plain, true);
    }
}

pub(crate) fn read_all(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
