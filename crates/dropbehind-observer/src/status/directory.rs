//! Where observers' sockets are, and which of them still answer.

use std::ffi::{CStr, OsStr};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use dropbehind_linux::{mount_with_id, thread_id};

use crate::board::lock;
use crate::in_time::in_time;
use crate::shown;
use crate::source::is_local;

/// Root's sockets. Other users look here, too, to say that there are some.
const ROOTS: &str = "/run/dropbehind";
/// Where the users' runtime directories are.
const USERS: &str = "/run/user";
/// Replaces all of these if it is set.
const VARIABLE: &str = "DROPBEHIND_RUNTIME_DIR";
/// Locked while a socket is made or removed.
const LOCK: &str = ".lock";
/// How often a name is looked up: a mount somewhere else, at the same moment, hides a cached one.
const TRIES: u32 = 8;

/// Users' directories that were not listed in time. Their threads still wait.
static HANGING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// The directory of this user's sockets: `$DROPBEHIND_RUNTIME_DIR` if that is
/// set, `/run/dropbehind` for root, else `$XDG_RUNTIME_DIR/dropbehind`.
///
/// # Errors
///
/// A sentence, if no variable names a directory.
pub fn directory() -> io::Result<PathBuf> {
    if let Some(chosen) = variable(VARIABLE) {
        return Ok(chosen);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(ROOTS.into());
    }
    match variable("XDG_RUNTIME_DIR") {
        Some(runtime) => Ok(runtime.join("dropbehind")),
        None => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "there is no directory for the sockets of observers: XDG_RUNTIME_DIR is not set; \
                 set it, or {VARIABLE}, to a directory of your own"
            ),
        )),
    }
}

/// The socket of a `run` with this process, in [`directory`].
///
/// # Errors
///
/// As [`directory`].
pub fn run_path(process: u32) -> io::Result<PathBuf> {
    Ok(directory()?.join(format!("run-{process}.sock")))
}

/// An observer that answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// 0 for a `watch`, else the process of the `run`; so a `watch` comes first.
    pub process: u32,
    /// Its socket.
    pub path: PathBuf,
}

impl Endpoint {
    /// The endpoint that a socket of this name stands for.
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(".sock")?;
        let process = match name {
            "watch" => 0,
            name => name.strip_prefix("run-")?.parse().ok()?,
        };
        Some(Self { process, path })
    }

    /// `watch` or `run PID`.
    pub fn name(&self) -> String {
        match self.process {
            0 => "watch".to_owned(),
            process => format!("run {process}"),
        }
    }
}

/// What [`discover`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Observers that answer, a `watch` first, then by process.
    pub endpoints: Vec<Endpoint>,
    /// Sockets that this user may not connect to.
    pub refused: Vec<PathBuf>,
}

/// Lists the running observers: this user's, and for root those of all users. It passes over
/// sockets of dead observers, and over directories that their users keep from being listed: it
/// waits a second for each, and does not try again.
pub fn discover() -> Found {
    let mut found = Found::default();
    for folder in searched() {
        for endpoint in sockets(&folder) {
            match connect(&endpoint.path) {
                // Who has many clients to answer first listens, too.
                Ok(_) | Err(Errno::AGAIN) => found.endpoints.push(endpoint),
                Err(Errno::ACCESS | Errno::PERM) => found.refused.push(endpoint.path),
                Err(_) => {}
            }
        }
    }
    found.endpoints.sort();
    found.refused.sort();
    found
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn searched() -> Vec<PathBuf> {
    if let Some(chosen) = variable(VARIABLE) {
        return vec![chosen];
    }
    let mut folders: Vec<PathBuf> = directory().into_iter().collect();
    if rustix::process::geteuid().is_root() {
        let users = fs::read_dir(USERS).into_iter().flatten().flatten();
        folders.extend(users.map(|user| user.path().join("dropbehind")));
    } else {
        folders.push(ROOTS.into());
    }
    folders.dedup();
    folders
}

fn sockets(folder: &Path) -> Vec<Endpoint> {
    if is_users(folder) {
        return users_sockets_in_time(folder);
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .filter_map(|entry| Endpoint::of(entry.path()))
        .collect()
}

/// Returns whether another user can put links and mounts into this directory, or above it, by
/// which root would come to ask a server that never answers.
fn is_users(folder: &Path) -> bool {
    folder.starts_with(USERS) && rustix::process::geteuid().is_root()
}

/// Opens a user's directory of sockets, unless links or other mounts lead to it. The user's
/// runtime directory must be on no server's file system: users may mount there.
fn open_users(folder: &Path) -> Result<OwnedFd, Errno> {
    let (Some(runtime), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(Errno::INVAL);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let runtime = rustix::fs::open(runtime, flags, Mode::empty())?;
    let asked = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(&runtime, "", asked, StatxFlags::MNT_ID)?;
    let mount = mount_with_id(thread_id(), stat.stx_mnt_id).ok().flatten();
    if !mount.is_some_and(|mount| is_local(&mount)) {
        return Err(Errno::ACCESS);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open_beneath(&runtime, Path::new(name), flags)
}

/// Opens what is there itself; since Linux 5.6.
///
/// A name that is not in the kernel's cache counts as missing: to look in the directory, the
/// kernel takes its lock, which its user can hold for ever, and nothing can end the wait. A
/// socket that somebody listens at keeps its name, and those of its directories, in the cache.
fn open_beneath(folder: &OwnedFd, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let open = |resolve| rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve);
    for _ in 0..TRIES {
        match open(resolve | ResolveFlags::CACHED) {
            Err(Errno::AGAIN) => {}
            // Before Linux 5.12.
            Err(Errno::INVAL) => return open(resolve),
            opened => return opened,
        }
    }
    Err(Errno::NOENT)
}

/// Lists a user's sockets. To list a directory, the kernel takes its lock, too, but a signal ends
/// that wait.
fn users_sockets_in_time(folder: &Path) -> Vec<Endpoint> {
    if lock(&HANGING).iter().any(|one| one == folder) {
        return Vec::new();
    }
    let owned = folder.to_owned();
    let listed = in_time(move || users_sockets(&owned).unwrap_or_default());
    listed.unwrap_or_else(|| {
        lock(&HANGING).push(folder.to_owned());
        Vec::new()
    })
}

fn users_sockets(folder: &Path) -> Result<Vec<Endpoint>, Errno> {
    let entries = rustix::fs::Dir::new(open_users(folder)?)?.flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_socket());
    let path = |name: &CStr| folder.join(OsStr::from_bytes(name.to_bytes()));
    Ok(sockets
        .filter_map(|entry| Endpoint::of(path(entry.file_name())))
        .collect())
}

/// Makes a connection that does not block, without waiting: the listener may never accept it.
pub(super) fn connect(path: &Path) -> Result<UnixStream, Errno> {
    let socket = socket()?;
    if let (Some(folder), Some(name)) = (path.parent(), path.file_name())
        && is_users(folder)
    {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let named = open_beneath(&open_users(folder)?, Path::new(name), flags)?;
        let link = format!("/proc/self/fd/{}", named.as_raw_fd());
        rustix::net::connect(&socket, &SocketAddrUnix::new(link)?)?;
        return Ok(socket.into());
    }
    let address = SocketAddrUnix::new(path)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )
}

/// A socket's directory, locked against other observers that start or end.
#[derive(Debug)]
pub(super) struct Held {
    folder: PathBuf,
    // Closing it lets the others go on.
    _lock: File,
}

impl Held {
    /// Makes the directory of `path` if it is missing and the one of this user's sockets, and makes
    /// sure that no other user can put anything into it.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let about = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!(
                    "cannot use the directory {} for the observer's socket: {error}",
                    shown(folder)
                ),
            )
        };
        if directory().is_ok_and(|own| own == folder) {
            // Others may see what is there; the sockets themselves are not for them.
            match DirBuilder::new().mode(0o755).create(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(about(error));
                }
                _ => {}
            }
        }
        let metadata = fs::metadata(folder).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                error.kind(),
                format!(
                    "there is no directory {} for the observer's socket; create it first",
                    shown(folder)
                ),
            ),
            _ => about(error),
        })?;
        let owner = rustix::process::geteuid().as_raw();
        if metadata.uid() != owner || metadata.permissions().mode() & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "others can write the directory {}, where the observer's socket is to be; make \
                     it yours alone (chown, chmod go-w), or choose another one",
                    shown(folder)
                ),
            ));
        }
        // Not the directory itself: anybody who can read it could lock it for ever.
        let path = folder.join(LOCK);
        loop {
            let lock = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)
                .map_err(about)?;
            rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
            let ours = lock.metadata()?.ino();
            // Whoever had the lock may have removed the file meanwhile.
            if fs::symlink_metadata(&path).is_ok_and(|there| there.ino() == ours) {
                return Ok(Self {
                    folder: folder.to_owned(),
                    _lock: lock,
                });
            }
        }
    }

    /// Removes the sockets of observers that are dead.
    pub(super) fn sweep(&self) {
        for endpoint in sockets(&self.folder) {
            self.remove_dead(&endpoint.path);
        }
    }

    /// Removes a socket that nobody listens on. While the directory is held, no socket can be
    /// bound without listening.
    fn remove_dead(&self, path: &Path) {
        // Any other error, such as a lack of descriptors, says nothing about the listener.
        if let Err(Errno::CONNREFUSED) = connect(path) {
            // If this fails, the next bind fails as well, and says so.
            let _ = fs::remove_file(path);
        }
    }

    /// A listening socket at `path` that only the owner can connect to.
    pub(super) fn listen(&self, path: &Path) -> io::Result<OwnedFd> {
        let about = |error: Errno| {
            let step = match error {
                Errno::ADDRINUSE => "another observer listens there; end it first",
                Errno::NAMETOOLONG => "the path is too long for a socket; choose a shorter one",
                _ => "choose another path",
            };
            io::Error::new(
                io::Error::from(error).kind(),
                format!("cannot listen at {}: {error}; {step}", shown(path)),
            )
        };
        if fs::symlink_metadata(path).is_ok_and(|there| there.file_type().is_socket()) {
            self.remove_dead(path);
        }
        let address = SocketAddrUnix::new(path).map_err(about)?;
        let socket = socket().map_err(about)?;
        // The file that bind makes takes its permissions from the socket, so
        // there is no moment at which others could connect.
        rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(0o600)).map_err(about)?;
        rustix::net::bind(&socket, &address).map_err(about)?;
        // For a few clients that connect at the same moment; a full queue only makes them wait.
        rustix::net::listen(&socket, 16).map_err(about)?;
        Ok(socket)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Before it is closed, while nobody else can hold it.
        let _ = fs::remove_file(self.folder.join(LOCK));
    }
}

#[cfg(test)]
mod tests {
    use dropbehind_testbed::{HangingFs, need};

    use super::*;

    #[test]
    fn no_directory_is_searched_for_a_missing_name() {
        need!(all HangingFs::needs());
        let fs = HangingFs::new().unwrap();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let folder = rustix::fs::open(fs.path(), flags, Mode::empty()).unwrap();
        let _hanging = fs.hang();
        let opened = in_time(move || open_beneath(&folder, Path::new("missing"), flags));
        assert_eq!(opened.unwrap().unwrap_err(), Errno::NOENT);
        assert_eq!(fs.waiting(), 0);
    }
}
