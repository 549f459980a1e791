//! A file system whose server stops answering on command.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen,
    Request, Session, SessionACL,
};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    self, FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    UnmountFlags,
};

use crate::context::Context;
use crate::{Need, Scratch};

/// The one file's name.
const NAME: &str = "file";
const INODE: INodeNo = INodeNo(2);
const BYTES: usize = 4 << 20;

/// A FUSE file system of one file, served by a thread of this process until this is
/// dropped. Only the thread that made it and the programs which that starts see it: who
/// looks through all mounts of the machine is not to hang.
pub struct HangingFs {
    scratch: Scratch,
    /// To be written to: the kernel fails all that waits then, and all that comes.
    abort: File,
    unanswered: Unanswered,
}

impl HangingFs {
    /// What a machine must have for this bed.
    pub fn needs() -> Vec<Need> {
        vec![Need::Fuse]
    }

    /// Gives the calling thread a mount namespace of its own, and mounts it there.
    pub fn new() -> io::Result<Self> {
        let scratch = Scratch::new()?;
        let folder = scratch.file("mounted");
        fs::create_dir(&folder)?;
        // SAFETY: it changes what paths this thread sees, and no memory or descriptor.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
            .map_err(io::Error::from)
            .context(|| "a mount namespace")?;
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount::mount_change("/", private)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let filesystem = mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key, value: &str| mount::fsconfig_set_string(&filesystem, key, value);
        set("source", "dropbehind-hanging")?;
        set("fd", &device.as_raw_fd().to_string())?;
        set("rootmode", "40000")?;
        set("user_id", "0")?;
        set("group_id", "0")?;
        // Whoever asks for permission asks the server for the mode first.
        mount::fsconfig_set_flag(&filesystem, "default_permissions")?;
        let root = mount_nowhere(&filesystem)?;
        let unanswered = Unanswered::default();
        let server = Server(unanswered.clone());
        let session = Session::from_fd(server, device.into(), SessionACL::All, Config::default())?;
        // It ends when the connection is aborted.
        std::mem::forget(session.spawn()?);
        let number = rustix::fs::minor(rustix::fs::fstat(&root)?.st_dev);
        let control = mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let abort = rustix::fs::openat(
            mount_nowhere(&control)?,
            format!("{number}/abort"),
            OFlags::WRONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        mount::move_mount(root.as_fd(), "", rustix::fs::CWD, &folder, flags)
            .map_err(io::Error::from)
            .context(|| "mounting it")?;
        Ok(Self {
            scratch,
            abort: abort.into(),
            unanswered,
        })
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.scratch.file("mounted")
    }

    /// The path of its one file, of 4 MiB.
    pub fn file(&self) -> PathBuf {
        self.path().join(NAME)
    }

    /// The server answers nothing until the returned value is dropped, when all fails that
    /// waits or is still to come. Whoever waits cannot even be killed.
    pub fn hang(&self) -> Hanging<'_> {
        self.unanswered.begin(Whose::All);
        Hanging(self)
    }

    /// The same for whoever makes a file. Meanwhile, the kernel keeps its folder locked.
    pub fn hang_makers(&self) -> Hanging<'_> {
        self.unanswered.begin(Whose::Makers);
        Hanging(self)
    }

    /// The same for one process, while others get their answers.
    pub fn hang_for(&self, process: u32) -> Hanging<'_> {
        self.unanswered.begin(Whose::Process(process));
        Hanging(self)
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.unanswered.count()
    }

    fn end(&self) {
        let _ = (&self.abort).write_all(b"1");
        let _ = mount::unmount(self.path(), UnmountFlags::DETACH);
    }
}

impl Drop for HangingFs {
    fn drop(&mut self) {
        self.end();
    }
}

/// Ends the waiting when it is dropped, which is to be before its waiters are waited for.
#[derive(Debug)]
pub struct Hanging<'fs>(&'fs HangingFs);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Makes a mount that is nowhere yet.
fn mount_nowhere(filesystem: &OwnedFd) -> io::Result<OwnedFd> {
    mount::fsconfig_create(filesystem)?;
    let attributes = MountAttrFlags::empty();
    let mounted = mount::fsmount(filesystem, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(mounted)
}

impl fmt::Debug for HangingFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HangingFs")
            .field("path", &self.path())
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

/// Whose requests get no answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    All,
    /// Those that make files.
    Makers,
    Process(u32),
}

/// What gets no answers.
struct Held {
    whose: Whose,
    /// Held back: to drop one would be to fail it.
    answers: Vec<Box<dyn std::any::Any + Send>>,
}

/// `None`, while everything is answered.
#[derive(Clone, Default)]
struct Unanswered(Arc<Mutex<Option<Held>>>);

impl Unanswered {
    fn begin(&self, whose: Whose) {
        let answers = Vec::new();
        *self.lock() = Some(Held { whose, answers });
    }

    fn count(&self) -> usize {
        self.lock().as_ref().map_or(0, |held| held.answers.len())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer, unless it is to be held back.
    fn pass<R: Send + 'static>(&self, request: &Request, reply: R) -> Option<R> {
        match &mut *self.lock() {
            Some(held) if held.whose.has(request) => {
                held.answers.push(Box::new(reply));
                None
            }
            _ => Some(reply),
        }
    }
}

impl Whose {
    /// Returns whether it is among these, other than by making a file.
    fn has(self, request: &Request) -> bool {
        match self {
            Whose::All => true,
            Whose::Makers => false,
            // One of its threads made it.
            Whose::Process(process) => {
                fs::exists(format!("/proc/{process}/task/{}", request.pid())).unwrap_or(false)
            }
        }
    }
}

struct Server(Unanswered);

fn attributes(inode: INodeNo) -> FileAttr {
    let is_file = inode == INODE;
    FileAttr {
        ino: inode,
        size: if is_file { BYTES as u64 } else { 0 },
        blocks: if is_file { BYTES as u64 / 512 } else { 0 },
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if is_file {
            FileType::RegularFile
        } else {
            FileType::Directory
        },
        perm: if is_file { 0o666 } else { 0o777 },
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// Nothing that was asked once is taken for known.
const VALID: Duration = Duration::ZERO;

impl Filesystem for Server {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some(reply) = self.0.pass(request, reply) else {
            return;
        };
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&VALID, &attributes(INODE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if let Some(reply) = self.0.pass(request, reply) {
            reply.attr(&VALID, &attributes(inode));
        }
    }

    fn open(&self, request: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if let Some(reply) = self.0.pass(request, reply) {
            reply.opened(FileHandle(0), FopenFlags::empty());
        }
    }

    /// Unanswered while makers of files are, and refused otherwise.
    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match &mut *self.0.lock() {
            Some(held) if held.whose == Whose::Makers => held.answers.push(Box::new(reply)),
            _ => reply.error(Errno::EROFS),
        }
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if let Some(reply) = self.0.pass(request, reply) {
            let left = BYTES.saturating_sub(usize::try_from(offset).unwrap_or(BYTES));
            let bytes = left.min(usize::try_from(bytes).unwrap_or(0));
            reply.data(&vec![0; bytes]);
        }
    }

    fn flush(&self, request: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        if let Some(reply) = self.0.pass(request, reply) {
            reply.ok();
        }
    }

    /// Always answered: nobody waits for it.
    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }
}
