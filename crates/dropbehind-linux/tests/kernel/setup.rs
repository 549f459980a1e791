//! Files, devices and mounts to test on.

use dropbehind_linux::{cachestat, drop_clean, page_size, start_writeback};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Says why the test is not run, and ends it.
macro_rules! skip {
    ($test:literal, $($why:tt)*) => {{
        eprintln!("SKIP {}: {}", $test, format_args!($($why)*));
        return;
    }};
}
pub(crate) use skip;

pub(crate) const MIB: u64 = 1 << 20;

/// A directory beside the build, which is on a disk where `/tmp` may not be.
pub(crate) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A named file with this many bytes of dirty data.
pub(crate) fn dirty_file(directory: &Path, len: u64) -> (PathBuf, File) {
    let path = directory.join("data");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let chunk = vec![0xA5; usize::try_from(len.min(MIB)).unwrap()];
    let mut left = len;
    while left > 0 {
        let part = left.min(MIB);
        file.write_all(&chunk[..usize::try_from(part).unwrap()])
            .unwrap();
        left -= part;
    }
    (path, file)
}

pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn wait_until_clean(fd: BorrowedFd<'_>) {
    start_writeback(fd, 0, 0).unwrap();
    wait_for("clean", || cachestat(fd, 0, 0).unwrap().is_clean());
}

/// A named file with this many bytes, all of them clean and cached.
pub(crate) fn clean_file(directory: &Path, len: u64) -> (PathBuf, File) {
    let (path, file) = dirty_file(directory, len);
    wait_until_clean(file.as_fd());
    (path, file)
}

/// A named file with this many bytes, none of them cached.
pub(crate) fn uncached_file(directory: &Path, len: u64) -> (PathBuf, File) {
    let (path, file) = clean_file(directory, len);
    drop_all(file.as_fd());
    (path, file)
}

pub(crate) fn drop_all(fd: BorrowedFd<'_>) {
    wait_for("dropped", || {
        drop_clean(fd, 0, 0).unwrap();
        cached_pages(fd) == 0
    });
}

pub(crate) fn cached_pages(fd: BorrowedFd<'_>) -> u64 {
    cachestat(fd, 0, 0).unwrap().cached_pages
}

pub(crate) fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(page_size())
}

/// A tool's output; `None` if it isn't there.
pub(crate) fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The cached pages of a file by util-linux's account.
pub(crate) fn fincore_pages(path: &Path) -> Option<u64> {
    let path = path.to_str().unwrap();
    let text = output("fincore", &["--noheadings", "--output", "PAGES", path])?;
    Some(text.trim().parse().unwrap())
}

/// A loop device over a sparse file, detached on drop.
pub(crate) struct Loop {
    pub(crate) device: PathBuf,
    _image: tempfile::NamedTempFile,
}

impl Loop {
    /// `None` without root or losetup; says so.
    pub(crate) fn new(test: &str, len: u64) -> Option<Self> {
        if !is_root() {
            eprintln!("SKIP {test}: needs root for a loop device");
            return None;
        }
        let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        image.as_file().set_len(len).unwrap();
        let path = image.path().to_str().unwrap();
        let Some(device) = output("losetup", &["-f", "--show", path]) else {
            eprintln!("SKIP {test}: needs losetup");
            return None;
        };
        Some(Self {
            device: PathBuf::from(device.trim()),
            _image: image,
        })
    }

    pub(crate) fn open(&self) -> File {
        File::options()
            .read(true)
            .write(true)
            .open(&self.device)
            .unwrap()
    }

    pub(crate) fn name(&self) -> &str {
        self.device.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.device).status();
    }
}

/// A mounted file system, unmounted on drop.
pub(crate) struct Mounted(pub(crate) PathBuf);

impl Mounted {
    pub(crate) fn new(args: &[&str], at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let status = Command::new("mount").args(args).arg(at).status().ok()?;
        status.success().then(|| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(&self.0).status();
        if !status.is_ok_and(|status| status.success()) {
            // Writeback errors keep a file system busy for a moment.
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

/// Runs something in a thread that has become nobody.
///
/// The raw call changes the one thread, where the C library's changes all.
pub(crate) fn as_nobody<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let id = 54_321;
                // SAFETY: integers only, and the thread ends with its identity.
                unsafe {
                    assert_eq!(
                        libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>()),
                        0
                    );
                    assert_eq!(libc::syscall(libc::SYS_setresgid, id, id, id), 0);
                    assert_eq!(libc::syscall(libc::SYS_setresuid, id, id, id), 0);
                }
                run()
            })
            .join()
            .unwrap()
    })
}

/// An overlay of `lower` and `upper` in a directory, mounted at `merged`.
pub(crate) fn overlay(root: &Path) -> Option<Mounted> {
    for name in ["lower", "upper", "work"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    let options = format!(
        "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work",
        root.display()
    );
    let args = ["-t", "overlay", "-o", &options, "overlay"];
    Mounted::new(&args, &root.join("merged"))
}
