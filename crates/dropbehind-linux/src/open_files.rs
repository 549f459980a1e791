//! What processes have open: proc(5).
//!
//! Except for [`NamedFile::open`], nothing here opens a process's file except to name it
//! (`O_PATH`), so it makes no event and touches no device. Processes may end at any moment:
//! what is gone is left out.

use crate::cache_trace::KernelInode;
use crate::file::{FileId, FileKind};
use crate::mount_namespace::mount_with_id;
use crate::processes::{numbered, process_stat};
use crate::reopen::open_named;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// At most this many other threads are tried: some may be about to end, too.
const OTHER_THREADS: usize = 16;

/// Where the descriptors of a process lead: one item for each, `None` for all but regular files
/// and block devices.
///
/// A descriptor is looked at when the iterator gets to it, which takes some microseconds: any
/// process may have a million of them.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process any more.
/// - `EACCES`: it is another user's (`PTRACE_MODE_READ`).
pub fn file_links(process: i32) -> io::Result<FileLinks> {
    let (process, entries) = of_living_thread(process, descriptors)?;
    Ok(FileLinks {
        process,
        entries,
        found_any: false,
    })
}

/// Opens something of a process in `/proc`. If its main thread has ended, the kernel shows that one's
/// to root only (`task_dump_owner` in fs/proc/base.c), and this opens another thread's.
fn of_living_thread<T>(
    process: i32,
    open: impl Fn(i32) -> io::Result<T> + Copy,
) -> io::Result<(i32, T)> {
    match open(process) {
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied
                && process_stat(process)?.has_ended() =>
        {
            of_another_thread(process, open).ok_or_else(|| io::ErrorKind::NotFound.into())
        }
        opened => Ok((process, opened?)),
    }
}

fn descriptors(process: i32) -> io::Result<fs::ReadDir> {
    fs::read_dir(format!("/proc/{process}/fd"))
}

/// Opens it of another thread, and returns that thread's number, too.
fn of_another_thread<T>(process: i32, open: impl Fn(i32) -> io::Result<T>) -> Option<(i32, T)> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let threads = threads.flatten().filter_map(|thread| numbered(&thread));
    threads
        .filter(|thread| *thread != process)
        .take(OTHER_THREADS)
        .find_map(|thread| Some((thread, open(thread).ok()?)))
}

/// The file that one descriptor of a process leads to; `None` if it is not open, or leads to
/// something else than a regular file or a block device.
#[must_use]
pub fn file_link(process: i32, descriptor: i32) -> Option<FileLink> {
    // Without asking a remote server.
    let stat: Statx = rustix::fs::statx(
        CWD,
        format!("/proc/{process}/fd/{descriptor}"),
        AtFlags::STATX_DONT_SYNC,
        StatxFlags::TYPE | StatxFlags::INO,
    )
    .ok()?;
    let (kind, block_device) = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => (FileKind::Regular, 0),
        FileType::BlockDevice => {
            let number = rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
            (FileKind::Block, number)
        }
        _ => return None,
    };
    Some(FileLink {
        process,
        descriptor,
        id: id_of(&stat),
        kind,
        block_device,
    })
}

fn id_of(stat: &Statx) -> FileId {
    FileId {
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
    }
}

/// A process's descriptors: [`file_links`].
#[derive(Debug)]
pub struct FileLinks {
    process: i32,
    entries: fs::ReadDir,
    found_any: bool,
}

impl Iterator for FileLinks {
    type Item = Option<FileLink>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut entry = self.entries.next();
        if entry.is_none() && !self.found_any {
            (self.process, self.entries) = of_another_thread(self.process, descriptors)?;
            entry = self.entries.next();
        }
        self.found_any = true;
        let descriptor = numbered(&entry?.ok()?);
        Some(descriptor.and_then(|descriptor| file_link(self.process, descriptor)))
    }
}

/// A descriptor of a process that leads to a regular file or a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLink {
    process: i32,
    /// The descriptor's number.
    pub descriptor: i32,
    /// Which file.
    pub id: FileId,
    /// What kind of file.
    pub kind: FileKind,
    /// A block device's number; else 0.
    pub block_device: u64,
}

impl FileLink {
    /// Whether the process may write to the file. `None` if the descriptor can only name the file
    /// (`O_PATH`) or control it (access mode 3, open(2)), which is no use of it. `None`, too,
    /// if the descriptor was closed meanwhile, or reused for another file: an event reports
    /// that one.
    ///
    /// Ask only about files that matter: the kernel lists all record locks (fcntl(2)) of the
    /// process on the file with the answer, and 30,000 take it 70 ms.
    #[must_use]
    pub fn writable(self) -> Option<bool> {
        let description = Description::of(self.process, self.descriptor)?;
        let is_it = description.is_of(self.id) || self.has_several_numbers();
        description.writable.filter(|_| is_it)
    }

    /// The same by the mode of the link in `/proc`, at once. A descriptor that was reused in
    /// between may have another file's mode.
    #[must_use]
    pub fn seems_writable(self) -> Option<bool> {
        let link = rustix::fs::statx(
            CWD,
            self.path_of_link(),
            AtFlags::SYMLINK_NOFOLLOW,
            StatxFlags::MODE,
        );
        let mode = Mode::from_raw_mode(link.ok()?.stx_mode.into());
        let uses = mode.intersects(Mode::RUSR | Mode::WUSR);
        uses.then(|| mode.contains(Mode::WUSR))
    }

    /// Takes hold of this file, even if it has been deleted or is open for writing only.
    ///
    /// The process may have something else there by now. That is an error, and nothing is
    /// asked of it: opening a device may do anything, a terminal may become our controlling
    /// one, and a server may not answer.
    ///
    /// # Errors
    ///
    /// - `ENOENT`, `ESRCH`: there is no such descriptor, or it is another file by now.
    /// - Those of open(2) with `O_PATH`.
    pub fn name(self) -> io::Result<NamedFile> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let fd = rustix::fs::open(self.path_of_link(), flags, Mode::empty())?;
        let (named, id) = NamedFile::of(fd)?;
        if id != self.id {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(named)
    }

    /// The path by which the process opened it, from the kernel: nothing is opened.
    ///
    /// # Errors
    ///
    /// - `ENOENT`, `ESRCH`: there is no such descriptor, or it is another file by now.
    pub fn path(self) -> io::Result<PathBuf> {
        let named = self.name()?;
        fs::read_link(format!("/proc/self/fd/{}", named.fd.as_raw_fd()))
    }

    fn path_of_link(self) -> String {
        format!("/proc/{}/fd/{}", self.process, self.descriptor)
    }

    /// Whether this file may have different numbers in stat(2) and proc_pid_fdinfo(5), as on
    /// overlayfs. False if the link leads to another file now.
    fn has_several_numbers(self) -> bool {
        // Don't ask the file system itself: its server may be anybody's.
        let same = ["ext4", "xfs", "btrfs", "tmpfs", "devtmpfs"];
        let mount = |named: NamedFile| mount_with_id(self.process, named.mount?).ok()?;
        let mount = self.name().ok().and_then(mount);
        mount.is_some_and(|mount| !same.contains(&mount.filesystem.as_str()))
    }
}

/// The files that a process has mapped: all, or those shared and writable, where writes make no
/// events. A file may appear several times, and every other mapping yields `None`. For a device, or a
/// file on an overlay, this is the inode that the process opened, which has no pages.
///
/// Reading this takes the process's `mmap_lock`. Whoever holds that may be waiting for a file
/// system's server that never answers, and then the caller waits, too. It can be killed,
/// unlike a reader of `/proc/PID/map_files` who is not the first.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process any more.
/// - `EACCES`: it is another user's (`PTRACE_MODE_READ`).
pub fn mapped_files(
    process: i32,
    all: bool,
) -> io::Result<impl Iterator<Item = Option<KernelInode>>> {
    let open = |thread| fs::File::open(format!("/proc/{thread}/maps"));
    let (_, maps) = of_living_thread(process, open)?;
    let lines = BufReader::new(maps).split(b'\n');
    Ok(lines
        .map_while(Result::ok)
        .map(move |line| mapped_file(&line, all)))
}

/// The inode in a line of proc_pid_maps(5), such as `7f0-7f1 rw-s 00000000 fe:01 42   /path`, if
/// all count or it is mapped shared and writable.
fn mapped_file(line: &[u8], all: bool) -> Option<KernelInode> {
    let mut fields = line.split(|&byte| byte == b' ');
    let rights = fields.nth(1)?;
    let is_counted = all || rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b's');
    if !is_counted {
        return None;
    }
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (_offset, device, number) = (text()?, text()?, text()?);
    let (major, minor) = device.split_once(':')?;
    let hexadecimal = |text| u32::from_str_radix(text, 16).ok();
    Some(KernelInode {
        device: hexadecimal(major)? << 20 | hexadecimal(minor)? & 0xf_ffff,
        number: number.parse().ok()?,
    })
}

/// The access mode's bits: `O_ACCMODE`, unless a C library includes `O_PATH` in that.
const ACCESS_MODE: i32 = 3;

/// What proc_pid_fdinfo(5) shows of a descriptor.
struct Description {
    /// `None` if it cannot be read from, either.
    writable: Option<bool>,
    /// `None` before Linux 5.14.
    inode: Option<u64>,
}

impl Description {
    fn of(process: i32, descriptor: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{process}/fdinfo/{descriptor}")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name));
        let flags = i64::from_str_radix(field("flags:")?.trim(), 8).ok()?;
        let writable = match i32::try_from(flags).ok()? {
            flags if flags & libc::O_PATH != 0 => None,
            flags => match flags & ACCESS_MODE {
                libc::O_RDONLY => Some(false),
                libc::O_WRONLY | libc::O_RDWR => Some(true),
                _ => None,
            },
        };
        Some(Self {
            writable,
            inode: field("ino:").and_then(|number| number.trim().parse().ok()),
        })
    }

    fn is_of(&self, id: FileId) -> bool {
        self.inode.is_none_or(|inode| inode == id.inode)
    }
}

/// A file that is held by a descriptor that only names it (`O_PATH`). That opens nothing. What led
/// to it, such as a link in `/proc`, may change, but not what we hold.
#[derive(Debug)]
pub struct NamedFile {
    fd: OwnedFd,
    mount: Option<u64>,
}

impl NamedFile {
    /// The file at a path. All parts of that must be in the kernel's cache, as those of a file in use
    /// are, and none may be a symbolic link: so this never waits, whatever users have put there.
    ///
    /// # Errors
    ///
    /// Those of openat2(2) with `RESOLVE_CACHED`, since Linux 5.12.
    pub fn at(path: &Path) -> io::Result<NamedFile> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::CACHED | ResolveFlags::NO_SYMLINKS;
        let fd = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?;
        Ok(Self::of(fd)?.0)
    }

    fn of(fd: OwnedFd) -> io::Result<(NamedFile, FileId)> {
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let asked = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(&fd, "", asked, wanted)?;
        let is_told = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        let mount = is_told.then_some(stat.stx_mnt_id);
        Ok((NamedFile { fd, mount }, id_of(&stat)))
    }

    /// The ID of the mount that it is on ([`Mount::id`](crate::Mount::id)); `None` before
    /// Linux 5.8. No other mount gets this ID as long as this value exists.
    #[must_use]
    pub fn mount(&self) -> Option<u64> {
        self.mount
    }

    /// Our own description of this file, for reading.
    ///
    /// # Errors
    ///
    /// Those of open(2).
    pub fn open(&self) -> io::Result<OwnedFd> {
        open_named(self.fd.as_fd())
    }

    /// The descriptor that names it (`O_PATH`).
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

impl AsFd for NamedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process_stat;
    use dropbehind_testbed::{Need, need};

    #[test]
    fn a_process_whose_main_thread_has_ended_has_files() {
        need!(Need::Tool("python3"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let program = "import ctypes, sys, threading, time\n\
                       held = open(sys.argv[1])\n\
                       threading.Thread(target=time.sleep, args=[1000]).start()\n\
                       ctypes.CDLL(None).syscall(int(sys.argv[2]), 0)";
        let mut child = std::process::Command::new("python3")
            .args(["-c", program])
            .arg(file.path())
            .arg(libc::SYS_exit.to_string())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let process = i32::try_from(child.id()).unwrap();
        while process_stat(process).unwrap().state != 'Z' {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let id = crate::file_stat(file.as_fd()).unwrap().id;
        let mut links = file_links(process).unwrap().flatten();
        let link = links.find(|link| link.id == id);
        let writable = link.map(FileLink::writable);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(writable, Some(Some(false)));
    }

    #[test]
    fn any_text_of_proc_is_read_or_refused() {
        dropbehind_testbed::fuzz("tests/corpus/proc", |bytes| {
            for line in bytes.split(|&byte| byte == b'\n') {
                if let Some(inode) = mapped_file(line, false) {
                    let (major, minor) = (inode.device >> 20, inode.device & 0xf_ffff);
                    let number = inode.number;
                    let again = format!("1-2 rw-s 0 {major:x}:{minor:x} {number} /path");
                    assert_eq!(mapped_file(again.as_bytes(), false), Some(inode));
                }
            }
            let text = String::from_utf8_lossy(bytes);
            if let Some(description) = Description::parse(&text) {
                assert!(text.contains("flags:"));
                assert!(description.inode.is_none() || text.contains("ino:"));
            }
        });
    }
}
