//! Counts cached and dirty pages from outside, while the workers run.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::clock::{SERIES_STEP_NS, now_ns};

/// Shortest time between two counts.
const PAUSE: Duration = Duration::from_millis(10);
/// Longer pauses where counting is expensive: at most a tenth of a CPU.
const SHARE: u32 = 10;

/// What the files had in the cache in one step of the series, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySample {
    /// In the page cache.
    pub cached_bytes: u64,
    /// Dirty or under writeback.
    pub dirty_bytes: u64,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The maximum of each step.
    pub(crate) series: Vec<MemorySample>,
    /// Fewest bytes that the hot set had in the cache at any time.
    pub(crate) hot_low_bytes: Option<u64>,
    /// How often was looked.
    pub(crate) looks: u64,
}

/// Open files to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    files: Vec<File>,
    hot: Vec<File>,
}

impl Watched {
    /// Opens them with an access mode that lets one count and control, but neither
    /// read nor write (3, open(2)), so that the witness is no reader and no writer. Holds
    /// block devices' caches, which the kernel drops at the last close.
    pub(crate) fn open(files: &[PathBuf], hot: &[PathBuf]) -> io::Result<Self> {
        let open = |paths: &[PathBuf]| -> io::Result<Vec<File>> {
            paths
                .iter()
                .map(|path| {
                    let access = OFlags::WRONLY | OFlags::RDWR | OFlags::CLOEXEC;
                    Ok(rustix::fs::open(path, access, Mode::empty())?.into())
                })
                .collect()
        };
        Ok(Self {
            files: open(files)?,
            hot: open(hot)?,
        })
    }

    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// What the cache holds of the files now.
    pub(crate) fn count(&self) -> io::Result<MemorySample> {
        count(&self.files)
    }

    /// What the cache holds of the hot set now.
    pub(crate) fn hot_bytes(&self) -> Option<u64> {
        if self.hot.is_empty() {
            return None;
        }
        count(&self.hot).ok().map(|sample| sample.cached_bytes)
    }

    /// Drops what is clean.
    pub(crate) fn drop_clean(&self) {
        for file in self.files.iter().chain(&self.hot) {
            // What stays is seen by the count.
            let _ = dropbehind_linux::drop_clean(file.as_fd(), 0, 0);
        }
    }
}

fn count(files: &[File]) -> io::Result<MemorySample> {
    let page_bytes = dropbehind_linux::page_size();
    let mut sample = MemorySample::default();
    for file in files {
        let stat = dropbehind_linux::cachestat(file.as_fd(), 0, 0)?;
        sample.cached_bytes += stat.cached_pages * page_bytes;
        sample.dirty_bytes += (stat.dirty_pages + stat.writeback_pages) * page_bytes;
    }
    Ok(sample)
}

/// A thread that looks.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

impl Sampler {
    pub(crate) fn start(watched: Arc<Watched>, go_ns: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || look_until(&told, &watched, go_ns));
        Self { stop, thread }
    }

    pub(crate) fn finish(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

fn look_until(stop: &AtomicBool, watched: &Watched, go_ns: u64) -> Seen {
    let mut seen = Seen {
        hot_low_bytes: watched.hot_bytes(),
        ..Seen::default()
    };
    while !stop.load(Ordering::Relaxed) {
        let begun = now_ns();
        let Ok(now) = watched.count() else {
            return seen;
        };
        let step = (begun.saturating_sub(go_ns) / SERIES_STEP_NS) as usize;
        if seen.series.len() <= step {
            // A step without a look is as the one before it.
            let last = seen.series.last().copied().unwrap_or_default();
            seen.series.resize(step, last);
            seen.series.push(now);
        }
        let most = &mut seen.series[step];
        most.cached_bytes = most.cached_bytes.max(now.cached_bytes);
        most.dirty_bytes = most.dirty_bytes.max(now.dirty_bytes);
        if let (Some(low), Some(hot)) = (&mut seen.hot_low_bytes, watched.hot_bytes()) {
            *low = hot.min(*low);
        }
        seen.looks += 1;
        let cost = Duration::from_nanos(now_ns() - begun);
        std::thread::sleep(PAUSE.max(cost * SHARE));
    }
    seen
}
