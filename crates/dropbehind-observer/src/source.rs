//! Whose files are observed, and the marks that bring their events.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dropbehind_linux::{
    EventMask, Fanotify, MarkLife, MarkTarget, Mount, MountPoint, MountWatch, kernel_device,
    mount_number, mount_with_id, thread_id,
};

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};

use crate::in_time::in_time;
use crate::observer::own_process;
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
    /// Only what programs in one mount namespace see is marked.
    in_a_run: bool,
    view: View,
    marked: HashMap<u64, Marked>,
    /// In a run, the mounts of our own namespace. `None` in a watch, and without fanotify.
    own: Option<View>,
    /// Those of them through which files can be opened, each with the kernel's number of its device.
    unmarked: Vec<(u32, Marked)>,
}

/// A mount table, and the root directory from which its mount points are seen.
#[derive(Debug)]
struct View {
    watch: MountWatch,
    root: Arc<OwnedFd>,
    mounts: Vec<Mount>,
}

/// Where something is mounted.
#[derive(Debug)]
struct Marked {
    point: PathBuf,
    /// No other mount gets this number.
    number: Option<u64>,
}

impl Marks {
    /// Marks what is mounted now, unless opens are reported without fanotify; the notes say what
    /// could not be marked.
    pub(crate) fn new(
        source: Source,
        rules: &dyn Rules,
        fanotify: Option<&Arc<Fanotify>>,
        notes: &mut Vec<String>,
    ) -> io::Result<Marks> {
        let (process, in_a_run) = match source {
            Source::Namespace { process } => (process, true),
            Source::Machine => (own_process(), false),
        };
        let differs = in_a_run && fanotify.is_some();
        let mut marks = Marks {
            in_a_run,
            view: View::of(process)?,
            marked: HashMap::new(),
            own: differs.then(|| View::of(own_process())).transpose()?,
            unmarked: Vec::new(),
        };
        marks.refresh(rules, fanotify, notes)?;
        Ok(marks)
    }

    /// All that is mounted.
    pub(crate) fn mounts(&self) -> &[Mount] {
        &self.view.mounts
    }

    /// The numbers of marked mounts, which no other mounts get.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.marked.values().filter_map(|marked| marked.number)
    }

    /// Where this device, as the kernel encodes it, is mounted. A run's marks are on its own mounts:
    /// what we open through ours is not reported to us.
    pub(crate) fn points_of(&self, device: u32) -> Vec<MountPoint> {
        let point = |root: &Arc<OwnedFd>, mounted: &Marked| {
            let path = from_root(&mounted.point).to_owned();
            Some(MountPoint::new(Arc::clone(root), path, mounted.number?))
        };
        let own = self.own.iter().flat_map(|own| {
            let unmarked = self.unmarked.iter().filter(|(own, _)| *own == device);
            unmarked.filter_map(|(_, mounted)| point(&own.root, mounted))
        });
        let mounts = self.view.mounts.iter();
        let of_device = mounts.filter(|mount| kernel_device(mount.device) == device);
        let marked = of_device.filter_map(|mount| self.marked.get(&mount.id));
        own.chain(marked.filter_map(|mounted| point(&self.view.root, mounted)))
            .collect()
    }

    /// Finds the mounts that we see ourselves.
    fn find_unmarked(&mut self) -> io::Result<()> {
        self.unmarked.clear();
        let Some(own) = &mut self.own else {
            return Ok(());
        };
        own.mounts = own.watch.mounts()?;
        let served = own.served();
        for mount in &own.mounts {
            if !has_disk(mount) || served.contains(&mount.id) {
                continue;
            }
            // In this order: if something is mounted there meanwhile, it is the one that covers.
            let (point, number) = (mount.mount_point.clone(), own.number(mount));
            if !own.is_covered(mount) {
                let device = kernel_device(mount.device);
                self.unmarked.push((device, Marked { point, number }));
            }
        }
        Ok(())
    }

    /// The numbers of mounts that could be unmounted: all but the root directory's.
    pub(crate) fn unmountable(&self) -> HashSet<u64> {
        let marked = self.marked.values();
        let unmountable = marked.filter(|marked| below_root(&marked.point).is_some());
        unmountable.filter_map(|marked| marked.number).collect()
    }

    /// For polling: urgent when something was mounted or unmounted.
    pub(crate) fn watches(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.views().map(|view| view.watch.as_fd())
    }

    /// Returns whether something was mounted or unmounted since the last call.
    pub(crate) fn have_changed(&self) -> bool {
        let changed = self
            .views()
            .filter(|view| view.watch.has_changed().unwrap_or(false));
        changed.count() > 0
    }

    fn views(&self) -> impl Iterator<Item = &View> {
        [&self.view].into_iter().chain(&self.own)
    }

    /// Marks what was mounted, or became wanted, since the last time, and removes the marks of what
    /// is wanted no more.
    ///
    /// Where a server answers for the files, a watch marks only what a rule names: any user may
    /// run a server, and one that hangs would stop it. A run marks all that its programs see.
    pub(crate) fn refresh(
        &mut self,
        rules: &dyn Rules,
        fanotify: Option<&Arc<Fanotify>>,
        notes: &mut Vec<String>,
    ) -> io::Result<()> {
        let mounts = self.view.watch.mounts()?;
        self.view.mounts.clone_from(&mounts);
        // If that fails, files are opened through the marked mounts.
        let _ = self.find_unmarked();
        let mut marked = HashMap::new();
        let mut unwanted = Vec::new();
        let all_served = self.view.served();
        for mount in mounts {
            if !has_disk(&mount) {
                continue;
            }
            let served = all_served.contains(&mount.id);
            let known = self.marked.remove(&mount.id);
            if served && !self.in_a_run && !rules.name(&mount.mount_point) {
                notes.push(format!(
                    "{} is left to the kernel, since its server may hang; a rule whose path \
                     begins with it has it observed",
                    place_of(&mount)
                ));
                unwanted.extend(known.map(|known| (mount, known)));
                continue;
            }
            if !served && self.view.is_covered(&mount) {
                // Its path leads to another mount, and must not be marked in its place.
                marked.extend(known.map(|known| (mount.id, known)));
                continue;
            }
            // Asking for its number may mean asking the server.
            let number = (!served).then(|| self.view.number(&mount)).flatten();
            let is_known = known
                .is_some_and(|known| known.point == mount.mount_point && known.number == number);
            if !is_known
                && let Some(fanotify) = fanotify
                && let Err(error) = self.mark(fanotify, &mount, served)
            {
                // Covered by another mount, or gone again: nobody opens a file
                // there by that path.
                let is_gone = error.kind() == io::ErrorKind::NotFound;
                // FUSE without `allow_other` is for one user, and each desktop has some. A run of
                // root's has programs of that user only if it starts them so.
                let is_private = self.in_a_run
                    && error.kind() == io::ErrorKind::PermissionDenied
                    && mount.filesystem.starts_with("fuse");
                if !is_gone && !is_private {
                    notes.push(format!("{} cannot be observed: {error}", place_of(&mount)));
                }
                // A mark without an answer yet counts from when it is made.
                if error.kind() != io::ErrorKind::TimedOut {
                    continue;
                }
            }
            let point = mount.mount_point;
            marked.insert(mount.id, Marked { point, number });
        }
        let all = self.view.mounts.iter();
        let wanted = all.filter(|mount| marked.contains_key(&mount.id));
        let wanted: HashSet<u64> = wanted.map(|mount| mount.device).collect();
        for (mount, known) in unwanted {
            // A file system has one mark for all its mounts.
            let stays = wanted.contains(&mount.device);
            if stays || fanotify.is_some_and(|fanotify| !self.unmark(fanotify, &mount)) {
                marked.insert(mount.id, known);
            }
        }
        self.marked = marked;
        Ok(())
    }

    fn mark(&self, fanotify: &Arc<Fanotify>, mount: &Mount, served: bool) -> io::Result<()> {
        let (fanotify, root) = (Arc::clone(fanotify), Arc::clone(&self.view.root));
        let (point, in_a_run) = (mount.mount_point.clone(), self.in_a_run);
        let mark = move || {
            let target = match in_a_run {
                true => MarkTarget::Mount {
                    directory: root.as_fd(),
                    path: from_root(&point),
                },
                false => MarkTarget::FileSystem(&point),
            };
            fanotify.add_mark(target, USE, MarkLife::Kept)
        };
        if !served {
            return mark();
        }
        in_time(mark)
            .unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer yet")))
    }

    /// Removes a watch's mark. Returns false if the path leads to another mount, whose mark must
    /// stay.
    fn unmark(&self, fanotify: &Arc<Fanotify>, mount: &Mount) -> bool {
        let (fanotify, root) = (Arc::clone(fanotify), Arc::clone(&self.view.root));
        let (point, id) = (mount.mount_point.clone(), mount.id);
        let unmark = move || {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let place = rustix::fs::openat(&root, from_root(&point), flags, Mode::empty())?;
            if is_other(&place, Path::new(""), id) {
                return Ok(false);
            }
            // What is mounted there from now on keeps its mark.
            let path = format!("/proc/thread-self/fd/{}", place.as_raw_fd());
            let _ = fanotify.remove_mark(MarkTarget::FileSystem(path.as_ref()), USE);
            io::Result::Ok(true)
        };
        // One that is gone has no mark. If the server does not answer yet, it is removed then.
        in_time(unmark).and_then(Result::ok).unwrap_or(true)
    }
}

impl View {
    /// The view of this process. Its mounts are not read yet.
    fn of(process: i32) -> io::Result<View> {
        let mut options = File::options();
        options
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY);
        let root: OwnedFd = options.open(format!("/proc/{process}/root"))?.into();
        Ok(View {
            watch: MountWatch::new(process)?,
            root: Arc::new(root),
            mounts: Vec::new(),
        })
    }

    fn number(&self, mount: &Mount) -> Option<u64> {
        mount_number(self.root.as_fd(), from_root(&mount.mount_point)).ok()?
    }

    /// Returns whether something is mounted over it.
    fn is_covered(&self, mount: &Mount) -> bool {
        is_other(&self.root, from_root(&mount.mount_point), mount.id)
    }

    /// The IDs of mounts where a server must answer before a file is opened, or the mount is found.
    fn served(&self) -> HashSet<u64> {
        let places = Places::of(&self.mounts);
        let asking = self.mounts.iter().filter(|one| places.reach_server(one));
        let asking: HashSet<&Path> = asking.map(|one| one.mount_point.as_path()).collect();
        let is_served = |mount: &&Mount| {
            let mut above = mount.mount_point.ancestors();
            above.any(|place| asking.contains(place))
        };
        let served = self.mounts.iter().filter(is_served);
        served.map(|mount| mount.id).collect()
    }
}

/// Returns whether a path leads to another mount than this; since Linux 5.8.
fn is_other(directory: &OwnedFd, path: &Path, mount: u64) -> bool {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
    let statx = rustix::fs::statx(directory, path, flags, StatxFlags::MNT_ID);
    let is_told = |statx: &Statx| statx.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    statx.is_ok_and(|statx| is_told(&statx) && statx.stx_mnt_id != mount)
}

/// Returns whether a server answers for each file.
fn asks_server(mount: &Mount) -> bool {
    let filesystem = mount.filesystem.as_str();
    filesystem.starts_with("fuse") || REMOTE.contains(&filesystem)
}

/// Reading the table of a container host takes milliseconds, and any user may open files of an
/// overlay that it does not list.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// The mount table that we see, as of now.
#[derive(Debug)]
pub(crate) struct MountTable {
    watch: MountWatch,
    mounts: Vec<Mount>,
    /// When it may be read next though no change was reported.
    next_read: Instant,
}

impl MountTable {
    pub(crate) fn new() -> io::Result<MountTable> {
        let watch = MountWatch::new(thread_id())?;
        let mounts = watch.mounts()?;
        Ok(MountTable {
            watch,
            mounts,
            next_read: Instant::now(),
        })
    }

    /// What is mounted now, in our own mount namespace.
    pub(crate) fn current(&mut self) -> &[Mount] {
        // What changes while it is read is seen the next time.
        match self.watch.has_changed().unwrap_or(true) {
            true => self.read(),
            false => &self.mounts,
        }
    }

    /// Reads the table though no change was reported, as none is when a directory above a mount is
    /// renamed. `None` if it was read again less than [`READ_AGAIN`] ago.
    pub(crate) fn read_again(&mut self) -> Option<&[Mount]> {
        let now = Instant::now();
        if now < self.next_read {
            return None;
        }
        self.next_read = now + READ_AGAIN;
        Some(self.read())
    }

    fn read(&mut self) -> &[Mount] {
        if let Ok(mounts) = self.watch.mounts() {
            self.mounts = mounts;
        }
        &self.mounts
    }

    /// Returns whether a watch may open a file of a process on this mount: one whose server
    /// cannot hang, or one that a rule names. The caller holds the mount, since the kernel gives
    /// the ID of one that is gone to the next one, and users mount what they like. So only what
    /// a table shows by now as another file system is harmless.
    pub(crate) fn may_open(&mut self, rules: &dyn Rules, process: i32, mount: u64) -> bool {
        self.current();
        match self.mounts.iter().find(|own| own.id == mount) {
            Some(own) => {
                is_local(own)
                    || !Places::of(&self.mounts).reach_server(own)
                    || rules.name(&own.mount_point)
            }
            None => {
                mount_with_id(process, mount).is_ok_and(|its| its.is_some_and(|its| is_local(&its)))
            }
        }
    }
}

/// Why a watch with these rules leaves the files there alone, if it does. The path has no links.
///
/// # Errors
/// Those of reading the mount table.
pub fn left_alone(path: &Path, rules: &dyn Rules) -> io::Result<Option<String>> {
    let mounts = MountTable::new()?.mounts;
    let places = Places::of(&mounts);
    let Some(mount) = places.mount_at(path) else {
        return Ok(None);
    };
    let place = place_of(mount);
    if !has_disk(mount) {
        return Ok(Some(format!("{place} has no disk")));
    }
    let is_served = places.reach_server(mount) && !rules.name(&mount.mount_point);
    Ok(is_served.then(|| {
        format!("the server of {place} may hang; a rule whose path begins with it has it observed")
    }))
}

/// Returns whether the files of a mount have pages on a disk, and opening one asks no process.
pub(crate) fn has_pages(mount: &Mount) -> bool {
    has_disk(mount) && !mount.filesystem.starts_with("fuse")
}

fn has_disk(mount: &Mount) -> bool {
    !WITHOUT_DISK.contains(&mount.filesystem.as_str())
}

/// What to call it in a message.
fn place_of(mount: &Mount) -> String {
    let (point, filesystem) = (shown(&mount.mount_point), shown(&mount.filesystem));
    format!("{point} ({filesystem})")
}

/// Returns whether no server needs to answer. The table does not show what is below an overlay.
pub(crate) fn is_local(mount: &Mount) -> bool {
    !asks_server(mount) && mount.filesystem != "overlay"
}

/// A mount table by mount points: it may have thousands of mounts, and each overlay dozens of
/// layers.
#[derive(Debug)]
pub(crate) struct Places<'a>(HashMap<&'a Path, &'a Mount>);

impl<'a> Places<'a> {
    pub(crate) fn of(mounts: &'a [Mount]) -> Places<'a> {
        // Of two mounts at one place, the later covers the other.
        let places = mounts.iter().map(|one| (one.mount_point.as_path(), one));
        Places(places.collect())
    }

    /// The mount that a path leads to, unless by links.
    pub(crate) fn mount_at(&self, path: &Path) -> Option<&'a Mount> {
        let mut above = path.ancestors();
        above.find_map(|place| self.0.get(place).copied())
    }

    /// Returns whether a server answers for each file, or for one below an overlay, judging by
    /// these mounts.
    fn reach_server(&self, mount: &Mount) -> bool {
        let of_layers = |overlay: &Mount| {
            let layers = overlay.layers().into_iter();
            let mut below: Vec<_> = layers.filter_map(|one| self.mount_at(&one)).collect();
            below.dedup_by_key(|mount| mount.id);
            below
        };
        let asks_below = |overlay| of_layers(overlay).into_iter().any(asks_server);
        // Two levels are enough: the kernel stacks overlays no deeper.
        asks_server(mount)
            || of_layers(mount)
                .into_iter()
                .any(|layer| asks_server(layer) || asks_below(layer))
    }
}

/// A mount point as a path from the root directory's descriptor.
fn from_root(point: &Path) -> &Path {
    below_root(point).unwrap_or(Path::new("."))
}

/// `None` for the root directory itself.
fn below_root(path: &Path) -> Option<&Path> {
    let path = path.strip_prefix("/").unwrap_or(path);
    (!path.as_os_str().is_empty()).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Candidate, Settings};
    use dropbehind_linux::mounts_of;
    use dropbehind_testbed::{HangingFs, Scratch, need};
    use std::io::Read;
    use std::process::{Command, Stdio};

    /// Names this folder alone.
    #[derive(Debug)]
    struct Named(PathBuf);

    impl Rules for Named {
        fn settings_for(&self, _: Candidate<'_>) -> Option<Settings> {
            None
        }

        fn name(&self, folder: &Path) -> bool {
            folder == self.0
        }
    }

    #[test]
    fn a_server_is_asked_only_where_a_rule_names_its_mount() {
        need!(all HangingFs::needs());
        let mut table = None;
        let served = HangingFs::new().unwrap();
        let scratch = Scratch::new().unwrap();
        let script = format!(
            "mount -t tmpfs tmpfs {0} && mkdir {0}/l {0}/m && \
             mount -t overlay -o lowerdir={0}/l:{1} overlay {0}/m && echo && read _",
            scratch.file("").display(),
            served.path().display()
        );
        let mut program = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = program.stdout.take().unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        let process = i32::try_from(program.id()).unwrap();
        let own = thread_id();
        let of = |process, filesystem: &str| {
            let below = |mount: &&Mount| {
                let point = &mount.mount_point;
                point.starts_with(served.path()) || point.starts_with(scratch.file(""))
            };
            let mounts = mounts_of(process).unwrap();
            let mut mounts = mounts.iter().filter(below);
            let mount = mounts.find(|mount| mount.filesystem.starts_with(filesystem));
            mount.unwrap_or_else(|| panic!("{filesystem}")).id
        };
        let root = mounts_of(own).unwrap();
        let root = root
            .iter()
            .find(|mount| mount.mount_point == Path::new("/"));
        let nothing = Named(PathBuf::new());
        let table = table.get_or_insert_with(|| MountTable::new().unwrap());
        let named = Named(served.path());
        let mut may_open = |rules, process, mount| table.may_open(rules, process, mount);
        assert!(may_open(&nothing, process, root.unwrap().id));
        assert!(may_open(&nothing, process, of(process, "tmpfs")));
        assert!(!may_open(&nothing, process, of(process, "overlay")));
        assert!(!may_open(&nothing, process, of(own, "fuse")));
        assert!(may_open(&named, process, of(own, "fuse")));
        let mut view = View::of(process).unwrap();
        view.mounts = mounts_of(process).unwrap();
        let served = view.served();
        for (filesystem, is_served) in [("fuse", true), ("overlay", true), ("tmpfs", false)] {
            let mount = of(process, filesystem);
            assert_eq!(served.contains(&mount), is_served, "{filesystem}");
        }
        // No table has it: the mount is nowhere in the tree.
        assert!(!may_open(&nothing, process, u64::MAX));
        drop(program.stdin.take());
        program.wait().unwrap();
    }
}
