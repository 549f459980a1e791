//! What the kernel does: it tells of opens, closes and pages added, writes back and
//! reclaims.

use std::collections::VecDeque;
use std::ops::Range;

use dropbehind_policy::ByteRange;

use crate::cache::bytes_of;
use crate::plan::MS;
use crate::world::World;

/// What the kernel writes by itself is so old.
const OLD_NS: u64 = 30_000 * MS;

/// Something happened to a file: what merged is told at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Event {
    pub(crate) file: usize,
    pub(crate) program: usize,
    pub(crate) opened: bool,
    pub(crate) closed: bool,
    /// Of the closes, one by somebody who could write.
    pub(crate) by_writer: bool,
    /// Written to for the first time.
    pub(crate) wrote: bool,
    /// Read for the first time.
    pub(crate) read: bool,
}

/// Pages were added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) at_ns: u64,
    pub(crate) add: u32,
    pub(crate) program: usize,
    pub(crate) file: usize,
    pub(crate) range: ByteRange,
    /// All that is told of it is that some record was lost, at the time when that is noticed.
    pub(crate) lost: bool,
    pub(crate) noticed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    pub(crate) events: VecDeque<Event>,
    /// Closes that the kernel does a little later.
    late: Vec<(u64, Event)>,
    pub(crate) trace: VecDeque<Record>,
    pub(crate) adds: u32,
    losses: u32,
    writeback: VecDeque<(usize, Range<usize>)>,
}

/// A moment in the trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    adds: u32,
    losses: u32,
}

impl Kernel {
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            adds: self.adds,
            losses: self.losses,
        }
    }

    /// The last add that is known to have been reported, if all was until the mark; `None` if a
    /// record has been lost since.
    pub(crate) fn reported_add(&self, mark: Mark) -> Option<u32> {
        (mark.losses == self.losses).then_some(mark.adds)
    }
}

impl World {
    pub(crate) fn happens(&mut self, event: Event) {
        if self.random.chance(self.plan.merge_in_thousand)
            && let Some(same) = self
                .kernel
                .events
                .iter_mut()
                .rev()
                .find(|other| (other.file, other.program) == (event.file, event.program))
        {
            same.opened |= event.opened;
            same.closed |= event.closed;
            same.by_writer |= event.by_writer;
            same.wrote |= event.wrote;
            same.read |= event.read;
            self.coverage.saw("merged events");
            return;
        }
        self.kernel.events.push_back(event);
    }

    pub(crate) fn closes(&mut self, event: Event) {
        if self.random.chance(self.plan.untold_close_in_thousand) {
            self.coverage.saw("closes never told");
        } else if self.random.chance(self.plan.late_close_in_thousand) {
            self.coverage.saw("closes told late");
            let due_ns = self.now_ns + self.random.below(20 * self.plan.step_ns);
            self.kernel.late.push((due_ns, event));
        } else {
            self.happens(event);
        }
    }

    /// A program needs these pages in the cache.
    pub(crate) fn bring(&mut self, program: usize, file: usize, pages: Range<usize>) {
        let ours = self.programs[program].observed;
        self.kernel.adds += 1;
        let first_add = self.kernel.adds;
        let absent = self.files[file].bring(pages, ours, first_add);
        let mut rest = absent.into_iter().peekable();
        while let Some(first) = rest.next() {
            let mut end = first + 1;
            while rest.next_if_eq(&end).is_some() {
                end += 1;
            }
            self.added(program, file, first..end);
        }
    }

    fn added(&mut self, program: usize, file: usize, pages: Range<usize>) {
        let add = self.kernel.adds;
        let range = bytes_of(pages.clone());
        if self.random.chance(self.plan.batch_in_thousand) {
            let until_ns = self.now_ns + self.random.below(self.plan.batch_ns);
            let last = pages.end - 1;
            self.files[file].pin(last..pages.end, until_ns);
        }
        let lost = self.random.chance(self.plan.lost_in_thousand);
        if lost {
            self.coverage.saw("lost records");
            self.kernel.losses += 1;
            self.files[file].lose_record(range, add);
        }
        self.say(|| format!("file {file} add {add} {range:?} by {program}, lost: {lost}"));
        self.kernel.trace.push_back(Record {
            at_ns: self.now_ns,
            add,
            program,
            file,
            range,
            lost,
            noticed: false,
        });
    }

    pub(crate) fn start_writeback(&mut self, file: usize, range: ByteRange) {
        let queue = &mut self.kernel.writeback;
        self.files[file].start_writeback(file, range, queue);
    }

    /// All that is on its way arrives.
    pub(crate) fn end_writeback(&mut self) {
        for (file, pages) in std::mem::take(&mut self.kernel.writeback) {
            self.files[file].end_writeback(pages);
        }
    }

    pub(crate) fn kernel_step(&mut self) {
        let now_ns = self.now_ns;
        let late = std::mem::take(&mut self.kernel.late);
        for (due_ns, event) in late {
            match due_ns <= now_ns {
                true => self.happens(event),
                false => self.kernel.late.push((due_ns, event)),
            }
        }
        // What takes minutes is left at last, and that is not what the end is to show.
        if self.ending || self.random.chance(self.plan.lump_in_thousand) {
            self.write_lump();
        }
        for file in 0..self.files.len() {
            let since_ns = self.files[file].dirty_since_ns;
            if since_ns.is_some_and(|since_ns| now_ns >= since_ns + OLD_NS) {
                self.start_writeback(file, ByteRange::WHOLE);
            }
        }
        if self.random.chance(self.plan.reclaim_in_thousand) {
            self.reclaim();
        }
    }

    fn write_lump(&mut self) {
        let mut room = self.plan.lump_pages;
        while room > 0
            && let Some((file, pages)) = self.kernel.writeback.pop_front()
        {
            let end = pages.end.min(pages.start + room);
            self.files[file].end_writeback(pages.start..end);
            room -= end - pages.start;
            if end < pages.end {
                self.kernel.writeback.push_front((file, end..pages.end));
            }
        }
    }

    pub(crate) fn reclaim(&mut self) {
        let file = self.random.below(self.files.len() as u64) as usize;
        let most = self.files[file].most_pages() as u64;
        let first = self.random.below(most);
        let end = first + 1 + self.random.below(most - first);
        let range = bytes_of(first as usize..end as usize);
        let gone = self.files[file].drop_clean(self.now_ns, range).len() as u64;
        self.say(|| format!("file {file} {gone} pages of {range:?} reclaimed"));
        self.coverage.saw_times("reclaimed pages", gone);
    }
}
