//! Skipping loudly: a test that cannot run here says so on the real standard
//! error, past the test harness's capture, and where everything must run
//! (`DROPBEHIND_NO_SKIP=1`) it fails instead.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};

use crate::command::find_tool;
use crate::{memory_cgroup, mount_point};

/// Something a test cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Effective user id 0.
    Root,
    /// A program in `PATH` or a system folder.
    Tool(&'static str),
    /// A file system type that the kernel has or can load by itself.
    Filesystem(&'static str),
    /// Leave to mount FUSE file systems.
    Fuse,
    /// Leave to create loop devices.
    Loop,
    /// A memory cgroup controller in which groups can be made.
    CgroupMemory,
    /// The cachestat system call (Linux 6.5).
    Cachestat,
    /// The kernel's trace of who takes pages from the cache.
    Trace,
}

impl Need {
    /// Why this need is not met here, or `None` when it is.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!is_root()).then(|| "needs root".to_owned()),
            Self::Tool(name) => find_tool(name)
                .is_none()
                .then(|| format!("needs the program {name}")),
            Self::Filesystem(name) => {
                (!knows_filesystem(name)).then(|| format!("the kernel has no {name} file system"))
            }
            Self::Fuse => Self::Root
                .missing()
                .or_else(|| unusable("/dev/fuse"))
                .or_else(|| Self::Filesystem("fuse").missing()),
            Self::Loop => Self::Root
                .missing()
                .or_else(|| unusable("/dev/loop-control")),
            Self::CgroupMemory => Self::Root.missing().or_else(memory_cgroup::missing),
            Self::Cachestat => crate::residency::missing(),
            Self::Trace => crate::reclaim::missing(),
        }
    }
}

/// The first of `needs` that is not met here, in words.
pub fn first_missing(needs: impl IntoIterator<Item = Need>) -> Option<String> {
    needs.into_iter().find_map(Need::missing)
}

/// Says that `test` is skipped and why. Prefer [`skip!`](crate::skip!) and
/// [`need!`](crate::need!), which also return from the test.
///
/// # Panics
///
/// When `DROPBEHIND_NO_SKIP` is `1`.
pub fn announce(test: &str, why: &str) {
    let forbidden = std::env::var_os("DROPBEHIND_NO_SKIP").is_some_and(|value| value == "1");
    assert!(
        !forbidden,
        "{test} would be skipped, which DROPBEHIND_NO_SKIP forbids: {why}"
    );
    // The harness captures print macros only; a write to the handle gets out.
    // One write, as others write at the same time.
    let _ = io::stderr().write_all(format!("SKIP {test}: {why}\n").as_bytes());
}

/// The running test, told by a closure written in it or in what it calls.
#[doc(hidden)]
pub fn test_name<F>(_closure: &F) -> String {
    let function = std::any::type_name::<F>();
    let function = function.strip_suffix("::{{closure}}").unwrap_or(function);
    let crate_name = function.split("::").next().unwrap_or(function);
    // The harness names threads after tests, unless it runs one at a time.
    match std::thread::current().name() {
        None | Some("main") => function.to_owned(),
        Some(test) => format!("{crate_name}::{test}"),
    }
}

/// Skips the test it stands in: `skip!("why")`, with arguments as in `format!`.
#[macro_export]
macro_rules! skip {
    ($($why:tt)+) => {{
        $crate::skip::announce(&$crate::skip::test_name(&|| {}), &format!($($why)+));
        return;
    }};
}

/// Skips the test it stands in unless all needs are met: `need!(Need::Root,
/// Need::Loop)`, or `need!(all SlowDisk::needs())` for a bed's own list.
#[macro_export]
macro_rules! need {
    (all $needs:expr) => {
        if let Some(why) = $crate::skip::first_missing($needs) {
            $crate::skip!("{why}");
        }
    };
    ($($need:expr),+ $(,)?) => {
        $crate::need!(all [$($need),+])
    };
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Why a device node cannot be used, or `None`.
fn unusable(device: &str) -> Option<String> {
    let error = OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .err()?;
    Some(format!("cannot use {device}: {error}"))
}

fn knows_filesystem(name: &str) -> bool {
    let listed = || {
        fs::read_to_string("/proc/filesystems").is_ok_and(|list| {
            list.lines()
                .any(|line| line.split_whitespace().last() == Some(name))
        })
    };
    // A module may be there that nobody has asked for so far.
    listed() || (is_root() && mount_point::load_filesystem(name) && listed())
}
