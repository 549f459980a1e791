//! The disk's thread: reads what it is told, looks at files, and does what the policy
//! says.

use std::collections::BTreeMap;

use dropbehind_policy::observed_stream::ProvenanceKind;
use dropbehind_policy::residency::ResidencyMap;
use dropbehind_policy::{
    Action, Brought, ByteRange, Disk, DiskConfig, Dropped, FileNumber, Inspected, Next,
    ObservedStream, ObservedStreamConfig, StreamConfig, StreamId, Unread,
};

use crate::cache::PAGE;
use crate::kernel::Mark;
use crate::observer::Input;
use crate::world::World;

/// What a stream is told.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) told: Vec<Brought>,
    /// After that: what was decided.
    pub(crate) decided: Vec<(ByteRange, bool)>,
    /// With this, all adds of its file up to this one were told.
    pub(crate) upto_add: u32,
}

impl Letter {
    /// What it says to whoever drops the file's pages next.
    pub(crate) fn unread(self) -> impl Iterator<Item = Unread> {
        let stays = self.decided.into_iter().filter(|(_, stays)| *stays);
        let stays = stays.map(|(range, _)| Unread::Stays(range));
        self.told.into_iter().map(Unread::Brought).chain(stays)
    }
}

/// What is kept of an observed file.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) number: FileNumber,
    pub(crate) file: usize,
    pub(crate) looks: ObservedStream,
    pub(crate) closed: bool,
    /// All adds of the file up to this one were read.
    pub(crate) told_add: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Closed,
    Reopened,
}

#[derive(Clone, Debug)]
pub(crate) struct Threads {
    pub(crate) disk: Disk,
    pub(crate) watches: BTreeMap<StreamId, Watch>,
    pub(crate) letters: BTreeMap<StreamId, Vec<Letter>>,
    /// Streams whose files were closed, or opened again.
    pub(crate) uses: Vec<(StreamId, Use)>,
    pub(crate) flushes: bool,
    actions_at_once: (u64, u64),
}

impl Threads {
    pub(crate) fn new() -> Threads {
        Threads {
            disk: Disk::new(DiskConfig::default()),
            watches: BTreeMap::new(),
            letters: BTreeMap::new(),
            uses: Vec::new(),
            flushes: false,
            actions_at_once: (0, 0),
        }
    }

    pub(crate) fn take_letters(&mut self, stream: StreamId) -> Vec<Letter> {
        self.letters.remove(&stream).unwrap_or_default()
    }
}

impl World {
    pub(crate) fn attach(&mut self, number: FileNumber, file: usize, stream: StreamId) {
        let config = StreamConfig {
            traced: true,
            observed: true,
            ..StreamConfig::default()
        };
        let disk = &mut self.threads.disk;
        disk.opened(stream, config, ResidencyMap::unknown());
        let watch = Watch {
            number,
            file,
            looks: ObservedStream::new(ObservedStreamConfig {
                id: stream,
                mode: self.plan.files[file].mode,
                reads: self.plan.files[file].reads,
                provenance: ProvenanceKind::Traced,
                size_bytes: self.files[file].size_pages as u64 * PAGE,
                block_device: false,
                only_written: false,
                written_from: self.files[file].size_pages as u64 * PAGE,
                lag_bytes: self.plan.lag_bytes,
                page_bytes: PAGE,
            }),
            closed: false,
            told_add: 0,
        };
        self.threads.watches.insert(stream, watch);
    }

    /// True when something was done.
    pub(crate) fn disk_step(&mut self) -> bool {
        self.read_inbox();
        let mut busy = self.look_around();
        for _ in 0..64 {
            let next = self.threads.disk.next(self.now_ns);
            match next {
                Next::Do(action) => {
                    busy = true;
                    let now_ns = self.now_ns;
                    let (at_ns, actions) = &mut self.threads.actions_at_once;
                    *actions = if *at_ns == now_ns { *actions + 1 } else { 0 };
                    *at_ns = now_ns;
                    assert!(*actions < 10_000, "the policy spins");
                    self.execute(action);
                    self.work();
                }
                Next::At(due_ns) => {
                    assert!(due_ns > self.now_ns, "the policy spins");
                    break;
                }
                Next::Idle => break,
            }
        }
        busy
    }

    fn read_inbox(&mut self) {
        let streams: Vec<StreamId> = self.threads.letters.keys().copied().collect();
        for stream in streams {
            // What comes too late stays for whoever asks.
            if !self.threads.watches.contains_key(&stream) {
                continue;
            }
            self.read_letters(stream);
        }
        for (stream, used) in std::mem::take(&mut self.threads.uses) {
            let Some(watch) = self.threads.watches.get_mut(&stream) else {
                continue;
            };
            watch.closed = used == Use::Closed;
            match used {
                Use::Closed => watch.looks.closed(self.files[watch.file].unlinked),
                Use::Reopened => {
                    self.coverage
                        .saw("files opened again while their streams live");
                    watch.looks.reopened(self.now_ns, &mut self.threads.disk);
                }
            }
            self.look_at(stream);
        }
        if std::mem::take(&mut self.threads.flushes) {
            self.flushed = true;
            let streams: Vec<StreamId> = self.threads.watches.keys().copied().collect();
            for stream in streams {
                if let Some(watch) = self.threads.watches.get_mut(&stream) {
                    watch.looks.flush();
                }
                self.look_at(stream);
            }
        }
    }

    fn read_letters(&mut self, stream: StreamId) {
        for letter in self.threads.take_letters(stream) {
            self.told(stream, letter);
        }
    }

    fn told(&mut self, stream: StreamId, letter: Letter) {
        let now_ns = self.now_ns;
        let Some(watch) = self.threads.watches.get_mut(&stream) else {
            return;
        };
        watch.told_add = watch.told_add.max(letter.upto_add);
        if watch.closed {
            self.coverage.saw("streams of closed files");
        }
        let disk = &mut self.threads.disk;
        watch.looks.brought(now_ns, disk, letter.told);
        for (range, stays) in letter.decided {
            disk.decided(now_ns, stream, range, stays);
        }
    }

    fn execute(&mut self, action: Action) {
        let stream = action.stream();
        self.say(|| format!("{action:?}"));
        let Some(watch) = self.threads.watches.get(&stream) else {
            panic!("{action:?} of a stream that is not known");
        };
        let (number, file) = (watch.number, watch.file);
        self.meddle(file);
        let now_ns = self.now_ns;
        let forgets = matches!(action, Action::Forget { .. });
        if !forgets && self.random.chance(self.plan.fail_in_thousand) {
            self.coverage.saw("streams that failed");
            self.excuse(file);
            return self.threads.disk.failed(now_ns, stream);
        }
        match action {
            Action::StartWriteback { range, .. } => self.start_writeback(file, range),
            Action::Count { range, .. } => {
                let counted = self.files[file].count(range);
                self.threads.disk.counted(now_ns, stream, range, counted);
            }
            Action::Drop { ranges, .. } => self.drop_ranges(stream, file, ranges),
            Action::Inspect { .. } => {
                let unlinked = self.files[file].unlinked;
                let inspected = Inspected { unlinked };
                self.threads.disk.inspected(now_ns, stream, inspected);
            }
            Action::Forget { .. } => {
                self.watch_forgotten(stream, file);
                self.threads.watches.remove(&stream);
                let finished = Input::Finished(number, stream);
                self.observer.inputs.push_back(finished);
            }
        }
        self.meddle(file);
    }

    fn drop_ranges(&mut self, stream: StreamId, file: usize, ranges: Vec<ByteRange>) {
        let reported = self.observer.reported;
        self.meddle(file);
        self.observe_meanwhile();
        let now_ns = self.now_ns;
        if self.threads.letters.contains_key(&stream) {
            self.coverage.saw("stream drops put off for reports");
            let outcomes = ranges.into_iter().map(|range| (range, Dropped::Unreported));
            self.threads.disk.dropped(now_ns, stream, outcomes);
            return self.read_letters(stream);
        }
        let mut outcomes = Vec::new();
        for range in ranges {
            outcomes.push((range, self.drop_range(stream, file, range, reported)));
            self.meddle(file);
        }
        self.threads.disk.dropped(self.now_ns, stream, outcomes);
    }

    fn drop_range(
        &mut self,
        stream: StreamId,
        file: usize,
        range: ByteRange,
        reported: Mark,
    ) -> Dropped {
        self.coverage.saw("stream drops");
        let before = self.files[file].count(range);
        if before.unwritten_bytes() > 0 {
            self.coverage.saw("stream drops of dirty pages");
            return Dropped::NotClean;
        }
        let Some(reported_add) = self.kernel.reported_add(reported) else {
            self.coverage.saw("stream drops put off for losses");
            return Dropped::Unreported;
        };
        if self.threads.watches[&stream].closed {
            self.excuse_mapped(file, range);
        }
        let mut gone = Vec::new();
        for part in self.files[file].unchanged_since(range, reported_add) {
            gone.extend(self.files[file].drop_clean(self.now_ns, part));
        }
        self.start_writeback(file, range);
        self.watch_drop(file, &gone, true);
        self.watch_unread(stream, &gone);
        if self.files[file].has_arrivals(range, reported_add) {
            self.coverage.saw("stream drops put off for arrivals");
            return Dropped::Unreported;
        }
        let after = self.files[file].count(range);
        if after.unwritten_bytes() > 0 {
            self.coverage.saw("stream drops of dirty pages");
            return Dropped::NotClean;
        }
        let again = u64::from(after.cached_bytes > 0);
        self.coverage.saw_times("stream drops to try again", again);
        Dropped::Tried {
            before_bytes: Some(before.cached_bytes),
            after_bytes: after.cached_bytes,
        }
    }
}
