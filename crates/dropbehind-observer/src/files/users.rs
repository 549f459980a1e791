//! What each process that uses a file is to have done with its pages. The rules are asked
//! about each by the path that it opened the file by: nobody's name for a file, and nobody's
//! open, decides about others' pages.

use std::os::fd::BorrowedFd;
use std::path::Path;

use dropbehind_linux::{OpenFile as OpenedFile, backing_paths, process_stat};
use dropbehind_policy::{Brought, ByteRange, FileNumber, Writeback};

use super::Files;
use super::open_file::User;
use super::strangers::Searched;
use crate::file_path::path_of;
use crate::rules::Settings;

/// Who passed a file on to a process is looked for among so many of those that made it.
const GENERATIONS: usize = 16;

impl Files {
    /// A process uses this file, and opened it by this path.
    pub(super) fn learn_user(&mut self, number: FileNumber, process: i32, path: &Path) {
        let Some(open) = self.files.get(&number) else {
            return;
        };
        let settings = match self.owners.have(process) {
            true => None,
            false => self.asked_of(process, path, open.device),
        };
        let by_path = true;
        self.take_user(number, process, settings, by_path);
    }

    /// What the rules say of a process that opened a file by this path.
    fn asked_of(&self, process: i32, path: &Path, device: u64) -> Option<Settings> {
        let settings = self.rules.settings_for(path, process, device);
        settings.filter(|settings| !settings.mode.is_buffered())
    }

    fn take_user(
        &mut self,
        number: FileNumber,
        process: i32,
        settings: Option<Settings>,
        by_path: bool,
    ) {
        let user = User {
            process,
            stamp: self.rules.names.stamp(process),
            settings,
            by_path,
            writes: None,
        };
        if let Some(settings) = settings {
            self.serve(number, settings);
        }
        if let Some(open) = self.files.get_mut(&number) {
            open.remember(user);
        }
        self.hold_own_writers(number);
    }

    /// A process uses this file, and no event told that it opened it: others passed it on,
    /// or more have it open than are remembered. False where that is not found out.
    fn find_user(&mut self, number: FileNumber, process: i32) -> bool {
        if !self.rules.ask_for_paths() {
            self.learn_user(number, process, Path::new(""));
            return true;
        }
        match self.find_path(number, process) {
            Searched::Found(()) => true,
            // Mapped, or the process has ended: it has the file from who made it.
            Searched::Nothing => {
                let settings = match is_kernel_thread(process) {
                    true => self.settings_of_kernel(number, process),
                    false => self.settings_of_parent(number, process),
                };
                self.take_user(number, process, settings, false);
                true
            }
            Searched::CutShort => false,
        }
    }

    /// Asks the rules by the path of a descriptor that a process has of a file.
    fn find_path(&mut self, number: FileNumber, process: i32) -> Searched<()> {
        let Some(open) = self.files.get(&number) else {
            return Searched::Nothing;
        };
        if !self.strangers.may_search(process) {
            return Searched::CutShort;
        }
        let path = |used: OpenedFile| {
            let is_it = open.ids.contains(&used.id);
            is_it.then(|| used.path(process).ok())?
        };
        match self.strangers.search(process, path) {
            Searched::Found(path) => {
                self.learn_user(number, process, &path);
                Searched::Found(())
            }
            Searched::Nothing => Searched::Nothing,
            Searched::CutShort => Searched::CutShort,
        }
    }

    /// What those that made a process are to have done with pages of a file.
    fn settings_of_parent(&self, number: FileNumber, process: i32) -> Option<Settings> {
        let open = self.files.get(&number)?;
        let parent = |process: &i32| Some(self.rules.names.made(*process)?.parent);
        // Numbers are used again, so that the way may lead in a circle.
        let mut parents = std::iter::successors(parent(&process), parent).take(GENERATIONS);
        parents.find_map(|parent| open.user(parent))?.settings
    }

    /// What a thread of the kernel's is to have done: of a loop device's file what the rules
    /// say of the path that it was attached by, and where threads work together, as those of
    /// an NFS server do, what they say of the one that opened the file.
    fn settings_of_kernel(&self, number: FileNumber, process: i32) -> Option<Settings> {
        let open = self.files.get(&number)?;
        if backing_paths().any(|path| path == open.path) {
            return self.asked_of(process, &open.path, open.device);
        }
        let mut opened = open.users().iter().filter(|user| user.by_path);
        opened.find(|user| is_kernel_thread(user.process))?.settings
    }

    /// A process opened this file, which is known.
    pub(super) fn used_again(&mut self, number: FileNumber, process: i32, file: BorrowedFd<'_>) {
        if !self.programs.has(process) {
            return;
        }
        // It may be another program by now, or another process, or use another name.
        let path = self.rules.ask_for_paths().then(|| path_of(file));
        self.learn_user(number, process, &path.unwrap_or_default());
    }

    /// The file is used in this way, too.
    fn serve(&mut self, number: FileNumber, settings: Settings) {
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        let before = open.settings;
        open.settings.mode = before.mode.and(settings.mode);
        open.settings.reads |= settings.reads;
        let now = open.settings;
        if now == before {
            return;
        }
        if now.mode.drops() && !before.mode.drops() {
            // Whoever brought that in is to keep it.
            let (range, ours) = (ByteRange::WHOLE, false);
            self.table.brought_of(number, Brought { range, ours });
        }
        self.act();
        let open = self.files.get(&number);
        if let Some(observed) = open.and_then(|open| open.observed.as_ref()) {
            observed.change(now.mode, now.reads);
        }
        self.expect_uses(number);
    }

    /// Whether what is known of this number's use of a file is still true of the process.
    fn knows_user(&mut self, number: FileNumber, process: i32) -> bool {
        let stamp = self.rules.names.stamp(process);
        let Some(open) = self.files.get_mut(&number) else {
            return false;
        };
        let Some(user) = open.user_mut(process) else {
            return false;
        };
        let (Some(before), Some(now)) = (user.stamp, stamp) else {
            // One that was there before the trace has none until its number is used again. Of
            // one that was forgotten since, it is not known any more who it is.
            return user.stamp == stamp;
        };
        if before == now {
            return true;
        }
        if before.made != now.made {
            return false;
        }
        // It is another program by now, and may have the file still. One that has ended
        // read it as what it was.
        user.stamp = stamp;
        let _ = self.find_path(number, process);
        true
    }

    /// Whether what this process brings in of a file is to go.
    pub(super) fn is_ours(&mut self, number: FileNumber, process: i32) -> bool {
        if !self.programs.has(process) {
            return false;
        }
        if !self.knows_user(number, process) && !self.find_user(number, process) {
            return false;
        }
        let user = self.files.get(&number).and_then(|open| open.user(process));
        let Some(settings) = user.and_then(|user| user.settings) else {
            return false;
        };
        let Some(file) = self.files.get(&number).map(|open| open.settings) else {
            return false;
        };
        // Where all its users are to keep what they bring in, it only counts.
        let kept = file.mode.drops() && !settings.mode.drops();
        // Where what others read is to go, what this one reads must be told from that.
        let read = file.reads && !settings.reads;
        !kept && (!read || self.writes(number, process))
    }

    /// Whether this process has the file open to write; false where that is not found out.
    fn writes(&mut self, number: FileNumber, process: i32) -> bool {
        let Some(open) = self.files.get_mut(&number) else {
            return false;
        };
        let Some(user) = open.user(process) else {
            return false;
        };
        if let Some(writes) = user.writes {
            return writes;
        }
        if !self.strangers.may_search(process) {
            return false;
        }
        let ids = &open.ids;
        let wanted = |used: OpenedFile| (used.writable && ids.contains(&used.id)).then_some(());
        let writes = match self.strangers.search(process, wanted) {
            Searched::Found(()) => true,
            Searched::Nothing => false,
            Searched::CutShort => return false,
        };
        if let Some(user) = open.user_mut(process) {
            user.writes = Some(writes);
        }
        writes
    }

    /// Writers are held where a program writes that the rules limit. One that only reads must
    /// not have others' writers held: anybody may give a program a name of the rules.
    pub(super) fn hold_own_writers(&mut self, number: FileNumber) {
        let Some(open) = self.files.get(&number) else {
            return;
        };
        let early = open.settings.mode.writeback != Writeback::Lazy;
        if open.observed.is_none() || open.max_dirty_bytes.is_some() || !early {
            return;
        }
        let limited = open.users().iter().filter_map(|user| {
            let max_dirty_bytes = user.settings?.max_dirty_bytes?;
            Some((user.process, max_dirty_bytes))
        });
        let limited: Vec<(i32, u64)> = limited.collect();
        let limit = limited.into_iter().find_map(|(process, max_dirty_bytes)| {
            let writes = self.programs.has(process) && self.writes(number, process);
            writes.then_some(max_dirty_bytes)
        });
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        open.max_dirty_bytes = limit;
        if let (Some(observed), Some(max_dirty_bytes)) = (&open.observed, limit) {
            observed.hold_writers(max_dirty_bytes);
        }
    }
}

fn is_kernel_thread(process: i32) -> bool {
    process_stat(process).is_ok_and(|stat| stat.is_kernel_thread())
}
