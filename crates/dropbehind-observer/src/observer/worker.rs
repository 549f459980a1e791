//! The worker: hands what is told to the table of files.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use dropbehind::{CacheMap, Notice};
use dropbehind_linux::{Event, open_files, processes};

use super::Shared;
use super::open_before::open_again;
use crate::board::lock;
use crate::files::{FileEvent, Files};
use crate::rules::Rules;

/// What is due by itself is looked after this often.
const WORK: Duration = Duration::from_millis(5);
/// This often while a file just made may be growing fast.
const WORK_FOR_YOUNG: Duration = Duration::from_millis(1);
/// And this often where there is nothing to look after.
const REST: Duration = Duration::from_millis(200);

/// What the worker is told.
pub(super) enum Input {
    Used(Box<FileEvent>),
    /// These used files whose users are watched, whoever they are.
    UsedByAnybody(Vec<Event>),
    /// These are observed.
    Inside(Vec<i32>),
    /// Events were lost.
    Overflow,
    Rules(Arc<dyn Rules>),
    /// A process has this file open, of which no event will tell.
    Inherited(i32, OwnedFd, CacheMap),
    /// From the flusher.
    Notice(Notice),
    CloseAll,
    /// There is no more to come: the worker ends.
    Stop,
    /// Answered when everything before was seen to.
    Sync(mpsc::Sender<()>),
}

pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) files: Files,
    pub(super) inputs: mpsc::Receiver<Input>,
}

impl Worker {
    pub(super) fn run(mut self) {
        loop {
            let pause = if self.files.has_young() {
                WORK_FOR_YOUNG
            } else if self.files.is_busy() {
                WORK
            } else {
                REST
            };
            let mut next = self.inputs.recv_timeout(pause);
            let begun = Instant::now();
            loop {
                match next {
                    Ok(input) => self.take(input),
                    Err(mpsc::RecvTimeoutError::Timeout) => break,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                }
                if self.is_stopping() {
                    return;
                }
                // The rest is due, however much more happens.
                if begun.elapsed() >= WORK {
                    break;
                }
                next = match self.inputs.try_recv() {
                    Ok(input) => Ok(input),
                    Err(_) => break,
                };
            }
            self.files.grow_up();
            self.files.look_around();
            if self.is_stopping() {
                return;
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::SeqCst)
    }

    fn take(&mut self, input: Input) {
        let files = &mut self.files;
        match input {
            Input::Used(event) => files.used(*event),
            Input::UsedByAnybody(users) => {
                for user in users {
                    if let Some(file) = user.file {
                        files.used_by_anybody(user.process, file.as_fd(), user.mask);
                    }
                }
            }
            Input::Inside(processes) => {
                for process in processes {
                    files.seen_inside(process);
                }
            }
            Input::Overflow => self.find_again(),
            Input::Rules(rules) => files.set_rules(rules),
            Input::Inherited(process, file, before) => files.inherited(process, file, before),
            Input::Notice(notice) => files.notice(notice),
            Input::CloseAll => files.close_all(),
            // The flag was set before.
            Input::Stop => {}
            Input::Sync(done) => drop(done.send(())),
        }
    }

    /// Events were lost: files that somebody has open for writing are looked for
    /// in `/proc`. What of them is cached now counts as others'.
    fn find_again(&mut self) {
        for process in processes().into_iter().flatten() {
            for open in open_files(process).unwrap_or_default() {
                if !open.writable || self.files.knows(open.id) {
                    continue;
                }
                if let Some((file, before)) = open_again(process, &open) {
                    self.files.inherited(process, file, before);
                }
            }
        }
        let described = self.files.describe();
        lock(&self.shared.reporter.board).note(format!(
            "the kernel's queue of events overflowed: open files were searched for anew \
             {described}"
        ));
    }
}
