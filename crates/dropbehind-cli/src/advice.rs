//! What to do about an error, by errno and by what was being done.

use crate::error::{Doing, shown};
use crate::options::is_of_dd;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// What the user can do about it.
pub(crate) fn next_step(doing: Doing, path: &Path, error: &io::Error) -> String {
    let writing = matches!(
        doing,
        Doing::Create
            | Doing::MakeDirectory
            | Doing::Remove
            | Doing::Write
            | Doing::Sync
            | Doing::Close
            | Doing::Preserve
            | Doing::PreserveOwner
            | Doing::PreserveTimes
            | Doing::PreserveXattrs
    );
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) if doing == Doing::Sync => {
            "the data is not safe on the disk; free space and run the command again".into()
        }
        Some(Errno::NOSPC) => "free space and run the command again".into(),
        Some(Errno::DQUOT) => {
            "delete files or ask for a larger quota, and run the command again".into()
        }
        Some(Errno::FBIG) => "raise the limit on file sizes (ulimit -f), or choose a file system \
                              that takes larger files"
            .into(),
        Some(Errno::ROFS) => "mount the file system for writing, or choose another place".into(),
        Some(Errno::PERM) if doing == Doing::Count => {
            "run as the file's owner, as a user who may write it, or as root".into()
        }
        Some(Errno::PERM) if writing && is_protected(path) => {
            "it or its directory is immutable or append-only, for root, too; look at both with \
             lsattr -d, and take that away with chattr -i or -a"
                .into()
        }
        Some(Errno::ACCESS | Errno::PERM) if writing => "run as a user who may write it".into(),
        Some(Errno::ACCESS | Errno::PERM) => "run as a user who may read it".into(),
        Some(Errno::NOENT) if path.exists() && !Path::new("/proc/self").exists() => {
            "that takes /proc, which is not there; mount it (mount -t proc proc /proc)".into()
        }
        Some(Errno::NOENT) if matches!(doing, Doing::Create | Doing::MakeDirectory) => {
            match path.parent() {
                // As /proc, which is there, but takes no files.
                Some(parent) if parent.is_dir() => {
                    "no file can be made there; choose another place".into()
                }
                Some(parent) if !parent.as_os_str().is_empty() => {
                    format!("create the directory {} first", shown(parent))
                }
                _ => "check the name".into(),
            }
        }
        Some(Errno::NOENT) if path == Path::new("-") => {
            "check the name; standard input is /dev/stdin".into()
        }
        Some(Errno::NOENT) if path.to_str().is_some_and(is_of_dd) => {
            "that is how dd takes it: here, write only the file's name for if= and of=, and options \
             for the others, such as --block-size for bs= (see --help of cp, read and write)"
                .into()
        }
        Some(Errno::NOENT | Errno::NAMETOOLONG | Errno::LOOP) => "check the name".into(),
        Some(Errno::NOTDIR) => "a part of the name is a file; check the name".into(),
        Some(Errno::ISDIR) => "it is a directory; name a file in it".into(),
        Some(Errno::TXTBSY) if is_swap(path) => "the machine swaps to it; end that with swapoff".into(),
        Some(Errno::TXTBSY) => "the program is running; stop it, or use -f to replace it".into(),
        Some(Errno::BUSY) => "end what uses it and run the command again".into(),
        Some(Errno::MFILE) => "raise the limit on open files (ulimit -n)".into(),
        Some(Errno::BADF) => "it is closed; redirect it".into(),
        Some(Errno::PIPE) => "whoever read it is gone".into(),
        Some(Errno::IO) if writing => "the disk failed, and what was written cannot be trusted; \
                                       look at the kernel's log (dmesg)"
            .into(),
        Some(Errno::IO) => "the disk failed; look at the kernel's log (dmesg)".into(),
        Some(Errno::INVAL) if doing == Doing::Probe => {
            "name a directory, a file or a block device".into()
        }
        Some(Errno::NXIO | Errno::NODEV) => "check that the device is there".into(),
        Some(Errno::NOSYS) if matches!(doing, Doing::Count | Doing::Drop) => {
            "it takes Linux 6.5 or later, outside a sandbox that hides cachestat(2)".into()
        }
        Some(Errno::OPNOTSUPP) => "`dropbehind probe` shows what works there".into(),
        _ => "the kernel's log (dmesg) may say more".into(),
    }
}

/// Returns whether a file, or the directory that has its name, is immutable or append-only
/// (chattr(1)).
fn is_protected(path: &Path) -> bool {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let protects = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    [path, parent].iter().any(|path| {
        let found = statx(CWD, *path, AtFlags::empty(), StatxFlags::empty());
        found.is_ok_and(|found| found.stx_attributes.intersects(protects))
    })
}

/// Returns whether a file is an active swap file (proc(5), `/proc/swaps`).
fn is_swap(path: &Path) -> bool {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut swaps = swaps
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    path.canonicalize()
        .is_ok_and(|path| swaps.any(|swap| Path::new(swap) == path))
}

/// What the user can do about an observer that cannot start, as a sentence.
pub(crate) fn observers_step(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        // The kernel has these for each of several limits.
        Some(Errno::MFILE | Errno::NOSPC) => {
            "Raise fs.fanotify.max_user_groups, fs.fanotify.max_user_marks or the limit on open \
             files (ulimit -n), whichever is short."
        }
        Some(Errno::AGAIN) => "Raise the limit on processes (ulimit -u).",
        _ => "The kernel's log (dmesg) may say more.",
    }
}
