//! Reports of opens, as the observer's thread takes them.

use super::Report;
use super::report::{Heard, ReportedOpens};
use crate::board::{SharedBoard, lock};
use crate::files::Files;
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// As many reports are read in a round.
const READ: usize = 4096;
/// How often processes are looked at that open files without being stopped.
const LOOK: Duration = Duration::from_millis(10);

/// The opens that a server reports, and what cannot be reported.
#[derive(Debug)]
pub(crate) struct Reported {
    opens: ReportedOpens,
    over: bool,
    buffer: Vec<u8>,
    /// Processes that use io_uring.
    unstopped: HashSet<i32>,
    next_look: Instant,
}

impl Reported {
    pub(crate) fn new(opens: ReportedOpens) -> Reported {
        Reported {
            opens,
            over: false,
            buffer: Vec::new(),
            unstopped: HashSet::new(),
            next_look: Instant::now(),
        }
    }

    /// For polling: readable when there are more; `None` once there will be none.
    pub(crate) fn opens(&self) -> Option<BorrowedFd<'_>> {
        (!self.over).then(|| self.opens.as_fd())
    }

    /// Returns whether there will be no more.
    pub(crate) fn are_over(&self) -> bool {
        self.over
    }

    /// Takes what was reported, unless it has to `wait`, and returns how many opens that were.
    pub(crate) fn read(&mut self, files: &mut Files, board: &SharedBoard, wait: bool) -> usize {
        let mut read = 0;
        while !wait && !self.over && read < READ {
            let (report, file) = match self.opens.hear(&mut self.buffer) {
                Heard::Report(report, file) => (report, file),
                Heard::Nothing => break,
                Heard::Gone => {
                    self.over = true;
                    break;
                }
            };
            read += 1;
            match (report, file) {
                (Report::Opened(opened), Some(file)) => files.reported(file, opened),
                (Report::Opened(opened), None) => {
                    lock(board)
                        .note("out of descriptors: some files are left to the kernel".to_owned());
                    files.programs.opened(opened.process);
                }
                (Report::Search { process }, _) => {
                    files.programs.opened(process);
                    files.inherit(process);
                }
                (Report::Unstopped { process }, _) => {
                    files.programs.opened(process);
                    if self.unstopped.insert(process) {
                        lock(board).note(
                            "programs use io_uring, whose opens are only found a moment later: \
                             what they read until then stays"
                                .to_owned(),
                        );
                    }
                }
                (Report::Note(note), _) => lock(board).user_note(note),
            }
        }
        self.look_at_unstopped(files);
        read
    }

    fn look_at_unstopped(&mut self, files: &mut Files) {
        if self.unstopped.is_empty() || Instant::now() < self.next_look || files.have_heirs() {
            return;
        }
        self.next_look = Instant::now() + LOOK;
        self.unstopped
            .retain(|process| dropbehind_linux::process_stat(*process).is_ok());
        for process in &self.unstopped {
            files.inherit(*process);
        }
    }
}
