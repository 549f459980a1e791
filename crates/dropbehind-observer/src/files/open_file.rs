//! One file that observed programs use.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use dropbehind_flusher::{CacheMap, Observed, WritebackSign, WriterLimit};
use dropbehind_linux::{
    Description, EventMask, Fanotify, FileId, FileStat, MarkLife, MarkTarget, file_stat,
};
use dropbehind_policy::{Inode, Mode, RangeSet};

use crate::board::Rule;
use crate::names::Stamp;
use crate::rules::Settings;

/// At most this many users of a file are remembered, with what the rules say of each.
const USERS: usize = 64;
/// At most this many users of a file are shown.
const SHOWN_USERS: usize = 8;

/// A process that uses a file.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) process: i32,
    /// Which process and which program it is, if known.
    pub(super) stamp: Option<Stamp>,
    /// The path by which it, or the process that passed the file on, opened the file. Empty
    /// where the path makes no difference, and `None` where it is not known.
    pub(super) path: Option<Arc<Path>>,
    /// What the rules say of its use; `None` if nothing of it is to be observed.
    pub(super) settings: Option<Settings>,
    /// The rule that says so.
    pub(super) rule: Rule,
    /// Whether it has the file open for writing, or had until it closed it, if that is known.
    pub(super) writes: Option<bool>,
    /// Its program and its unit, if they are shown.
    pub(super) names: Option<(String, String)>,
}

/// A mode that serves both of these, and the rule that gives it.
pub(super) fn joined(one: (Mode, Rule), other: (Mode, &Rule)) -> (Mode, Rule) {
    let mode = one.0.and(other.0);
    if mode == one.0 {
        return one;
    }
    let rule = match (one.1, other.1) {
        (Some(first), Some(second)) if mode != other.0 => {
            Some(format!("{first} + {second}").into())
        }
        (_, other) => other.clone(),
    };
    (mode, rule)
}

/// Returns whether a file has no name any more.
pub(super) fn is_deleted(open: &OpenFile) -> bool {
    let stat = open.file.named().and_then(|file| file_stat(file.as_fd()));
    stat.is_ok_and(|stat| stat.links == 0)
}

/// One file that observed programs use.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// The file's identities. An overlay's file is not the file below it, though both have the
    /// same pages.
    pub(super) ids: Vec<FileId>,
    /// The inode that has the pages.
    pub(super) inode: Inode,
    /// The device that stat(2) returns for it, which is its subvolume's on btrfs.
    pub(super) subvolume: u64,
    /// The file that has the pages.
    pub(super) file: Arc<Description>,
    /// The overlay's file that programs use, if the pages are in another one below it.
    pub(super) overlay: Option<Arc<OwnedFd>>,
    /// When it was made. An overlay's file is a new one below once it was copied up.
    pub(super) born: Option<Duration>,
    /// The name of the disk that has the pages; empty if there is none.
    pub(super) disk: Arc<str>,
    /// Empty if no rule asks for it and nothing has looked it up.
    pub(super) path: PathBuf,
    /// Settings that suit all its users. The window and the request are those of the first user.
    pub(super) settings: Settings,
    /// The rule that applied to the first user, and that its figures count for.
    pub(super) rule: Rule,
    /// The rule that gave the mode, or the rules that did so together.
    pub(super) mode_rule: Rule,
    pub(super) opened_size_bytes: u64,
    /// Its size when it became known.
    pub(super) size_bytes: u64,
    /// What was cached when it was opened, where the kernel does not report who brought in what,
    /// or into which of two files.
    pub(super) before: Option<CacheMap>,
    /// Of what was not, the parts that were put on the shelf, and may still be there.
    pub(super) shelved: RangeSet,
    /// What the trace named since then, if another file may have the same inode number.
    pub(super) named: RangeSet,
    /// The round in which that was looked up.
    pub(super) round: u64,
    /// A process that could write has closed it, or has opened it where the server reports opens.
    pub(super) written: bool,
    /// An observed process has written to it since then.
    pub(super) modified: bool,
    /// A process has read it, or may have: clean pages then count as read.
    pub(super) read: bool,
    /// No event will report its close.
    pub(super) close_unseen: bool,
    /// Counted as written before the trace named these pages, which it may still do.
    pub(super) early_bytes: u64,
    /// Already counted among the files in which something was brought in.
    pub(super) counted: bool,
    /// Shows whether its writeback failed, where that can be known.
    pub(super) writeback_sign: Option<WritebackSign>,
    /// A device that could not be opened in time, and is left to the kernel.
    pub(super) is_too_slow: bool,
    /// Its stream, while there is one.
    pub(super) observed: Option<Observed>,
    /// The limit beyond which its writers are held.
    pub(super) writer_limit: Option<WriterLimit>,
    /// Bytes that should have been dropped, and stayed.
    pub(super) left_bytes: u64,
    /// Stays, since it is not known whether an observed program brought it in.
    pub(super) unclear: RangeSet,
    /// Nothing of it is cached: its pages were dropped, and none was brought in since.
    pub(super) is_out_of_the_cache: bool,
    /// Bytes that were cached when its last stream ended.
    pub(super) cached_bytes: u64,
    /// Its user says that it writes at random places.
    pub(super) random: bool,
    /// The mode that its user's advice has changed.
    pub(super) advised_over: Option<Mode>,
    /// All users that are remembered.
    pub(super) users: Vec<User>,
}

impl OpenFile {
    /// Takes off, and returns, how many of the `bytes` written were counted already.
    pub(super) fn take_early(&mut self, bytes: u64) -> u64 {
        let early_bytes = self.early_bytes.min(bytes);
        self.early_bytes -= early_bytes;
        early_bytes
    }

    pub(super) fn new(
        info: &FileStat,
        inode: Inode,
        file: Description,
        overlay: Option<OwnedFd>,
        path: PathBuf,
        settings: Settings,
    ) -> OpenFile {
        OpenFile {
            ids: vec![info.id],
            inode,
            subvolume: info.id.device,
            file: Arc::new(file),
            overlay: overlay.map(Arc::new),
            born: info.born,
            disk: "".into(),
            path,
            settings,
            rule: None,
            mode_rule: None,
            opened_size_bytes: 0,
            size_bytes: info.size_bytes,
            before: None,
            shelved: RangeSet::new(),
            named: RangeSet::new(),
            round: 0,
            written: false,
            modified: false,
            read: false,
            close_unseen: false,
            early_bytes: 0,
            counted: false,
            writeback_sign: None,
            is_too_slow: false,
            observed: None,
            writer_limit: None,
            left_bytes: 0,
            unclear: RangeSet::new(),
            is_out_of_the_cache: false,
            cached_bytes: 0,
            random: false,
            advised_over: None,
            users: Vec::new(),
        }
    }

    /// The file that programs use, whose marks report what they do. The kernel reports nothing
    /// of what an overlay does to the file below.
    pub(super) fn used(&self) -> io::Result<Arc<OwnedFd>> {
        match &self.overlay {
            Some(overlay) => Ok(Arc::clone(overlay)),
            None => self.file.named(),
        }
    }

    /// Asks for events of the next such uses.
    pub(super) fn expect(
        &self,
        fanotify: Option<&Arc<Fanotify>>,
        uses: EventMask,
    ) -> io::Result<()> {
        let fanotify = fanotify.ok_or(io::ErrorKind::Unsupported)?;
        let used = self.used()?;
        fanotify.add_mark(MarkTarget::Inode(used.as_fd()), uses, MarkLife::Evictable)
    }

    /// Returns whether this, which is what statx(2) returns about it now, is of a copy that an
    /// overlay has made since.
    pub(super) fn was_copied_up(&self, info: &FileStat) -> bool {
        let is_on_overlay = self.overlay.is_some() || self.ids.len() > 1;
        is_on_overlay && self.born != info.born
    }

    /// Returns whether its writeback failed. Its pages then stay, but not for others' sake.
    pub(super) fn has_failed_writeback(&self) -> bool {
        let sign = self.writeback_sign.as_ref();
        sign.is_some_and(WritebackSign::has_failed)
    }

    /// Records that a process has read it, or may have.
    pub(super) fn was_read(&mut self) {
        self.read = true;
        if let Some(observed) = &self.observed {
            observed.was_read();
        }
    }

    /// Records that an observed process has written to it.
    pub(super) fn was_written(&mut self) {
        self.modified = true;
        if let Some(observed) = &self.observed {
            observed.was_written();
        }
    }

    /// It was made, or truncated to nothing: without the trace, nothing of it is others' from now
    /// on.
    pub(super) fn is_emptied(&mut self) {
        self.opened_size_bytes = 0;
        if let Some(before) = &mut self.before {
            *before = CacheMap::empty();
        }
        self.shelved.clear();
        if let Some(observed) = &self.observed {
            observed.emptied();
        }
    }

    /// This process has it open for writing, or had.
    pub(super) fn is_written_by(&mut self, process: i32) {
        self.written = true;
        if let Some(user) = self.user_mut(process) {
            user.writes = Some(true);
        }
    }

    /// A process has it open for writing, or may have.
    pub(super) fn may_be_written(&self) {
        if let Some(sign) = &self.writeback_sign {
            sign.may_be_written();
        }
    }

    /// Gives the file its stream.
    pub(super) fn begin(&mut self, observed: Observed) {
        if self.read {
            observed.was_read();
        }
        if self.random {
            observed.advised(true);
        }
        self.observed = Some(observed);
        self.is_out_of_the_cache = false;
        self.hold_writers();
    }

    /// Has its writers held, if there is a limit.
    pub(super) fn hold_writers(&self) {
        if let (Some(observed), Some(limit)) = (&self.observed, self.writer_limit) {
            let devices = self.ids.iter().map(|id| id.device).collect();
            observed.hold_writers(limit, devices);
        }
    }

    /// What is known of a process.
    pub(super) fn user(&self, process: i32) -> Option<&User> {
        self.users.iter().find(|user| user.process == process)
    }

    /// The same, mutable.
    pub(super) fn user_mut(&mut self, process: i32) -> Option<&mut User> {
        self.users.iter_mut().find(|user| user.process == process)
    }

    /// The users to show: the last one that writes first, and then the others. The names of all
    /// others are forgotten, since names are long, and users of a file may change all the time.
    pub(super) fn shown_users(&mut self) -> Vec<&mut User> {
        let mut users: Vec<&mut User> = self.users.iter_mut().rev().collect();
        users.sort_by_key(|user| user.writes != Some(true));
        for user in users.drain(users.len().min(SHOWN_USERS)..) {
            user.names = None;
        }
        users
    }

    /// Remembers a user, in place of what was known of the process.
    pub(super) fn remember(&mut self, user: User) {
        self.users.retain(|known| known.process != user.process);
        if self.users.len() >= USERS {
            // A forgotten user's pages stay, as do those of a user that no rule applies to.
            let unwanted = self.users.iter().position(|known| known.settings.is_none());
            self.users.remove(unwanted.unwrap_or(0));
        }
        self.users.push(user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shown_users_have_names() {
        let file: OwnedFd = std::fs::File::open("/proc/self/exe").unwrap().into();
        let info = file_stat(file.as_fd()).unwrap();
        let settings = Settings {
            mode: Mode::AUTO,
            window_bytes: None,
            request_bytes: None,
            max_dirty_bytes: None,
            reads: true,
            rule: 0,
        };
        let file = Description::held(file);
        let inode = Inode {
            device: 0,
            number: info.id.inode,
        };
        let mut open = OpenFile::new(&info, inode, file, None, PathBuf::new(), settings);
        for process in 1..=100 {
            open.remember(User {
                process,
                stamp: None,
                path: None,
                settings: Some(settings),
                rule: None,
                writes: (process == 50).then_some(true),
                names: None,
            });
            for user in open.shown_users() {
                user.names = Some(("program".to_owned(), "unit".to_owned()));
            }
            let named = open.users.iter().filter(|user| user.names.is_some());
            assert_eq!(named.count(), open.users.len().min(SHOWN_USERS));
        }
        let shown = open.shown_users();
        let shown: Vec<i32> = shown.iter().map(|user| user.process).collect();
        assert_eq!(shown, [50, 100, 99, 98, 97, 96, 95, 94]);
    }
}
