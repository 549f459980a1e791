//! The configuration file's settings of each disk.
//!
//! They are read when the first file is opened: from the file that the variable
//! `DROPBEHIND_CONFIG` names, or else from `/etc/dropbehind.toml`, if that is there. What a
//! program sets goes before them, except that on a disk with `enabled = false` no mode has an
//! effect.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use arc_swap::ArcSwapOption;

pub use dropbehind_config::{DiskSettings, Disks, FileError};

/// The settings in force, and what is wrong with the file.
#[derive(Debug, Default)]
struct Loaded {
    disks: Disks,
    problem: Option<String>,
}

/// No lock: one that another thread held at a fork would stay locked in the child forever.
static LOADED: ArcSwapOption<Loaded> = ArcSwapOption::const_empty();

thread_local! {
    /// The name of the disk of each `st_dev` or `st_rdev`, since sysfs is slow.
    static NAMES: RefCell<HashMap<u64, Arc<str>>> = RefCell::default();
}

/// Sets the disks' settings for files that are opened from now on, instead of those of a
/// file.
pub fn use_disks(disks: Disks) {
    LOADED.store(Some(Arc::new(Loaded {
        disks,
        problem: None,
    })));
}

/// What is wrong with the configuration file, as one line for each mistake. No disk has
/// settings of its own then. [`Flusher::degraded`](crate::flusher::Flusher::degraded) reports
/// it, too.
pub fn problem() -> Option<String> {
    loaded().problem.clone()
}

fn loaded() -> Arc<Loaded> {
    if let Some(loaded) = LOADED.load_full() {
        return loaded;
    }
    let found = Disks::find(None);
    // The next open may find it readable: this process may have run out of descriptors.
    let is_unreadable = matches!(found, Err(FileError::Unreadable(..)));
    let read = match found {
        Ok(disks) => Loaded {
            disks,
            problem: None,
        },
        Err(error) => Loaded {
            disks: Disks::default(),
            problem: Some(error.to_string()),
        },
    };
    let read = Arc::new(read);
    if is_unreadable {
        return read;
    }
    let before = LOADED.compare_and_swap(&None::<Arc<Loaded>>, Some(Arc::clone(&read)));
    // Another thread may have been first.
    before.as_ref().map_or(read, Arc::clone)
}

/// The settings of the disk that carries a file, whose `st_dev` (`st_rdev` for a block device)
/// is `device`.
pub(crate) fn settings_of(fd: BorrowedFd<'_>, device: u64) -> DiskSettings {
    let loaded = loaded();
    if loaded.disks.is_empty() {
        return DiskSettings::default();
    }
    let known = NAMES.with_borrow(|names| names.get(&device).cloned());
    let name = known.or_else(|| {
        let name: Arc<str> = dropbehind_linux::disk_of(fd).ok()?.name.into();
        NAMES.with_borrow_mut(|names| names.insert(device, Arc::clone(&name)));
        Some(name)
    });
    let settings = name.and_then(|name| loaded.disks.get(&name).cloned());
    settings.unwrap_or_default()
}
