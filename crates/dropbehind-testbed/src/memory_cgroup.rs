//! Memory limits for a command.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Need;
use crate::context::Context;

/// How long killed members may take to disappear.
const PATIENCE: Duration = Duration::from_secs(5);

/// A memory cgroup with a limit, version 1 or 2, whichever the machine has.
/// Page cache counts towards the limit. What still runs in it is killed on
/// drop.
#[derive(Debug)]
pub struct MemoryCgroup {
    path: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl MemoryCgroup {
    /// What a machine must have for this bed.
    pub fn needs() -> Vec<Need> {
        vec![Need::CgroupMemory]
    }

    /// Makes a group that may use `limit_bytes`.
    pub fn new(limit_bytes: u64) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);

        let (root, version) = controller().map_err(io::Error::other)?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("dropbehind-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).context(|| format!("making {}", path.display()))?;
        let group = Self { path, version };
        group.write(
            group.pick("memory.limit_in_bytes", "memory.max"),
            &limit_bytes.to_string(),
        )?;
        Ok(group)
    }

    /// Starts a command as a member of the group.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let members = self.members_file()?;
        // SAFETY: the hook runs between fork and exec and makes one system
        // call, on a descriptor that it owns.
        unsafe {
            command.pre_exec(move || {
                // "0" stands for whoever writes it.
                match libc::write(members.as_raw_fd(), c"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        command
            .spawn()
            .context(|| format!("starting {command:?} in a cgroup"))
    }

    /// Runs a command in the group to its end and collects its output.
    pub fn run(&self, mut command: Command) -> io::Result<Output> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        self.spawn(&mut command)?.wait_with_output()
    }

    /// What the group uses now, page cache included.
    pub fn usage_bytes(&self) -> io::Result<u64> {
        self.read_number(self.pick("memory.usage_in_bytes", "memory.current"))
    }

    /// The most it ever used (version 2 knows since Linux 5.19).
    pub fn peak_bytes(&self) -> io::Result<u64> {
        self.read_number(self.pick("memory.max_usage_in_bytes", "memory.peak"))
    }

    /// One line of `memory.stat`, for instance `file_dirty` of version 2.
    pub fn stat(&self, name: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.path.join("memory.stat"))?;
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse().ok())
            .ok_or_else(|| io::Error::other(format!("memory.stat has no {name}")))
    }

    /// The group's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn pick(&self, v1: &'static str, v2: &'static str) -> &'static str {
        match self.version {
            Version::V1 => v1,
            Version::V2 => v2,
        }
    }

    fn members_file(&self) -> io::Result<File> {
        let path = self.path.join("cgroup.procs");
        OpenOptions::new()
            .write(true)
            .open(&path)
            .context(|| path.display().to_string())
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.path.join(name);
        fs::write(&path, value).context(|| format!("writing {value} to {}", path.display()))
    }

    fn read_number(&self, name: &str) -> io::Result<u64> {
        let path = self.path.join(name);
        let text = fs::read_to_string(&path).context(|| path.display().to_string())?;
        text.trim()
            .parse()
            .map_err(|_| io::Error::other(format!("{name} holds {text:?}")))
    }

    fn kill_members(&self) {
        let members = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines().filter_map(|line| line.parse().ok()) {
            // SAFETY: sends a signal to a process that is in our own group.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let start = Instant::now();
        // A folder can be removed once no member is left, zombies aside.
        while fs::remove_dir(&self.path).is_err() && start.elapsed() < PATIENCE {
            self.kill_members();
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Why no group can be made here, or `None`.
pub(crate) fn missing() -> Option<String> {
    controller().err()
}

/// The folder in which groups with a memory limit can be made.
fn controller() -> Result<(PathBuf, Version), String> {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut hierarchies = table.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    let v1 = hierarchies
        .clone()
        .find(|(_, kind, options)| *kind == "cgroup" && options.split(',').any(|o| o == "memory"));
    if let Some((path, ..)) = v1 {
        return Ok((path.into(), Version::V1));
    }
    let Some((path, ..)) = hierarchies.find(|(_, kind, _)| *kind == "cgroup2") else {
        return Err("no cgroup file system is mounted".to_owned());
    };
    let root = PathBuf::from(path);
    let lists = |file| {
        fs::read_to_string(root.join(file))
            .is_ok_and(|text: String| text.split_whitespace().any(|one| one == "memory"))
    };
    if !lists("cgroup.controllers") {
        return Err(format!("{path} has no memory controller"));
    }
    if !lists("cgroup.subtree_control") {
        fs::write(root.join("cgroup.subtree_control"), "+memory")
            .map_err(|error| format!("cannot enable the memory controller in {path}: {error}"))?;
    }
    Ok((root, Version::V2))
}
