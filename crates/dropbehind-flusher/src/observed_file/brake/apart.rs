//! Direct reads by a thread with a descriptor table of its own.
//!
//! Whoever may write to a file can keep its lock for ever, as by writing what a FUSE server does not
//! give. A direct read then waits for ever, too, and not even the death of the process ends that. A
//! thread that shared the process's descriptors would keep them all open: the dead watch's lock,
//! its socket and its marks, so that no other watch could start.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use dropbehind_linux::{
    DirectReader, FileId, file_stat, reopen, thread_id, unshare_descriptor_table,
};
use dropbehind_policy::ByteRange;

use crate::keeper::spawn;

/// The thread's name.
const NAME: &str = "dropbehind-read";

/// Has a thread read ranges of one file.
#[derive(Debug)]
pub(super) struct ReaderApart {
    file: Arc<OwnedFd>,
    ranges: Sender<ByteRange>,
    /// How long each read took, after the start's own result.
    results: Receiver<io::Result<Duration>>,
}

impl ReaderApart {
    /// Starts the thread, which ends when this is dropped.
    ///
    /// # Errors
    /// Those of [`DirectReader::new`], and of starting a thread.
    pub(super) fn start(file: Arc<OwnedFd>) -> io::Result<ReaderApart> {
        let (ranges, asked) = mpsc::channel();
        let (tell, results) = mpsc::channel();
        let id = file_stat(file.as_fd())?.id;
        // The thread must own no descriptor of ours: it would close another one in its own table.
        let (thread, fd) = (thread_id(), file.as_raw_fd());
        spawn(NAME, move || match open(thread, fd, id) {
            Ok(reader) => read_each(&reader, &asked, &tell),
            Err(error) => drop(tell.send(Err(error))),
        })?;
        let apart = ReaderApart {
            file,
            ranges,
            results,
        };
        apart.result()?;
        Ok(apart)
    }

    /// Has a range [written](DirectReader::write_range), and returns how long the read took.
    pub(super) fn write_range(&self, range: ByteRange) -> io::Result<Duration> {
        // If the thread is gone, there is no result either.
        let _ = self.ranges.send(range);
        self.result()
    }

    fn result(&self) -> io::Result<Duration> {
        let gone = |_| Err(io::Error::other("the thread that reads is gone"));
        self.results.recv().unwrap_or_else(gone)
    }
}

impl AsFd for ReaderApart {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens a file that another thread has open, in a table of this thread's own.
fn open(thread: i32, fd: RawFd, id: FileId) -> io::Result<DirectReader> {
    // In a sandbox that refuses it, we read all the same.
    let _ = unshare_descriptor_table();
    let (file, _) = reopen(thread, fd, id)?;
    DirectReader::new(file.as_fd())
}

fn read_each(
    reader: &DirectReader,
    ranges: &Receiver<ByteRange>,
    results: &Sender<io::Result<Duration>>,
) {
    let mut told = results.send(Ok(Duration::ZERO));
    while told.is_ok()
        && let Ok(range) = ranges.recv()
    {
        let started = Instant::now();
        let read = reader.write_range(range.start, range.len());
        told = results.send(read.map(|()| started.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use dropbehind_testbed::Scratch;

    use super::super::tests::new_file;
    use super::*;

    #[test]
    fn the_thread_that_may_wait_for_ever_keeps_only_its_file_open() {
        let scratch = Scratch::new().unwrap();
        let file = Arc::new(new_file(&scratch, "read").into());
        let reader = ReaderApart::start(file).unwrap();
        let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
        let open_there = threads.filter_map(|thread| {
            let name = fs::read_to_string(thread.path().join("comm")).ok()?;
            let open = fs::read_dir(thread.path().join("fd")).ok()?.flatten();
            let open: Vec<PathBuf> = open
                .filter_map(|fd| fs::read_link(fd.path()).ok())
                .collect();
            (name.trim_end() == NAME).then_some(open)
        });
        // Other tests may have such threads, too.
        let found: Vec<_> = open_there.collect();
        let path = scratch.file("read");
        let mut expected = vec![PathBuf::from("/dev/null"); 3];
        expected.push(path);
        assert!(found.contains(&expected), "{found:?}");
        drop(reader);
    }
}
