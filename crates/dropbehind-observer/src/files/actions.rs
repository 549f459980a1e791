//! Carries out what the table of files decides.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use dropbehind_flusher::trace::Label;
use dropbehind_flusher::{CacheMap, ObserveOptions, Observed, Provenance, WriterLimit};
use dropbehind_linux::{EventMask, FileId, cached_pages, file_stat, monotonic_ns, page_size};
use dropbehind_policy::RangeSet;
use dropbehind_policy::{FileAction, FileNumber};

use super::Files;
use super::kept::Counted;
use super::open_file::{OpenFile, is_deleted};
use crate::board::lock;
use crate::file_path::path_of;
use crate::in_time::in_time_or;
use crate::shown;
use crate::small_files::{Message, SmallFile};

/// At most this many forgotten files are remembered, for reports that are still under way.
const FORGOTTEN_FILES: usize = 1 << 10;

impl Files {
    /// Carries out all that the table has decided.
    pub(crate) fn act(&mut self) {
        self.decide(false);
        while let Some(action) = self.table.next() {
            match action {
                FileAction::Stream(number) => self.stream(number),
                FileAction::Report(number, brought) => {
                    if let Some(observed) = self.observed_of(number) {
                        observed.brought(brought);
                    }
                }
                FileAction::Close(number) => {
                    if let Some(observed) = self.observed_of(number) {
                        observed.closed();
                    }
                }
                FileAction::Shelve(number, ours, held) => self.shelve(number, ours, held),
                FileAction::Release(number) => self.release(number),
                FileAction::Decide(number, range, stays) => {
                    if let Some(observed) = self.observed_of(number) {
                        observed.decided(range, stays);
                    }
                }
                FileAction::DecideShelved(number, range, fate) => {
                    let decided = Message::Decided(number, range, fate);
                    self.small.send(self.disk_of(number), decided);
                }
                FileAction::Forget(number) => self.forget(number),
            }
        }
        self.small.forgotten(std::mem::take(&mut self.unshelved));
        let waiting_bytes = self.table.waiting_bytes();
        let small_bytes = self.small.totals().waiting_bytes;
        let cached_bytes = waiting_bytes + small_bytes + self.flusher.observed_bytes();
        let board = &mut lock(&self.board).figures;
        board.waiting_bytes = waiting_bytes;
        board.reused_bytes = self.table.reused_bytes();
        board.peak_cached_bytes = board.peak_cached_bytes.max(cached_bytes);
    }

    /// The name of the disk that carries a file; empty if there is none.
    fn disk_of(&self, number: FileNumber) -> &str {
        let open = self.files.get(&number);
        open.map_or("", |open| &open.disk)
    }

    fn observed_of(&self, number: FileNumber) -> Option<&Observed> {
        self.files.get(&number)?.observed.as_ref()
    }

    fn stream(&mut self, number: FileNumber) {
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        if open.is_too_slow {
            return self.table.stream_refused(number);
        }
        if open.path.as_os_str().is_empty() {
            open.path = open.used().map(path_of).unwrap_or_default();
        }
        let provenance = match (&self.trace, self.inodes.kernel_inode(open.inode)) {
            (Some(trace), Some(inode)) => Provenance::Traced(trace.clone(), inode),
            // The trace has named it, so its inode is known.
            (Some(_), None) => return self.table.stream_refused(number),
            (None, _) => {
                let now = || open.file.open().map(|file| CacheMap::now(file.as_fd()));
                let before = open.before.clone().or_else(|| now().ok());
                Provenance::ResidentAtOpen(before.unwrap_or_else(CacheMap::unknown))
            }
        };
        let settings = open.settings;
        let options = ObserveOptions {
            mode: settings.mode,
            window_bytes: settings.window_bytes,
            request_bytes: settings.request_bytes,
            reads: settings.reads,
            opened_size_bytes: open.opened_size_bytes,
            // Reported opens say what for. Others may have been for reading.
            only_written: !open.read
                && (open.modified || self.fanotify.is_none() && open.written && !open.close_unseen),
            provenance,
            writeback_sign: open.writeback_sign.clone(),
            key: number.0,
            notices: self.notices.clone(),
        };
        let is_device = open.file.is_device();
        let (flusher, file) = (self.flusher.clone(), Arc::clone(&open.file));
        let observe = move || flusher.observe(file, options);
        // An observation that begins too late is not this file's any more.
        let end = |late: io::Result<Observed>| drop(late.map(|observed| observed.closed()));
        let observed = match is_device {
            true => in_time_or(observe, end).unwrap_or_else(|| {
                open.is_too_slow = true;
                Err(io::ErrorKind::TimedOut.into())
            }),
            false => observe(),
        };
        match observed {
            Ok(observed) => {
                let Some(facts) = self.facts(number) else {
                    return;
                };
                let Some(open) = self.files.get_mut(&number) else {
                    return;
                };
                let mut board = lock(&self.board);
                board.begin(number.0, facts, observed.clone());
                let sums = board.sums(observed.disk_name(), &open.rule);
                sums.files += u64::from(!open.counted);
                open.counted = true;
                open.begin(observed);
                drop(board);
                // A file that grew large may be read once written.
                let _ = open.expect(self.fanotify.as_ref(), EventMask::ACCESS);
                self.hold_own_writers(number);
                self.show_facts(number);
            }
            // It has no pages any more.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.table.stream_refused(number);
            }
            Err(error) => {
                let path = shown(&open.path);
                lock(&self.board).user_note(format!("{path} is left to the kernel: {error}"));
                self.table.stream_refused(number);
            }
        }
    }

    fn shelve(&mut self, number: FileNumber, ours: RangeSet, held: RangeSet) {
        let Some(open) = self.files.get_mut(&number) else {
            return;
        };
        let bytes = ours.bytes();
        let back_bytes = self.table.take_back_bytes(number);
        {
            let mut board = lock(&self.board);
            let finished = board.sums(&open.disk, &open.rule);
            finished.files += u64::from(!open.counted);
            open.counted = true;
            match open.written {
                true => finished.written_bytes += bytes - open.take_early(bytes),
                false => {
                    finished.read_bytes += bytes;
                    finished.reread_bytes += back_bytes;
                }
            }
        }
        let mode = open.settings.mode;
        let wanted = if open.written {
            mode.drops() || mode.writeback == dropbehind_policy::Writeback::Eager
        } else {
            mode.drops() && open.settings.reads
        };
        // A deleted file's blocks become free only when nobody has it open.
        let deleted = open.file.is_held() && is_deleted(open);
        if open.written
            && let Some(WriterLimit::OfDisk(most_bytes)) = open.settings.writer_limit()
        {
            let devices = open.ids.iter().map(|id| id.device).collect();
            self.last_written = Some((devices, most_bytes));
        }
        if !wanted || deleted {
            return self.table.unshelved(number);
        }
        if self.trace.is_none() {
            for part in ours.iter() {
                open.shelved.insert(part);
            }
        }
        let small = SmallFile {
            number,
            file: Arc::clone(&open.file),
            label: match (&open.overlay, open.ids.first()) {
                (None, Some(id)) => Label::known(*id),
                _ => Label::default(),
            },
            mode,
            // Where cachestat does not see its pages, only writeback shows whether it is clean.
            written: open.written || open.close_unseen || !open.file.is_seen_by_cachestat(),
            unwritten_bytes: if open.written { ours.bytes() } else { 0 },
            ours,
            held,
            writeback_sign: open.writeback_sign.clone(),
            inode: self.inodes.kernel_inode(open.inode),
        };
        self.small.closed(&open.disk, small);
    }

    /// Has opens wait while too much of closed small files is unwritten. Most likely all of them
    /// are where the last one is.
    pub(crate) fn tell_excess(&mut self) {
        let (Some(sink), Some((devices, most_bytes))) = (&self.excess, &self.last_written) else {
            return;
        };
        if self.small.totals().unwritten_bytes > *most_bytes {
            // Programs must not wait until the grace of these files is over.
            self.small.hurry();
            devices.iter().for_each(|device| sink.tell(*device));
        }
    }

    fn forget(&mut self, number: FileNumber) {
        let Some(open) = self.files.remove(&number) else {
            return;
        };
        for id in &open.ids {
            if self.by_id.get(id) == Some(&number) {
                self.by_id.remove(id);
            }
        }
        self.note_failure(&open);
        self.count_kept(&open);
        if let (Some(before), None) = (open.before, &self.trace) {
            if self.forgotten.len() >= FORGOTTEN_FILES {
                self.forgotten.clear();
            }
            self.forgotten.insert(open.ids[0], (monotonic_ns(), before));
        }
    }

    /// Says what is known of a file's writeback from asking it, as nothing traces failures.
    fn note_failure(&mut self, open: &OpenFile) {
        let sign = open.writeback_sign.as_ref();
        let Some(sign) = sign.filter(|_| self.failed_writeback.is_none()) else {
            return;
        };
        if sign.has_failed() {
            let path = shown(open.used().map(path_of).unwrap_or_default());
            lock(&self.board).user_note(format!(
                "writing back {path} failed: its pages stay cached, since the disk does not have \
                 them"
            ));
        } else if sign.cannot_be_asked() && open.counted {
            lock(&self.board).note(
                "some files cannot be asked whether writing them back failed: what is written to \
                 them stays cached",
            );
        }
    }

    /// Counts as kept what is cached of a file in the end and was not to be dropped.
    fn count_kept(&mut self, open: &OpenFile) {
        if !open.settings.mode.drops() || open.has_failed_writeback() {
            return;
        }
        // What came since the open is the program's, which may be about to open the file again.
        let others_bytes = match &open.before {
            Some(before) if self.trace.is_none() && open.settings.reads => before.cached_bytes,
            _ => u64::MAX,
        };
        if others_bytes == 0 || open.is_out_of_the_cache {
            return self.count_kept_bytes(open, open.ids[0], 0, 0);
        }
        let kept_of = |cached_bytes: u64| {
            cached_bytes
                .saturating_sub(open.left_bytes)
                .min(others_bytes)
        };
        if open.file.is_device() {
            let unclear_bytes = open.unclear.bytes();
            let cached_bytes = kept_of(open.cached_bytes);
            return self.count_kept_bytes(open, open.ids[0], cached_bytes, unclear_bytes);
        }
        let Ok(file) = open.file.open() else {
            // Another process has a lease on it, or its mount is not where it was.
            return lock(&self.board).user_note(
                "some files could not be opened again when programs had closed them: how much of \
                 them is still cached is not known",
            );
        };
        // A deleted file's pages go with its last description.
        let Ok(info) = file_stat(file.as_fd()) else {
            return;
        };
        if info.links == 0 {
            return self.count_kept_bytes(open, info.id, 0, 0);
        }
        let Ok(cached) = cached_pages(file.as_fd(), 0, 0) else {
            return;
        };
        let unclear = open.unclear.iter();
        let unclear = unclear.map(|part| cached_pages(file.as_fd(), part.start, part.len()));
        let unclear: u64 = unclear.filter_map(Result::ok).sum();
        let (cached, unclear) = (cached * page_size(), unclear * page_size());
        self.count_kept_bytes(open, info.id, kept_of(cached), unclear);
    }

    /// Of the pages that are cached, it is not known of up to `unclear_bytes` who brought them in.
    fn count_kept_bytes(
        &mut self,
        open: &OpenFile,
        id: FileId,
        cached_bytes: u64,
        unclear_bytes: u64,
    ) {
        let unclear_bytes = unclear_bytes.min(cached_bytes);
        let kept_bytes = cached_bytes - unclear_bytes;
        if unclear_bytes > 0 {
            let mut board = lock(&self.board);
            let sums = board.sums(&open.disk, &open.rule);
            sums.unclear_bytes += unclear_bytes;
            board.note(
                "of some pages it is not known whether an observed program brought them in: they \
                 stay cached",
            );
        }
        let now = (kept_bytes > 0).then(|| Counted {
            disk: open.disk.clone(),
            rule: open.rule.clone(),
            bytes: kept_bytes,
        });
        // It may have counted for another rule.
        let gone = self.kept.count(id, now.clone());
        let mut board = lock(&self.board);
        for counted in gone {
            let sum = &mut board.sums(&counted.disk, &counted.rule).kept_bytes;
            *sum = sum.saturating_sub(counted.bytes);
        }
        if let Some(now) = now {
            board.sums(&now.disk, &now.rule).kept_bytes += now.bytes;
        }
    }
}
