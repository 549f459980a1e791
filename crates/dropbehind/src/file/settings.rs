//! The settings of an open file.

use std::io;

use dropbehind_linux::page_size;
use dropbehind_policy::Mode;
use dropbehind_policy::write_behind::WINDOW_MIN_BYTES;

use crate::strategy::Strategy;
use dropbehind_flusher::Flusher;

/// The settings of an open file.
#[derive(Clone, Debug)]
pub(crate) struct FileSettings {
    /// `None` takes the disk's, or else `dontcache`.
    pub(crate) mode: Option<Mode>,
    pub(crate) window_bytes: Option<u64>,
    pub(crate) request_bytes: Option<u64>,
    pub(crate) strategy: Strategy,
    pub(crate) random: bool,
    pub(crate) flusher: Option<Flusher>,
}

impl Default for FileSettings {
    fn default() -> FileSettings {
        FileSettings {
            mode: None,
            window_bytes: None,
            request_bytes: None,
            strategy: Strategy::Auto,
            random: false,
            flusher: None,
        }
    }
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
