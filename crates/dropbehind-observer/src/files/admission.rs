//! How a file becomes known.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dropbehind_flusher::{CacheMap, WritebackSign};
use dropbehind_linux::{
    Description, EventMask, FileKind, FileLink, FileStat, FsKind, NamedFile, file_stat, filesystem,
    has_cachestat,
};
use dropbehind_policy::grace::SMALL_FILE_BYTES;
use dropbehind_policy::{FileNumber, Writeback};

use super::Files;
use super::open_file::{OpenFile, User};
use super::strangers::DOUBT_FIRST;
use super::untraced::resident_at_open;
use crate::board::lock;
use crate::file_path::path_of;
use crate::overlay;
use crate::rules::Settings;
use crate::shown;

/// So many files are known at once. Each takes up to 3 KB, and more with many users; anybody can have
/// that many open.
const MOST_FILES: usize = 1 << 18;

/// The file that has the pages of one that was opened.
struct WithPages {
    file: OwnedFd,
    info: FileStat,
    /// The overlay's file that was opened, if the pages are in another one below it.
    overlay: Option<OwnedFd>,
}

impl Files {
    /// Opens a description of our own of a file that a process has open. A watch does so only
    /// where no server can hang, or where a rule accepts that. A block device is only named
    /// (`O_PATH`), unless the observer must look at its pages at once.
    pub(crate) fn open_again(&mut self, process: i32, link: FileLink) -> Option<OwnedFd> {
        // From here on, the process can exchange neither the file nor its mount.
        let named = link.name().ok()?;
        match link.kind {
            FileKind::Block if self.trace.is_some() => {
                self.may_open(process, &named)?.then(|| named.into_fd())
            }
            _ => self.open_named(process, &named),
        }
    }

    /// The same for a file that is only named so far.
    pub(super) fn open_named(&mut self, process: i32, named: &NamedFile) -> Option<OwnedFd> {
        self.may_open(process, named)?.then(|| named.open().ok())?
    }

    fn may_open(&mut self, process: i32, named: &NamedFile) -> Option<bool> {
        let of_a_run = self.programs.are_of_a_run();
        let rules = &*self.rules.rules;
        Some(of_a_run || self.mounts.may_open(rules, process, named.mount()?))
    }

    /// Takes in a file that a process has open, though no event reported its open.
    pub(crate) fn inherited(&mut self, process: i32, file: OwnedFd) {
        let Ok(info) = file_stat(file.as_fd()) else {
            return;
        };
        // Pages of a tmpfs are all that there is of its files.
        let is_in_memory = filesystem(file.as_fd()).is_ok_and(|kind| kind == FsKind::Tmpfs);
        if info.kind == FileKind::Other
            || is_in_memory
            || self.number_of(&info, file.as_fd()).is_some()
        {
            return;
        }
        if let Some(number) = self.admit(file, &info, process, None) {
            let is_new = self.inodes.beginning.is_before(info.born);
            if let Some(open) = self.files.get_mut(&number) {
                open.close_unseen = true;
                if self.trace.is_none() && is_new {
                    // Nothing shows whether the process made it, but most likely it did.
                    open.is_emptied();
                }
                if self.fanotify.is_none() {
                    open.may_be_written();
                }
            }
            self.expect_uses(number, info.size_bytes);
            if self.fanotify.is_none() {
                self.doubt(number, DOUBT_FIRST);
            }
        }
    }

    /// Takes a file that a process has just opened into the table, if a rule wants it. If it is
    /// known what was cached before, nobody looks again.
    pub(super) fn admit(
        &mut self,
        file: OwnedFd,
        info: &FileStat,
        process: i32,
        before: Option<CacheMap>,
    ) -> Option<FileNumber> {
        let (disk, is_overlay) = self.rules.carrier(info, file.as_fd());
        let path = match self.rules.rules.ask_for_paths() || is_overlay {
            true => path_of(file.as_fd()),
            false => PathBuf::new(),
        };
        let size = || size_of(info);
        let Some(settings) = self.rules.settings_for(&path, process, &disk, size) else {
            self.decline(process, file.as_fd());
            return None;
        };
        let stamp = self.rules.names.stamp(process);
        if self.owners.have_file(info, process, stamp) {
            return None;
        }
        if self.files.len() >= MOST_FILES {
            lock(&self.board)
                .note("programs have too many files open at once: some are left to the kernel");
            return None;
        }
        let (file, overlay) = match is_overlay {
            true => (self.file_below(file.as_fd(), &path)?, Some(file)),
            false => (file, None),
        };
        let pages_info = match overlay {
            Some(_) => file_stat(file.as_fd()).ok()?,
            None => *info,
        };
        // The open may have copied it.
        if overlay.is_some()
            && self.trace.is_some()
            && self.inodes.beginning.is_before(pages_info.born)
        {
            self.admit_copied(path.clone(), process, None, |_| true);
        }
        let file = WithPages {
            file,
            info: pages_info,
            overlay,
        };
        let Some(number) = self.known_by_another_name(&file) else {
            return self.admit_new(file, info, path, process, settings, before);
        };
        let overlay = file.overlay;
        let open = self.files.get_mut(&number)?;
        let inode = open.inode;
        open.ids.push(info.id);
        open.is_out_of_the_cache = false;
        self.by_id.insert(info.id, number);
        if overlay.is_some() && open.overlay.is_none() && open.observed.is_none() {
            // The path that users know, and write rules for.
            (open.overlay, open.path) = (overlay.map(Arc::new), path.clone());
        }
        self.learn_user(number, process, Some(path.into()));
        self.is_used(number);
        self.table.opened(number, inode);
        Some(number)
    }

    /// Takes in the file of a lower layer that an overlay has copied for a process, which reads
    /// it through the cache. Nobody opens it by that. The trace, if there is one, tells what was
    /// read, in this round or in the next.
    pub(super) fn admit_copied(
        &mut self,
        path: PathBuf,
        process: i32,
        before: Option<CacheMap>,
        is_it: impl Fn(&FileStat) -> bool,
    ) {
        let Some(file) = overlay::copied_from(self.mounts.current(), &path, is_it) else {
            return;
        };
        let Ok(info) = file_stat(file.as_fd()) else {
            return;
        };
        let (disk, _) = self.rules.carrier(&info, file.as_fd());
        let size = || size_of(&info);
        let Some(settings) = self.rules.settings_for(&path, process, &disk, size) else {
            return;
        };
        let file = WithPages {
            file,
            info,
            overlay: None,
        };
        let number = match self.known_by_another_name(&file) {
            Some(number) => {
                if let Some(open) = self.files.get(&number) {
                    self.table.opened(number, open.inode);
                }
                self.learn_user(number, process, Some(path.into()));
                Some(number)
            }
            None => self.admit_new(file, &info, path, process, settings, before),
        };
        let Some(number) = number else { return };
        if let Some(open) = self.files.get_mut(&number) {
            open.close_unseen = true;
            open.was_read();
        }
        self.doubt(number, DOUBT_FIRST);
    }

    /// Takes in a file that is not known by any name.
    fn admit_new(
        &mut self,
        with_pages: WithPages,
        info: &FileStat,
        path: PathBuf,
        process: i32,
        settings: Settings,
        before: Option<CacheMap>,
    ) -> Option<FileNumber> {
        let WithPages {
            file,
            info: pages_info,
            overlay,
        } = with_pages;
        self.last_number += 1;
        let number = FileNumber(self.last_number);
        let inode = self.inodes.inode_with(&pages_info, file.as_fd())?;
        self.inodes.opened(pages_info.id, file.as_fd());
        let (disk, _) = self.rules.carrier(&pages_info, file.as_fd());
        // If this open may have made the file, its size is the program's doing.
        let is_new = self.inodes.all_read.is_before(info.born);
        let opened_size_bytes = if is_new { 0 } else { info.size_bytes };
        let before = match self.trace.is_some() {
            true => self
                .has_namesakes(inode, pages_info.id.device)
                .then(|| CacheMap::now(file.as_fd())),
            false => {
                let now = || resident_at_open(file.as_fd(), opened_size_bytes);
                Some(before.unwrap_or_else(now))
            }
        };
        let can_unmount = info
            .mount
            .is_some_and(|mount| self.unmountable.contains(&mount));
        // What it brings in may wait for long after its last close. Another process, by another
        // rule, may be the one that wants that.
        let waits = self.rules.keep_reused();
        let holds = self.may_hold();
        let is_device = info.kind == FileKind::Block && self.trace.is_some();
        let file = match self.filesystems.get(&inode.device) {
            _ if is_device => Description::of_device(file.as_fd()).ok()?,
            // Without the trace, the observer looks at the file often.
            Some(filesystem) if overlay.is_none() && self.trace.is_some() => {
                let description = Description::on(filesystem, file);
                if !(can_unmount || !holds || waits) {
                    description.stay_held();
                }
                description
            }
            _ => Description::held(file),
        };
        let mut open = OpenFile::new(info, inode, file, overlay, path, settings);
        (open.opened_size_bytes, open.before) = (opened_size_bytes, before);
        (open.disk, open.subvolume) = (disk, pages_info.id.device);
        open.rule = self.rules.rules.rule_name(settings.rule);
        open.mode_rule.clone_from(&open.rule);
        open.remember(User {
            process,
            stamp: self.rules.names.stamp(process),
            path: Some(open.path.as_path().into()),
            settings: Some(settings),
            rule: open.rule.clone(),
            writes: None,
            names: None,
        });
        open.round = self.round;
        open.writeback_sign = match &self.failed_writeback {
            Some(failed) => {
                let device = self.inodes.device_of(inode);
                Some(failed.sign_of(device, inode.number, pages_info.born))
            }
            // The file itself is asked.
            None if self.fanotify.is_none() => {
                let file = open.file.open();
                file.ok().map(WritebackSign::questioned)
            }
            None => None,
        };
        if open.overlay.is_none() {
            open.file.learn_cachestat_sees(has_cachestat());
        } else if let Ok(file) = open.file.open() {
            open.file.cachestat_sees(file.as_fd());
        }
        if !holds && info.links > 0 {
            open.file.release();
        }
        self.by_id.insert(info.id, number);
        // A snapshot's file has the inode number and the date of the original.
        let subvolume = pages_info.id.device.rotate_left(32);
        let past = info
            .born
            .map(|born| (inode, born.as_nanos() as u64 ^ subvolume));
        // What is on a device is not known to be new, nor what a file had that was there before.
        let written_from = if is_device {
            u64::MAX
        } else {
            opened_size_bytes
        };
        self.table.reuse.opened(number, past, written_from);
        self.files.insert(number, open);
        self.table.opened(number, inode);
        // The thread for small files must not wait for a disk that does not answer.
        if is_device || self.trace.is_none() && info.size_bytes > SMALL_FILE_BYTES {
            self.table.stream(number);
        }
        self.take_orphans(number, inode);
        Some(number)
    }

    /// Finds the known file that has the same pages: one call opens an overlay's file and the
    /// one below it, and newer kernels report both to a watch.
    fn known_by_another_name(&mut self, with_pages: &WithPages) -> Option<FileNumber> {
        let WithPages { file, info, .. } = with_pages;
        let inode = self.inodes.inode_with(info, file.as_fd())?;
        let numbers = self.table.of_inode(inode);
        let is_it = |open: &OpenFile| {
            let known = open.file.named().and_then(|file| file_stat(file.as_fd()));
            let same = open.file.is_device() || known.is_ok_and(|known| known.id == info.id);
            same && open.file.is(file.as_fd())
        };
        let mut numbers = numbers.iter().copied();
        numbers.find(|number| self.files.get(number).is_some_and(is_it))
    }

    /// Asks for events of a large file's first read and, unless its writeback is lazy, of its
    /// first write: a write to cached pages brings nothing in. Only of the first, since an event
    /// for each would slow the programs down.
    pub(super) fn expect_uses(&mut self, number: FileNumber, size_bytes: u64) {
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        if size_bytes <= SMALL_FILE_BYTES {
            return;
        }
        let wanted = match open.settings.mode.writeback {
            Writeback::Lazy => EventMask::ACCESS,
            _ => EventMask::MODIFY | EventMask::ACCESS,
        };
        let asked = open.expect(self.fanotify.as_ref(), wanted);
        if asked.is_err() || open.overlay.is_some() {
            // Reads of the file below that go around the overlay would not be reported.
            open.was_read();
        }
    }

    /// The file that has the pages of an overlay's file.
    fn file_below(&mut self, file: BorrowedFd<'_>, path: &Path) -> Option<OwnedFd> {
        let below = overlay::file_below(self.mounts.current(), file, path)
            .or_else(|| overlay::file_below(self.mounts.read_again()?, file, path));
        if below.is_none() {
            lock(&self.board).user_note(format!(
                "{}: the file below the overlay cannot be seen from here, and is left to the \
                 kernel",
                shown(path)
            ));
        }
        below
    }
}

/// The size of a file in bytes; `None` of a device, which is not open where it is looked at.
pub(super) fn size_of(info: &FileStat) -> Option<u64> {
    (info.kind == FileKind::Regular).then_some(info.size_bytes)
}
