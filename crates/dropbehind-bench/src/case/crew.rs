//! The workers of a case, from their start to their end.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::Stand;
use crate::job::{Answer, Done, Job, WorkerOrder};
use crate::memory_group::MemoryGroup;
use crate::mode::Mode;
use crate::process::{Event, Worker, start};
use crate::scenario::{Case, ProcessPlan};

/// How often a wait looks whether the user wants to end.
const LOOK: Duration = Duration::from_millis(100);
/// Workers that have not ended this long after their limit hang. A slow disk needs minutes for
/// what is dirty then. One that fsyncs in a memory cgroup of version 1 full of dirty pages, which
/// it does not throttle, may hold locks of pages that it waits for itself to be written
/// (`reclaim_throttle`, seen with Linux 6.18).
const HANGING: Duration = Duration::from_secs(600);
const HANGS: &str = "the workers hang: the kernel frees no memory of their cgroup. The limit was \
                     lifted to end them; --memory sets a larger one";

pub(super) struct Crew {
    workers: Vec<Worker>,
    events: Receiver<Event>,
    /// What they answered in the end.
    pub(super) done: Vec<Option<Done>>,
    hangs_from: Option<Instant>,
}

/// Why a case has no figures.
pub(super) enum End {
    Unavailable(String),
    Failed(String),
    Interrupted,
}

/// Starts the workers, and waits until all are ready.
pub(super) fn hire(case: &Case, stand: &Stand<'_>) -> Result<Crew, End> {
    let (sender, events) = channel();
    let mut crew = Crew {
        workers: Vec::new(),
        events,
        done: case.processes.iter().map(|_| None).collect(),
        hangs_from: (stand.limit_ms > 0)
            .then(|| Instant::now() + Duration::from_millis(stand.limit_ms) + HANGING),
    };
    for (number, plan) in case.processes.iter().enumerate() {
        if let Some(why) = stand.launcher.missing(plan.mode) {
            return Err(End::Unavailable(why));
        }
        let job = job(plan, stand)?;
        let worker = match stand.server {
            Some(server) => start(&server.client(), &job, number, sender.clone()),
            None => stand.launcher.start(&job, number, sender.clone()),
        };
        crew.workers.push(worker.map_err(End::Failed)?);
    }
    let mut ready = 0;
    while ready < crew.workers.len() {
        match crew.next(stand)? {
            (_, Answer::Ready) => ready += 1,
            (_, other) => return Err(End::Failed(format!("unexpected {other:?}"))),
        }
    }
    Ok(crew)
}

fn job(plan: &ProcessPlan, stand: &Stand<'_>) -> Result<Job, End> {
    let group = if stand.server.is_some() {
        // It is the server that is limited.
        None
    } else if plan.mode == Mode::Cgroup {
        let small = stand
            .small_group
            .ok_or_else(|| End::Unavailable("no memory cgroup can be made here".to_owned()))?;
        Some(small)
    } else {
        stand.group
    };
    let mut tasks = plan.tasks.clone();
    for task in &mut tasks {
        task.limit_ms = stand.limit_ms;
    }
    Ok(Job {
        mode: plan.mode,
        group: group.map(MemoryGroup::entrance),
        tasks,
    })
}

impl Crew {
    /// The next thing that a worker says; its troubles are ours.
    fn next(&mut self, stand: &Stand<'_>) -> Result<(usize, Answer), End> {
        loop {
            if stand.interrupted.load(Ordering::Relaxed) {
                return Err(End::Interrupted);
            }
            if self.hangs_from.is_some_and(|from| Instant::now() >= from) {
                return Err(End::Failed(HANGS.to_owned()));
            }
            match self.events.recv_timeout(LOOK) {
                Ok((_, Some(Answer::Unavailable(why)))) => return Err(End::Unavailable(why)),
                Ok((_, Some(Answer::Failed(why)))) => return Err(End::Failed(why)),
                Ok((number, Some(answer))) => return Ok((number, answer)),
                // After the last answer the end is as it should be.
                Ok((number, None)) if self.done[number].is_some() => {}
                Ok((number, None)) => {
                    let status = self.workers.get_mut(number).and_then(Worker::wait);
                    return Err(gone(status));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(gone(None)),
            }
        }
    }

    /// From the start to the end of all workers.
    pub(super) fn work(&mut self, case: &Case, at_ns: u64, stand: &Stand<'_>) -> Result<(), End> {
        for worker in &mut self.workers {
            worker
                .order(WorkerOrder::Go { at_ns })
                .map_err(End::Failed)?;
        }
        let busy = |plan: &&ProcessPlan| plan.tasks.iter().any(|task| task.foreground);
        let mut foreground = case.processes.iter().filter(busy).count();
        let mut is_told = false;
        let mut left = self.workers.len();
        while left > 0 {
            if foreground == 0 && !is_told {
                for worker in &mut self.workers {
                    worker.order(WorkerOrder::Stop).map_err(End::Failed)?;
                }
                is_told = true;
            }
            match self.next(stand)? {
                (number, Answer::Finished) => {
                    if case.processes.get(number).is_some_and(|plan| busy(&plan)) {
                        foreground -= 1;
                    }
                }
                (number, Answer::Done(done)) => {
                    self.done[number] = Some(done);
                    left -= 1;
                }
                (_, other) => return Err(End::Failed(format!("unexpected {other:?}"))),
            }
        }
        for worker in &mut self.workers {
            match worker.wait() {
                Some(status) if !status.success() => return Err(gone(Some(status))),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Lets workers go on that wait for memory to become free: until then, not even SIGKILL ends them.
pub(super) fn lift(stand: &Stand<'_>) {
    for group in [stand.group, stand.small_group].into_iter().flatten() {
        let _ = group.lift();
    }
}

fn gone(status: Option<std::process::ExitStatus>) -> End {
    match status {
        // The exit code of all our commands for what cannot be done here.
        Some(status) if status.code() == Some(3) => {
            End::Unavailable("not possible here; the program's own message says why".to_owned())
        }
        Some(status) => End::Failed(format!("the worker ended without an answer ({status})")),
        None => End::Failed("the worker ended without an answer".to_owned()),
    }
}
