//! Whose files are observed, and the marks that bring their events.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dropbehind_linux::{
    EventMask, Fanotify, MarkLife, MarkTarget, Mount, MountNamespaceId, MountPoint, MountWatch,
    kernel_device, mount_namespace_of, mount_number,
};

use crate::in_time::in_time;
use crate::rules::Rules;
use crate::shown;

/// Whose files are observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Files used by processes in this process's mount namespace, which must be their own: only
    /// its mounts are marked.
    Namespace {
        /// A process in it.
        process: i32,
    },
    /// Everybody's files: file systems are marked.
    Machine,
}

/// Events of every file. Reads and writes are not among them: an event for each 4 KiB write
/// makes it take up to twice as long, and the trace reports what enters the cache.
pub(crate) const USE: EventMask = EventMask::OPEN
    .union(EventMask::CLOSE_WRITE)
    .union(EventMask::CLOSE_NOWRITE);

/// File systems whose pages no disk carries, or whose files are not real files. The kernel
/// reports no use of devices (`fanotify_group_event_mask`, fs/notify/fanotify/fanotify.c).
const WITHOUT_DISK: [&str; 27] = [
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
    "fuse.gvfsd-fuse",
    "fuse.lxcfs",
    "fuse.portal",
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

/// File systems that ask another machine; those that ask a process are FUSE. Opening, examining
/// or closing a file there takes until the server answers, if it does.
const REMOTE: [&str; 9] = [
    "9p", "afs", "ceph", "cifs", "coda", "lustre", "nfs", "nfs4", "smb3",
];

/// The marks on the mounts or file systems of a source.
#[derive(Debug)]
pub(crate) struct Marks {
    source: Source,
    watch: MountWatch,
    /// The root directory from which the mount points are seen.
    root: Arc<OwnedFd>,
    namespace: MountNamespaceId,
    marked: HashMap<u64, Marked>,
    mounts: Vec<Mount>,
    /// The numbers of mounts whose files may be opened.
    open: HashSet<u64>,
}

#[derive(Debug)]
struct Marked {
    point: PathBuf,
    /// No other mount gets this number.
    number: Option<u64>,
}

impl Marks {
    /// Marks what is mounted now; the notes say what could not be marked.
    pub(crate) fn new(
        source: Source,
        rules: &dyn Rules,
        fanotify: &Arc<Fanotify>,
        notes: &mut Vec<String>,
    ) -> io::Result<Marks> {
        let process = match source {
            Source::Namespace { process } => process,
            Source::Machine => i32::try_from(std::process::id()).unwrap_or(0),
        };
        let mut marks = Marks {
            source,
            watch: MountWatch::new(process)?,
            root: Arc::new(
                File::options()
                    .read(true)
                    .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
                    .open(format!("/proc/{process}/root"))?
                    .into(),
            ),
            namespace: mount_namespace_of(process)?,
            marked: HashMap::new(),
            mounts: Vec::new(),
            open: HashSet::new(),
        };
        marks.refresh(rules, fanotify, notes)?;
        Ok(marks)
    }

    /// All that is mounted.
    pub(crate) fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The numbers of marked mounts, which no other mounts get.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.marked.values().filter_map(|marked| marked.number)
    }

    /// Where this device, as the kernel encodes it, is mounted and marked.
    pub(crate) fn points_of(&self, device: u32) -> Vec<MountPoint> {
        let mounts = self.mounts.iter();
        let of_device = mounts.filter(|mount| kernel_device(mount.device) == device);
        let point = |mount: &Mount| {
            let number = self.marked.get(&mount.id)?.number?;
            let path = from_root(mount).to_owned();
            Some(MountPoint::new(Arc::clone(&self.root), path, number))
        };
        of_device.filter_map(point).collect()
    }

    /// The numbers of mounts that could be unmounted: all but the root directory's.
    pub(crate) fn unmountable(&self) -> HashSet<u64> {
        let marked = self.marked.values();
        let unmountable = marked.filter(|marked| below_root(&marked.point).is_some());
        unmountable.filter_map(|marked| marked.number).collect()
    }

    /// For polling: urgent when something was mounted or unmounted.
    pub(crate) fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Returns whether something was mounted or unmounted since the last call.
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

    /// The numbers of mounts whose files may be opened. Those whose server may hang are left
    /// out, unless they are wanted.
    pub(crate) fn open(&self) -> &HashSet<u64> {
        &self.open
    }

    /// Marks what was mounted, or became wanted, since the last time.
    ///
    /// Where a server answers for the files, a watch marks only what a rule names: any user may
    /// run a server, and one that hangs would stop it. A run marks all that its programs see.
    pub(crate) fn refresh(
        &mut self,
        rules: &dyn Rules,
        fanotify: &Arc<Fanotify>,
        notes: &mut Vec<String>,
    ) -> io::Result<()> {
        let mounts = self.watch.mounts()?;
        self.mounts.clone_from(&mounts);
        let mut marked = HashMap::new();
        self.open.clear();
        for mount in mounts {
            let served = self.is_served(&mount);
            let is_wanted =
                !served || self.source != Source::Machine || rules.name(&mount.mount_point);
            if is_wanted || !reaches_server(&self.mounts, &mount) {
                self.open.insert(mount.id);
            }
            if WITHOUT_DISK.contains(&mount.filesystem.as_str()) {
                continue;
            }
            if !is_wanted {
                notes.push(format!(
                    "{} ({}) is left to the kernel, since its server may hang; a rule whose path \
                     begins with it has it observed",
                    shown(&mount.mount_point),
                    shown(&mount.filesystem)
                ));
                continue;
            }
            let known = self.marked.remove(&mount.id);
            // Asking for its number may mean asking the server.
            let number = (!served).then(|| self.number(&mount)).flatten();
            let is_known = known
                .is_some_and(|known| (known.point == mount.mount_point) && known.number == number);
            if !is_known && let Err(error) = self.mark(fanotify, &mount, served) {
                // Covered by another mount, or gone again: nobody opens a file
                // there by that path.
                if !matches!(error.kind(), io::ErrorKind::NotFound) {
                    notes.push(format!(
                        "{} ({}) cannot be observed: {error}",
                        shown(&mount.mount_point),
                        shown(&mount.filesystem)
                    ));
                }
                // A mark without an answer yet counts from when it is made.
                if error.kind() != io::ErrorKind::TimedOut {
                    continue;
                }
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

    /// Returns whether a server must answer before a file is opened, or its mount is found.
    fn is_served(&self, mount: &Mount) -> bool {
        let below = |asking: &&Mount| mount.mount_point.starts_with(&asking.mount_point);
        let mut above = self.mounts.iter().filter(below);
        above.any(|asking| reaches_server(&self.mounts, asking))
    }

    fn mark(&self, fanotify: &Arc<Fanotify>, mount: &Mount, served: bool) -> io::Result<()> {
        let source = self.source;
        if !served {
            return mark(source, fanotify, self.root.as_fd(), mount);
        }
        let (fanotify, root) = (Arc::clone(fanotify), Arc::clone(&self.root));
        let mount = mount.clone();
        in_time(move || mark(source, &fanotify, root.as_fd(), &mount))
            .unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer yet")))
    }
}

/// Returns whether a server answers for each file.
fn asks_server(mount: &Mount) -> bool {
    let filesystem = mount.filesystem.as_str();
    filesystem.starts_with("fuse") || REMOTE.contains(&filesystem)
}

/// Returns whether a server answers for each file, or may do so for those below an overlay,
/// which the table does not show.
pub(crate) fn may_ask_server(mount: &Mount) -> bool {
    asks_server(mount) || mount.filesystem == "overlay"
}

/// Returns whether a server answers for each file, or for one below an overlay, judging by these
/// mounts.
fn reaches_server(mounts: &[Mount], mount: &Mount) -> bool {
    let of_layers = |overlay: &Mount| {
        let layers = overlay.layers().into_iter();
        layers.filter_map(|layer| mount_at(mounts, &layer))
    };
    // Two levels are enough: the kernel stacks overlays no deeper.
    asks_server(mount)
        || of_layers(mount).any(|layer| asks_server(layer) || of_layers(layer).any(asks_server))
}

/// The mount that a path leads to, unless by links.
fn mount_at<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    // Of two mounts at one place, the later covers the other.
    let above = mounts
        .iter()
        .filter(|mount| path.starts_with(&mount.mount_point));
    above.max_by_key(|mount| mount.mount_point.as_os_str().len())
}

fn mark(
    source: Source,
    fanotify: &Fanotify,
    root: BorrowedFd<'_>,
    mount: &Mount,
) -> io::Result<()> {
    let by_mount = |directory, path| {
        let target = MarkTarget::Mount { directory, path };
        fanotify.add_mark(target, USE, MarkLife::Kept)
    };
    if source != Source::Machine {
        return by_mount(root, from_root(mount));
    }
    let target = MarkTarget::FileSystem(&mount.mount_point);
    match fanotify.add_mark(target, USE, MarkLife::Kept) {
        // No file system ids (FUSE, overlayfs on some kernels).
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EXDEV | libc::ENODEV | libc::EOPNOTSUPP)
            ) =>
        {
            by_mount(rustix::fs::CWD, &mount.mount_point)
        }
        result => result,
    }
}

/// The mount point as a path from the root directory's descriptor.
fn from_root(mount: &Mount) -> &Path {
    below_root(&mount.mount_point).unwrap_or(Path::new("."))
}

/// `None` for the root directory itself.
fn below_root(path: &Path) -> Option<&Path> {
    let path = path.strip_prefix("/").unwrap_or(path);
    (!path.as_os_str().is_empty()).then_some(path)
}
