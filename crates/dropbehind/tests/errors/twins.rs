//! Our file and a plain one, which both go through the same calls.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use dropbehind::flusher::Flusher;
use dropbehind::{File, Mode, OpenOptions};

use crate::common::PATIENCE;

/// Whose file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Plain,
    Ours(Mode),
}

impl Side {
    pub(crate) fn ours() -> impl Iterator<Item = Side> {
        Mode::ALL.into_iter().map(Side::Ours)
    }

    pub(crate) fn open(self, path: &Path) -> Twin {
        self.open_with(path, &Flusher::shared().unwrap())
    }

    pub(crate) fn open_with(self, path: &Path, flusher: &Flusher) -> Twin {
        match self {
            Side::Plain => Twin::Plain(
                fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(path)
                    .unwrap(),
            ),
            Side::Ours(mode) => Twin::Ours(
                OpenOptions::new()
                    .read(true)
                    .write(true)
                    .cache_mode(mode)
                    .flusher(flusher)
                    .open(path)
                    .unwrap(),
            ),
        }
    }
}

/// One of our files or a plain one.
pub(crate) enum Twin {
    Plain(fs::File),
    Ours(File),
}

impl Twin {
    pub(crate) fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Twin::Plain(file) => file.write(data),
            Twin::Ours(file) => file.write(data),
        }
    }

    pub(crate) fn write_all(&mut self, data: &[u8]) -> io::Result<()> {
        match self {
            Twin::Plain(file) => file.write_all(data),
            Twin::Ours(file) => file.write_all(data),
        }
    }

    pub(crate) fn sync_all(&self) -> io::Result<()> {
        match self {
            Twin::Plain(file) => file.sync_all(),
            Twin::Ours(file) => file.sync_all(),
        }
    }

    pub(crate) fn read_at(&self, data: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Twin::Plain(file) => file.read_at(data, offset),
            Twin::Ours(file) => file.read_at(data, offset),
        }
    }

    pub(crate) fn settle(&self) {
        if let Twin::Ours(file) = self {
            assert!(file.settle(PATIENCE).unwrap(), "{:?}", file.stats());
        }
    }
}

/// The result of each call, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Log(pub(crate) Vec<(String, Result<u64, Option<i32>>)>);

impl Log {
    pub(crate) fn note<T: TryInto<u64>>(&mut self, call: impl Into<String>, result: io::Result<T>) {
        let value = |value: T| value.try_into().ok().expect("not negative");
        let result = result.map(value).map_err(|error| error.raw_os_error());
        self.0.push((call.into(), result));
    }

    pub(crate) fn note_done(&mut self, call: impl Into<String>, result: io::Result<()>) {
        self.note(call, result.map(|()| 0_u64));
    }

    pub(crate) fn errors(&self) -> usize {
        self.0.iter().filter(|(_, result)| result.is_err()).count()
    }
}

pub(crate) fn open_plain(path: &Path) -> fs::File {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// A descriptor that only asks whether writeback succeeded.
pub(crate) fn open_to_ask(path: &Path) -> fs::File {
    fs::File::open(path).unwrap()
}
