//! The kernel's own record of who brings pages into the cache, and who takes them
//! from it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::context::Context;

/// Where tracefs is mounted as a rule.
const MOUNTED: &str = "/sys/kernel/tracing";
const PREFIX: &str = "dropbehind-test-";
/// Of each processor's buffer: some 40,000 folios.
const BUFFER_KIB: &str = "4096";
/// The buffers are emptied so often, long before they can be full.
const READ_EVERY: Duration = Duration::from_millis(50);

/// What the kernel is to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A folio is brought in.
    Add,
    /// A folio is taken out.
    Delete,
}

impl Event {
    fn folder(self) -> &'static str {
        match self {
            Self::Add => "events/filemap/mm_filemap_add_to_page_cache",
            Self::Delete => "events/filemap/mm_filemap_delete_from_page_cache",
        }
    }
}

/// A trace instance of one's own (tracefs; Documentation/trace/ftrace.rst), which
/// goes with it.
#[derive(Debug)]
pub(crate) struct Trace {
    folder: PathBuf,
    pipe: Option<File>,
    /// The beginning of a line whose rest was not read so far.
    rest: Vec<u8>,
    lost: bool,
}

/// A folio that came or went: pages in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Folio {
    pub(crate) event: Event,
    /// The thread that did it.
    pub(crate) thread: u32,
    /// It is one of dropbehind's, by its name.
    pub(crate) by_dropbehind: bool,
    pub(crate) inode: u64,
    /// Major and minor number of the file system's device.
    pub(crate) device: (u32, u32),
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// What is made of a trace.
pub(crate) trait Account: Send + 'static {
    /// Takes in what was recorded since the last call.
    fn read(&mut self) -> io::Result<()>;
}

/// An account that a thread keeps up to date while this value lives.
#[derive(Debug)]
pub(crate) struct Kept<A>(Arc<Mutex<A>>);

impl<A: Account> Kept<A> {
    pub(crate) fn keep(account: A) -> Self {
        let account = Arc::new(Mutex::new(account));
        let weak = Arc::downgrade(&account);
        std::thread::spawn(move || {
            let read = |account: Arc<Mutex<A>>| locked(&account).read().is_ok();
            while weak.upgrade().is_some_and(read) {
                std::thread::sleep(READ_EVERY);
            }
        });
        Self(account)
    }

    /// The account as of now.
    pub(crate) fn now(&self) -> io::Result<MutexGuard<'_, A>> {
        let mut account = locked(&self.0);
        account.read()?;
        Ok(account)
    }
}

fn locked<A>(account: &Mutex<A>) -> MutexGuard<'_, A> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trace {
    /// Records the events that pass their filters, which are of the kernel's syntax.
    pub(crate) fn start(events: &[(Event, &str)]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);

        let instances = tracefs()?.join("instances");
        remove_left_behind(&instances);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let folder = instances.join(name);
        fs::create_dir(&folder).context(|| format!("making {}", folder.display()))?;
        let mut trace = Self {
            folder,
            pipe: None,
            rest: Vec::new(),
            lost: false,
        };
        trace.set("buffer_size_kb", BUFFER_KIB)?;
        // The processors' own clocks may differ by more than two events do.
        trace.set("trace_clock", "mono")?;
        for (event, filter) in events {
            trace.set(&format!("{}/filter", event.folder()), filter)?;
        }
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(trace.folder.join("trace_pipe"))?;
        trace.pipe = Some(pipe);
        for (event, _) in events {
            trace.set(&format!("{}/enable", event.folder()), "1")?;
        }
        Ok(trace)
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, value).context(|| format!("writing {}", path.display()))
    }

    /// All that was recorded since the last call.
    pub(crate) fn read(&mut self, mut seen: impl FnMut(Folio)) -> io::Result<()> {
        let pipe = self.pipe.as_mut().expect("it is open while we live");
        let mut block = vec![0; 64 << 10];
        loop {
            match pipe.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(count) => self.rest.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else {
                continue;
            };
            let lines: Vec<u8> = self.rest.drain(..=end).collect();
            for line in String::from_utf8_lossy(&lines).lines() {
                match folio(line) {
                    Some(folio) => seen(folio),
                    None => self.lost |= line.contains(" [LOST "),
                }
            }
        }
    }

    /// Whether a buffer was full at some time.
    pub(crate) fn has_lost_some(&self) -> bool {
        self.lost
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // Its folder stays as long as somebody reads.
        self.pipe = None;
        // What stays the next trace removes.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Whether the kernel has an event: `syscalls/sys_enter_fadvise64`.
#[must_use]
pub fn has_event(name: &str) -> bool {
    tracefs().is_ok_and(|tracefs| tracefs.join("events").join(name).exists())
}

/// Where tracefs can be used. On a machine that has not mounted it, it gets a mount
/// that nobody else sees.
fn tracefs() -> io::Result<PathBuf> {
    static OWN: OnceLock<OwnedFd> = OnceLock::new();

    let mounted = Path::new(MOUNTED);
    if mounted.join("instances").exists() {
        return Ok(mounted.to_owned());
    }
    if OWN.get().is_none() {
        let mount = || {
            let tracefs = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&tracefs)?;
            let attributes = MountAttrFlags::empty();
            fsmount(&tracefs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        };
        let mount = mount().map_err(io::Error::from);
        // Another thread's is as good.
        let _ = OWN.set(mount.context(|| "mounting tracefs")?);
    }
    let own = OWN.get().expect("just set").as_raw_fd();
    Ok(PathBuf::from(format!("/proc/self/fd/{own}")))
}

/// Instances of test runs that were killed.
fn remove_left_behind(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let Some((process, _)) = owner.and_then(|owner| owner.split_once('-')) else {
            continue;
        };
        if !Path::new("/proc").join(process).exists() {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Reads `NAME-THREAD [CPU] … dev 7:0 ino 83 pfn=0x4af7f4 ofs=66711552 order=0`.
fn folio(line: &str) -> Option<Folio> {
    let (task, rest) = line.split_once(" [")?;
    let (name, thread) = task.trim().rsplit_once('-')?;
    let event = match rest.contains("mm_filemap_delete_from_page_cache: ") {
        true => Event::Delete,
        false => Event::Add,
    };
    let mut words = rest.split_whitespace().skip_while(|&word| word != "dev");
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let inode = words.nth(1)?;
    let mut value = |name| words.find_map(|word| word.strip_prefix(name));
    let offset: u64 = value("ofs=")?.parse().ok()?;
    let order: u32 = value("order=")?.parse().ok()?;
    Some(Folio {
        event,
        thread: thread.parse().ok()?,
        by_dropbehind: name.starts_with("dropbehind"),
        inode: u64::from_str_radix(inode, 16).ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        first: offset / crate::residency::page_bytes(),
        count: 1 << order,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_are_read() {
        let line = "  kdamond.0-77  [000] d..2. 25198.847794: \
                    mm_filemap_delete_from_page_cache: dev 254:1 ino 98407f pfn=0x4af7e4 \
                    ofs=28114944 order=2";
        let taken = Folio {
            event: Event::Delete,
            thread: 77,
            by_dropbehind: false,
            inode: 0x98_407f,
            device: (254, 1),
            first: 6864,
            count: 4,
        };
        assert_eq!(folio(line), Some(taken));
        let line = line.replace("kdamond.0", "dropbehind/vda");
        assert!(folio(&line).unwrap().by_dropbehind);
        assert_eq!(folio("CPU:0 [LOST 12 EVENTS]"), None);
    }
}
