//! What is known about a file when it is opened or attached.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use dropbehind_flusher::Flusher;
use dropbehind_flusher::own_file::OwnFile;
use dropbehind_linux::{
    Access, FileId, FileKind, FsKind, StatusFlags, advise_access, file_info, status_flags,
};
use dropbehind_policy::{Mode, StreamConfig, Writeback};

use crate::config::{self, DiskSettings};
use crate::settings::FileSettings;

/// Why a mode has no effect if no thread could be started.
pub(crate) const UNATTENDED: &str = "no flusher could be started for it";
/// As good as no limit, and no sum overflows with it.
const UNLIMITED_BYTES: u64 = 1 << 40;

/// What is known about a file when it is opened or attached.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) mode: Mode,
    /// The settings, completed by those of the disk.
    pub(crate) settings: FileSettings,
    /// Why the mode has no effect on the file, or `None` if it has one.
    pub(crate) without_effect: Option<&'static str>,
    /// The configuration file turns its disk off.
    pub(crate) disk_is_off: bool,
    /// `st_dev`, or `st_rdev` for a block device.
    pub(crate) device: u64,
    pub(crate) filesystem: FsKind,
    pub(crate) id: FileId,
    pub(crate) block_device: bool,
    pub(crate) size_bytes: u64,
    pub(crate) flags: StatusFlags,
}

impl Facts {
    pub(crate) fn of(fd: BorrowedFd<'_>, settings: FileSettings) -> io::Result<Facts> {
        let info = file_info(fd)?;
        let flags = status_flags(fd)?;
        let (cannot, device) = match info.kind {
            FileKind::Regular => (without_effect(info.filesystem), info.id.device),
            FileKind::Block => (None, info.special_device),
            FileKind::Other => (
                Some("it is no regular file or block device"),
                info.id.device,
            ),
        };
        let disk = match cannot {
            None => config::settings_of(fd, device),
            Some(_) => DiskSettings::default(),
        };
        if settings.random && cannot.is_none() && disk.enabled {
            advise_access(fd, Access::Random)?;
        }
        let without_effect = match (disk.enabled, flags.direct) {
            (false, _) => Some("its disk is turned off in dropbehind's configuration file"),
            (true, true) => cannot.or(Some("it is open with O_DIRECT")),
            (true, false) => cannot,
        };
        let least = |bytes: Option<u64>| bytes.map(|bytes| bytes.min(UNLIMITED_BYTES));
        Ok(Facts {
            mode: settings.mode.or(disk.mode).unwrap_or(Mode::DONTCACHE),
            settings: FileSettings {
                window_bytes: least(settings.window_bytes.or(disk.window_bytes)),
                request_bytes: least(settings.request_bytes.or(disk.request_bytes)),
                ..settings
            },
            without_effect,
            disk_is_off: !disk.enabled,
            device,
            filesystem: info.filesystem,
            id: info.id,
            block_device: info.kind == FileKind::Block,
            size_bytes: info.size_bytes,
            flags,
        })
    }

    /// A handle to the flusher; `None` if none can be had.
    pub(crate) fn new_handle(&self, fd: BorrowedFd<'_>, size_bytes: u64) -> Option<Arc<OwnFile>> {
        let flusher = match &self.settings.flusher {
            Some(own) if own.is_ours() => own.clone(),
            _ => Flusher::shared().ok()?,
        };
        if let Some(problem) = config::problem() {
            flusher.note(format!("the configuration file is not in force: {problem}"));
        }
        let config = StreamConfig {
            window_bytes: self.settings.window_bytes,
            request_bytes: self.settings.request_bytes,
            size_bytes,
            o_append: self.flags.append,
            block_device: self.block_device,
            random: self.settings.random,
            traced: false,
            observed: false,
        };
        let file = OwnFile::new(flusher, fd, self.device, self.id, config);
        file.ok().map(Arc::new)
    }

    /// Synchronous writes are on the disk when they return, so they need no write-behind.
    pub(crate) fn effective(&self, mode: Mode) -> Mode {
        let behind = matches!(
            mode.writeback,
            Writeback::Behind | Writeback::BehindAppending
        );
        if behind && (self.flags.sync || self.flags.dsync) {
            return Mode::new(Writeback::Lazy, mode.residency);
        }
        mode
    }
}

/// The reason, for file systems whose page cache cannot be controlled.
fn without_effect(filesystem: FsKind) -> Option<&'static str> {
    match filesystem {
        FsKind::Tmpfs => Some("tmpfs has no disk: the page cache is where its data lives"),
        _ => None,
    }
}
