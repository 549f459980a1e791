//! Who else uses a file.
//!
//! Pages of a file that a process outside uses stay, whoever brought them in.
//! Who had it open before is found in `/proc`; who opens it later, by a mark on
//! the file itself in a group of its own.

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use dropbehind_linux::{
    FileId, MountNamespaceId, mapped_files, mount_namespace_of, open_files, process_stat, processes,
};

use crate::owners::is_observer;
use crate::start_times::StartTimes;

/// Going through `/proc` takes no more than one part in so many of the time, at 5 ms
/// a round on a machine with 300 processes,
const SCAN_SHARE: u32 = 25;
/// and is not done more often than this, nor less often.
const SCAN_MIN: Duration = Duration::from_millis(20);
const SCAN_MAX: Duration = Duration::from_millis(500);
/// No more processes are remembered.
const KNOWN: usize = 4096;

/// Whose process one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// It is observed.
    Inside,
    Outside,
    /// It has ended, and was not seen inside until now.
    Gone,
}

/// Tells those inside the observed namespace from the others.
#[derive(Debug)]
pub(crate) struct Insiders {
    namespace: Option<MountNamespaceId>,
    own: i32,
    /// Those who started the first process inside.
    ancestors: HashSet<i32>,
    known: HashMap<i32, (Option<u64>, bool)>,
    start_times: StartTimes,
}

impl Insiders {
    /// `first` is the process that all the others inside come from.
    pub(crate) fn new(namespace: Option<MountNamespaceId>, first: Option<i32>) -> Insiders {
        Insiders {
            namespace,
            own: i32::try_from(std::process::id()).unwrap_or(0),
            ancestors: first.map(ancestors_of).unwrap_or_default(),
            known: HashMap::new(),
            start_times: StartTimes::default(),
        }
    }

    /// The observed namespace, unless everybody is observed.
    pub(crate) fn namespace(&self) -> Option<MountNamespaceId> {
        self.namespace
    }

    /// A process that was seen inside, and may be gone when that is asked.
    pub(crate) fn seen_inside(&mut self, process: i32) {
        if self.namespace.is_none() {
            return;
        }
        let started = self.start_times.of(process);
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.known.insert(process, (started, true));
    }

    /// True when the process is remembered, so that it need not be looked up.
    pub(crate) fn knows(&self, process: i32) -> bool {
        self.known.contains_key(&process)
    }

    /// True for an observed process. One that is gone and was never seen is not.
    pub(crate) fn is_inside(&mut self, process: i32) -> bool {
        self.whose(process) == Whose::Inside
    }

    /// Whose a process is.
    pub(crate) fn whose(&mut self, process: i32) -> Whose {
        let whose = |inside| match inside {
            true => Whose::Inside,
            false => Whose::Outside,
        };
        let Some(namespace) = self.namespace else {
            return Whose::Inside;
        };
        if process == self.own {
            return Whose::Inside;
        }
        let started = self.start_times.of(process);
        if let Some(&(known_start, inside)) = self.known.get(&process)
            && (started.is_none() || started == known_start)
        {
            return whose(inside);
        }
        let inside = match mount_namespace_of(process) {
            Ok(own) => own == namespace,
            // A zombie has none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Whose::Gone,
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Whose::Gone,
            Err(_) => false,
        };
        if let Some(ticks) = started {
            if self.known.len() >= KNOWN {
                self.known.clear();
            }
            self.known.insert(process, (Some(ticks), inside));
        }
        whose(inside)
    }
}

fn ancestors_of(process: i32) -> HashSet<i32> {
    let mut ancestors = HashSet::new();
    let mut next = process;
    while let Ok(stat) = process_stat(next)
        && stat.parent > 0
        && ancestors.insert(stat.parent)
    {
        next = stat.parent;
    }
    ancestors
}

/// Looks through `/proc` for users of files.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    wanted: HashSet<FileId>,
    /// When it may be gone through again.
    next: Option<Instant>,
}

/// Which of the files in question somebody has open.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// Used by others.
    pub(crate) outside: HashSet<FileId>,
    /// Held by those who started the observed ones. A file that was inherited
    /// is not theirs to use: a shell holds what it redirected.
    pub(crate) ancestors: HashSet<FileId>,
    /// Used by those observed.
    pub(crate) inside: HashSet<FileId>,
    /// Had been used by processes that ended in this moment.
    pub(crate) gone: Vec<(i32, FileId)>,
    /// All that were asked for.
    pub(crate) asked: HashSet<FileId>,
}

impl Scan {
    /// The users of this file are to be found.
    pub(crate) fn want(&mut self, id: FileId) {
        self.wanted.insert(id);
    }

    /// True when there is something to find.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Goes through `/proc` if there is something to find and it is time. `keeps` is
    /// true for a file that one of those observed uses like an outsider.
    pub(crate) fn go(
        &mut self,
        insiders: &mut Insiders,
        mut keeps: impl FnMut(i32, FileId) -> bool,
    ) -> Option<Users> {
        let begun = Instant::now();
        if self.wanted.is_empty() || self.next.is_some_and(|next| begun < next) {
            return None;
        }
        let asked = std::mem::take(&mut self.wanted);
        let mut users = Users::default();
        for process in processes().into_iter().flatten() {
            if process == insiders.own {
                continue;
            }
            let open = open_files(process).unwrap_or_default();
            let mapped = mapped_files(process).unwrap_or_default();
            let mut found = open
                .iter()
                .chain(&mapped)
                .filter(|file| asked.contains(&file.id));
            let Some(first) = found.next() else { continue };
            let found = std::iter::once(first).chain(found).map(|file| file.id);
            match insiders.whose(process) {
                Whose::Inside => {
                    for id in found {
                        users.inside.insert(id);
                        if keeps(process, id) {
                            users.outside.insert(id);
                        }
                    }
                }
                Whose::Gone => users.gone.extend(found.map(|id| (process, id))),
                Whose::Outside if insiders.ancestors.contains(&process) => {
                    users.ancestors.extend(found);
                }
                Whose::Outside if is_observer(process) => {}
                Whose::Outside => users.outside.extend(found),
            }
        }
        users.asked = asked;
        let pause = (begun.elapsed() * SCAN_SHARE).clamp(SCAN_MIN, SCAN_MAX);
        self.next = Some(Instant::now() + pause);
        Some(users)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::mpsc;

    use dropbehind_linux::file_stat;
    use dropbehind_testbed::Scratch;

    use super::*;
    use crate::owners::LISTENER;

    #[test]
    fn a_number_that_is_used_again_is_not_who_was_inside() {
        let process = i32::try_from(std::process::id()).unwrap();
        let mut insiders = Insiders::new(mount_namespace_of(process).ok(), None);
        insiders.own = 0;
        // Gone before it could be asked when it was started.
        insiders.known.insert(process, (None, false));
        assert!(insiders.is_inside(process), "this process is another one");
        assert!(insiders.is_inside(process));
    }

    #[test]
    fn another_observer_is_no_user() {
        let scratch = Scratch::new().unwrap();
        let file = File::create(scratch.file("used")).unwrap();
        let id = file_stat(file.as_fd()).unwrap().id;
        // This process, as one that is seen from another, and outside.
        let process = i32::try_from(std::process::id()).unwrap();
        let started = process_stat(process).unwrap().start_ticks;
        let mut insiders = Insiders::new(mount_namespace_of(process).ok(), None);
        insiders.own = 0;
        insiders.known.insert(process, (Some(started), false));
        let mut outside = || {
            let mut scan = Scan::default();
            scan.want(id);
            scan.go(&mut insiders, |_, _| false)
                .unwrap()
                .outside
                .contains(&id)
        };
        assert!(outside());
        let (end, ends) = mpsc::channel::<()>();
        let listener = std::thread::Builder::new().name(LISTENER.to_owned());
        let listener = listener.spawn(move || ends.recv()).unwrap();
        // The thread names itself once it runs.
        while !is_observer(process) {
            std::thread::yield_now();
        }
        assert!(!outside());
        drop(end);
        let _ = listener.join().unwrap();
    }
}
