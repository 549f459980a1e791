//! Watching a file's cache while something else works on it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::cachestat;
use crate::context::Context;

/// The most that a [`Sampler`] saw, each by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks {
    /// Pages in the cache.
    pub cached_pages: u64,
    /// Dirty pages.
    pub dirty_pages: u64,
    /// Pages under writeback.
    pub writeback_pages: u64,
    /// Dirty pages and pages under writeback at the same time.
    pub unwritten_pages: u64,
    /// How often it looked: a test should know that it looked at all.
    pub samples: u64,
}

/// A thread that counts a file's pages at an interval and keeps the peaks.
///
/// It holds the file open, so that a raw block device keeps its cache when
/// the program under test closes it.
#[derive(Debug)]
pub struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<io::Result<Peaks>>>,
}

impl Sampler {
    /// Starts to watch. The first sample is taken before this returns.
    pub fn start(path: &Path, interval: Duration) -> io::Result<Self> {
        let file = File::open(path).context(|| path.display().to_string())?;
        let mut peaks = Peaks::default();
        peaks.look(&file)?;
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || {
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    peaks.look(&file)?;
                }
                peaks.look(&file)?;
                Ok(peaks)
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Takes a last sample and returns the peaks.
    pub fn stop(mut self) -> io::Result<Peaks> {
        self.end()
            .unwrap_or_else(|| Err(io::Error::other("the sampler has stopped")))
    }

    fn end(&mut self) -> Option<io::Result<Peaks>> {
        // The thread takes a closed channel for the order to stop.
        self.stop = None;
        let joined = self.thread.take()?.join();
        Some(joined.unwrap_or_else(|_| Err(io::Error::other("the sampler panicked"))))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // Whoever wanted to know has called `stop`.
        let _ = self.end();
    }
}

impl Peaks {
    fn look(&mut self, file: &File) -> io::Result<()> {
        let now = cachestat::count(file.as_fd(), 0..u64::MAX)?;
        self.cached_pages = self.cached_pages.max(now.cached_pages);
        self.dirty_pages = self.dirty_pages.max(now.dirty_pages);
        self.writeback_pages = self.writeback_pages.max(now.writeback_pages);
        self.unwritten_pages = self.unwritten_pages.max(now.unwritten_pages());
        self.samples += 1;
        Ok(())
    }
}
