//! The disk's server: a FUSE file system of one file.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufRead, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, Session, SessionACL, WriteFlags,
};

use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::clock::now_ns;
use crate::context::Context;
use crate::disk_command::DiskCommand;
use crate::image::Image;
use crate::queue::{Answer, Queue};
use crate::request::{Request, RequestKind};

/// The one file's name.
pub(crate) const IMAGE: &str = "image";

const IMAGE_INODE: INodeNo = INodeNo(2);
/// Nothing ever changes.
const VALID: Duration = Duration::from_secs(1 << 30);

/// The server process's main program, of one argument, the size in bytes; see
/// [`DiskServer::start`](crate::DiskServer::start). First prints the number of its
/// descriptor of the file system's root; then takes orders from its standard
/// input and ends with it. Returns the exit code.
#[must_use]
pub fn server_main(arguments: &[OsString]) -> i32 {
    match serve(arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("slow disk: {error}");
            1
        }
    }
}

fn serve(arguments: &[OsString]) -> io::Result<()> {
    let size_bytes = match arguments {
        [size] => size.to_str().and_then(|size| size.parse().ok()),
        _ => None,
    };
    let size_bytes = size_bytes.ok_or_else(|| io::Error::other("give its size in bytes"))?;
    spare_from_throttling();
    let queue = Queue::start()?;
    let disk = DiskFilesystem {
        size_bytes,
        image: Arc::new(Mutex::new(Image::new(size_bytes))),
        queue: Arc::clone(&queue),
    };
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .context(|| "opening /dev/fuse")?;
    let root = mount_nowhere(&device).context(|| "making a FUSE file system")?;
    let session = Session::from_fd(disk, device.into(), SessionACL::All, Config::default())?;
    // It ends with the process, when the kernel fails all that is unanswered.
    std::mem::forget(session.spawn()?);
    exit_with_parent(Arc::clone(&queue))?;
    println!("{}", root.as_raw_fd());
    obey(&queue)?;
    queue.change(|settings| settings.vanished = true);
    Ok(())
}

/// Carries out orders until there are no more.
fn obey(queue: &Queue) -> io::Result<()> {
    for line in io::stdin().lock().lines() {
        let mut answer = Vec::new();
        match line?.parse()? {
            DiskCommand::Report => answer = queue.record(),
            DiskCommand::Forget => queue.forget(),
            DiskCommand::WriteSpeed(speed) => queue.change(|to| to.write_bytes_per_second = speed),
            DiskCommand::ReadSpeed(speed) => queue.change(|to| to.read_bytes_per_second = speed),
            DiskCommand::Latency(latency) => queue.change(|to| to.latency = latency),
            DiskCommand::Hurry(hurry) => queue.change(|to| to.hurry = hurry),
            DiskCommand::Fail(failing) => queue.change(|to| to.failing = failing),
            DiskCommand::AddBadRange(range) => queue.change(|to| to.bad_ranges.push(range)),
            DiskCommand::ClearBadRanges => queue.change(|to| to.bad_ranges.clear()),
            DiskCommand::ErrorRate(rate) => queue.change(|to| to.errors_per_million = rate),
            DiskCommand::Vanish => queue.change(|to| to.vanished = true),
        }
        let mut out = io::BufWriter::new(io::stdout().lock());
        writeln!(out, "{}", answer.len())?;
        for request in answer {
            writeln!(out, "{request}")?;
        }
        out.flush()?;
    }
    Ok(())
}

/// Makes a FUSE file system that is mounted nowhere: the returned descriptor
/// is its root, and it ends with this process, however that ends. There is no
/// mount point to clean up, and nothing that another mount namespace copies.
fn mount_nowhere(device: &File) -> io::Result<OwnedFd> {
    let filesystem = mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key, value: &str| mount::fsconfig_set_string(&filesystem, key, value);
    set("source", "dropbehind-slow-disk")?;
    set("fd", &device.as_raw_fd().to_string())?;
    set("rootmode", "40000")?;
    set("user_id", "0")?;
    set("group_id", "0")?;
    // The loop device's kernel threads are not who mounted this.
    mount::fsconfig_set_flag(&filesystem, "allow_other")?;
    mount::fsconfig_create(&filesystem)?;
    let attributes = MountAttrFlags::empty();
    Ok(mount::fsmount(
        &filesystem,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Declares this process a part of the I/O path: reclaim on its behalf must
/// not wait for the very disk that it serves.
fn spare_from_throttling() {
    // Without it the disk works too, as long as memory is not short.
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

/// Makes the disk vanish when the parent dies.
///
/// The end of standard input says so too, but perhaps too late: a killed
/// process closes its descriptors when the last of its threads ends, and that
/// may be the one that waits for this disk.
fn exit_with_parent(queue: Arc<Queue>) -> io::Result<()> {
    let parent = std::os::unix::process::parent_id();
    std::thread::Builder::new()
        .name("parent".to_owned())
        .spawn(move || {
            while !is_dying(parent) {
                std::thread::sleep(Duration::from_millis(100));
            }
            queue.change(|settings| settings.vanished = true);
        })?;
    Ok(())
}

fn is_dying(pid: u32) -> bool {
    const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);

    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return true;
    };
    let field = |name| {
        let mut fields = status.lines().filter_map(|line| line.split_once(":\t"));
        fields
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    };
    // Its first thread is over, or has been sent what it cannot survive.
    let pending = ["SigPnd", "ShdPnd"].map(|set| u64::from_str_radix(field(set), 16).unwrap_or(0));
    field("State").starts_with(['Z', 'X'])
        || pending.iter().any(|set| set & SIGKILL_BIT != 0)
        || std::os::unix::process::parent_id() != pid
}

struct DiskFilesystem {
    size_bytes: u64,
    image: Arc<Mutex<Image>>,
    queue: Arc<Queue>,
}

impl DiskFilesystem {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let is_image = inode == IMAGE_INODE;
        FileAttr {
            ino: inode,
            size: if is_image { self.size_bytes } else { 0 },
            blocks: self.size_bytes / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if is_image {
                FileType::RegularFile
            } else {
                FileType::Directory
            },
            perm: if is_image { 0o600 } else { 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn submit(
        &self,
        kind: RequestKind,
        offset: u64,
        length: u64,
        accepted: impl FnOnce(bool) -> Answer,
    ) {
        let arrived_ns = now_ns();
        let request = Request {
            kind,
            offset,
            length,
            arrived_ns,
            answered_ns: None,
            failed: false,
        };
        self.queue.submit(request, accepted);
    }
}

fn lock(image: &Mutex<Image>) -> MutexGuard<'_, Image> {
    image.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer_empty(reply: ReplyEmpty) -> Answer {
    Box::new(|success| {
        if success {
            reply.ok()
        } else {
            reply.error(Errno::EIO)
        }
    })
}

impl Filesystem for DiskFilesystem {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        // Many requests at a time, as a disk has; older kernels do with fewer.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_background(128);
        let _ = config.set_congestion_threshold(128);
        Ok(())
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == IMAGE {
            reply.entry(&VALID, &self.attributes(IMAGE_INODE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &self.attributes(ino));
    }

    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        );
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let image = Arc::clone(&self.image);
        self.submit(RequestKind::Read, offset, size.into(), move |_| {
            Box::new(move |success| {
                if success {
                    reply.data(&lock(&image).read(offset, size.into()));
                } else {
                    reply.error(Errno::EIO);
                }
            })
        });
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.submit(RequestKind::Write, offset, data.len() as u64, |success| {
            // The data is gone when this returns. Nobody may rely on either
            // the old or the new content before the answer.
            let written = if success {
                lock(&self.image).write(offset, data)
            } else {
                0
            };
            Box::new(move |success| {
                if success {
                    reply.written(written as u32);
                } else {
                    reply.error(Errno::EIO);
                }
            })
        });
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Someone closed the file, which is nothing to a disk.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.submit(RequestKind::Flush, 0, 0, |_| answer_empty(reply));
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        self.submit(RequestKind::Discard, offset, length, |success| {
            if success {
                lock(&self.image).discard(offset, length);
            }
            answer_empty(reply)
        });
    }
}
