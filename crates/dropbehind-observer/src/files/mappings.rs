//! Which processes have files mapped, according to `/proc`.
//!
//! Listing a process's mappings takes its `mmap_lock`, whose holder may be waiting for anything:
//! a FUSE server, or an NFS server that is gone. So a separate thread looks, and a process that
//! does not answer counts as one with nothing mapped.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dropbehind_linux::{KernelInode, mapped_files};
use dropbehind_policy::FileNumber;

use crate::board::lock;
use crate::budget::Budget;
use crate::owners::is_observer;

/// A process that shows no mapping for this long does not answer. Others take microseconds.
const PATIENCE: Duration = Duration::from_secs(1);
/// While this many processes do not answer, no other process is asked.
const WAITING: usize = 8;
/// The longest that the thread works at a time. It then rests [`REST`] times as long, since any
/// process may have many mappings.
const STEP: Duration = Duration::from_millis(5);
const REST: u32 = 25;

/// Files that may be mapped.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// By the numbers of their inodes.
    files: HashMap<u64, Vec<(Option<u32>, FileNumber)>>,
    /// All mappings count, and not only those through which programs write: nothing reports what
    /// the others bring in.
    pub(super) all: bool,
}

impl Wanted {
    /// If the inode's device is not known, an inode of this number on any device counts.
    pub(super) fn add(&mut self, device: Option<u32>, number: u64, file: FileNumber) {
        self.files.entry(number).or_default().push((device, file));
    }

    fn files_of(&self, inode: KernelInode) -> impl Iterator<Item = FileNumber> {
        let of_number = self.files.get(&inode.number).into_iter().flatten();
        let is_it = move |device: Option<u32>| device.is_none_or(|device| device == inode.device);
        of_number.filter_map(move |(device, file)| is_it(*device).then_some(*file))
    }
}

/// The processes being looked at. One that does not answer stays here until it does, and is not
/// asked again, so no two threads wait for the same lock.
pub(super) type Asked = Arc<Mutex<HashSet<i32>>>;

/// A search that is under way.
#[derive(Debug)]
pub(super) struct Search {
    seen: mpsc::Receiver<Seen>,
    /// When the thread last saw something.
    seen_at: Instant,
    /// Processes that it has not begun to look at, last first.
    rest: Vec<i32>,
    wanted: Arc<Wanted>,
    asked: Asked,
}

/// What the thread sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// It looks at the next process.
    Process,
    /// That process answers.
    Something,
    /// The process has this file mapped.
    Use(FileNumber),
}

/// What became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Used(FileNumber),
    /// Nothing new so far.
    Waits,
    Done,
}

impl Search {
    /// Searches these processes for mappings of the files.
    pub(super) fn start(wanted: Arc<Wanted>, processes: Vec<i32>, asked: &Asked) -> Self {
        let (say, seen) = mpsc::channel();
        let mut rest = processes.clone();
        rest.reverse();
        if lock(asked).len() < WAITING {
            let (files, asked) = (Arc::clone(&wanted), asked.clone());
            let thread = std::thread::Builder::new().name("dropbehind-maps".into());
            // Without the thread, no file counts as mapped.
            let _ = thread.spawn(move || look(&processes, &files, &asked, &say));
        }
        Self {
            seen,
            seen_at: Instant::now(),
            rest,
            wanted,
            asked: asked.clone(),
        }
    }

    /// Returns what is known by now. A thread that waits for a process is left waiting, and
    /// another one goes on.
    pub(super) fn go_on(&mut self) -> Progress {
        loop {
            match self.seen.try_recv() {
                Ok(seen) => {
                    self.seen_at = Instant::now();
                    match seen {
                        Seen::Process => drop(self.rest.pop()),
                        Seen::Something => {}
                        Seen::Use(file) => return Progress::Used(file),
                    }
                }
                Err(TryRecvError::Empty) if self.seen_at.elapsed() < PATIENCE => {
                    return Progress::Waits;
                }
                Err(TryRecvError::Empty) => {
                    let rest = std::mem::take(&mut self.rest).into_iter().rev();
                    *self = Self::start(Arc::clone(&self.wanted), rest.collect(), &self.asked);
                }
                Err(TryRecvError::Disconnected) => return Progress::Done,
            }
        }
    }
}

/// Looks at one process after another, until nobody listens any more.
fn look(processes: &[i32], wanted: &Wanted, asked: &Asked, say: &mpsc::Sender<Seen>) {
    for &process in processes {
        if say.send(Seen::Process).is_err() {
            return;
        }
        if !lock(asked).insert(process) {
            continue;
        }
        let listened = look_at(process, wanted, say);
        lock(asked).remove(&process);
        if listened.is_err() {
            return;
        }
    }
}

fn look_at(
    process: i32,
    wanted: &Wanted,
    say: &mpsc::Sender<Seen>,
) -> Result<(), mpsc::SendError<Seen>> {
    let mut budget = Budget::new(STEP);
    for inode in mapped_files(process, wanted.all).into_iter().flatten() {
        if !budget.lasts() {
            std::thread::sleep(budget.cost() * REST);
            budget = Budget::new(STEP);
            say.send(Seen::Something)?;
        }
        let Some(inode) = inode else { continue };
        for file in wanted.files_of(inode) {
            if is_observer(process) {
                return Ok(());
            }
            say.send(Seen::Use(file))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_answer_is_asked_once() {
        let asked = Asked::default();
        let own = i32::try_from(std::process::id()).unwrap();
        // As if a thread were waiting for it.
        lock(&asked).insert(own);
        let mut search = Search::start(Arc::default(), vec![own], &asked);
        while search.go_on() != Progress::Done {
            std::thread::yield_now();
        }
        assert!(lock(&asked).contains(&own));
        lock(&asked).remove(&own);
        let mut search = Search::start(Arc::default(), vec![own], &asked);
        while search.go_on() != Progress::Done {
            std::thread::yield_now();
        }
        assert!(lock(&asked).is_empty());
    }

    #[test]
    fn files_are_told_by_inode_and_device() {
        let mut wanted = Wanted::default();
        wanted.add(Some(1), 7, FileNumber(10));
        wanted.add(None, 7, FileNumber(11));
        let of = |device, number| {
            let files = wanted.files_of(KernelInode { device, number });
            files.map(|file| file.0).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 7), [10, 11]);
        assert_eq!(of(2, 7), [11]);
        assert!(of(1, 8).is_empty());
    }
}
