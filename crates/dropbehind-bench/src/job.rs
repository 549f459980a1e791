//! What a worker process is told, and what it answers: lines of JSON.
//!
//! ```text
//! bench   → worker   Job
//! worker  → bench    Answer::Ready          (files are open, hot sets warm)
//! bench   → worker   WorkerOrder::Go
//! worker  → bench    Answer::Finished       (its foreground tasks are over)
//! bench   → worker   WorkerOrder::Stop
//! worker  → bench    Answer::Done           (background tasks over, settled)
//! ```
//!
//! At any point the worker may answer [`Answer::Failed`] or
//! [`Answer::Unavailable`], and ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::mode::Mode;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) mode: Mode,
    /// The `cgroup.procs` to enter first.
    pub(crate) group: Option<PathBuf>,
    pub(crate) tasks: Vec<Task>,
}

/// What the worker's tasks do to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Operation {
    Read,
    Write,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Pattern {
    /// From start to end, file after file.
    Sequential,
    /// Each block once, in an order that looks random.
    Random,
    /// At the end of the file (`O_APPEND`).
    Append,
    /// One block of each file in turn.
    RoundRobin,
    /// File after file, each opened, moved as a whole and closed.
    Tree,
}

/// One stream of I/O.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// What it is called in the results; tasks of one role are summed.
    pub(crate) role: String,
    pub(crate) operation: Operation,
    pub(crate) pattern: Pattern,
    pub(crate) files: Vec<PathBuf>,
    /// How much of each file is used.
    pub(crate) file_bytes: u64,
    pub(crate) block_bytes: u64,
    /// How much is moved, together; over and over until stopped, if it is a
    /// background task.
    pub(crate) bytes: u64,
    /// Whether the case is over when this is.
    pub(crate) foreground: bool,
    /// Threads that share the work.
    pub(crate) threads: u32,
    /// Read everything once before the start, and be plain buffered I/O.
    pub(crate) warm: bool,
    /// Pause between two calls.
    pub(crate) pause_us: u64,
    /// Keep the files open and idle for so long before the sync.
    pub(crate) idle_ms: u64,
    /// The random order's seed.
    pub(crate) seed: u64,
    /// Requests that an io_uring has under way at a time; 0 is without one.
    pub(crate) ring_depth: u32,
    /// A foreground task that takes longer is ended early; 0 is no limit.
    pub(crate) limit_ms: u64,
}

impl Task {
    /// One thread's foreground work from start to end of the files.
    pub(crate) fn new(
        role: &str,
        operation: Operation,
        pattern: Pattern,
        files: Vec<PathBuf>,
        file_bytes: u64,
        block_bytes: u64,
    ) -> Self {
        Self {
            role: role.to_owned(),
            operation,
            pattern,
            bytes: file_bytes * files.len() as u64,
            files,
            file_bytes,
            block_bytes,
            foreground: true,
            threads: 1,
            warm: false,
            pause_us: 0,
            idle_ms: 0,
            seed: 1,
            ring_depth: 0,
            limit_ms: 0,
        }
    }
}

/// What follows the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkerOrder {
    /// Begin; series count from this time of the monotonic clock.
    Go { at_ns: u64 },
    /// End the background tasks.
    Stop,
}

/// What the worker says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Ready,
    Finished,
    Done(Done),
    /// The mode does not work here, and why.
    Unavailable(String),
    /// Something went wrong.
    Failed(String),
}

/// The figures of a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) tasks: Vec<TaskFigures>,
    /// CPU time of the whole process since it was told to go.
    pub(crate) process_cpu_ns: u64,
    /// The same since the process began.
    pub(crate) whole_cpu_ns: u64,
    /// From the last sync to the last page dropped.
    pub(crate) settle_ns: u64,
    /// Whether that ended by itself.
    pub(crate) settled: bool,
}

/// The figures of a task. Times are those of the monotonic clock, which all
/// processes share.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TaskFigures {
    pub(crate) role: String,
    pub(crate) foreground: bool,
    pub(crate) bytes: u64,
    pub(crate) operations: u64,
    pub(crate) started_ns: u64,
    pub(crate) io_ended_ns: u64,
    pub(crate) sync_ended_ns: u64,
    /// CPU time of the task's own threads.
    pub(crate) cpu_ns: u64,
    /// CPU time of the process's other threads while the files were idle.
    pub(crate) idle_cpu_ns: u64,
    /// How long they were.
    pub(crate) idle_ns: u64,
    /// It was ended early.
    pub(crate) cut_short: bool,
    /// Bytes per [`SERIES_STEP_NS`](crate::clock::SERIES_STEP_NS).
    pub(crate) series_bytes: Vec<u64>,
    /// Latencies: value in ns, and how often.
    pub(crate) latencies: Vec<(u64, u64)>,
}
