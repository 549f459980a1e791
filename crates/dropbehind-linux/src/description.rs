//! A file that we may close and can open again: while we have a description of it open, its
//! mount is busy, and umount(2) fails with `EBUSY`.
//!
//! The kernel doesn't report attempts to unmount. So while there is nothing to do for a file,
//! we keep only its handle (name_to_handle_at(2), since Linux 2.6.39), which holds nothing.
//! We open that for each task (open_by_handle_at(2), with `CAP_DAC_READ_SEARCH`). fanotify
//! reports such an open as an event if the mount is marked, unlike what is done through the
//! descriptors that it hands out.
//!
//! The last close of a block device writes all of it and empties its cache (`bdev_release`,
//! block/bdev.c). While we have the device open, a program's close is not the last one. So of a
//! device, too, we keep only a descriptor that names it (`O_PATH`), and open that for each task.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fs::{MemfdFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::errno::check;
use crate::{block_device_number, cachestat_sees, mount_number, open_named};

/// `MAX_HANDLE_SZ`, include/linux/exportfs.h.
const HANDLE_BYTES: usize = 128;

/// A path lookup succeeds in the kernel's cache unless something is mounted or renamed
/// meanwhile, anywhere (`rcu-walk`, Documentation/filesystems/path-lookup.rst).
const TRIES: u32 = 100;

/// Where a file system is mounted, without holding that mount.
#[derive(Debug)]
pub struct MountPoint {
    root: Arc<OwnedFd>,
    path: PathBuf,
    number: u64,
}

impl MountPoint {
    /// The mount with this [number](crate::mount_number), at this path below an open root
    /// directory; the path `.` means the root itself.
    #[must_use]
    pub fn new(root: Arc<OwnedFd>, path: PathBuf, number: u64) -> MountPoint {
        MountPoint { root, path, number }
    }

    /// Opens the mounted directory; `None` if that is not possible by this path now. Never waits,
    /// whatever users have put into the path, or mounted there.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        match self.open_directory() {
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(error.into()),
            // Another path may lead there.
            Err(_) => Ok(None),
            Ok(opened) => Ok(opened),
        }
    }

    fn open_directory(&self) -> Result<Option<OwnedFd>, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A mount point is in the kernel's dentry cache, and so are all directories above it.
        let resolve = ResolveFlags::CACHED | ResolveFlags::NO_SYMLINKS;
        let open = || rustix::fs::openat2(&self.root, &self.path, flags, Mode::empty(), resolve);
        let mut opened = open();
        for _ in 1..TRIES {
            let Err(Errno::AGAIN) = opened else { break };
            std::thread::yield_now();
            opened = open();
        }
        let named = opened?;
        // A server may be mounted there by now, which must not be asked.
        let number = mount_number(named.as_fd(), Path::new("")).ok().flatten();
        if number != Some(self.number) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::openat(&named, ".", flags, Mode::empty()).map(Some)
    }
}

/// A file system and all the places where it is mounted.
///
/// Only a mount table tells whether it is mounted: when something is mounted over it, or a
/// directory above it is renamed, its path leads elsewhere.
#[derive(Debug, Default)]
pub struct FileSystem {
    place: Mutex<Place>,
}

#[derive(Debug)]
enum Place {
    /// It is mounted at these places.
    Mounted(Vec<MountPoint>),
    /// It is mounted, and none of its paths led there.
    Unreachable,
    Unmounted,
}

impl Default for Place {
    fn default() -> Place {
        Place::Mounted(Vec::new())
    }
}

impl FileSystem {
    /// Sets where it is mounted now.
    pub fn mounted_at(&self, mounts: Vec<MountPoint>) {
        *self.lock() = Place::Mounted(mounts);
    }

    /// The mount table does not have it any more.
    pub fn unmounted(&self) {
        *self.lock() = Place::Unmounted;
    }

    /// Returns whether none of its paths led there. Its files cannot be opened until
    /// [`FileSystem::mounted_at`] is called again.
    pub fn was_unreachable(&self) -> bool {
        matches!(*self.lock(), Place::Unreachable)
    }

    /// Returns whether a path that leads there is known. If a server answers for the file system,
    /// none is, since finding one may mean asking the server. Handles are no use on NFS anyway: a
    /// client of version 4 opens files by their names (nfs4_file_open, fs/nfs/nfs4file.c).
    fn has_paths(&self) -> bool {
        matches!(&*self.lock(), Place::Mounted(mounts) if !mounts.is_empty())
    }

    /// Opens one of its directories; `None` if it is not mounted any more.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let mut place = self.lock();
        match &*place {
            Place::Mounted(mounts) => {
                for mount in mounts {
                    if let Some(opened) = mount.open()? {
                        return Ok(Some(opened));
                    }
                }
            }
            Place::Unreachable => {}
            Place::Unmounted => return Ok(None),
        }
        *place = Place::Unreachable;
        Err(Errno::AGAIN.into())
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A directory of the file system on which a file was last opened. Its mount is busy until this is
/// dropped.
#[derive(Debug, Default)]
pub struct Visit {
    directory: Option<(Arc<FileSystem>, OwnedFd)>,
    /// Stands in for files that are gone.
    gone: Option<Arc<OwnedFd>>,
}

impl Visit {
    fn directory(&mut self, filesystem: &Arc<FileSystem>) -> io::Result<Option<BorrowedFd<'_>>> {
        let is_there = |(visited, _): &(Arc<FileSystem>, _)| Arc::ptr_eq(visited, filesystem);
        if !self.directory.as_ref().is_some_and(is_there) {
            let opened = filesystem.open()?;
            self.directory = opened.map(|opened| (Arc::clone(filesystem), opened));
        }
        let directory = self.directory.as_ref();
        Ok(directory.map(|(_, directory)| directory.as_fd()))
    }

    fn gone(&mut self) -> io::Result<Arc<OwnedFd>> {
        if let Some(gone) = &self.gone {
            return Ok(Arc::clone(gone));
        }
        let gone = Arc::new(rustix::fs::memfd_create("gone", MemfdFlags::CLOEXEC)?);
        Ok(Arc::clone(self.gone.insert(gone)))
    }
}

/// `struct file_handle`, open_by_handle_at(2), with room for the largest.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES],
}

impl FileHandle {
    fn of(file: BorrowedFd<'_>) -> io::Result<FileHandle> {
        let mut handle = FileHandle {
            bytes: HANDLE_BYTES as u32,
            kind: 0,
            handle: [0; HANDLE_BYTES],
        };
        let mut mount = 0;
        // SAFETY: the path is a terminated string, `handle` has the room that its first field
        // states, and both results outlive the call.
        let returned = unsafe {
            libc::name_to_handle_at(
                file.as_raw_fd(),
                c"".as_ptr(),
                (&raw mut handle).cast(),
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        check(returned.into())?;
        Ok(handle)
    }

    fn open(&self, mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let mut handle = *self;
        // Does not wait for a lease to be given up.
        let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOATIME;
        // SAFETY: `handle` is as the kernel filled it in, and only read.
        let returned =
            unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
        check(returned.into())?;
        // SAFETY: the kernel has just opened it for us.
        Ok(unsafe { OwnedFd::from_raw_fd(returned) })
    }
}

/// Our own description of a file, which may be closed if the file can be opened again.
#[derive(Debug)]
pub struct Description {
    held: Mutex<Option<Arc<OwnedFd>>>,
    way_back: Option<WayBack>,
    /// It is held although it could be released.
    stays_held: AtomicBool,
    cachestat_sees: OnceLock<bool>,
}

/// How to open a file again.
#[derive(Debug)]
enum WayBack {
    Handle(Arc<FileSystem>, FileHandle),
    /// A block device, by a descriptor that names it.
    Device(Arc<OwnedFd>),
}

impl Description {
    /// A file that is held for as long as this exists.
    #[must_use]
    pub fn held(file: OwnedFd) -> Description {
        Description::new(Some(file), None)
    }

    fn new(held: Option<OwnedFd>, way_back: Option<WayBack>) -> Description {
        Description {
            held: Mutex::new(held.map(Arc::new)),
            way_back,
            stays_held: AtomicBool::new(false),
            cachestat_sees: OnceLock::new(),
        }
    }

    /// A file on this file system, which is held until it is [released](Self::release). If
    /// the file system has no handles, or no path to it is known, releasing has no effect.
    #[must_use]
    pub fn on(filesystem: &Arc<FileSystem>, file: OwnedFd) -> Description {
        let can_be_opened = filesystem.has_paths();
        let handle = can_be_opened.then(|| FileHandle::of(file.as_fd()).ok());
        let way_back = |handle| WayBack::Handle(Arc::clone(filesystem), handle);
        Description::new(Some(file), handle.flatten().map(way_back))
    }

    /// A block device, of which this descriptor is open or only names it (`O_PATH`). It is
    /// never held.
    ///
    /// # Errors
    /// Those of open(2) with `O_PATH`.
    pub fn of_device(file: BorrowedFd<'_>) -> io::Result<Description> {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let named = rustix::fs::open(link, flags, Mode::empty())?;
        let way_back = WayBack::Device(Arc::new(named));
        Ok(Description::new(None, Some(way_back)))
    }

    /// Closes our description, so that the mount is not busy because of it. What was opened
    /// by [`Description::open`] stays open.
    pub fn release(&self) {
        if self.can_be_released() {
            *self.lock() = None;
        }
    }

    /// Returns whether [`Description::release`] gives up the file, which can be opened again.
    pub fn can_be_released(&self) -> bool {
        self.way_back.is_some() && !self.stays_held.load(Relaxed)
    }

    /// Has [`Description::release`] do nothing until [`Description::may_be_released`].
    pub fn stay_held(&self) {
        self.stays_held.store(true, Relaxed);
    }

    /// From now on it is released where it can be. Returns whether that is so.
    pub fn may_be_released(&self) -> bool {
        self.stays_held.store(false, Relaxed);
        self.can_be_released()
    }

    /// Holds the file again, through this description of it, unless it is a device.
    pub fn hold(&self, file: Arc<OwnedFd>) {
        if !self.is_device() {
            *self.lock() = Some(file);
        }
    }

    /// Returns whether this is a block device. Opening or closing it may wait for the disk.
    pub fn is_device(&self) -> bool {
        matches!(self.way_back, Some(WayBack::Device(_)))
    }

    /// Takes note of whether cachestat(2) sees the pages of the file, which does not change.
    pub fn learn_cachestat_sees(&self, sees: bool) {
        let _ = self.cachestat_sees.set(sees);
    }

    /// Returns whether cachestat(2) sees the pages of the file, of which `opened` is a
    /// description. Asks the kernel at most once.
    pub fn cachestat_sees(&self, opened: BorrowedFd<'_>) -> bool {
        *self.cachestat_sees.get_or_init(|| cachestat_sees(opened))
    }

    /// Returns whether cachestat(2) is known to see the pages of the file.
    pub fn is_seen_by_cachestat(&self) -> bool {
        self.cachestat_sees.get() == Some(&true)
    }

    /// Returns whether the file is held.
    pub fn is_held(&self) -> bool {
        self.lock().is_some()
    }

    /// Returns whether this is the same file. Its inode number proves that only while the
    /// file is held: afterwards, a new file may get the number.
    pub fn is(&self, file: BorrowedFd<'_>) -> bool {
        match &self.way_back {
            Some(WayBack::Handle(filesystem, handle)) if !self.is_held() => {
                let is_there = !matches!(*filesystem.lock(), Place::Unmounted);
                is_there && FileHandle::of(file).is_ok_and(|other| other == *handle)
            }
            Some(WayBack::Device(named)) => {
                let number = block_device_number(named.as_fd());
                block_device_number(file).ok() == number.ok()
            }
            _ => true,
        }
    }

    /// The file, open for as long as the caller needs it. A released file that has since been
    /// deleted or unmounted, and a device that is gone, have no pages any more: an empty,
    /// nameless file stands in for them.
    ///
    /// # Errors
    /// - `EAGAIN`: another process holds a lease, or [no path leads to the file
    ///   system](FileSystem::was_unreachable).
    /// - `EMFILE` and others of open_by_handle_at(2).
    pub fn open(&self) -> io::Result<Arc<OwnedFd>> {
        self.open_on(&mut Visit::default())
    }

    /// The same for one of many files: the next one on the same file system is opened by the same
    /// directory, which `visit` keeps open.
    ///
    /// # Errors
    /// Those of [`Description::open`].
    pub fn open_on(&self, visit: &mut Visit) -> io::Result<Arc<OwnedFd>> {
        match self.find_on(visit)? {
            Some(opened) => Ok(opened),
            None => visit.gone(),
        }
    }

    /// The same, or `None` if the file is gone: nothing stands in for it.
    ///
    /// # Errors
    /// Those of [`Description::open`].
    pub fn find(&self) -> io::Result<Option<Arc<OwnedFd>>> {
        self.find_on(&mut Visit::default())
    }

    fn find_on(&self, visit: &mut Visit) -> io::Result<Option<Arc<OwnedFd>>> {
        if let Some(held) = &*self.lock() {
            return Ok(Some(Arc::clone(held)));
        }
        let opened = match &self.way_back {
            None => return Err(io::Error::from_raw_os_error(libc::EBADF)),
            Some(WayBack::Handle(filesystem, handle)) => match visit.directory(filesystem)? {
                None => Err(Errno::STALE.into()),
                Some(directory) => handle.open(directory),
            },
            Some(WayBack::Device(named)) => open_named(named.as_fd()),
        };
        let is_gone = |error: &io::Error| {
            let gone = [libc::ESTALE, libc::ENXIO, libc::ENODEV];
            error
                .raw_os_error()
                .is_some_and(|code| gone.contains(&code))
        };
        match opened {
            Err(error) if is_gone(&error) => Ok(None),
            opened => opened.map(|opened| Some(Arc::new(opened))),
        }
    }

    /// The file, for its name and attributes only: of a block device, a descriptor that opens
    /// nothing, and so waits for nothing.
    ///
    /// # Errors
    /// Those of [`Description::open`].
    pub fn named(&self) -> io::Result<Arc<OwnedFd>> {
        match &self.way_back {
            Some(WayBack::Device(named)) => Ok(Arc::clone(named)),
            _ => self.open(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cachestat, file_stat};
    use dropbehind_testbed::{Fs, HangingFs, MountedFs, Scratch, need};
    use std::ffi::OsStr;
    use std::fs::File;
    use std::process::Command;
    use std::time::Duration;

    fn mount_point(path: &Path) -> MountPoint {
        let root: Arc<OwnedFd> = Arc::new(File::open("/").unwrap().into());
        let path = path.strip_prefix("/").unwrap();
        let number = mount_number(root.as_fd(), path).unwrap().unwrap();
        MountPoint::new(root, path.to_owned(), number)
    }

    fn cached_pages(description: &Description) -> u64 {
        let file = description.open().unwrap();
        cachestat(file.as_fd(), 0, 0).unwrap().cached_pages
    }

    fn try_on(filesystem: Fs) {
        need!(all MountedFs::needs(filesystem));
        let disk = MountedFs::new(filesystem, 300 << 20).unwrap();
        let mounted = Arc::new(FileSystem::default());
        // A path that leads nowhere, for another reason than that nothing is there.
        let root = Arc::new(File::open("/").unwrap().into());
        let too_long = MountPoint::new(root, "x".repeat(300).into(), 1);
        mounted.mounted_at(vec![too_long, mount_point(disk.path())]);
        let path = disk.path().join("file");
        std::fs::write(&path, vec![1; 64 << 10]).unwrap();
        let description = Description::on(&mounted, File::open(&path).unwrap().into());
        let unmount = || Command::new("umount").arg(disk.path()).output().unwrap();
        assert!(!unmount().status.success(), "held");
        description.release();
        assert!(!description.is_held());
        assert_eq!(cached_pages(&description), 16);
        assert!(description.is(File::open(&path).unwrap().as_fd()));

        // A handle tells another file apart.
        let other = disk.path().join("other");
        std::fs::write(&other, "").unwrap();
        assert!(!description.is(File::open(&other).unwrap().as_fd()));
        std::fs::remove_file(&path).unwrap();
        // An observer of the whole machine may have it open for a moment.
        let soon = |holds: &dyn Fn() -> bool| {
            (0..3000).any(|_| {
                std::thread::sleep(Duration::from_millis(10));
                holds()
            })
        };
        assert!(soon(&|| cached_pages(&description) == 0), "deleted");

        let description = Description::on(&mounted, File::open(&other).unwrap().into());
        description.release();
        let elsewhere = Scratch::new().unwrap();
        let mount = |arguments: Vec<&OsStr>| {
            assert!(
                Command::new("mount")
                    .args(arguments)
                    .status()
                    .unwrap()
                    .success()
            );
        };
        mount(vec![
            "--bind".as_ref(),
            disk.path().as_ref(),
            elsewhere.path().as_ref(),
        ]);
        mounted.mounted_at(vec![
            mount_point(disk.path()),
            mount_point(elsewhere.path()),
        ]);
        assert!(soon(&|| unmount().status.success()));
        let file = description.open().unwrap();
        assert_eq!(
            file_stat(file.as_fd()).unwrap().links,
            1,
            "mounted elsewhere"
        );
        drop(file);

        let covers = [
            "tmpfs".as_ref(),
            "tmpfs".as_ref(),
            elsewhere.path().as_ref(),
        ];
        mount([&[OsStr::new("-t")], &covers[..]].concat());
        let unmount = || {
            let status = Command::new("umount").arg(elsewhere.path()).status();
            status.unwrap().success()
        };
        let error = description.open().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "covered");
        assert!(mounted.was_unreachable());
        assert!(soon(&unmount));
        mounted.mounted_at(vec![mount_point(elsewhere.path())]);
        assert!(!mounted.was_unreachable());
        description.open().unwrap();

        assert!(soon(&unmount));
        let error = description.open().unwrap_err();
        assert_eq!(
            error.kind(),
            io::ErrorKind::WouldBlock,
            "nobody has said so"
        );
        mounted.unmounted();
        let file = description.open().unwrap();
        assert_eq!(file_stat(file.as_fd()).unwrap().links, 0, "unmounted");
        mount(vec![disk.device().as_ref(), disk.path().as_ref()]);
        let again = File::open(&other).unwrap();
        assert!(!description.is(again.as_fd()), "it could not be opened");
    }

    #[test]
    fn a_server_that_was_mounted_since_is_not_asked() {
        need!(all HangingFs::needs());
        let hanging = HangingFs::new().unwrap();
        let root = Arc::new(File::open("/").unwrap().into());
        let path = hanging.path().strip_prefix("/").unwrap().to_owned();
        let before = MountPoint::new(root, path, 1);
        let hangs = hanging.hang();
        let opens = std::thread::spawn(move || before.open().unwrap());
        while !opens.is_finished() && hanging.waiting() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(hanging.waiting(), 0, "the server was asked");
        drop(hangs);
        assert!(opens.join().unwrap().is_none());
    }

    #[test]
    fn one_visit_opens_files_of_several_file_systems() {
        need!(all MountedFs::needs(Fs::Ext4));
        need!(all MountedFs::needs(Fs::Xfs));
        let made = |filesystem| {
            let disk = MountedFs::new(filesystem, 300 << 20).unwrap();
            let mounted = Arc::new(FileSystem::default());
            mounted.mounted_at(vec![mount_point(disk.path())]);
            let file = File::create(disk.path().join("file")).unwrap();
            let description = Description::on(&mounted, file.into());
            description.release();
            (disk, mounted, description)
        };
        let (ext4, xfs) = (made(Fs::Ext4), made(Fs::Xfs));
        let mut visit = Visit::default();
        for (disk, _, description) in [&ext4, &xfs, &ext4] {
            let opened = description.open_on(&mut visit).unwrap();
            let file = File::open(disk.path().join("file")).unwrap();
            let [opened, file] = [opened.as_fd(), file.as_fd()].map(|fd| file_stat(fd).unwrap().id);
            assert_eq!(opened, file);
        }
        let (disk, mounted, description) = &ext4;
        mounted.mounted_at(Vec::new());
        description.open_on(&mut visit).unwrap();
        description.open().unwrap_err();
        let unmount = || Command::new("umount").arg(disk.path()).output().unwrap();
        assert!(!unmount().status.success(), "visited");
        drop(visit);
        assert!(unmount().status.success());
    }

    #[test]
    fn what_was_released_keeps_no_ext4_busy() {
        try_on(Fs::Ext4);
    }

    #[test]
    fn what_was_released_keeps_no_xfs_busy() {
        try_on(Fs::Xfs);
    }

    #[test]
    fn what_was_released_keeps_no_btrfs_busy() {
        try_on(Fs::Btrfs);
    }

    #[test]
    fn what_has_no_way_back_is_not_released() {
        let file = File::open("/proc/self/exe").unwrap();
        let description = Description::held(file.into());
        description.release();
        assert!(description.is_held());
    }
}
