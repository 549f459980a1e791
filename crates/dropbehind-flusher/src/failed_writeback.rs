//! Files whose writeback failed.
//!
//! After a failure the kernel takes the pages for clean although the disk never got them.
//! Dropping them would lose the only good copy. So each file is asked about after its pages
//! were counted as clean, and before they are dropped.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use dropbehind_linux::{
    Askable, KernelInode, WritebackFailure, WritebackFailures, prepare_to_ask, writeback_error,
};
use dropbehind_policy::ByteRange;

use crate::{Beginning, lock};

/// With fewer files than this, entries that nobody asks about any more are not removed.
const SWEEP: usize = 1 << 10;
/// This many recent failures are remembered: one of these files may be asked about a moment
/// later.
const RECENT: usize = 1 << 16;

/// The files of the machine whose writeback failed, as the kernel's trace reports them.
/// Failures of files that nobody asks about are forgotten eventually, since any user may
/// cause any number of them.
#[derive(Clone, Debug)]
pub struct FailedWriteback(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    trace: WritebackFailures,
    /// Files that are asked about, by inode number.
    files: HashMap<u64, Vec<Weak<Asked>>>,
    /// At this many numbers, stale entries are removed.
    sweep_len: usize,
    /// Recent failures, and when the last of each was read, in two maps: when one is full, the
    /// other is forgotten.
    recent: HashMap<KernelInode, Beginning>,
    less_recent: HashMap<KernelInode, Beginning>,
    news: Vec<WritebackFailure>,
}

/// A file that is asked about.
#[derive(Debug)]
struct Asked {
    device: Option<u32>,
    failed: AtomicBool,
}

impl FailedWriteback {
    /// Collects what this trace reports.
    #[must_use]
    pub fn new(trace: WritebackFailures) -> FailedWriteback {
        FailedWriteback(Arc::new(Mutex::new(State {
            trace,
            files: HashMap::new(),
            sweep_len: SWEEP,
            recent: HashMap::new(),
            less_recent: HashMap::new(),
            news: Vec::new(),
        })))
    }

    /// Begins to ask about a file that is in use, whose writeback may have failed a moment
    /// ago. If the device of its inode is unknown, an inode with that number on any device
    /// counts. What failed before the file was born was another one, whose number it got.
    #[must_use]
    pub fn sign_of(
        &self,
        device: Option<u32>,
        number: u64,
        born: Option<Duration>,
    ) -> WritebackSign {
        let mut state = lock(&self.0);
        let has_failed = state.has_failed_lately(device, number, born);
        if let (true, Some(device)) = (has_failed, device) {
            let inode = KernelInode { device, number };
            state.news.push(WritebackFailure::File(inode));
        }
        let file = Arc::new(Asked {
            device,
            failed: AtomicBool::new(has_failed),
        });
        if state.files.len() >= state.sweep_len {
            state.forget_unasked();
        }
        let of_number = state.files.entry(number).or_default();
        of_number.retain(|file| file.strong_count() > 0);
        of_number.push(Arc::downgrade(&file));
        WritebackSign(Sign::Traced {
            all: self.clone(),
            file,
        })
    }

    /// Gives back the memory of files that nobody asks about any more.
    pub fn forget_unasked(&self) {
        let mut state = lock(&self.0);
        state.forget_unasked();
        state.files.shrink_to_fit();
    }

    /// A file system was mounted.
    pub fn mounts_changed(&self) {
        lock(&self.0).trace.mounts_changed();
    }

    /// The failures of files that are asked about since the last call, each once.
    #[must_use]
    pub fn news(&self) -> Vec<WritebackFailure> {
        let mut state = lock(&self.0);
        state.read();
        std::mem::take(&mut state.news)
    }
}

impl State {
    fn read(&mut self) {
        let Self {
            trace,
            files,
            recent,
            less_recent,
            news,
            ..
        } = self;
        trace.read(|failure| {
            let device = match failure {
                WritebackFailure::File(inode) => Some(inode.device),
                WritebackFailure::FileSystem(device) => Some(device),
                WritebackFailure::Lost => None,
            };
            // Only a file's first failure is news.
            let fails = |file: &&Weak<Asked>| {
                let file = file.upgrade();
                file.is_some_and(|file| {
                    let is_it = file.device.is_none() || device.is_none() || file.device == device;
                    is_it && !file.failed.swap(true, Ordering::Relaxed)
                })
            };
            let failed = if let WritebackFailure::File(inode) = failure {
                if recent.len() >= RECENT {
                    *less_recent = std::mem::take(recent);
                }
                recent.insert(inode, Beginning::by_now());
                let asked = files.get(&inode.number).into_iter().flatten();
                asked.filter(fails).count()
            } else {
                files.values().flatten().filter(fails).count()
            };
            if failed > 0 {
                news.push(failure);
            }
        });
    }

    fn has_failed_lately(&self, device: Option<u32>, number: u64, born: Option<Duration>) -> bool {
        let is_its = |read: &Beginning| !read.is_before(born);
        let contain = |map: &HashMap<KernelInode, Beginning>| match device {
            Some(device) => map.get(&KernelInode { device, number }).is_some_and(is_its),
            None => map
                .iter()
                .any(|(inode, read)| inode.number == number && is_its(read)),
        };
        contain(&self.recent) || contain(&self.less_recent)
    }

    fn forget_unasked(&mut self) {
        self.files.retain(|_, files| {
            files.retain(|file| file.strong_count() > 0);
            !files.is_empty()
        });
        self.sweep_len = (self.files.len() * 2).max(SWEEP);
    }
}

/// Reports whether writeback of one file has failed.
#[derive(Clone, Debug)]
pub struct WritebackSign(Sign);

#[derive(Clone, Debug)]
enum Sign {
    Traced {
        all: FailedWriteback,
        file: Arc<Asked>,
    },
    Questioned(Arc<Questioned>),
}

/// A file that is asked itself, since nothing is traced.
#[derive(Debug)]
struct Questioned {
    /// Our own description, which was opened before the file was written.
    file: Arc<OwnedFd>,
    /// Found out when it is first asked, or first once its data has left the inode.
    askable: OnceLock<Askable>,
    /// Programs may have written it since.
    written: AtomicBool,
    failed: AtomicBool,
}

impl WritebackSign {
    /// The sign of a file where nothing traces failures, by a description of our own, which may
    /// read around the page cache from then on. The file is asked only once it [may be
    /// written](Self::may_be_written): what is read does not fail.
    #[must_use]
    pub fn questioned(file: Arc<OwnedFd>) -> WritebackSign {
        WritebackSign(Sign::Questioned(Arc::new(Questioned {
            file,
            askable: OnceLock::new(),
            written: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        })))
    }

    /// Programs may write the file from now on.
    pub fn may_be_written(&self) {
        if let Sign::Questioned(file) = &self.0 {
            file.written.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the file cannot be asked, so that nothing of it may be dropped. That is so
    /// for encrypted files, say. On file systems where no file can be asked, it is not.
    #[must_use]
    pub fn cannot_be_asked(&self) -> bool {
        matches!(&self.0, Sign::Questioned(file)
            if file.written.load(Ordering::Relaxed) && file.askable() == Askable::NotThisFile)
    }

    /// Returns whether a writeback has failed since the file's pages began to enter the cache, or
    /// may have since the file cannot be asked. A call after pages were counted as clean covers
    /// those pages. `range` is one that is cached: on btrfs, the question would cache it.
    ///
    /// # Errors
    /// Those of [`writeback_error`]: ask again later.
    pub fn has_failed_for(&self, range: ByteRange) -> io::Result<bool> {
        match &self.0 {
            Sign::Traced { .. } => Ok(self.has_failed()),
            Sign::Questioned(file) => file.has_failed(range),
        }
    }

    /// Returns whether a writeback is known to have failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        match &self.0 {
            Sign::Traced { all, file } => {
                lock(&all.0).read();
                file.failed.load(Ordering::Relaxed)
            }
            Sign::Questioned(file) => file.failed.load(Ordering::Relaxed),
        }
    }
}

impl Questioned {
    fn askable(&self) -> Askable {
        if let Some(askable) = self.askable.get() {
            return *askable;
        }
        match prepare_to_ask(self.file.as_fd()) {
            Askable::InInode => Askable::InInode,
            askable => *self.askable.get_or_init(|| askable),
        }
    }

    fn has_failed(&self, range: ByteRange) -> io::Result<bool> {
        // Asking once more would take the error from files opened later.
        if self.failed.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if !self.written.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match self.askable() {
            Askable::NotThisFile => Ok(true),
            Askable::NotThere | Askable::InInode => Ok(false),
            Askable::Yes => {
                let failed = writeback_error(self.file.as_fd(), range.start)?.is_some();
                self.failed.fetch_or(failed, Ordering::Relaxed);
                Ok(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_linux::{block_device_number, kernel_device};
    use dropbehind_testbed::{FailingDisk, Fs, MountedFs, need};
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    fn fails(disk: &FailingDisk) -> u64 {
        let mut device = File::options().write(true).open(disk.device()).unwrap();
        let block = vec![1; 1 << 20];
        for _ in 0..FailingDisk::TOO_MUCH_BYTES >> 20 {
            device.write_all(&block).unwrap();
        }
        device.sync_all().unwrap_err();
        block_device_number(device.as_fd()).unwrap()
    }

    #[test]
    fn only_files_that_are_asked_about_have_failed() {
        need!(all FailingDisk::needs(None));
        let disk = FailingDisk::raw().unwrap();
        let failed = FailedWriteback::new(WritebackFailures::open(16 << 20).unwrap());
        // Whatever fails on the machine meanwhile is on some device that there is.
        let of_others = failed.sign_of(Some(u32::MAX), u64::MAX, None);
        let number = fails(&disk);
        let told = |failure: &WritebackFailure| match failure {
            WritebackFailure::File(inode) => inode.number == number,
            WritebackFailure::FileSystem(_) => false,
            WritebackFailure::Lost => panic!("lost"),
        };
        assert!(!failed.news().iter().any(told), "nobody asked");
        // The file may have been opened before the failure, and only become known now.
        assert!(failed.sign_of(None, number, None).has_failed());
        let of_number = |inode: &&KernelInode| inode.number == number;
        let device = lock(&failed.0)
            .recent
            .keys()
            .find(of_number)
            .unwrap()
            .device;
        assert!(failed.sign_of(Some(device), number, None).has_failed());
        assert_eq!(failed.news().iter().filter(|it| told(it)).count(), 1);
        let elsewhere = failed.sign_of(Some(u32::MAX), number, None);
        {
            let mut state = lock(&failed.0);
            (state.recent, state.less_recent) = Default::default();
        }
        let sign = failed.sign_of(None, number, None);
        assert!(!sign.has_failed(), "that was long ago");
        fails(&disk);
        assert!(sign.has_failed());
        let news = failed.news();
        assert_eq!(news.iter().filter(|failure| told(failure)).count(), 1);
        for other in [&of_others, &elsewhere] {
            assert!(!other.has_failed());
        }
    }

    #[test]
    fn all_files_of_a_file_system_with_an_error_have_failed() {
        need!(all MountedFs::needs(Fs::Ext4));
        let disk = MountedFs::new(Fs::Ext4, 64 << 20).unwrap();
        let device = std::fs::metadata(disk.path()).unwrap().dev();
        let device = kernel_device(device);
        let failed = FailedWriteback::new(WritebackFailures::open(1 << 20).unwrap());
        let signs =
            [device, device, device + 1].map(|device| failed.sign_of(Some(device), 7, None));
        let numbers = (device >> 20, device & 0xf_ffff);
        let name = std::fs::read_link(format!("/sys/dev/block/{}:{}", numbers.0, numbers.1));
        let name = name.unwrap().file_name().unwrap().to_owned();
        let trigger = Path::new("/sys/fs/ext4")
            .join(name)
            .join("trigger_fs_error");
        std::fs::write(trigger, "tried").unwrap();
        let states = signs.each_ref().map(WritebackSign::has_failed);
        assert_eq!(states, [true, true, false]);
        assert_eq!(failed.news(), [WritebackFailure::FileSystem(device)]);
        // Its files may be written well from now on.
        assert!(!failed.sign_of(Some(device), 7, None).has_failed());
    }

    #[test]
    fn a_file_that_was_in_its_inode_is_asked_once_it_is_not() {
        need!(all MountedFs::needs(Fs::Ext4InlineData));
        let disk = MountedFs::new(Fs::Ext4InlineData, 64 << 20).unwrap();
        let mut options = File::options();
        let options = options.read(true).write(true).create(true);
        let mut writer = options.open(disk.file("file")).unwrap();
        writer.write_all(b"short").unwrap();
        let own = File::open(disk.file("file")).unwrap();
        let sign = WritebackSign::questioned(Arc::new(own.into()));
        sign.may_be_written();
        let first = ByteRange::new(0, dropbehind_linux::page_size());
        for _ in 0..2 {
            assert!(!sign.cannot_be_asked());
            assert!(!sign.has_failed_for(first).unwrap());
            writer.write_all(&[1; 1 << 20]).unwrap();
            writer.sync_all().unwrap();
        }
        let Sign::Questioned(file) = &sign.0 else {
            unreachable!()
        };
        assert_eq!(file.askable.get(), Some(&Askable::Yes));
    }

    #[test]
    fn a_file_that_outgrew_its_inode_may_have_failed() {
        need!(all FailingDisk::needs(Some(Fs::Ext4InlineData)));
        let disk = FailingDisk::formatted(Fs::Ext4InlineData).unwrap();
        let mut writer = File::create(disk.file("file")).unwrap();
        writer.write_all(b"short").unwrap();
        let own = File::open(disk.file("file")).unwrap();
        let sign = WritebackSign::questioned(Arc::new(own.into()));
        sign.may_be_written();
        let first = ByteRange::new(0, dropbehind_linux::page_size());
        assert!(!sign.has_failed_for(first).unwrap());
        let block = vec![1; 1 << 20];
        for _ in 0..FailingDisk::TOO_MUCH_BYTES >> 20 {
            writer.write_all(&block).unwrap();
        }
        writer.sync_all().unwrap_err();
        assert!(sign.has_failed_for(first).unwrap());
    }

    #[test]
    fn files_that_nobody_asks_about_are_forgotten() {
        need!(all FailingDisk::needs(None));
        let failed = FailedWriteback::new(WritebackFailures::open(0).unwrap());
        let kept = failed.sign_of(None, 0, None);
        for number in 1..100_000 {
            let _ = failed.sign_of(None, number, None);
        }
        assert!(lock(&failed.0).files.len() <= SWEEP);
        assert!(lock(&failed.0).files.contains_key(&0));
        drop(kept);
    }
}
