//! Which processes have files open, according to `/proc`. Any process may have a million
//! descriptors, so the search goes on from round to round.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use dropbehind_linux::{FileId, FileLink, FileLinks, file_links};
use dropbehind_policy::FileNumber;

use super::mappings::{Asked, Progress, Search, Wanted};
use super::user_limit::UserLimit;
use crate::observer::own_process;
use crate::owners::is_observer;

/// A search that is under way.
#[derive(Debug)]
pub(super) struct Scan {
    /// No process was found to have these open so far. An overlay's file that was copied up is
    /// two below.
    unused: HashMap<FileId, Vec<FileNumber>>,
    /// The other way around: a file on an overlay has two IDs.
    ids: HashMap<FileNumber, Vec<FileId>>,
    /// Processes still to be looked through.
    processes: Vec<i32>,
    listed: HashSet<i32>,
    /// They were listed again at the end. A process that was looked through may have opened the
    /// file since, which an event reports, and left it to a child.
    listed_again: bool,
    current: Option<(i32, FileLinks)>,
    /// The search for mappings, which comes last.
    mapped: Option<Search>,
    may_be_mapped: Arc<Wanted>,
    asked: Asked,
    limit: UserLimit,
}

impl Scan {
    pub(super) fn of(
        due: Vec<(FileId, FileNumber)>,
        may_be_mapped: Wanted,
        processes: Vec<i32>,
        asked: &Asked,
    ) -> Scan {
        let mut ids: HashMap<FileNumber, Vec<FileId>> = HashMap::new();
        let mut unused: HashMap<FileId, Vec<FileNumber>> = HashMap::new();
        for (id, number) in due {
            ids.entry(number).or_default().push(id);
            unused.entry(id).or_default().push(number);
        }
        let mut scan = Scan {
            unused,
            ids,
            processes: Vec::new(),
            listed: HashSet::new(),
            listed_again: false,
            current: None,
            mapped: None,
            may_be_mapped: Arc::new(may_be_mapped),
            asked: asked.clone(),
            limit: UserLimit::default(),
        };
        scan.add(processes);
        scan
    }

    fn add(&mut self, processes: Vec<i32>) {
        let own = own_process();
        for process in processes {
            if process != own && self.listed.insert(process) {
                self.processes.push(process);
            }
        }
    }

    /// Goes on for as long as it `lasts`, and reports which files are `used`, and by which
    /// descriptor, if they are not mapped. Returns true at the end, when no process has the others
    /// open.
    pub(super) fn go_on(
        &mut self,
        mut lasts: impl FnMut() -> bool,
        mut list: impl FnMut() -> Vec<i32>,
        mut used: impl FnMut(FileNumber, Option<(i32, FileLink)>),
    ) -> bool {
        while !self.unused.is_empty() {
            if !lasts() {
                return false;
            }
            if let Some(mapped) = &mut self.mapped {
                match mapped.go_on() {
                    Progress::Used(number) => {
                        self.is_used(number);
                        used(number, None);
                    }
                    Progress::Waits => return false,
                    Progress::Done => return true,
                }
                continue;
            }
            let Some((process, links)) = &mut self.current else {
                if let Some(process) = self.processes.pop() {
                    let may_look = self.limit.may_look(process);
                    let links = may_look.then(|| file_links(process).ok()).flatten();
                    self.current = links.map(|links| (process, links));
                } else if self.listed_again {
                    let wanted = Arc::clone(&self.may_be_mapped);
                    let processes = self.listed.iter().copied().collect();
                    self.mapped = Some(Search::start(wanted, processes, &self.asked));
                } else {
                    self.listed_again = true;
                    self.add(list());
                }
                continue;
            };
            let looks = self.limit.look(*process);
            let Some(link) = looks.then(|| links.next()).flatten() else {
                self.current = None;
                continue;
            };
            let wanted = link.filter(|link| self.unused.contains_key(&link.id));
            let open = wanted.filter(|link| link.writable().is_some());
            let Some(link) = open else {
                continue;
            };
            let process = *process;
            if is_observer(process) {
                self.current = None;
            } else {
                for number in self.unused.remove(&link.id).into_iter().flatten() {
                    self.is_used(number);
                    used(number, Some((process, link)));
                }
            }
        }
        true
    }

    /// Returns whether users have more descriptors than were looked at.
    pub(super) fn limit_reached(&self) -> bool {
        self.limit.is_reached()
    }

    /// Takes out a file that is in use.
    pub(super) fn is_used(&mut self, number: FileNumber) {
        for id in self.ids.remove(&number).into_iter().flatten() {
            if let Some(numbers) = self.unused.get_mut(&id) {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    self.unused.remove(&id);
                }
            }
        }
    }

    /// The files that no process was found to have open.
    pub(super) fn into_unused(self) -> impl Iterator<Item = FileNumber> {
        self.ids.into_keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_linux::file_stat;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::process::{Child, Command, Stdio};

    const DESCRIPTORS: usize = 400;

    fn memory_file() -> File {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        File::from(rustix::fs::memfd_create("scan", flags).unwrap())
    }

    /// A program that has many descriptors, and this file open.
    fn program_with(file: &File) -> Child {
        let many =
            format!("for _ in $(seq {DESCRIPTORS}); do exec {{n}}</dev/null; done; echo; read _");
        let mut program = Command::new("bash")
            .args(["-c", &many])
            .stderr(file.try_clone().unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        let said = program.stdout.as_mut().unwrap();
        said.read_exact(&mut ready).unwrap();
        program
    }

    #[test]
    fn many_descriptors_are_looked_through_in_steps() {
        let (used, late, unused) = (memory_file(), memory_file(), memory_file());
        let mut numbers = Vec::new();
        for (number, file) in [(1, &used), (2, &late), (3, &unused)] {
            numbers.push((file_stat(file.as_fd()).unwrap().id, FileNumber(number)));
        }
        let mut program = program_with(&used);
        let mut child = program_with(&late);
        let process = |program: &Child| i32::try_from(program.id()).unwrap();
        let first = process(&program);
        let mut scan = Scan::of(numbers, Wanted::default(), vec![first], &Asked::default());
        let (mut steps, mut found) = (0, Vec::new());
        loop {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let mut entries = 0;
            let lasts = || {
                entries += 1;
                entries <= 100
            };
            // The second process is a child made meanwhile.
            let list = || vec![first, process(&child)];
            steps += 1;
            if scan.go_on(lasts, list, |number, _| found.push(number.0)) {
                break;
            }
            assert!(steps < 10_000);
        }
        assert!(steps > DESCRIPTORS / 100, "{steps}");
        assert_eq!(found, [1, 2]);
        let unused: Vec<_> = scan.into_unused().collect();
        assert_eq!(unused, [FileNumber(3)]);
        for program in [&mut program, &mut child] {
            drop(program.stdin.take());
            program.wait().unwrap();
        }
    }

    #[test]
    fn what_was_opened_meanwhile_is_used() {
        let file = memory_file();
        let id = file_stat(file.as_fd()).unwrap().id;
        let mut scan = Scan::of(
            vec![(id, FileNumber(1))],
            Wanted::default(),
            vec![1],
            &Asked::default(),
        );
        assert!(!scan.go_on(|| false, Vec::new, |_, _| ()));
        scan.is_used(FileNumber(1));
        assert!(scan.go_on(|| true, Vec::new, |_, _| ()));
        assert_eq!(scan.into_unused().count(), 0);
    }
}
