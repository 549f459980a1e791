//! Files whose writeback failed.
//!
//! After a failure the kernel takes the pages for clean, though the disk never got them: to
//! drop them would lose the only good copy. So each file is asked about after its pages were
//! counted clean, and before they are dropped.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use dropbehind_linux::{KernelInode, WritebackFailure, WritebackFailures};

use crate::lock;

/// No more files are told apart; then all that are asked about count as failed.
const FILES: usize = 1 << 10;

/// The files of the machine whose writeback failed, by the kernel's trace.
#[derive(Clone, Debug)]
pub struct FailedWriteback(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    trace: WritebackFailures,
    files: HashSet<KernelInode>,
    /// How often some failures were not told.
    losses: u64,
    news: Vec<WritebackFailure>,
}

impl FailedWriteback {
    /// Remembers what this trace tells.
    #[must_use]
    pub fn new(trace: WritebackFailures) -> FailedWriteback {
        FailedWriteback(Arc::new(Mutex::new(State {
            trace,
            files: HashSet::new(),
            losses: 0,
            news: Vec::new(),
        })))
    }

    /// For a file whose pages come into the cache from now on. Where the device of its inode is not
    /// known, an inode of that number on any device counts.
    #[must_use]
    pub fn sign_of(&self, device: Option<u32>, number: u64) -> WritebackSign {
        let mut state = lock(&self.0);
        state.read();
        WritebackSign {
            all: self.clone(),
            device,
            number,
            losses: state.losses,
        }
    }

    /// What failed since the last call, each file once.
    #[must_use]
    pub fn news(&self) -> Vec<WritebackFailure> {
        let mut state = lock(&self.0);
        state.read();
        std::mem::take(&mut state.news)
    }
}

impl State {
    fn read(&mut self) {
        let Self {
            trace,
            files,
            losses,
            news,
        } = self;
        trace.read(|failure| match failure {
            WritebackFailure::File(inode) if files.len() < FILES => {
                if files.insert(inode) {
                    news.push(failure);
                }
            }
            WritebackFailure::File(_) | WritebackFailure::Lost => {
                *losses += 1;
                if news.last() != Some(&WritebackFailure::Lost) {
                    news.push(WritebackFailure::Lost);
                }
            }
        });
    }
}

/// Tells whether writeback of one file failed.
#[derive(Clone, Debug)]
pub struct WritebackSign {
    all: FailedWriteback,
    device: Option<u32>,
    number: u64,
    /// The losses when the file's pages began to come into the cache.
    losses: u64,
}

impl WritebackSign {
    /// True when a writeback failed since the file's pages began to come into the cache.
    /// Asked after pages were counted clean, this covers them.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let mut state = lock(&self.all.0);
        state.read();
        let is_it = |inode: &KernelInode| {
            inode.number == self.number && self.device.is_none_or(|device| device == inode.device)
        };
        state.losses != self.losses || state.files.iter().any(is_it)
    }
}
