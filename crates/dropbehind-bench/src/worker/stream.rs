//! Carrying out a task.

use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::Trouble;
use super::buffer::Buffer;
use super::handle::Handle;
use super::order::{BlockOrder, Place};
use super::ring_share::ring_share;
use crate::clock::{SERIES_STEP_NS, now_ns, process_cpu_ns, thread_cpu_ns};
use crate::job::{Operation, Pattern, Task, TaskFigures};
use crate::latency::Latencies;
use crate::mode::Mode;

/// How long our flusher may take to drop the last pages.
const SETTLE_PATIENCE: Duration = Duration::from_secs(60);

/// A task with its files open.
pub(super) struct Stream {
    task: Task,
    mode: Mode,
    handles: Vec<Handle>,
    order: BlockOrder,
    blocks: u64,
    next: AtomicU64,
    /// One for each thread; filled before the start.
    buffers: Mutex<Vec<Buffer>>,
}

/// What one thread of a task did.
pub(super) struct Share {
    buffer: Buffer,
    go_ns: u64,
    /// Start of the call that comes next.
    begun_ns: u64,
    ended_ns: u64,
    /// Of the thread; until the end, what it had used at the start.
    cpu_ns: u64,
    bytes: u64,
    operations: u64,
    series_bytes: Vec<u64>,
    latencies: Latencies,
    pub(super) cut_short: bool,
}

impl Share {
    fn new(buffer: Buffer, go_ns: u64) -> Self {
        Self {
            buffer,
            go_ns,
            begun_ns: now_ns(),
            ended_ns: 0,
            cpu_ns: thread_cpu_ns(),
            bytes: 0,
            operations: 0,
            series_bytes: Vec::new(),
            latencies: Latencies::new(),
            cut_short: false,
        }
    }

    /// The thread's work is over.
    fn end(&mut self) {
        self.ended_ns = now_ns();
        self.cpu_ns = thread_cpu_ns() - self.cpu_ns;
    }

    /// Moves one block, and takes the time.
    fn call(
        &mut self,
        handle: &Handle,
        task: &Task,
        path: &Path,
        offset: u64,
    ) -> Result<(), Trouble> {
        let done = match task.operation {
            Operation::Write => {
                let append = task.pattern == Pattern::Append;
                handle.write(self.buffer.get(), offset, append)
            }
            Operation::Read => handle.read(self.buffer.get_mut(), offset),
        };
        let ended_ns = now_ns();
        done.map_err(|error| handle.trouble(verb(task.operation), path, &error))?;
        self.moved(task, self.begun_ns, ended_ns);
        self.begun_ns = ended_ns;
        Ok(())
    }

    /// Counts a block that was moved.
    pub(super) fn moved(&mut self, task: &Task, begun_ns: u64, ended_ns: u64) {
        self.latencies.record(ended_ns - begun_ns);
        self.operations += 1;
        self.bytes += task.block_bytes;
        let step = (ended_ns.saturating_sub(self.go_ns) / SERIES_STEP_NS) as usize;
        if self.series_bytes.len() <= step {
            self.series_bytes.resize(step + 1, 0);
        }
        self.series_bytes[step] += task.block_bytes;
    }
}

impl Stream {
    /// Opens the files, and reads those that are to be warm.
    pub(super) fn open(mode: Mode, task: Task) -> Result<Self, Trouble> {
        let is_tree = task.pattern == Pattern::Tree;
        let handles: Result<Vec<Handle>, Trouble> = task
            .files
            .iter()
            .filter(|_| !is_tree)
            .map(|path| Handle::open(mode, &task, path))
            .collect();
        let stream = Self {
            order: BlockOrder::of(&task),
            blocks: if is_tree {
                task.files.len() as u64
            } else {
                task.bytes.div_ceil(task.block_bytes)
            },
            handles: handles?,
            mode,
            next: AtomicU64::new(0),
            buffers: Mutex::new(
                (0..u64::from(threads(mode, &task)))
                    .map(|number| Buffer::new(task.block_bytes as usize, number + task.seed + 1))
                    .collect(),
            ),
            task,
        };
        if stream.task.warm {
            stream.warm_up()?;
        }
        Ok(stream)
    }

    fn warm_up(&self) -> Result<(), Trouble> {
        let mut buffer = Buffer::new(1 << 20, 1);
        for (handle, path) in self.handles.iter().zip(&self.task.files) {
            let mut at = 0;
            while at < self.task.file_bytes {
                let length = (self.task.file_bytes - at).min(1 << 20);
                handle
                    .read(&mut buffer.get_mut()[..length as usize], at)
                    .map_err(|error| handle.trouble("reading", path, &error))?;
                at += length;
            }
        }
        Ok(())
    }

    pub(super) fn is_foreground(&self) -> bool {
        self.task.foreground
    }

    /// Does the work, syncs what was written, and says how it went.
    pub(super) fn run(&self, go_ns: u64, stop: &AtomicBool) -> Result<TaskFigures, Trouble> {
        let threads = threads(self.mode, &self.task);
        let started_ns = now_ns();
        let shares = thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|_| scope.spawn(move || self.share(go_ns, stop)))
                .collect();
            let mine = self.share(go_ns, stop);
            let joined = others.into_iter().map(|other| {
                other
                    .join()
                    .unwrap_or_else(|_| Err(Trouble::Failed("a thread panicked".to_owned())))
            });
            let shares: Result<Vec<Share>, Trouble> = std::iter::once(mine).chain(joined).collect();
            shares
        })?;
        let mut figures = TaskFigures {
            role: self.task.role.clone(),
            foreground: self.task.foreground,
            started_ns,
            ..TaskFigures::default()
        };
        let mut latencies = Latencies::new();
        for share in shares {
            figures.bytes += share.bytes;
            figures.operations += share.operations;
            figures.cpu_ns += share.cpu_ns;
            figures.io_ended_ns = figures.io_ended_ns.max(share.ended_ns);
            figures.cut_short |= share.cut_short;
            latencies.add(&share.latencies);
            add_series(&mut figures.series_bytes, &share.series_bytes);
        }
        figures.latencies = latencies.counts();
        if self.task.idle_ms > 0 {
            // What follows the last write is not idling yet.
            thread::sleep(Duration::from_millis(self.task.idle_ms / 2));
            let (cpu_before, before) = (process_cpu_ns(), now_ns());
            thread::sleep(Duration::from_millis(self.task.idle_ms));
            figures.idle_cpu_ns = process_cpu_ns() - cpu_before;
            figures.idle_ns = now_ns() - before;
        }
        if self.task.operation == Operation::Write {
            let cpu_before = thread_cpu_ns();
            for (handle, path) in self.handles.iter().zip(&self.task.files) {
                handle
                    .sync()
                    .map_err(|error| handle.trouble("syncing", path, &error))?;
            }
            if self.task.pattern == Pattern::Tree {
                // Each file is closed by now.
                sync_all_around(&self.task.files[0])?;
            }
            figures.cpu_ns += thread_cpu_ns() - cpu_before;
            figures.sync_ended_ns = now_ns();
        } else {
            figures.sync_ended_ns = figures.io_ended_ns;
        }
        Ok(figures)
    }

    /// The work of one thread.
    fn share(&self, go_ns: u64, stop: &AtomicBool) -> Result<Share, Trouble> {
        let task = &self.task;
        let buffer = {
            let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
            buffers.pop()
        };
        let buffer = buffer.ok_or_else(|| Trouble::Failed("no buffer is left".to_owned()))?;
        let mut share = Share::new(buffer, go_ns);
        let deadline_ns = match task.limit_ms {
            0 => u64::MAX,
            limit => share.begun_ns + limit * 1_000_000,
        };
        if task.ring_depth > 0 {
            ring_share(self, &mut share, stop, deadline_ns)?;
            share.end();
            return Ok(share);
        }
        loop {
            let block = self.next.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) || task.foreground && block >= self.blocks {
                break;
            }
            if task.foreground && share.begun_ns > deadline_ns {
                share.cut_short = true;
                break;
            }
            if task.pattern == Pattern::Tree {
                self.whole_file(&mut share, (block % self.blocks) as usize)?;
            } else {
                let place = self.order.place(block);
                let handle = &self.handles[place.file];
                share.call(handle, task, &task.files[place.file], place.offset)?;
            }
            if task.pause_us > 0 {
                thread::sleep(Duration::from_micros(task.pause_us));
                share.begun_ns = now_ns();
            }
        }
        share.end();
        Ok(share)
    }

    pub(super) fn task(&self) -> &Task {
        &self.task
    }

    pub(super) fn handle(&self, file: usize) -> &Handle {
        &self.handles[file]
    }

    /// Where the next block is; `None` after the last one of a foreground task.
    pub(super) fn next_place(&self) -> Option<Place> {
        let block = self.next.fetch_add(1, Ordering::Relaxed);
        let is_over = self.task.foreground && block >= self.blocks;
        (!is_over).then(|| self.order.place(block))
    }

    fn whole_file(&self, share: &mut Share, index: usize) -> Result<(), Trouble> {
        let path = &self.task.files[index];
        let handle = Handle::open(self.mode, &self.task, path)?;
        let mut offset = 0;
        while offset < self.task.file_bytes {
            share.call(&handle, &self.task, path, offset)?;
            offset += self.task.block_bytes;
        }
        Ok(())
    }

    /// Waits until nothing of it is left to be dropped.
    pub(super) fn settle(&self) -> Result<bool, Trouble> {
        let mut settled = true;
        for (handle, path) in self.handles.iter().zip(&self.task.files) {
            settled &= handle
                .settle(SETTLE_PATIENCE)
                .map_err(|error| Trouble::failed("settling", path, &error))?;
        }
        Ok(settled)
    }
}

/// Syncs the file system that a file is on, as `sync -f` does.
fn sync_all_around(path: &Path) -> Result<(), Trouble> {
    let synced = File::open(path).and_then(|file| Ok(rustix::fs::syncfs(file)?));
    synced.map_err(|error| Trouble::failed("syncing", path, &error))
}

fn threads(mode: Mode, task: &Task) -> u32 {
    task.threads.max(1) * mode.queue()
}

pub(super) fn verb(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "reading",
        Operation::Write => "writing",
    }
}

/// Adds one series to another, step by step.
pub(crate) fn add_series(sum: &mut Vec<u64>, series: &[u64]) {
    if sum.len() < series.len() {
        sum.resize(series.len(), 0);
    }
    for (total, &step) in sum.iter_mut().zip(series) {
        *total += step;
    }
}

/// Runs all streams of a worker; `finished` is called when the last foreground
/// one is over.
pub(super) fn run_all(
    streams: &[Stream],
    go_ns: u64,
    stop: &AtomicBool,
    finished: impl FnOnce() + Send,
) -> Result<Vec<TaskFigures>, Trouble> {
    let foreground = streams.iter().filter(|one| one.is_foreground()).count();
    let left = AtomicU64::new(foreground as u64);
    let finished = Mutex::new(Some(finished));
    let tell = || {
        let mut finished = finished.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(finished) = finished.take() {
            finished();
        }
    };
    if foreground == 0 {
        tell();
    }
    thread::scope(|scope| {
        let running: Vec<_> = streams
            .iter()
            .map(|stream| {
                let (left, tell) = (&left, &tell);
                scope.spawn(move || {
                    let result = stream.run(go_ns, stop);
                    if result.is_err() {
                        // The other tasks of this process are of no use now.
                        stop.store(true, Ordering::Relaxed);
                    }
                    if stream.is_foreground() && left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        tell();
                    }
                    result
                })
            })
            .collect();
        running
            .into_iter()
            .map(|one| {
                one.join()
                    .unwrap_or_else(|_| Err(Trouble::Failed("a thread panicked".to_owned())))
            })
            .collect()
    })
}
