//! The kernel's own record of who takes pages from the cache.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::context::Context;

const INSTANCES: &str = "/sys/kernel/tracing/instances";
const PREFIX: &str = "dropbehind-test-";
const EVENT: &str = "events/filemap/mm_filemap_delete_from_page_cache";
/// DAMON's threads and those that reclaim when memory is short. They serve no
/// program, and no program of ours runs in them.
const KERNEL_THREADS: &str = "comm ~ \"kdamond*\" || comm ~ \"kswapd*\"";
/// Of each processor's buffer: some 40,000 folios.
const BUFFER_KIB: &str = "4096";

/// A trace instance of one's own (tracefs; Documentation/trace/ftrace.rst), which
/// goes with it.
#[derive(Debug)]
pub(super) struct Trace {
    folder: PathBuf,
    pipe: Option<File>,
    /// The beginning of a line whose rest was not read so far.
    rest: Vec<u8>,
}

/// A folio that was taken: pages in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) inode: u64,
    /// Major and minor number of the file system's device.
    pub(super) device: (u32, u32),
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Trace {
    pub(super) fn start() -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);

        remove_left_behind();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let folder = Path::new(INSTANCES).join(name);
        fs::create_dir(&folder).context(|| format!("making {}", folder.display()))?;
        let mut trace = Self {
            folder,
            pipe: None,
            rest: Vec::new(),
        };
        trace.set("buffer_size_kb", BUFFER_KIB)?;
        trace.set(&format!("{EVENT}/filter"), KERNEL_THREADS)?;
        let pipe = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(trace.folder.join("trace_pipe"))?;
        trace.pipe = Some(pipe);
        trace.set(&format!("{EVENT}/enable"), "1")?;
        Ok(trace)
    }

    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, value).context(|| format!("writing {}", path.display()))
    }

    /// All that was recorded since the last call.
    pub(super) fn read(&mut self, mut seen: impl FnMut(Taken)) -> io::Result<()> {
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
            let lines = String::from_utf8_lossy(&lines);
            lines.lines().filter_map(folio).for_each(&mut seen);
        }
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

/// Instances of test runs that were killed.
fn remove_left_behind() {
    for entry in fs::read_dir(INSTANCES).into_iter().flatten().flatten() {
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

/// Reads `… dev 7:0 ino 83 pfn=0x4af7f4 ofs=66711552 order=0`.
fn folio(line: &str) -> Option<Taken> {
    let mut words = line.split_whitespace().skip_while(|&word| word != "dev");
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let inode = words.nth(1)?;
    let mut value = |name| words.find_map(|word| word.strip_prefix(name));
    let offset: u64 = value("ofs=")?.parse().ok()?;
    let order: u32 = value("order=")?.parse().ok()?;
    Some(Taken {
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
        let taken = Taken {
            inode: 0x98_407f,
            device: (254, 1),
            first: 6864,
            count: 4,
        };
        assert_eq!(folio(line), Some(taken));
        assert_eq!(folio("CPU:0 [LOST 12 EVENTS]"), None);
    }
}
