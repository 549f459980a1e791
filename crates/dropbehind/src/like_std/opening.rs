//! Ways to get a file.

use std::fs;
use std::io;
use std::path::Path;

use dropbehind_policy::Mode;

use crate::file::File;
use crate::open_options::OpenOptions;
use crate::settings::FileSettings;

impl File {
    /// Opens a file for reading, in the default mode: that of its disk in the
    /// configuration file, or else
    /// `dontcache`.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn open(path: impl AsRef<Path>) -> io::Result<File> {
        OpenOptions::new().read(true).open(path)
    }

    /// Creates or truncates a file for writing, in the default mode.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn create(path: impl AsRef<Path>) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).open(path)
    }

    /// Options for opening a file.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over an open file. Pages that are already cached or dirty are left alone.
    ///
    /// # Errors
    /// Those of `fstat(2)` and `fcntl(2)`.
    pub fn from_std(file: fs::File, mode: Mode) -> io::Result<File> {
        let settings = FileSettings {
            mode: Some(mode),
            ..FileSettings::default()
        };
        File::with_settings(file, settings, true).map_err(|(_, error)| error)
    }
}
