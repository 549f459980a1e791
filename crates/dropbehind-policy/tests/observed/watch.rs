//! What must hold.
//!
//! * A page that an outsider brought in last is not dropped.
//! * What is dirty or on its way to the disk stays ([`File`](crate::cache::File) sees
//!   to that), and the shelf drops nothing that was not clean when it was looked at.
//! * What readers have not passed since it was told stays, and what was to stay for
//!   good, too.
//! * What waits to be used again does not go before that is decided, unless somebody asks for
//!   everything, and what was used again stays.
//! * Nothing is done with a file that is not known, or for a stream that is not there.
//! * What streams and the shelf were given is dropped, left, or used again, and nothing waits in
//!   the end.
//! * What was used again is counted, wherever it was when that was decided.
//! * In the end, what is cached of ours was counted as left, and nothing is where
//!   nothing held it.

use dropbehind_policy::{ByteRange, FileAction, ShelfPlace, StreamId};

use crate::cache::{Gone, PAGE, bytes_of};
use crate::world::World;

/// What may be left of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Leftovers {
    /// Counted as left.
    left_bytes: u64,
    /// Something may be left.
    excused: bool,
    /// And that is not counted.
    uncounted: bool,
}

impl World {
    /// The plan has something that keeps pages of the file from going.
    pub(crate) fn excuse(&mut self, file: usize) {
        self.leftovers[file].excused = true;
    }

    /// Mapped after the last close was told, its pages are given up at last.
    pub(crate) fn excuse_mapped(&mut self, file: usize, range: ByteRange) {
        if self.files[file].is_mapped(range) {
            self.coverage.saw("drops of mapped pages");
            self.excuse(file);
        }
    }

    /// The file was left to the kernel.
    pub(crate) fn refused(&mut self, file: usize) {
        self.leftovers[file].uncounted = true;
    }

    pub(crate) fn watch_file_action(&self, action: &FileAction) {
        let (number, needs_stream) = match action {
            FileAction::Stream(number) => (number, Some(false)),
            FileAction::Report(number, _) | FileAction::Close(number) => (number, Some(true)),
            FileAction::Shelve(number, ..)
            | FileAction::Release(number)
            | FileAction::Decide(number, ..)
            | FileAction::DecideShelved(number, ..)
            | FileAction::Forget(number) => (number, None),
        };
        let Some(known) = self.observer.known.get(number) else {
            panic!("{action:?} of a file that is not known");
        };
        if let Some(needed) = needs_stream {
            let there = known.stream.is_some();
            assert_eq!(there, needed, "{action:?}: is there a stream?");
        }
    }

    pub(crate) fn watch_drop(&mut self, file: usize, gone: &[Gone], by_stream: bool) {
        self.watch_held(file, gone);
        for page in gone {
            assert!(
                !(by_stream && page.kept && !page.lost),
                "a page that was to stay went: file {file} {page:?}"
            );
            assert!(page.ours, "an outsider's page went: file {file} {page:?}");
        }
    }

    /// What waits for a decision does not go before that.
    fn watch_held(&self, file: usize, gone: &[Gone]) {
        let number = self.observer.known.iter();
        let mut number = number.filter(|(_, known)| known.file == file);
        let Some((number, _)) = number.next().filter(|_| !self.flushed) else {
            return;
        };
        let reuse = &self.observer.table.reuse;
        for page in gone {
            let range = bytes_of(page.page..page.page + 1);
            let told = page.add <= self.observer.told_add[file] && !page.lost;
            let waits = told && !reuse.waiting_of(*number, range).is_empty();
            assert!(!waits, "a page that waits went: file {file} {page:?}");
        }
    }

    /// What has been brought in and not been read does not go.
    pub(crate) fn watch_unread(&self, stream: StreamId, gone: &[Gone]) {
        let watch = &self.threads.watches[&stream];
        for page in gone {
            let range = bytes_of(page.page..page.page + 1);
            let told = page.add <= watch.told_add && !page.lost;
            let unread = told && watch.looks.is_unread(range);
            assert!(!unread, "{page:?} went before it was read");
        }
    }

    pub(crate) fn watch_forgotten(&mut self, stream: StreamId, file: usize) {
        let counters = self.threads.disk.forgotten(stream);
        let counters = *counters.expect("it was forgotten a moment ago");
        self.say(|| format!("file {file}: {counters:?}"));
        let fates_bytes = counters.dropped_bytes + counters.left_bytes + counters.reused_bytes;
        assert_eq!(counters.brought_bytes, fates_bytes, "{counters:?}");
        self.reused_bytes += counters.reused_bytes;
        let counts = self.threads.watches[&stream].looks.final_counts();
        assert!(counts.reread_bytes <= counts.read_bytes, "{counts:?}");
        self.leftovers[file].left_bytes += counters.left_bytes;
        self.coverage.saw("streams done with");
        let left = u64::from(counters.left_bytes > 0);
        self.coverage.saw_times("streams that left pages", left);
    }

    pub(crate) fn watch_shelf(&self) {
        let bytes: u64 = self.small.places.values().map(|place| place.bytes).sum();
        assert_eq!(self.small.shelf.waiting_bytes(), bytes);
    }

    pub(crate) fn watch_shelf_done(
        &mut self,
        place: ShelfPlace,
        dropped_bytes: u64,
        left_bytes: u64,
    ) {
        let Some(small) = self.small.places.remove(&place) else {
            panic!("{place:?} is done with twice");
        };
        assert_eq!(small.bytes, dropped_bytes + left_bytes);
        self.leftovers[small.file].left_bytes += left_bytes;
        if left_bytes > 0 && small.unwritten_bytes != Some(0) {
            self.coverage.saw("shelf files the disk was too slow for");
            self.excuse(small.file);
        }
        let left = u64::from(left_bytes > 0);
        self.coverage.saw_times("shelf files that left pages", left);
    }

    /// Everything has come to its end.
    pub(crate) fn watch_end(&self) {
        assert!(self.small.shelf.is_empty());
        assert_eq!(self.small.shelf.waiting_bytes(), 0);
        assert_eq!(self.observer.table.waiting_bytes(), 0);
        assert_eq!(self.threads.disk.asked_bytes(), 0);
        assert_eq!(self.threads.disk.stream_count(), 0);
        assert!(self.observer.known.is_empty(), "{:?}", self.observer.known);
        assert_eq!(self.observer.table.reuse.waiting_bytes(), 0);
        let mut stayed_bytes = 0;
        for (number, file) in self.files.iter().enumerate() {
            let leftovers = self.leftovers[number];
            if file.unlinked || leftovers.uncounted {
                continue;
            }
            let plan = &self.plan.files[number];
            if !leftovers.excused && plan.reads && plan.mode.keeps_reused() {
                stayed_bytes += file.reused_pages() * PAGE;
            }
            let pages = file.forgotten_pages();
            let bytes = pages.len() as u64 * PAGE;
            let allowed_bytes = match leftovers.excused {
                true => leftovers.left_bytes,
                false => 0,
            };
            assert!(
                bytes <= allowed_bytes,
                "file {number}: {bytes} bytes of ours are cached, {leftovers:?}; page {:?}: {}",
                pages.first(),
                file.describe(*pages.first().unwrap_or(&0)),
            );
        }
        let reused_bytes = self.reused_bytes + self.observer.table.reused_bytes();
        assert!(
            stayed_bytes <= reused_bytes,
            "{stayed_bytes} bytes stay, since they were used again, and {reused_bytes} count"
        );
    }
}
