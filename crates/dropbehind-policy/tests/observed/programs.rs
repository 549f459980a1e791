//! What programs do to files: the observed ones, and the outsiders.

use std::ops::Range;

use dropbehind_policy::ByteRange;

use crate::cache::{FOR_GOOD, MAPPED};
use crate::kernel::Event;
use crate::world::World;

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) observed: bool,
    pub(crate) opens: Vec<Open>,
}

#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) file: usize,
    writes: bool,
    next: usize,
    wrote: bool,
    read: bool,
    mapped: Option<Range<usize>>,
}

impl Program {
    pub(crate) fn has(&self, file: usize) -> bool {
        self.opens.iter().any(|open| open.file == file)
    }
}

impl World {
    /// Some program does something.
    pub(crate) fn program_step(&mut self) {
        let program = self.random.below(self.programs.len() as u64) as usize;
        let opens = self.programs[program].opens.len();
        if opens == 0 || opens < 4 && self.random.chance(200) {
            let file = self.random.below(self.files.len() as u64) as usize;
            return self.open(program, file);
        }
        let at = self.random.below(opens as u64) as usize;
        self.use_file(program, at);
    }

    pub(crate) fn open(&mut self, program: usize, file: usize) {
        if self.files[file].unlinked {
            return;
        }
        let writes = self.random.chance(600);
        self.programs[program].opens.push(Open {
            file,
            writes,
            next: 0,
            wrote: false,
            read: false,
            mapped: None,
        });
        let observed = self.programs[program].observed;
        self.coverage.saw(match observed {
            true => "opens by observed programs",
            false => "opens by outsiders",
        });
        self.say(|| format!("file {file} opened by {program}, writes: {writes}"));
        self.happens(Event {
            file,
            program,
            opened: true,
            ..Event::default()
        });
        if writes && self.random.chance(150) {
            self.coverage.saw("truncations");
            self.files[file].truncate(0);
        }
    }

    fn use_file(&mut self, program: usize, at: usize) {
        let Open {
            file, writes, next, ..
        } = self.programs[program].opens[at];
        let most = self.files[file].most_pages();
        let length = 1 + self.random.below(most as u64 / 3 + 1) as usize;
        let somewhere = self.random.below(most as u64) as usize;
        match self.random.below(100) {
            0..20 => self.close(program, at),
            20..25 => self.fsync(file),
            25..28 => self.unlink(file),
            28..34 => self.map(program, at, somewhere..most.min(somewhere + length)),
            34..38 => self.reclaim(),
            38..76 if writes => {
                let first = match self.random.chance(700) && next < most {
                    true => next,
                    false => somewhere,
                };
                self.write(program, at, first..most.min(first + length));
            }
            _ => {
                let first = match self.random.chance(700) && next < self.files[file].size_pages {
                    true => next,
                    false => somewhere,
                };
                self.read(program, at, first..most.min(first + length));
            }
        }
    }

    fn write(&mut self, program: usize, at: usize, pages: Range<usize>) {
        let observed = self.programs[program].observed;
        let open = &mut self.programs[program].opens[at];
        let file = open.file;
        open.next = pages.end;
        let first = !std::mem::replace(&mut open.wrote, true);
        let large = self.files[file].size_pages > 256;
        self.coverage.saw("writes");
        self.coverage
            .saw_times("writes by outsiders", u64::from(!observed));
        self.bring(program, file, pages.clone());
        self.say(|| format!("file {file} {pages:?} written by {program}"));
        self.files[file].dirty(self.now_ns, pages);
        if first && large {
            self.happens(Event {
                file,
                program,
                wrote: true,
                ..Event::default()
            });
        }
    }

    fn read(&mut self, program: usize, at: usize, pages: Range<usize>) {
        let open = &mut self.programs[program].opens[at];
        let file = open.file;
        open.next = pages.end;
        let first = !std::mem::replace(&mut open.read, true);
        let size = self.files[file].size_pages;
        let end = size.min(pages.end + self.plan.readahead_pages);
        if pages.start >= end {
            return;
        }
        self.coverage.saw("reads");
        self.bring(program, file, pages.start..end);
        self.files[file].read(pages.start..size.min(pages.end));
        if first {
            self.happens(Event {
                file,
                program,
                read: true,
                ..Event::default()
            });
        }
    }

    fn map(&mut self, program: usize, at: usize, pages: Range<usize>) {
        let open = &self.programs[program].opens[at];
        let (file, writes) = (open.file, open.writes);
        let end = pages.end.min(self.files[file].size_pages);
        if open.mapped.is_some() || pages.start >= end {
            return;
        }
        let pages = pages.start..end;
        self.coverage.saw("mappings");
        self.bring(program, file, pages.clone());
        if writes {
            self.files[file].dirty(self.now_ns, pages.clone());
        }
        let for_good = !self.programs[program].observed
            && self.random.chance(self.plan.map_for_good_in_thousand);
        if for_good {
            self.coverage.saw("mappings for good");
            self.excuse(file);
            return self.files[file].pin(pages, FOR_GOOD);
        }
        self.files[file].pin(pages.clone(), MAPPED);
        self.programs[program].opens[at].mapped = Some(pages);
    }

    fn fsync(&mut self, file: usize) {
        self.coverage.saw("fsyncs");
        self.end_writeback();
        self.start_writeback(file, ByteRange::WHOLE);
        self.end_writeback();
    }

    fn unlink(&mut self, file: usize) {
        if !self.files[file].unlinked && self.random.chance(300) {
            self.coverage.saw("deletions");
            self.say(|| format!("file {file} deleted"));
            self.files[file].unlinked = true;
        }
    }

    pub(crate) fn close(&mut self, program: usize, at: usize) {
        let open = self.programs[program].opens.swap_remove(at);
        let file = open.file;
        if let Some(pages) = open.mapped {
            self.files[file].unpin(pages.clone());
            let others: Vec<Range<usize>> = self
                .programs
                .iter()
                .flat_map(|program| &program.opens)
                .filter(|other| other.file == file)
                .filter_map(|other| other.mapped.clone())
                .collect();
            for pages in others {
                self.files[file].pin(pages, MAPPED);
            }
        }
        self.say(|| format!("file {file} closed by {program}"));
        self.closes(Event {
            file,
            program,
            closed: true,
            by_writer: open.writes,
            ..Event::default()
        });
    }

    /// All programs end.
    pub(crate) fn end_programs(&mut self) {
        for program in 0..self.programs.len() {
            // Some outsiders never do.
            let stays = !self.programs[program].observed && self.random.chance(300);
            while !stays && !self.programs[program].opens.is_empty() {
                self.close(program, 0);
            }
            if stays {
                // Whatever it has mapped stays.
                let held: Vec<usize> = self.programs[program]
                    .opens
                    .iter()
                    .filter(|open| open.mapped.is_some())
                    .map(|open| open.file)
                    .collect();
                for file in held {
                    self.excuse(file);
                }
            }
        }
    }

    /// Something happens to a file in the middle of what our threads do.
    pub(crate) fn meddle(&mut self, file: usize) {
        if self.ending || !self.random.chance(self.plan.meddle_in_thousand) {
            return;
        }
        let program = self.random.below(self.programs.len() as u64) as usize;
        self.coverage.saw("opens in the last moment");
        if !self.programs[program].has(file) {
            self.open(program, file);
        }
        for _ in 0..self.random.below(4) {
            let opens = &self.programs[program].opens;
            let Some(at) = opens.iter().position(|open| open.file == file) else {
                break;
            };
            self.use_file(program, at);
        }
        if self.random.chance(300) {
            self.reclaim();
        }
    }
}
