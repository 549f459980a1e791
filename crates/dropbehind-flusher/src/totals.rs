//! The counters of a disk's files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::lock;
use crate::observed_file::ObservedState;
use crate::own_file::OwnFile;
use dropbehind_policy::Stats;

/// The sum of the closed files' counters, and the open files.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    closed: Stats,
    open: HashMap<u32, OpenFile>,
}

/// Where the counters of an open file are.
#[derive(Debug)]
pub(crate) enum OpenFile {
    Own(Arc<OwnFile>),
    Observed(Arc<Mutex<ObservedState>>),
}

impl OpenFile {
    fn stats(&self) -> Stats {
        match self {
            OpenFile::Own(file) => file.stats(),
            OpenFile::Observed(state) => lock(state).counters,
        }
    }
}

impl Totals {
    pub(crate) fn open_files(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.closed;
        for file in self.open.values() {
            stats.add(&file.stats());
        }
        stats
    }

    pub(crate) fn open(&mut self, number: u32, file: OpenFile) {
        self.open.insert(number, file);
    }

    pub(crate) fn close(&mut self, number: u32) {
        if let Some(file) = self.open.remove(&number) {
            self.closed.add(&file.stats());
        }
    }
}
