//! Which processes there are, and what they are: proc(5). They may end at any moment.

use crate::errno::check;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

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

/// The number that an entry of a directory in `/proc` is named by.
pub(crate) fn numbered(entry: &fs::DirEntry) -> Option<i32> {
    entry.file_name().to_str()?.parse().ok()
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
/// `PF_EXITING`, from the same file: the thread is about to end.
const PF_EXITING: u32 = 4;

impl ProcessStat {
    /// Whether it is a kernel thread, which works for others.
    #[must_use]
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether it has ended, or is about to. If it is a process, other threads of it may go on.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X') || self.flags & PF_EXITING != 0
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

/// How many descriptors a thread's process may have (`RLIMIT_NOFILE`).
///
/// # Errors
///
/// - `EPERM`: it is another user's.
/// - `ESRCH`: there is no such thread any more.
pub fn descriptor_limit(thread: i32) -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let nothing_new = std::ptr::null();
    // SAFETY: this sets nothing and writes the limit.
    let asked = unsafe { libc::prlimit(thread, libc::RLIMIT_NOFILE, nothing_new, &raw mut limit) };
    check(asked.into())?;
    Ok(limit.rlim_cur)
}

/// The kernel counts few ticks and divides the whole time in their proportion (`cputime_adjust`,
/// kernel/sched/cputime.c), so this many may seem to be spent outside of it.
const TOLERANCE: u64 = 3;

/// A system call in which a thread was, at a moment when it executed nothing else.
#[derive(Clone, Copy, Debug)]
pub struct CallUnderWay {
    /// The thread.
    pub thread: i32,
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
        // Fields 9 and 14; the parent is field 4.
        flags: fields.nth(4)?.parse().ok()?,
        user_ticks: fields.nth(4)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
            }
        );
        assert!(!stat.is_kernel_thread());
        let thread =
            parse_stat(b"9 (kworker/0:1) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 8");
        assert!(thread.unwrap().is_kernel_thread());
        assert_eq!(parse_stat(b"42 (x"), None);
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
                    "1 (x) {} {} 0 0 0 0 {} {}{}",
                    stat.state,
                    stat.parent,
                    stat.flags,
                    "0 ".repeat(4),
                    stat.user_ticks
                );
                assert_eq!(parse_stat(again.as_bytes()), Some(stat));
            }
            for group in bytes.split(|&byte| byte == b'\n').filter_map(cgroup) {
                let path = group.path.as_os_str().as_bytes();
                let line = [b"0:", group.controllers.as_bytes(), b":", path].concat();
                assert_eq!(cgroup(&line), Some(group));
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
        });
    }
}
