//! Who brought pages into the cache, by the kernel's own record.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use crate::mounted_device::mounted_device;
use crate::residency::page_bytes;
use crate::trace::{Account, Event, Kept, Trace};

/// Who brought in each page of a file system's files last, since it was made.
///
/// Files are told apart by their inode numbers: none may be deleted meanwhile, and
/// on btrfs all are to be in one subvolume.
#[derive(Debug)]
pub struct Bringers {
    watched: Kept<Watched>,
}

#[derive(Debug)]
struct Watched {
    trace: Trace,
    /// By inode number and page.
    last: HashMap<u64, HashMap<u64, Brought>>,
}

/// How a page came, and whether it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brought {
    /// The thread that brought it in last. The only thread of a process has the process's
    /// number.
    pub thread: u32,
    /// A thread of dropbehind took it from the cache since then.
    pub dropped: bool,
    /// Another one did, as a reader that is killed takes back what it has just added.
    pub taken: bool,
}

impl Bringers {
    /// Watches the file system that holds a path from now on.
    pub fn watch(path: &Path) -> io::Result<Self> {
        let (major, minor) = mounted_device(path)?;
        // As the kernel writes a device's number (include/linux/kdev_t.h).
        let here = format!("s_dev == {}", major << 20 | minor);
        let trace = Trace::start(&[(Event::Add, &here), (Event::Delete, &here)])?;
        let last = HashMap::new();
        let watched = Kept::keep(Watched { trace, last });
        Ok(Self { watched })
    }

    /// For each page of a file how it was brought in last, if it was.
    ///
    /// # Errors
    /// Where the record has gaps, too.
    pub fn of(&self, path: &Path) -> io::Result<Vec<Option<Brought>>> {
        let file = fs::metadata(path)?;
        let watched = self.watched.now()?;
        if watched.trace.has_lost_some() {
            return Err(io::Error::other("more came at once than was recorded"));
        }
        let last = watched.last.get(&file.st_ino());
        let pages = 0..file.len().div_ceil(page_bytes());
        let thread = |page| last.and_then(|last| last.get(&page).copied());
        Ok(pages.map(thread).collect())
    }
}

impl Account for Watched {
    fn read(&mut self) -> io::Result<()> {
        let last = &mut self.last;
        self.trace.read(|folio| {
            let pages = folio.first..folio.first + folio.count;
            let file = last.entry(folio.inode).or_default();
            let thread = folio.thread;
            match folio.event {
                Event::Add => {
                    let brought = Brought {
                        thread,
                        dropped: false,
                        taken: false,
                    };
                    file.extend(pages.map(|page| (page, brought)));
                }
                Event::Delete => {
                    for page in pages {
                        if let Some(brought) = file.get_mut(&page) {
                            brought.dropped = folio.by_dropbehind;
                            brought.taken = !folio.by_dropbehind;
                        }
                    }
                }
            }
        })
    }
}
