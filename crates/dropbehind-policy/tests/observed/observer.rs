//! The observer's thread: in rounds, it reads events, then the trace up to the moment
//! before, counts the closes of the round before, and does what the table says.

use std::collections::{BTreeMap, VecDeque};

use dropbehind_policy::grace::SMALL_FILE_BYTES;
use dropbehind_policy::{
    Brought, ByteRange, Fate, FileAction, FileNumber, Inode, ObservedFiles, RangeSet, StreamId,
    Unread, Used, Writeback,
};

use crate::disk_thread::{Letter, Use};
use crate::kernel::{Event, Mark, Record};
use crate::plan::{MS, Plan};
use crate::small_files::SmallMessage;
use crate::world::World;

/// What the other threads tell it.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Finished(FileNumber, StreamId),
    Unshelved(FileNumber),
    CloseAll,
}

/// A file the observer has a descriptor of.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) file: usize,
    pub(crate) stream: Option<StreamId>,
    written: bool,
    /// Whether it is open is to be looked for then, and how long after that again.
    doubt_ns: u64,
    pause_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Observer {
    pub(crate) table: ObservedFiles,
    pub(crate) known: BTreeMap<FileNumber, Known>,
    by_file: BTreeMap<usize, FileNumber>,
    last_number: u64,
    last_stream: u64,
    closes: Vec<Event>,
    pub(crate) inputs: VecDeque<Input>,
    /// All that was brought in before was reported.
    pub(crate) reported: Mark,
    /// Nobody had these open in the round before.
    unused: Vec<FileNumber>,
    /// Brought into files that were not known.
    orphans: BTreeMap<usize, RangeSet>,
    /// The last add of each file that was told.
    pub(crate) told_add: Vec<u32>,
}

impl Observer {
    pub(crate) fn new(files: usize, plan: &Plan) -> Observer {
        let mut observer = Observer {
            told_add: vec![0; files],
            ..Observer::default()
        };
        observer.table.reuse.set_memory(plan.memory_bytes, None);
        observer
    }
}

fn inode_of(file: usize) -> Inode {
    Inode {
        device: 1,
        number: file as u64,
    }
}

impl World {
    pub(crate) fn observer_round(&mut self) {
        let mark = self.kernel.mark();
        self.take_inputs();
        let until_ns = self.now_ns;
        self.interleave();
        let closes = self.read_events();
        self.interleave();
        self.read_trace(until_ns);
        let closes = std::mem::replace(&mut self.observer.closes, closes);
        for close in closes {
            self.count_close(close);
        }
        for number in std::mem::take(&mut self.observer.unused) {
            self.coverage.saw("files nobody has open");
            self.observer.table.closed_by_all(number);
        }
        self.act();
        self.observer.reported = mark;
        self.settle_doubts();
    }

    fn take_inputs(&mut self) {
        while let Some(input) = self.observer.inputs.pop_front() {
            self.say(|| format!("{input:?}"));
            match input {
                Input::Unshelved(number) => self.observer.table.unshelved(number),
                Input::CloseAll => {
                    self.coverage.saw("all closed at once");
                    self.decide(true);
                    self.act();
                    self.observer.table.close_all();
                }
                Input::Finished(number, stream) => {
                    let unread = self.threads.take_letters(stream);
                    let unread: Vec<Unread> = unread.into_iter().flat_map(Letter::unread).collect();
                    if !unread.is_empty() {
                        self.coverage.saw("streams done with something unread");
                    }
                    let known = self.observer.known.get_mut(&number);
                    known.expect("a stream's file is known").stream = None;
                    self.observer.table.stream_finished(number, unread);
                }
            }
        }
    }

    fn read_events(&mut self) -> Vec<Event> {
        let mut closes = Vec::new();
        while let Some(event) = self.kernel.events.pop_front() {
            if event.wrote || event.read {
                self.was_used(event);
            }
            if event.opened {
                self.was_opened(event);
            }
            if event.closed {
                closes.push(event);
            }
            self.interleave();
        }
        closes
    }

    fn was_used(&mut self, event: Event) {
        let Some(&number) = self.observer.by_file.get(&event.file) else {
            return;
        };
        if event.wrote {
            self.observer.table.stream(number);
        }
        if event.read
            && let Some(stream) = self.observer.known[&number].stream
            && let Some(watch) = self.threads.watches.get_mut(&stream)
        {
            watch.looks.was_read();
        }
    }

    fn was_opened(&mut self, event: Event) {
        match self.observer.by_file.get(&event.file) {
            Some(&number) => {
                self.observer.unused.retain(|unused| *unused != number);
                self.opened(number);
            }
            None if self.programs[event.program].observed => {
                self.admit(event.file);
            }
            None => {}
        }
    }

    fn opened(&mut self, number: FileNumber) {
        let known = &self.observer.known[&number];
        let table = &self.observer.table;
        let any_open = self.observer.known.keys().any(|file| table.is_open(*file));
        if !any_open && known.stream.is_some() {
            self.coverage.saw("files opened again while done with");
        }
        let inode = inode_of(known.file);
        self.threads
            .uses
            .extend(known.stream.map(|id| (id, Use::Reopened)));
        self.observer.table.opened(number, inode);
        let pause_ns = (20 * MS) << self.random.below(6);
        if let Some(known) = self.observer.known.get_mut(&number) {
            known.pause_ns = pause_ns;
            known.doubt_ns = known.doubt_ns.min(self.now_ns + pause_ns);
        }
    }

    fn admit(&mut self, file: usize) -> FileNumber {
        self.observer.last_number += 1;
        let number = FileNumber(self.observer.last_number);
        let known = Known {
            file,
            stream: None,
            written: false,
            doubt_ns: u64::MAX,
            pause_ns: 0,
        };
        self.observer.known.insert(number, known);
        self.observer.by_file.insert(file, number);
        self.opened(number);
        let from = self.files[file].size_pages as u64 * crate::cache::PAGE;
        let past = Some((inode_of(file), 0));
        self.observer.table.reuse.opened(number, past, from);
        for range in self
            .observer
            .orphans
            .remove(&file)
            .iter()
            .flat_map(RangeSet::iter)
        {
            let brought = Brought::new(range, true);
            self.brought_of(file, number, brought);
        }
        number
    }

    fn read_trace(&mut self, until_ns: u64) {
        let unread = self.notice_losses();
        let mut run: Option<Record> = None;
        while let Some(&record) = self.kernel.trace.front()
            && record.at_ns <= until_ns
        {
            self.kernel.trace.pop_front();
            match &mut run {
                _ if record.lost => {
                    if let Some(run) = run.take() {
                        self.brought(run);
                    }
                    self.records_lost(record.add);
                }
                Some(run)
                    if (run.program, run.file) == (record.program, record.file)
                        && run.range.end == record.range.start =>
                {
                    run.range.end = record.range.end;
                    run.add = record.add;
                }
                _ => {
                    if let Some(run) = run.replace(record) {
                        self.brought(run);
                    }
                }
            }
        }
        if let Some(run) = run {
            self.brought(run);
        }
        if unread {
            // Before which of the records, nobody knows.
            self.records_lost(self.kernel.adds);
        }
    }

    /// Nobody knows when a loss happened. So it comes after all records that are there. Returns
    /// whether there is one.
    fn notice_losses(&mut self) -> bool {
        let adds = self.kernel.adds;
        let now_ns = self.now_ns + 1;
        let is_new = |record: &Record| record.lost && !record.noticed;
        let trace = self.kernel.trace.make_contiguous();
        for record in trace.iter_mut().filter(|record| is_new(record)) {
            (record.at_ns, record.add, record.noticed) = (now_ns, adds, true);
        }
        trace.sort_by_key(|record| record.at_ns);
        self.kernel.trace.iter().any(|record| record.lost)
    }

    /// Whatever was brought in before may stay.
    fn records_lost(&mut self, add: u32) {
        self.observer.table.records_lost();
        self.observer.orphans.clear();
        for (file, told_add) in self.observer.told_add.iter_mut().enumerate() {
            *told_add = add;
            self.files[file].lose(ByteRange::WHOLE, add);
        }
    }

    fn brought(&mut self, run: Record) {
        let Record {
            add,
            program,
            file,
            range,
            ..
        } = run;
        self.observer.told_add[file] = add;
        let ours = self.programs[program].observed;
        let number = match *self.observer.table.of_inode(inode_of(file)) {
            [number] => number,
            [] if ours && self.programs[program].has(file) => {
                self.coverage.saw("files found by a record");
                self.admit(file)
            }
            [] => return self.note_orphan(file, range, ours, add),
            [..] => panic!("two files have one inode"),
        };
        self.brought_of(file, number, Brought::new(range, ours));
    }

    fn brought_of(&mut self, file: usize, number: FileNumber, brought: Brought) {
        let tries = brought.ours && self.plan.files[file].mode.keeps_reused();
        let table = &mut self.observer.table;
        match tries {
            true => table.brought_to_try(number, brought.range, [Some(1 << 40), None]),
            false => table.brought_of(number, brought),
        }
    }

    fn decide(&mut self, all: bool) {
        let (files, sees_uses) = (&self.files, self.plan.sees_uses);
        let look = |inode: Inode, part| {
            let used = files[inode.number as usize].used(part);
            (part, if sees_uses { used } else { Used::default() })
        };
        self.observer.table.decide(all, look, |_, _| 0);
    }

    fn note_orphan(&mut self, file: usize, range: ByteRange, ours: bool, add: u32) {
        self.coverage.saw("records of unknown files");
        let orphans = self.observer.orphans.entry(file).or_default();
        match ours {
            true => {
                orphans.insert(range);
                self.files[file].lose(range, add);
            }
            false => {
                orphans.remove(range);
            }
        }
    }

    fn count_close(&mut self, close: Event) {
        let Some(&number) = self.observer.by_file.get(&close.file) else {
            return;
        };
        let Some(known) = self.observer.known.get_mut(&number) else {
            return;
        };
        known.written |= close.by_writer;
        let file = &self.files[close.file];
        let eager = self.plan.files[close.file].mode.writeback != Writeback::Lazy;
        let large = file.size_pages as u64 * crate::cache::PAGE > SMALL_FILE_BYTES;
        if close.by_writer && eager && known.stream.is_none() && large {
            self.observer.table.stream(number);
        }
        self.say(|| format!("close of {number:?} counts"));
        self.observer.table.closed(number);
    }

    fn act(&mut self) {
        self.decide(self.ending);
        let mut actions = 0;
        while let Some(action) = self.observer.table.next() {
            actions += 1;
            assert!(actions < 10_000, "the table has no end of actions");
            self.say(|| format!("{action:?}"));
            self.watch_file_action(&action);
            match action {
                FileAction::Stream(number) => self.stream(number),
                FileAction::Report(number, told) => self.tell(number, told),
                FileAction::Close(number) => {
                    let stream = self.observer.known[&number].stream;
                    self.threads.uses.extend(stream.map(|id| (id, Use::Closed)));
                }
                FileAction::Shelve(number, ours, held) => self.shelve(number, ours, held),
                // Descriptors are not simulated.
                FileAction::Release(_) => {}
                FileAction::Decide(number, range, stays) => {
                    self.saw_decision(number, range, stays);
                    if let Some(letter) = self.letter(number) {
                        letter.decided.push((range, stays));
                    }
                }
                FileAction::DecideShelved(number, range, fate) => {
                    self.coverage.saw(match fate {
                        Fate::Others => "others told to the shelf",
                        Fate::Stays | Fate::Goes => "decisions for shelved files",
                    });
                    let decide = SmallMessage::Decide(number, range, fate);
                    self.small.inbox.push_back(decide);
                }
                FileAction::Forget(number) => self.forget(number),
            }
        }
    }

    fn stream(&mut self, number: FileNumber) {
        let file = self.observer.known[&number].file;
        if self.random.chance(self.plan.refuse_in_thousand) {
            self.coverage.saw("streams refused");
            self.refused(file);
            return self.observer.table.stream_refused(number);
        }
        self.coverage.saw("streams");
        self.observer.last_stream += 1;
        let stream = StreamId(self.observer.last_stream);
        if let Some(known) = self.observer.known.get_mut(&number) {
            known.stream = Some(stream);
        }
        self.attach(number, file, stream);
    }

    fn tell(&mut self, number: FileNumber, told: Vec<Brought>) {
        let known = &self.observer.known[&number];
        let Some(stream) = known.stream else { return };
        self.coverage.saw("told to streams");
        let held = told.iter().filter(|brought| brought.held);
        let pages = held
            .map(|brought| brought.range.len() / crate::cache::PAGE)
            .sum();
        self.coverage.saw_times("pages held by streams", pages);
        let others = told.iter().filter(|brought| !brought.ours).count() as u64;
        self.coverage.saw_times("others told to streams", others);
        let letter = Letter {
            told,
            decided: Vec::new(),
            upto_add: self.observer.told_add[known.file],
        };
        self.threads.letters.entry(stream).or_default().push(letter);
    }

    /// A letter to the file's stream, to be filled.
    fn letter(&mut self, number: FileNumber) -> Option<&mut Letter> {
        let known = &self.observer.known[&number];
        let letters = self.threads.letters.entry(known.stream?).or_default();
        letters.push(Letter {
            told: Vec::new(),
            decided: Vec::new(),
            // What it says of adds is known by the letter before.
            upto_add: 0,
        });
        letters.last_mut()
    }

    fn saw_decision(&mut self, number: FileNumber, range: ByteRange, stays: bool) {
        let file = self.observer.known[&number].file;
        if stays {
            self.coverage.saw("used again and kept");
            let told_add = self.observer.told_add[file];
            self.files[file].keep(range, told_add);
        } else {
            self.coverage.saw("used once and dropped");
        }
    }

    fn shelve(&mut self, number: FileNumber, ours: RangeSet, held: RangeSet) {
        let known = &self.observer.known[&number];
        let (file, written) = (known.file, known.written);
        let plan = self.plan.files[file];
        let wanted = written || plan.reads;
        let refused = self.random.chance(self.plan.refuse_in_thousand);
        if refused {
            self.refused(file);
        }
        if !wanted || refused || self.files[file].unlinked {
            self.coverage.saw("not shelved");
            for range in ours.iter() {
                let told_add = self.observer.told_add[file];
                self.files[file].leave(range, told_add);
            }
            return self.observer.table.unshelved(number);
        }
        self.coverage.saw("shelved");
        self.small
            .inbox
            .push_back(SmallMessage::File(number, file, ours, held, written));
    }

    fn forget(&mut self, number: FileNumber) {
        let known = self.observer.known.remove(&number);
        let file = known.expect("the file is known").file;
        self.observer.by_file.remove(&file);
        self.meddle(file);
    }

    /// Nobody of the observed programs may have a file open whose close was not told.
    fn settle_doubts(&mut self) {
        let now_ns = self.now_ns;
        let programs = &self.programs;
        for (number, known) in &mut self.observer.known {
            if known.doubt_ns > now_ns {
                continue;
            }
            let mut observed = programs.iter().filter(|program| program.observed);
            let used = observed.any(|program| program.has(known.file));
            known.pause_ns *= 2;
            known.doubt_ns = match used {
                true => now_ns + known.pause_ns,
                // Until somebody opens it.
                false => u64::MAX,
            };
            if !used {
                self.observer.unused.push(*number);
            }
        }
    }
}
