//! Reports of opens, as the observer's thread takes them.

use super::Report;
use crate::board::lock;
use crate::files::Files;
use dropbehind_linux::receive_message;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest message. A socket takes some 200 KiB.
const MESSAGE_BYTES: usize = 96 << 10;
/// As many reports are read in a round, or fewer where descriptors are scarce: each brings one, and
/// it shows only between rounds how many closed files hold one.
const READ: usize = 4096;
/// How often processes are looked at that open files without being stopped.
const LOOK: Duration = Duration::from_millis(10);

/// The opens that a server reports, and what cannot be reported.
#[derive(Debug)]
pub(crate) struct Reported {
    opens: Arc<OwnedFd>,
    /// There will be no more.
    pub(crate) over: bool,
    buffer: Vec<u8>,
    /// Processes that use io_uring.
    unstopped: HashSet<i32>,
    next_look: Instant,
}

impl Reported {
    /// Through the observer's end of [`connection`](super::connection).
    pub(crate) fn new(opens: Arc<OwnedFd>) -> Reported {
        Reported {
            opens,
            over: false,
            buffer: vec![0; MESSAGE_BYTES],
            unstopped: HashSet::new(),
            next_look: Instant::now(),
        }
    }

    /// For polling: readable when there are more; `None` once there will be none.
    pub(crate) fn opens(&self) -> Option<BorrowedFd<'_>> {
        (!self.over).then(|| self.opens.as_fd())
    }

    /// Takes what was reported, unless it has to `wait`, and returns how many opens that were.
    pub(crate) fn read(&mut self, files: &mut Files, wait: bool) -> usize {
        let most = READ.min(files.most_held / 4).max(1);
        let mut read = 0;
        while !wait && !self.over && read < most {
            let (length, file) = match receive_message(self.opens.as_fd(), &mut self.buffer) {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => break,
                Err(_) => (0, None),
            };
            let Some(report) = Report::from_message(&self.buffer[..length]) else {
                self.over = true;
                break;
            };
            read += 1;
            match (report, file) {
                (Report::Opened(opened), Some(file)) => files.reported(file, opened),
                (Report::Opened(opened), None) => {
                    lock(&files.board)
                        .note("out of descriptors: some files are left to the kernel");
                    files.programs.opened(opened.process);
                }
                (Report::Over { thread }, _) => files.is_being_opened(thread, None),
                (Report::Search { process }, _) => {
                    files.programs.opened(process);
                    files.inherit(process);
                }
                (Report::Unstopped { process }, _) => {
                    files.programs.opened(process);
                    if self.unstopped.insert(process) {
                        lock(&files.board).note(
                            "programs use io_uring, whose opens are only found a moment later: \
                             what they read until then stays",
                        );
                    }
                }
                (Report::Note(note), _) => lock(&files.board).user_note(note),
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
