//! How a file is opened.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dropbehind_policy::Mode;

use crate::file::{File, FileSettings};
use crate::strategy::Strategy;
use dropbehind_flusher::Flusher;

/// Options of opening a file, as [`std::fs::OpenOptions`] has them, and those
/// of dropbehind.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    options: fs::OpenOptions,
    settings: FileSettings,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Nothing is allowed yet; the mode is `dontcache`.
    pub fn new() -> OpenOptions {
        OpenOptions {
            options: fs::OpenOptions::new(),
            settings: FileSettings::default(),
        }
    }

    /// Open for reading.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.options.read(read);
        self
    }

    /// Open for writing.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.options.write(write);
        self
    }

    /// Every write goes to the end of the file (`O_APPEND`).
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.options.append(append);
        self
    }

    /// Empty the file first.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.options.truncate(truncate);
        self
    }

    /// Make the file where there is none.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.options.create(create);
        self
    }

    /// Make the file; an error where there is one.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.options.create_new(create_new);
        self
    }

    /// Further flags of `open(2)`. With `O_DIRECT` the mode has no effect, with
    /// `O_SYNC` and `O_DSYNC` its write-behind has none.
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.options.custom_flags(flags);
        self
    }

    /// Permission bits of a file that is made, less the umask.
    pub fn permissions(&mut self, mode: u32) -> &mut OpenOptions {
        self.options.mode(mode);
        self
    }

    /// Writeback and residency of this file; default `dontcache`.
    pub fn mode(&mut self, mode: Mode) -> &mut OpenOptions {
        self.settings.mode = mode;
        self
    }

    /// The window, in bytes; at least 64 KiB. Twice as much may
    /// be dirty or under writeback before a writer waits; writes of 256 KiB
    /// and more pause on the last quarter of that. Default: what the disk writes
    /// in a quarter of a second, at most 16 MiB; or in 50 ms, at most 28 MiB,
    /// where that is more.
    pub fn window_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.settings.window_bytes = Some(bytes);
        self
    }

    /// How much is sent to the disk in one request, in bytes; default: the
    /// disk's `max_sectors_kb`.
    pub fn request_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.settings.request_bytes = Some(bytes);
        self
    }

    /// Emulated or native; default: whichever is better here.
    pub fn strategy(&mut self, strategy: Strategy) -> &mut OpenOptions {
        self.settings.strategy = strategy;
        self
    }

    /// The file will be accessed at random: no readahead, no write-behind.
    pub fn random(&mut self, random: bool) -> &mut OpenOptions {
        self.settings.random = random;
        self
    }

    /// A flusher of one's own; default: the shared one.
    pub fn flusher(&mut self, flusher: &Flusher) -> &mut OpenOptions {
        self.settings.flusher = Some(flusher.clone());
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// Those of `open(2)`; [`io::ErrorKind::InvalidInput`] for a window or
    /// request out of range. Nothing was opened or made then.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.settings.check()?;
        let file = self.options.open(path)?;
        File::with_settings(file, self.settings.clone())
    }

    /// Takes over an open file with these settings; how it was opened stays as it is.
    /// What was cached before, or is dirty already, is left alone.
    ///
    /// # Errors
    /// Those of `fstat(2)` and `fcntl(2)`; [`io::ErrorKind::InvalidInput`] for a
    /// window or request out of range.
    pub fn adopt(&self, file: fs::File) -> io::Result<File> {
        self.settings.check()?;
        File::with_settings(file, self.settings.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::Scratch;

    #[test]
    fn an_adopted_file_gets_all_options() {
        let home = Scratch::new().expect("a scratch folder");
        let made = || fs::File::create(home.file("file")).expect("a file");
        let mut options = OpenOptions::new();
        let ours = options.mode(Mode::NOREUSE).adopt(made()).expect("ours");
        assert_eq!(ours.mode(), Mode::NOREUSE);
        let refused = options.window_bytes(1).adopt(made()).err();
        let kind = refused.map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::InvalidInput));
    }
}
