//! Which processes there are, and what they have open: proc(5).
//!
//! Except for [`NamedFile::open`], nothing here opens a process's file except to name it
//! (`O_PATH`), so it makes no event and touches no device. Processes may end at any moment:
//! what is gone is left out.

use crate::cache_trace::KernelInode;
use crate::file::{FileId, FileKind};
use crate::mount_namespace::mount_with_id;
use crate::reopen::open_named;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Statx, StatxFlags};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The numbers of all visible processes, in no order.
///
/// # Errors
///
/// Those of opening `/proc`: `ENOENT` where it is not mounted.
pub fn processes() -> io::Result<impl Iterator<Item = i32>> {
    Ok(fs::read_dir("/proc")?.filter_map(|entry| numbered(&entry.ok()?)))
}

/// How many processes and threads the machine has started since it was booted (`processes` in
/// proc_stat(5)).
///
/// # Errors
///
/// - `Unsupported`: `/proc/stat` is not the kernel's, as in containers under lxcfs.
/// - `EACCES`, `ENOENT`: `/proc` is hidden or not mounted.
pub fn processes_started() -> io::Result<u64> {
    let mut file = fs::File::open("/proc/stat")?;
    if rustix::fs::fstatfs(&file)?.f_type != rustix::fs::PROC_SUPER_MAGIC {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let started = text
        .lines()
        .find_map(|line| line.strip_prefix("processes "));
    let started = started.and_then(|number| number.parse().ok());
    started.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn numbered(entry: &fs::DirEntry) -> Option<i32> {
    entry.file_name().to_str()?.parse().ok()
}

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
    Ok(FileLinks {
        process,
        entries: descriptors(process)?,
        found_any: false,
    })
}

fn descriptors(process: i32) -> io::Result<fs::ReadDir> {
    fs::read_dir(format!("/proc/{process}/fd"))
}

/// The descriptors of a process whose main thread has ended, and so shows none, by another
/// thread's number.
fn of_another_thread(process: i32) -> Option<(i32, fs::ReadDir)> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let threads = threads.flatten().filter_map(|thread| numbered(&thread));
    threads
        .filter(|thread| *thread != process)
        .find_map(|thread| Some((thread, descriptors(thread).ok()?)))
}

/// The file that one descriptor of a process leads to; `None` if it is not open, or leads to
/// something else than a regular file or a block device.
#[must_use]
pub fn file_link(process: i32, descriptor: i32) -> Option<FileLink> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    let (id, kind, block_device) = file_behind(Path::new(&path))?;
    Some(FileLink {
        process,
        descriptor,
        id,
        kind,
        block_device,
    })
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
            (self.process, self.entries) = of_another_thread(self.process)?;
            entry = self.entries.next();
        }
        self.found_any = true;
        Some(FileLink::of(self.process, &entry?.ok()?))
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
    fn of(process: i32, entry: &fs::DirEntry) -> Option<Self> {
        let (id, kind, block_device) = file_behind(&entry.path())?;
        Some(Self {
            process,
            descriptor: numbered(entry)?,
            id,
            kind,
            block_device,
        })
    }

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
        let named = NamedFile::by(self.path_of_link().as_ref())?;
        match named.id == self.id {
            true => Ok(named),
            false => Err(io::ErrorKind::NotFound.into()),
        }
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

/// The files that a process has mapped shared and writable: its writes there make no events.
/// A file may appear several times, and every other mapping yields `None`. For a device, or a
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
pub fn mapped_files(process: i32) -> io::Result<impl Iterator<Item = Option<KernelInode>>> {
    let maps = fs::File::open(format!("/proc/{process}/maps"))?;
    let lines = BufReader::new(maps).split(b'\n');
    Ok(lines
        .map_while(Result::ok)
        .map(|line| shared_writable(&line)))
}

/// The inode in a line of proc_pid_maps(5), if it is mapped shared and writable:
/// `7f0-7f1 rw-s 00000000 fe:01 42   /path`.
fn shared_writable(line: &[u8]) -> Option<KernelInode> {
    let mut fields = line.split(|&byte| byte == b' ');
    let rights = fields.nth(1)?;
    if !(rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b's')) {
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

/// What a link in `/proc` leads to, without asking a remote server.
fn file_behind(link: &Path) -> Option<(FileId, FileKind, u64)> {
    let stat: Statx = rustix::fs::statx(
        CWD,
        link,
        AtFlags::STATX_DONT_SYNC,
        StatxFlags::TYPE | StatxFlags::INO,
    )
    .ok()?;
    let id = FileId {
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
    };
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => Some((id, FileKind::Regular, 0)),
        FileType::BlockDevice => Some((
            id,
            FileKind::Block,
            rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        )),
        _ => None,
    }
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

/// What a link in `/proc` leads to, held by a descriptor that only names it. That opens
/// nothing. The process may change what its link leads to, but not what we hold.
#[derive(Debug)]
pub struct NamedFile {
    fd: OwnedFd,
    id: FileId,
    mount: Option<u64>,
}

impl NamedFile {
    fn by(link: &Path) -> io::Result<Self> {
        let fd = rustix::fs::open(link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID;
        let asked = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        let stat = rustix::fs::statx(&fd, "", asked, wanted)?;
        let mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok(Self {
            id: FileId {
                device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
            },
            mount: mount.then_some(stat.stx_mnt_id),
            fd,
        })
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

/// The name of a process's program, up to 15 bytes of it, or the name that the process gave
/// itself.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process any more.
pub fn command_name(process: i32) -> io::Result<String> {
    let name = read_proc(&format!("/proc/{process}/comm"))?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// The (real) user who started a process, as numbered in our user namespace. A setuid program
/// does not change that.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process any more.
/// - [`io::ErrorKind::InvalidData`]: the file has an unknown form.
pub fn process_user(process: i32) -> io::Result<u32> {
    let status = read_proc(&format!("/proc/{process}/status"))?;
    real_user(&status).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn real_user(status: &[u8]) -> Option<u32> {
    // The name may contain any bytes; the kernel escapes newlines.
    let mut lines = status.split(|&byte| byte == b'\n');
    let users = lines.find_map(|line| line.strip_prefix(b"Uid:"))?;
    let users = std::str::from_utf8(users).ok()?;
    users.split_whitespace().next()?.parse().ok()
}

/// The path of a process's program, followed by ` (deleted)` if it has been removed since.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process any more, or it is a kernel thread or a
///   zombie.
/// - `EACCES`: it is another user's (`PTRACE_MODE_READ`).
pub fn executable(process: i32) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{process}/exe"))
}

/// The children of a process, created by any of its threads. Some may be missing if others
/// end meanwhile.
///
/// # Errors
///
/// - `ENOENT`: there is no such process any more, or the kernel was built
///   without `CONFIG_PROC_CHILDREN`.
pub fn children(process: i32) -> io::Result<Vec<i32>> {
    let mut children = Vec::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let Ok(text) = fs::read_to_string(thread?.path().join("children")) else {
            continue;
        };
        children.extend(
            text.split_whitespace()
                .filter_map(|id| id.parse::<i32>().ok()),
        );
    }
    Ok(children)
}

/// A cgroup that a process is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cgroup {
    /// The hierarchy's controllers, `memory` or `cpu,cpuacct`, or its name,
    /// `name=systemd`; empty for the unified hierarchy (v2).
    pub controllers: String,
    /// The path within the hierarchy, as seen from the caller's cgroup
    /// namespace.
    pub path: PathBuf,
}

/// The cgroups that a process is in, one for each hierarchy.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process any more, or the kernel has no
///   cgroups.
pub fn cgroups(process: i32) -> io::Result<Vec<Cgroup>> {
    // Whoever may create a cgroup may give it a name of any bytes except a newline.
    let text = read_proc(&format!("/proc/{process}/cgroup"))?;
    Ok(text
        .split(|&byte| byte == b'\n')
        .filter_map(cgroup)
        .collect())
}

fn cgroup(line: &[u8]) -> Option<Cgroup> {
    let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
    Some(Cgroup {
        controllers: String::from_utf8_lossy(fields.next()?).into_owned(),
        path: PathBuf::from(OsStr::from_bytes(fields.next()?)),
    })
}

/// `PF_KTHREAD`, include/linux/sched.h.
const PF_KTHREAD: u32 = 0x0020_0000;

impl ProcessStat {
    /// Whether it is a kernel thread, which works for others.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
}

/// Reads a short file of /proc in two calls. The size that it reports is 0, so the standard
/// library would begin with a small buffer.
fn read_proc(path: &str) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(2048);
    // Not a file's own `read_to_end`, which asks for its size.
    let limit = 1 << 20;
    fs::File::open(path)?.take(limit).read_to_end(&mut text)?;
    Ok(text)
}

/// What the scheduler shows of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessStat {
    /// `R` running, `S` and `D` waiting, `T` and `t` stopped, `Z` zombie, and others
    /// (proc_pid_stat(5)).
    pub state: char,
    /// Its parent; 0 if that is outside the pid namespace.
    pub parent: i32,
    flags: u32,
    /// How long it has executed outside of the kernel, in clock ticks.
    user_ticks: u64,
    /// When it started, in clock ticks since boot. Together with the process number, it tells
    /// a process from a later one with the same number.
    pub start_ticks: u64,
}

/// What the scheduler shows of a process.
///
/// # Errors
///
/// - `ENOENT`, `ESRCH`: there is no such process any more.
/// - [`io::ErrorKind::InvalidData`]: the file has an unknown form.
pub fn process_stat(process: i32) -> io::Result<ProcessStat> {
    let text = read_proc(&format!("/proc/{process}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The kernel counts few ticks and divides the whole time in their proportion (`cputime_adjust`,
/// kernel/sched/cputime.c), so this many may seem to be spent outside of it.
const TOLERANCE: u64 = 3;

/// A system call in which a thread was, at a moment when it executed nothing else.
#[derive(Clone, Copy, Debug)]
pub struct CallUnderWay {
    thread: i32,
    number: i32,
    user_ticks: Option<u64>,
}

impl CallUnderWay {
    /// This thread's call, by its number on the thread's architecture.
    #[must_use]
    pub fn new(thread: i32, number: i32) -> CallUnderWay {
        CallUnderWay {
            thread,
            number,
            user_ticks: None,
        }
    }

    /// Returns whether the thread may still be in that call. It is not if it has ended, waits in
    /// another call (proc_pid_syscall(5)), or has executed something outside of the kernel for
    /// some ticks since this was asked first. Nor if we may not know.
    pub fn may_go_on(&mut self) -> bool {
        let CallUnderWay { thread, number, .. } = *self;
        let Ok(shown) = fs::read_to_string(format!("/proc/{thread}/syscall")) else {
            return false;
        };
        if !shown.starts_with("running") {
            return shown.split_whitespace().next() == Some(number.to_string().as_str());
        }
        // `/proc/THREAD/stat` would be that of the whole process.
        let text = read_proc(&format!("/proc/{thread}/task/{thread}/stat"));
        let Some(stat) = text.ok().and_then(|text| parse_stat(&text)) else {
            return false;
        };
        stat.user_ticks < *self.user_ticks.get_or_insert(stat.user_ticks) + TOLERANCE
    }
}

fn parse_stat(text: &[u8]) -> Option<ProcessStat> {
    // The name is in parentheses and may contain any bytes, including parentheses.
    let end = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = std::str::from_utf8(&text[end + 1..])
        .ok()?
        .split_whitespace();
    Some(ProcessStat {
        state: fields.next()?.chars().next()?,
        parent: fields.next()?.parse().ok()?,
        // Fields 9, 14 and 22; the parent is field 4.
        flags: fields.nth(4)?.parse().ok()?,
        user_ticks: fields.nth(4)?.parse().ok()?,
        start_ticks: fields.nth(7)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Need, need};

    #[test]
    fn names_cannot_mislead() {
        let line = b"42 (a) R 1 (b) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 91234 9 9 9";
        let stat = parse_stat(line).unwrap();
        assert_eq!(
            stat,
            ProcessStat {
                state: 'S',
                parent: 7,
                flags: 4_194_560,
                user_ticks: 5,
                start_ticks: 91234
            }
        );
        assert!(!stat.is_kernel_thread());
        let thread =
            parse_stat(b"9 (kworker/0:1) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 8");
        assert!(thread.unwrap().is_kernel_thread());
        assert_eq!(parse_stat(b"42 (x"), None);
    }

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
    fn cgroups_of_both_versions() {
        let old = cgroup(b"4:cpu,cpuacct:/a:b").unwrap();
        assert_eq!(old.controllers, "cpu,cpuacct");
        assert_eq!(old.path, Path::new("/a:b"));
        let unified = cgroup(b"0::/system.slice/x.service").unwrap();
        assert_eq!(unified.controllers, "");
        assert_eq!(unified.path, Path::new("/system.slice/x.service"));
        let odd = cgroup(b"0::/a/\xff").unwrap();
        assert_eq!(odd.path.as_os_str().as_bytes(), b"/a/\xff");
    }

    #[test]
    fn any_text_of_proc_is_read_or_refused() {
        dropbehind_testbed::fuzz("tests/corpus/proc", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            if let Some(stat) = parse_stat(bytes) {
                let again = format!(
                    "1 (x) {} {} 0 0 0 0 {} {}{} {}{}",
                    stat.state,
                    stat.parent,
                    stat.flags,
                    "0 ".repeat(4),
                    stat.user_ticks,
                    "0 ".repeat(7),
                    stat.start_ticks
                );
                assert_eq!(parse_stat(again.as_bytes()), Some(stat));
            }
            for group in bytes.split(|&byte| byte == b'\n').filter_map(cgroup) {
                let path = group.path.as_os_str().as_bytes();
                let line = [b"0:", group.controllers.as_bytes(), b":", path].concat();
                assert_eq!(cgroup(&line), Some(group));
            }
            for line in bytes.split(|&byte| byte == b'\n') {
                if let Some(inode) = shared_writable(line) {
                    let (major, minor) = (inode.device >> 20, inode.device & 0xf_ffff);
                    let number = inode.number;
                    let again = format!("1-2 rw-s 0 {major:x}:{minor:x} {number} /path");
                    assert_eq!(shared_writable(again.as_bytes()), Some(inode));
                }
            }
            // A program chooses its name, and the kernel escapes newlines and backslashes.
            let name = bytes.escape_ascii();
            let status = format!("Name:\t{name}\nUmask:\t0022\nUid:\t1\t2\t3\t4\n");
            assert_eq!(real_user(status.as_bytes()), Some(1));
            if let Some(user) = real_user(bytes) {
                let status = format!("Uid:\t{user}\t0\t0\t0");
                assert_eq!(real_user(status.as_bytes()), Some(user));
                assert!(text.contains("Uid:"));
            }
            if let Some(description) = Description::parse(&text) {
                assert!(text.contains("flags:"));
                assert!(description.inode.is_none() || text.contains("ino:"));
            }
        });
    }
}
