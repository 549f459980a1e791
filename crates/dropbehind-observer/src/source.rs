//! Whose files are observed, and the marks that bring their events.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use dropbehind_linux::{
    EventMask, Fanotify, MarkOptions, MarkTarget, Mount, MountNamespaceId, MountWatch,
    mount_namespace_of, mount_number,
};

use crate::shown;

/// Whose files are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Those used by processes in the mount namespace of this process, which is
    /// to be one of their own: its mounts are marked, and nobody else's.
    Namespace {
        /// A process in it.
        process: i32,
    },
    /// Those of everybody: file systems are marked.
    Machine,
}

/// Events of every file. Not of reads and writes: an event for each 4 KiB write makes
/// it take up to twice as long, and the trace tells what enters the cache.
pub(crate) const USE: EventMask = EventMask::OPEN
    .union(EventMask::CLOSE_WRITE)
    .union(EventMask::CLOSE_NOWRITE);

/// File systems whose pages no disk carries, or whose files are no files. The kernel
/// reports no use of devices (`fanotify_group_event_mask`, fs/notify/fanotify/fanotify.c).
const WITHOUT_DISK: [&str; 25] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fuse.lxcfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "proc",
    "pstore",
    "ramfs",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "sysfs",
    "tmpfs",
    "tracefs",
];

/// The marks on the mounts or file systems of a source.
#[derive(Debug)]
pub(crate) struct Marks {
    source: Source,
    watch: MountWatch,
    /// The root directory from which the mount points are seen.
    root: File,
    namespace: MountNamespaceId,
    marked: HashMap<u64, Marked>,
    mounts: Vec<Mount>,
}

#[derive(Debug)]
struct Marked {
    point: PathBuf,
    /// No other mount gets it.
    number: Option<u64>,
}

impl Marks {
    /// Marks what is mounted now; the notes say what could not be.
    pub(crate) fn new(
        source: Source,
        fanotify: &Fanotify,
        notes: &mut Vec<String>,
    ) -> io::Result<Marks> {
        let process = match source {
            Source::Namespace { process } => process,
            Source::Machine => i32::try_from(std::process::id()).unwrap_or(0),
        };
        let mut marks = Marks {
            source,
            watch: MountWatch::new(process)?,
            root: File::options()
                .read(true)
                .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
                .open(format!("/proc/{process}/root"))?,
            namespace: mount_namespace_of(process)?,
            marked: HashMap::new(),
            mounts: Vec::new(),
        };
        marks.refresh(fanotify, notes)?;
        Ok(marks)
    }

    /// All that is mounted.
    pub(crate) fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The numbers of those that are marked, which no other mounts get.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.marked.values().filter_map(|marked| marked.number)
    }

    /// For polling: urgent when something was mounted or unmounted.
    pub(crate) fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Whether something was mounted or unmounted since this was asked last.
    pub(crate) fn have_changed(&self) -> bool {
        self.watch.has_changed().unwrap_or(false)
    }

    /// The mount namespace whose processes are observed; `None` for all.
    pub(crate) fn namespace(&self) -> Option<MountNamespaceId> {
        match self.source {
            Source::Namespace { .. } => Some(self.namespace),
            Source::Machine => None,
        }
    }

    /// Marks what has been mounted since.
    pub(crate) fn refresh(
        &mut self,
        fanotify: &Fanotify,
        notes: &mut Vec<String>,
    ) -> io::Result<()> {
        let mounts = self.watch.mounts()?;
        self.mounts.clone_from(&mounts);
        let mut marked = HashMap::new();
        for mount in mounts {
            if WITHOUT_DISK.contains(&mount.filesystem.as_str()) {
                continue;
            }
            let known = self.marked.remove(&mount.id);
            let number = self.number(&mount);
            let is_known = known
                .is_some_and(|known| (known.point == mount.mount_point) && known.number == number);
            if !is_known && let Err(error) = self.mark(fanotify, &mount) {
                // Covered by another mount, or gone again: nobody opens a file
                // there by that path.
                if !matches!(error.kind(), io::ErrorKind::NotFound) {
                    notes.push(format!(
                        "{} ({}) cannot be observed: {error}",
                        shown(&mount.mount_point),
                        shown(&mount.filesystem)
                    ));
                }
                continue;
            }
            let point = mount.mount_point;
            marked.insert(mount.id, Marked { point, number });
        }
        self.marked = marked;
        Ok(())
    }

    fn number(&self, mount: &Mount) -> Option<u64> {
        mount_number(self.root.as_fd(), from_root(mount)).ok()?
    }

    fn mark(&self, fanotify: &Fanotify, mount: &Mount) -> io::Result<()> {
        match self.source {
            Source::Namespace { .. } => {
                let path = from_root(mount);
                let target = MarkTarget::Mount {
                    directory: self.root.as_fd(),
                    path,
                };
                fanotify.add_mark(target, USE, MarkOptions::WANTED)
            }
            Source::Machine => {
                let target = MarkTarget::FileSystem(&mount.mount_point);
                match fanotify.add_mark(target, USE, MarkOptions::WANTED) {
                    // No file system ids (FUSE, overlayfs on some kernels).
                    Err(error)
                        if matches!(
                            error.raw_os_error(),
                            Some(libc::EXDEV | libc::ENODEV | libc::EOPNOTSUPP)
                        ) =>
                    {
                        let target = MarkTarget::Mount {
                            directory: rustix::fs::CWD,
                            path: &mount.mount_point,
                        };
                        fanotify.add_mark(target, USE, MarkOptions::WANTED)
                    }
                    result => result,
                }
            }
        }
    }
}

/// Where something is mounted, as a path from the root directory's descriptor.
fn from_root(mount: &Mount) -> &Path {
    match mount.mount_point.strip_prefix("/") {
        Ok(path) if path.as_os_str().is_empty() => Path::new("."),
        Ok(path) => path,
        Err(_) => mount.mount_point.as_path(),
    }
}
