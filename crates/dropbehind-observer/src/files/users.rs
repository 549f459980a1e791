//! What each process that uses a file is to have done with its pages. The rules are asked
//! about each by the path that it opened the file by: nobody's name for a file, and nobody's
//! open, decides about others' pages.

use std::os::fd::BorrowedFd;
use std::path::Path;

use dropbehind_linux::OpenFile as OpenedFile;
use dropbehind_policy::{Brought, ByteRange, FileNumber, Writeback};

use super::Files;
use super::open_file::User;
use super::strangers::Searched;
use crate::file_path::path_of;
use crate::rules::Settings;

impl Files {
    /// A process uses this file, and opened it by this path, if that is known.
    pub(super) fn learn_user(&mut self, number: FileNumber, process: i32, path: Option<&Path>) {
        let Some(open) = self.files.get(&number) else {
            return;
        };
        let path_asked = path.unwrap_or(&open.path);
        let settings = (!self.owners.have(process))
            .then(|| self.rules.settings_for(path_asked, process, open.device))
            .flatten()
            .filter(|settings| !settings.mode.is_buffered());
        let user = User {
            process,
            settings,
            by_path: path.is_some(),
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

    /// A process opened this file, which is known.
    pub(super) fn used_again(&mut self, number: FileNumber, process: i32, file: BorrowedFd<'_>) {
        if !self.programs.has(process) {
            return;
        }
        let open = self.files.get_mut(&number);
        match open.and_then(|open| open.user_mut(process)) {
            Some(user) if user.by_path => {
                user.writes = None;
                self.hold_own_writers(number);
            }
            _ => {
                let path = self.rules.ask_for_paths().then(|| path_of(file));
                self.learn_user(number, process, Some(&path.unwrap_or_default()));
            }
        }
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

    /// Whether what this process brings in of a file is to go.
    pub(super) fn is_ours(&mut self, number: FileNumber, process: i32) -> bool {
        if !self.programs.has(process) {
            return false;
        }
        let user = |files: &Files| files.files.get(&number)?.user(process).copied();
        if user(self).is_none() {
            self.learn_user(number, process, None);
        }
        let Some(settings) = user(self).and_then(|user| user.settings) else {
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
