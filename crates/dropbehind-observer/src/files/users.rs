//! What the rules say about each process that uses a file. They are asked about each by the path
//! of its own open: no other process's name for the file, and no other open, decides about its
//! pages.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use dropbehind_linux::{
    FileLink, backing_paths, cgroups, command_name, file_stat, process_stat, size_bytes,
};
use dropbehind_policy::{Brought, ByteRange, FileNumber, Mode, Residency, Writeback};

use super::Files;
use super::admission::size_of;
use super::open_file::{OpenFile, User, joined};
use super::strangers::Searched;
use crate::board::{FileFacts, Rule, lock};
use crate::file_path::path_of;
use crate::names::Stamp;
use crate::rules::Settings;
use crate::rules_file::unit_or_group;
use crate::snapshot::FileUser;

/// At most this many ancestors of a process are searched for one that passed the file on.
const GENERATIONS: usize = 16;

impl Files {
    /// Records that a process uses this file, opened by this path; `None` if that is not known.
    pub(super) fn learn_user(&mut self, number: FileNumber, process: i32, path: Option<Arc<Path>>) {
        let Some(open) = self.files.get(&number) else {
            return;
        };
        let stamp = self.rules.names.stamp(process);
        let asked = path.as_ref().filter(|_| !self.owners.have(process, stamp));
        let settings = asked.and_then(|path| {
            let size = || size_of(&file_stat(open.used().ok()?.as_fd()).ok()?);
            self.rules.settings_for(path, process, &open.disk, size)
        });
        let before = open.user(process).filter(|user| user.stamp == stamp);
        let rule = settings.and_then(|settings| self.rules.rules.rule_name(settings.rule));
        let is_new = before.is_none();
        let user = User {
            process,
            stamp,
            path,
            settings,
            rule,
            writes: None,
            names: before.and_then(|user| user.names.clone()),
        };
        self.set_random(number, false);
        if let Some(settings) = settings {
            self.serve(number, settings, &user.rule);
        }
        if let Some(open) = self.files.get_mut(&number) {
            open.remember(user);
        }
        self.hold_own_writers(number);
        if is_new {
            self.show_facts(number);
        }
    }

    /// What is known of a file, for those who look on.
    pub(super) fn facts(&mut self, number: FileNumber) -> Option<FileFacts> {
        let open = self.files.get_mut(&number)?;
        let settings = open.settings;
        let users = open.shown_users().into_iter().map(|user| {
            let names = user.names.get_or_insert_with(|| {
                let name = self.rules.names.of(user.process);
                let name = name.or_else(|| command_name(user.process).ok());
                let groups = cgroups(user.process).unwrap_or_default();
                (name.unwrap_or_default(), unit_or_group(&groups))
            });
            let (program, unit) = names.clone();
            FileUser {
                process: user.process,
                program,
                unit,
                rule: user.rule.as_deref().unwrap_or_default().to_owned(),
                writes: user.writes,
            }
        });
        let users = users.collect();
        Some(FileFacts {
            path: open.path.clone(),
            mode: settings.mode,
            reads: settings.reads,
            advised: open.advised_over.is_some(),
            rule: open.rule.clone(),
            mode_rule: open.mode_rule.clone(),
            window_bytes: settings.window_bytes,
            writeback_sign: open.writeback_sign.clone(),
            users,
        })
    }

    /// Shows what is known of a file that is listed.
    pub(super) fn show_facts(&mut self, number: FileNumber) {
        let is_listed = |open: &OpenFile| open.observed.is_some();
        if self.files.get(&number).is_some_and(is_listed)
            && let Some(facts) = self.facts(number)
        {
            lock(&self.board).learn(number.0, facts);
        }
    }

    /// Learns about a process that uses this file though no event reported its open: another
    /// passed it on, or it has more users than are remembered. Returns false if that failed.
    fn find_user(&mut self, number: FileNumber, process: i32) -> bool {
        let Some(open) = self.files.get(&number) else {
            return false;
        };
        let path = if !self.rules.rules.ask_for_paths() {
            Some(Path::new("").into())
        } else if is_kernel_thread(process) {
            // It has no descriptors to search.
            self.path_of_kernel(number, process)
        } else {
            let wanted = |link: FileLink| {
                let used = open.ids.contains(&link.id) && link.writable().is_some();
                used.then(|| link.path().ok())?
            };
            let searched = match self.strangers.may_search(process) {
                true => self.strangers.search(process, wanted),
                false => Searched::CutShort,
            };
            match searched {
                Searched::Found(path) => Some(path.into()),
                // It maps the file, or has ended: the path is that of whoever passed it on.
                Searched::Nothing => self.path_of_parent(number, process),
                // In a run, programs do not have each other's pages dropped by opening a file under
                // another name.
                Searched::CutShort => {
                    let in_a_run = self.programs.are_of_a_run();
                    match self.path_of_parent(number, process).filter(|_| in_a_run) {
                        Some(path) => Some(path),
                        None => return false,
                    }
                }
            }
        };
        self.learn_user(number, process, path);
        true
    }

    /// The path by which an ancestor of a process opened the file.
    fn path_of_parent(&self, number: FileNumber, process: i32) -> Option<Arc<Path>> {
        let open = self.files.get(&number)?;
        let parent = |process: &i32| Some(self.rules.names.stamp(*process)?.made?.parent);
        // Process numbers are reused, so this may lead in a circle.
        let mut parents = std::iter::successors(parent(&process), parent).take(GENERATIONS);
        let user = |parent| {
            let made = |stamp: Option<Stamp>| stamp?.made;
            let now = made(self.rules.names.stamp(parent));
            open.user(parent).filter(|user| made(user.stamp) == now)
        };
        parents.find_map(user)?.path.clone()
    }

    /// The path by which the kernel uses a file: the one by which a loop device was attached or,
    /// where threads work together as an NFS server's do, the one of the thread that opened it.
    fn path_of_kernel(&self, number: FileNumber, process: i32) -> Option<Arc<Path>> {
        let open = self.files.get(&number)?;
        if backing_paths().any(|path| path == open.path) {
            return Some(open.path.as_path().into());
        }
        let mut users = open.users.iter();
        let kind = kernel_thread_kind(process)?;
        let is_like_it = |user: &&User| {
            let is_same = user.stamp == self.rules.names.stamp(user.process);
            is_same && kernel_thread_kind(user.process).as_ref() == Some(&kind)
        };
        let other = users.find(|user| user.path.is_some() && is_like_it(user));
        other?.path.clone()
    }

    /// Handles a process's open of a file that is known.
    pub(super) fn used_again(&mut self, number: FileNumber, process: i32, file: BorrowedFd<'_>) {
        if !self.programs.has(process) {
            return;
        }
        // It may run another program by now, be another process, or use another name.
        let path = self.rules.rules.ask_for_paths().then(|| path_of(file));
        self.learn_user(number, process, Some(path.unwrap_or_default().into()));
    }

    /// Applies rules that have changed to the users of a file. Asks nothing that a file system's
    /// server would have to answer.
    pub(super) fn ask_again(&mut self, number: FileNumber) {
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        let before = open.settings;
        let mut users = std::mem::take(&mut open.users);
        let size = || Some(open.size_bytes);
        let advised = open.advised_over.is_some();
        let mut all: Option<Settings> = None;
        let mut mode_rule = None;
        for user in &mut users {
            let (process, stamp) = (user.process, user.stamp);
            // What programs that have ended left is finished as it was begun.
            let lives = self.rules.names.stamp(process) == stamp && process_stat(process).is_ok();
            if lives
                && !self.owners.have(process, stamp)
                && let Some(path) = &user.path
            {
                user.settings = self.rules.settings_for(path, process, &open.disk, size);
                let rules = &self.rules.rules;
                user.rule = user
                    .settings
                    .and_then(|settings| rules.rule_name(settings.rule));
            }
            if let Some(settings) = &mut user.settings {
                let all = all.get_or_insert_with(|| {
                    mode_rule.clone_from(&user.rule);
                    *settings
                });
                let before = (all.mode, mode_rule.take());
                (all.mode, mode_rule) = joined(before, (settings.mode, &user.rule));
                all.reads |= settings.reads;
                if advised {
                    settings.mode.residency = Residency::Drop;
                }
            }
        }
        open.users = users;
        if open.users.is_empty() {
            return;
        }
        let mut mode = all.map_or(Mode::BUFFERED, |all| all.mode);
        if advised && all.is_some() {
            open.advised_over = Some(mode);
            mode.residency = Residency::Drop;
        }
        // A stream keeps its window and its request.
        if let Some(all) = all.filter(|_| open.observed.is_none()) {
            open.settings = all;
        }
        open.mode_rule = mode_rule;
        open.settings.mode = mode;
        open.settings.reads = all.is_some_and(|all| all.reads);
        let size_bytes = open.size_bytes;
        self.settings_changed(number, before, Some(size_bytes));
        self.hold_own_writers(number);
    }

    /// Adapts the file's settings to one more user.
    pub(super) fn serve(&mut self, number: FileNumber, settings: Settings, rule: &Rule) {
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        let before = open.settings;
        // Advice counts for the opening that it was given on, and this is another.
        if let Some(mode) = open.advised_over.take() {
            open.settings.mode = mode;
        }
        let before_it = (open.settings.mode, open.mode_rule.take());
        (open.settings.mode, open.mode_rule) = joined(before_it, (settings.mode, rule));
        open.settings.reads |= settings.reads;
        self.settings_changed(number, before, None);
    }

    /// The file's size is looked up unless it is given.
    fn settings_changed(&mut self, number: FileNumber, before: Settings, size: Option<u64>) {
        let Some(open) = self.files.get(&number) else {
            return;
        };
        let now = open.settings;
        if now == before {
            return;
        }
        if now.mode.drops() && !before.mode.drops() {
            // Those who brought in what is cached keep it.
            let (range, ours) = (ByteRange::WHOLE, false);
            self.table.brought_of(number, Brought::new(range, ours));
        }
        self.act();
        let Some(open) = self.files.get(&number) else {
            return;
        };
        if let Some(observed) = &open.observed {
            observed.change(now.mode, now.reads);
        }
        let now = || size_bytes(open.file.named().ok()?.as_fd()).ok();
        self.expect_uses(number, size.or_else(now).unwrap_or(0));
        self.show_facts(number);
    }

    /// Returns whether what is known of this number's use of a file still holds.
    fn knows_user(&mut self, number: FileNumber, process: i32) -> bool {
        let stamp = self.rules.names.stamp(process);
        let Some(open) = self.files.get_mut(&number) else {
            return false;
        };
        let Some(user) = open.user_mut(process) else {
            return false;
        };
        let (Some(before), Some(now)) = (user.stamp, stamp) else {
            // A process older than the trace has no stamp until its number is reused. If a stamp
            // was forgotten since, we no longer know which process that was.
            return user.stamp == stamp;
        };
        if before == now {
            return true;
        }
        if before.made != now.made {
            return false;
        }
        // It runs another program by now, which may still have the file.
        let path = user.path.clone();
        self.learn_user(number, process, path);
        true
    }

    /// Returns whether what this process brings in of a file is to go; `None` if a search would
    /// have taken too long to find that out.
    pub(super) fn is_ours(&mut self, number: FileNumber, process: i32) -> Option<bool> {
        if !self.programs.has(process) {
            return Some(false);
        }
        if !self.knows_user(number, process) && !self.find_user(number, process) {
            self.strangers.cut_short = true;
            return None;
        }
        let open = self.files.get(&number);
        let both = open.and_then(|open| Some((open.settings, open.user(process)?.settings?)));
        let Some((file, settings)) = both else {
            return Some(false);
        };
        // If all users keep what they bring in, this serves only to count.
        let kept = file.mode.drops() && !settings.mode.drops();
        // If others' reads are to go and this process's are not, it counts only as a writer.
        let read = file.reads && !settings.reads;
        match (kept, read) {
            (true, _) => Some(false),
            (_, false) => Some(true),
            _ => {
                let writes = self.writes(number, process);
                self.strangers.cut_short |= writes.is_none();
                writes
            }
        }
    }

    /// Returns whether this process has the file open for writing; `None` if not found out.
    fn writes(&mut self, number: FileNumber, process: i32) -> Option<bool> {
        let open = self.files.get_mut(&number)?;
        if let Some(writes) = open.user(process)?.writes {
            return Some(writes);
        }
        if !self.strangers.may_search(process) {
            return None;
        }
        let ids = &open.ids;
        let wanted = |link: FileLink| {
            let writes = ids.contains(&link.id) && link.writable() == Some(true);
            writes.then_some(())
        };
        let writes = match self.strangers.search(process, wanted) {
            Searched::Found(()) => true,
            Searched::Nothing => false,
            Searched::CutShort => {
                self.strangers.cut_short = true;
                return None;
            }
        };
        if let Some(user) = open.user_mut(process) {
            user.writes = Some(writes);
        }
        Some(writes)
    }

    /// Holds a file's writers if one of them is a program that the rules limit. A program that
    /// only reads must not have them held: any user may name a program as the rules do.
    pub(super) fn hold_own_writers(&mut self, number: FileNumber) {
        let Some(open) = self.files.get(&number) else {
            return;
        };
        let early = open.settings.mode.writeback != Writeback::Lazy;
        if open.observed.is_none() || open.writer_limit.is_some() || !early {
            return;
        }
        let limited = open.users.iter().filter_map(|user| {
            let limit = user.settings?.writer_limit()?;
            Some((user.process, limit))
        });
        let limited: Vec<_> = limited.collect();
        let limit = limited.into_iter().find_map(|(process, limit)| {
            let writes = self.programs.has(process) && self.writes(number, process) == Some(true);
            writes.then_some(limit)
        });
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        open.writer_limit = limit;
        open.hold_writers();
    }
}

pub(super) fn is_kernel_thread(process: i32) -> bool {
    process_stat(process).is_ok_and(|stat| stat.is_kernel_thread())
}

/// The kind of a kernel thread: its name, without what follows the slash. The threads that work
/// for all queues of the kernel, its SMB server's among them, have a number there, and what they
/// did last: `kworker/0:1-ksmbd-io`.
fn kernel_thread_kind(process: i32) -> Option<String> {
    if !is_kernel_thread(process) {
        return None;
    }
    let name = command_name(process).ok()?;
    name.split('/').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_linux::processes;

    /// There are none where a pid namespace hides them.
    #[test]
    fn all_workers_of_the_kernel_are_of_one_kind() {
        let is_worker = |process: &i32| {
            is_kernel_thread(*process)
                && command_name(*process).is_ok_and(|name| name.starts_with("kworker/"))
        };
        for worker in processes().unwrap().filter(is_worker) {
            // It may have ended meanwhile.
            if let Some(kind) = kernel_thread_kind(worker) {
                assert_eq!(kind, "kworker");
            }
        }
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(kernel_thread_kind(own), None);
    }
}
