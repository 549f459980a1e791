//! Looking at the file that a stopped program is about to open, as the program would find it.
//!
//! Nothing is opened that an open could change, or that could keep it waiting: a file is first
//! named (`O_PATH`), and only a regular file of a file system with a disk is then opened.

use crate::observer::own_process;
use crate::shown;
use crate::source::has_pages;
use dropbehind_linux::seccomp::{Listener, OpenHow, Request, StoppedCall};
use dropbehind_linux::{OwnLinks, descriptor_limit, may_write, mount_with_id};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Mounts are remembered up to this many.
const MOUNTS: usize = 1024;
/// So many threads' directories are kept open.
const THREADS: usize = 64;

/// What an open leads to.
#[derive(Debug)]
pub(super) enum Found {
    /// A file that is there already.
    File(LookedAt),
    /// Nothing yet: the open makes the file.
    ToBeMade(Way),
    /// It cannot be seen from here, only in `/proc` afterwards.
    Unclear,
    /// Nothing with pages on a disk, or nothing that we may open.
    Nothing,
}

/// Which file it is: its device and its number there.
pub(super) type Inode = (u32, u32, u64);

/// A file, before it is opened.
#[derive(Debug)]
pub(super) struct LookedAt {
    pub(super) file: OwnedFd,
    pub(super) inode: Inode,
    pub(super) size_bytes: u64,
    /// When it was last changed, in seconds and nanoseconds. Programs set the time of the last
    /// write as they like, but not this.
    pub(super) changed: (i64, u32),
    /// When it was made. An overlay's file is a new one below once it was copied up.
    born: Option<Duration>,
    /// Its pages are those of another file, and no count sees them here.
    pub(super) is_overlay: bool,
    pub(super) flags: OFlags,
}

/// How to find a file that is not there yet.
#[derive(Debug)]
pub(super) struct Way {
    base: Option<OwnedFd>,
    path: CString,
    resolve: ResolveFlags,
    pub(super) flags: OFlags,
}

/// Which directory is a process's root, and through which mount.
type Root = (u64, Inode);

/// What is known of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its files have no pages on a disk.
    WithoutPages,
    Overlay,
    Other,
}

/// Looks at files on behalf of stopped programs.
#[derive(Debug)]
pub(super) struct Looker {
    root: Option<Root>,
    user: u32,
    mounts: HashMap<u64, Kind>,
    threads: Threads,
    /// The thread that the last look was for, if its directory has answered.
    asked: Option<i32>,
    /// Of the thread that looks.
    own_links: Option<OwnLinks>,
    /// Files that are left to the kernel, for its users to know.
    pub(super) left_alone: Option<String>,
}

/// The directories of threads in `/proc`, with the process of each. A directory stays that of its
/// thread, and leads nowhere once the thread has ended.
#[derive(Debug, Default)]
struct Threads(HashMap<i32, (OwnedFd, i32)>);

impl Threads {
    /// Asks for something in this thread's directory.
    fn ask<T>(
        &mut self,
        thread: i32,
        ask: impl Fn(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if let Some((known, _)) = self.0.get(&thread) {
            match ask(known.as_fd()) {
                // Another thread may have its number.
                Err(Errno::SRCH | Errno::NOENT) => {}
                answer => return answer,
            }
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(format!("/proc/{thread}"), flags, Mode::empty())?;
        let answer = ask(directory.as_fd());
        if self.0.len() >= THREADS {
            self.0.clear();
        }
        let process = process_in(directory.as_fd()).unwrap_or(thread);
        self.0.insert(thread, (directory, process));
        answer
    }
}

impl Looker {
    pub(super) fn new() -> Looker {
        Looker {
            root: root_in(CWD, "/proc/self/root").ok(),
            user: rustix::process::geteuid().as_raw(),
            mounts: HashMap::new(),
            threads: Threads::default(),
            asked: None,
            own_links: None,
            left_alone: None,
        }
    }

    /// Looks at what a call opens. If the call does not wait any more, the result may be wrong.
    pub(super) fn look(&mut self, call: &StoppedCall, listener: &Listener) -> Found {
        self.asked = None;
        let (directory, address, how) = match call.request {
            Request::Open {
                directory,
                path,
                flags,
            } => (directory, path, OpenHow { flags, resolve: 0 }),
            Request::OpenHow {
                directory,
                path,
                how,
            } => match call.how(how) {
                Ok(how) => (directory, path, how),
                Err(error) => return unreadable(&error),
            },
            Request::Rename | Request::Ring => return Found::Nothing,
        };
        let flags = OFlags::from_bits_retain(how.flags as u32);
        if flags.contains(OFlags::PATH) {
            return Found::Nothing;
        }
        if flags.contains(OFlags::TMPFILE) {
            return Found::Unclear;
        }
        let path = match call.path(address) {
            Ok(path) => path,
            Err(error) => return unreadable(&error),
        };
        if flags.contains(OFlags::DIRECTORY) || path.is_empty() || !listener.waits(call) {
            return Found::Nothing;
        }
        let asked = ResolveFlags::from_bits_retain(how.resolve);
        // Then an absolute path begins at the directory that the call names, not at the root.
        let below = asked.contains(ResolveFlags::IN_ROOT);
        let is_absolute = !below && path.as_bytes().starts_with(b"/");
        let its_root = self
            .threads
            .ask(call.thread, |directory| root_in(directory, "root"));
        self.asked = its_root.is_ok().then_some(call.thread);
        let same_root = its_root.is_ok_and(|root| Some(root) == self.root);
        let (base, apart) = match (is_absolute, same_root) {
            (true, true) => (None, ResolveFlags::empty()),
            (true, false) => (Some("root".to_owned()), ResolveFlags::IN_ROOT),
            (false, _) if directory == libc::AT_FDCWD => {
                (Some("cwd".to_owned()), ResolveFlags::empty())
            }
            (false, _) => (Some(format!("fd/{directory}")), ResolveFlags::empty()),
        };
        let base = base.map(|base| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            self.threads.ask(call.thread, |directory| {
                rustix::fs::openat(directory, &base, flags, Mode::empty())
            })
        });
        let Ok(base) = base.transpose() else {
            return Found::Unclear;
        };
        // Links in our `/proc/self` are not the program's. A path that begins below another root
        // could lead out of it here.
        let apart = match same_root || is_absolute || below {
            true => apart,
            false => ResolveFlags::BENEATH,
        };
        let way = Way {
            base,
            path,
            resolve: asked | apart | ResolveFlags::NO_MAGICLINKS,
            flags,
        };
        match way.name() {
            Ok(named) if flags.contains(OFlags::CREATE | OFlags::EXCL) => {
                drop(named);
                Found::Nothing
            }
            Ok(named) => self.open(&named, call.thread, flags, false),
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => Found::ToBeMade(way),
            // A link of `/proc`, a way out of what we may follow, or a cache that was just busy.
            Err(Errno::LOOP | Errno::XDEV | Errno::AGAIN | Errno::MFILE | Errno::NFILE) => {
                Found::Unclear
            }
            Err(_) => Found::Nothing,
        }
    }

    /// The process that this thread belongs to.
    pub(super) fn process_of(&mut self, thread: i32) -> i32 {
        // Any question finds out whether it is still the same thread.
        if self.asked != Some(thread) {
            let ask = |directory: BorrowedFd<'_>| root_in(directory, "root");
            let _ = self.threads.ask(thread, ask);
        }
        self.threads
            .0
            .get(&thread)
            .map_or(thread, |(_, process)| *process)
    }

    /// Returns whether a thread's process has as many descriptors as it may, so that an open will
    /// most likely fail. False before Linux 6.2, which does not count them.
    pub(super) fn has_all_descriptors(&mut self, thread: i32) -> bool {
        let stat = self.threads.ask(thread, |directory| {
            rustix::fs::statx(directory, "fd", AtFlags::STATX_DONT_SYNC, StatxFlags::SIZE)
        });
        let open = stat.map_or(0, |stat| stat.stx_size);
        open > 0 && descriptor_limit(thread).is_ok_and(|limit| open >= limit)
    }

    /// Looks for a file that was to be made; `None` if it is not there.
    pub(super) fn made(&mut self, way: &Way, thread: i32) -> Option<Found> {
        let named = way.name().ok()?;
        Some(self.open(&named, thread, way.flags, true))
    }

    /// Opens a file for ourselves, if that has no effect.
    fn open(&mut self, named: &OwnedFd, thread: i32, flags: OFlags, is_made: bool) -> Found {
        let Ok(stat) = stat(named) else {
            return Found::Nothing;
        };
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::RegularFile {
            return Found::Nothing;
        }
        let writes = writes(flags);
        // Whoever makes a file may write to it whatever its mode.
        let is_maker = is_made && stat.stx_uid == self.user;
        let truncates = flags.contains(OFlags::TRUNC);
        let is_append_only = stat.stx_attributes.contains(StatxAttributes::APPEND);
        if truncates && is_append_only || writes && !is_maker && !may_write(named.as_fd()) {
            // The open will fail.
            return Found::Nothing;
        }
        let kind = match self.kind_of_mount(&stat, named, thread) {
            Ok(Kind::WithoutPages) => return Found::Nothing,
            Ok(kind) => kind,
            Err(error) if is_lack_of_descriptors(&error) => return Found::Unclear,
            Err(_) => {
                self.left_alone = Some(
                    "files of a mount that is in no mount table, as after `umount -l`, are left to \
                     the kernel: their file system is not known"
                        .to_owned(),
                );
                return Found::Nothing;
            }
        };
        match self.open_named(named) {
            Ok(file) => Found::File(LookedAt {
                file,
                inode: inode_of(&stat),
                size_bytes: stat.stx_size,
                born: born(&stat),
                changed: changed(&stat),
                is_overlay: kind == Kind::Overlay,
                flags,
            }),
            Err(error) if is_lack_of_descriptors(&error) => Found::Unclear,
            Err(_) => Found::Nothing,
        }
    }

    fn open_named(&mut self, named: &OwnedFd) -> io::Result<OwnedFd> {
        let links = match self.own_links.take() {
            Some(links) => links,
            None => OwnLinks::new()?,
        };
        let opened = links.open_named(named.as_fd());
        self.own_links = Some(links);
        opened
    }

    /// What kind of mount a file is on.
    ///
    /// # Errors
    /// `ENOENT` if the mount is in no table, or those of reading tables.
    fn kind_of_mount(&mut self, stat: &Statx, named: &OwnedFd, thread: i32) -> io::Result<Kind> {
        if let Some(known) = self.mounts.get(&stat.stx_mnt_id) {
            return Ok(*known);
        }
        // The numbers in mount tables are other ones.
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let by_table = rustix::fs::statx(named, c"", flags, StatxFlags::MNT_ID)?;
        let in_table_of = |process| mount_with_id(process, by_table.stx_mnt_id);
        // The thread may have ended, and most programs share our mounts.
        let mount = match in_table_of(thread) {
            Ok(Some(mount)) => mount,
            Err(error) if is_lack_of_descriptors(&error) => return Err(error),
            _ => in_table_of(own_process())?.ok_or(Errno::NOENT)?,
        };
        let kind = match has_pages(&mount) {
            false => Kind::WithoutPages,
            true if mount.filesystem == "overlay" => Kind::Overlay,
            true => Kind::Other,
        };
        if mount.filesystem.starts_with("fuse") {
            // It may wait for an open of its own.
            self.left_alone = Some(format!(
                "{} is left to the kernel: a process serves it, and opening a file there asks it",
                shown(&mount.mount_point)
            ));
        }
        if self.mounts.len() >= MOUNTS {
            self.mounts.clear();
        }
        self.mounts.insert(stat.stx_mnt_id, kind);
        Ok(kind)
    }
}

impl LookedAt {
    /// `st_dev`.
    pub(super) fn device(&self) -> u64 {
        rustix::fs::makedev(self.inode.0, self.inode.1)
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.flags.contains(OFlags::WRONLY)
    }

    /// Returns whether the open discards what the file contains.
    pub(super) fn is_to_be_truncated(&self) -> bool {
        self.flags.contains(OFlags::TRUNC) && self.size_bytes > 0
    }

    /// When it was made, if the open may have an overlay copy it.
    pub(super) fn copied_born(&self) -> Option<Duration> {
        let may_be_copied = self.is_overlay && writes(self.flags) && !self.is_to_be_truncated();
        self.born.filter(|_| may_be_copied)
    }

    /// Returns whether an overlay has copied it since.
    pub(super) fn was_copied(&self) -> bool {
        stat(&self.file).is_ok_and(|stat| born(&stat) != self.born)
    }

    /// Returns whether the file was written or truncated since.
    pub(super) fn was_modified(&self) -> bool {
        let is_changed =
            |stat: Statx| (changed(&stat), stat.stx_size) != (self.changed, self.size_bytes);
        stat(&self.file).is_ok_and(is_changed)
    }
}

impl Way {
    /// Returns whether the file is there by now.
    pub(super) fn is_there(&self) -> bool {
        self.name().is_ok()
    }

    /// Returns whether it is there by now, and this one.
    pub(super) fn leads_to(&self, inode: Inode) -> bool {
        let stat = self.name().and_then(|named| stat(&named));
        stat.is_ok_and(|stat| inode_of(&stat) == inode)
    }

    /// The `st_dev` of the directory that gets the file.
    pub(super) fn device(&self) -> Option<u64> {
        let base = self.base.as_ref().map_or(CWD, AsFd::as_fd);
        let path = Path::new(OsStr::from_bytes(self.path.as_bytes()));
        let directory = match path.parent()? {
            directory if directory.as_os_str().is_empty() => Path::new("."),
            directory => directory,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::openat2(base, directory, flags, Mode::empty(), self.resolve).ok()?;
        let stat = stat(&directory).ok()?;
        Some(rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor))
    }

    fn name(&self) -> Result<OwnedFd, Errno> {
        let base = self.base.as_ref().map_or(CWD, AsFd::as_fd);
        let flags = OFlags::PATH | OFlags::CLOEXEC | (self.flags & OFlags::NOFOLLOW);
        rustix::fs::openat2(base, &self.path, flags, Mode::empty(), self.resolve)
    }
}

pub(super) fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

fn is_lack_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

fn unreadable(error: &io::Error) -> Found {
    match error.raw_os_error() {
        // The kernel refuses the program's call as well.
        Some(libc::EFAULT | libc::ENAMETOOLONG) => Found::Nothing,
        _ => Found::Unclear,
    }
}

/// `STATX_MNT_ID_UNIQUE`, since Linux 6.8; older kernels give the numbers of mount tables.
const MOUNT: StatxFlags = StatxFlags::MNT_ID.union(StatxFlags::from_bits_retain(0x4000));

fn stat(file: &OwnedFd) -> Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | MOUNT;
    rustix::fs::statx(file, c"", flags, wanted)
}

fn inode_of(stat: &Statx) -> Inode {
    (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)
}

/// The process of the thread that has this directory in `/proc`.
fn process_in(directory: BorrowedFd<'_>) -> Option<i32> {
    let status = rustix::fs::openat(directory, "status", OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = Vec::new();
    io::Read::read_to_end(&mut std::fs::File::from(status), &mut text).ok()?;
    // The name, which comes first, may be cut in the middle of a character.
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

fn changed(stat: &Statx) -> (i64, u32) {
    (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec)
}

fn born(stat: &Statx) -> Option<Duration> {
    let is_known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    let seconds = u64::try_from(stat.stx_btime.tv_sec).ok()?;
    is_known.then(|| Duration::new(seconds, stat.stx_btime.tv_nsec))
}

/// The root directory that a link of `/proc` leads to.
fn root_in(directory: BorrowedFd<'_>, link: &str) -> Result<Root, Errno> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(directory, link, flags, StatxFlags::INO | MOUNT)?;
    Ok((stat.stx_mnt_id, inode_of(&stat)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_thread_is_the_one_that_has_the_number_now() {
        let mut ended = Command::new("true").spawn().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let of_ended = rustix::fs::open(format!("/proc/{}", ended.id()), flags, Mode::empty());
        let of_ended = of_ended.unwrap();
        ended.wait().unwrap();
        assert!(root_in(of_ended.as_fd(), "root").is_err());
        let own = own_process();
        let mut threads = Threads(HashMap::from([(own, (of_ended, 1))]));
        let root = |threads: &mut Threads| threads.ask(own, |directory| root_in(directory, "root"));
        assert_eq!(root(&mut threads), root_in(CWD, "/proc/self/root"));
        assert_eq!(root(&mut threads), root_in(CWD, "/proc/self/root"));
        let known: Vec<i32> = threads.0.values().map(|(_, process)| *process).collect();
        assert_eq!(known, [own]);
    }
}
