//! The settings of an open file.

use std::io;

use dropbehind_policy::Mode;
use dropbehind_policy::write_behind::WINDOW_MIN_BYTES;

use crate::strategy::Strategy;
#[cfg(target_os = "linux")]
use dropbehind_flusher::Flusher;
#[cfg(target_os = "linux")]
use dropbehind_linux::page_size;

/// The smallest page of any system.
#[cfg(not(target_os = "linux"))]
fn page_size() -> u64 {
    4096
}

/// The settings of an open file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileSettings {
    /// `None` takes the disk's, or else `dontcache`.
    pub(crate) mode: Option<Mode>,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) strategy: Strategy,
    pub(crate) random: bool,
    #[cfg(target_os = "linux")]
    pub(crate) flusher: Option<Flusher>,
}

impl FileSettings {
    pub(crate) fn check(&self) -> io::Result<()> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if let Some(bytes) = self.window_bytes.filter(|bytes| *bytes < WINDOW_MIN_BYTES) {
            return refuse(format!(
                "a window of {bytes} bytes is too small; give at least {WINDOW_MIN_BYTES}"
            ));
        }
        if let Some(bytes) = self.request_bytes.filter(|bytes| *bytes < page_size()) {
            return refuse(format!(
                "a request of {bytes} bytes is too small; give at least a page, {}",
                page_size()
            ));
        }
        Ok(())
    }
}
