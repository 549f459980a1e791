//! Options for opening a file.

use std::fs;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsFd;
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use dropbehind_policy::Mode;

#[cfg(target_os = "linux")]
use crate::attached::Attached;
use crate::file::File;
use crate::settings::FileSettings;
use crate::strategy::Strategy;
#[cfg(target_os = "linux")]
use dropbehind_flusher::Flusher;

/// The options of [`std::fs::OpenOptions`], and those that dropbehind adds.
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
    /// Options that allow no access yet.
    pub fn new() -> OpenOptions {
        OpenOptions {
            options: fs::OpenOptions::new(),
            settings: FileSettings::default(),
        }
    }

    /// Opens the file for reading.
    pub fn read(&mut self, read: bool) -> &mut OpenOptions {
        self.options.read(read);
        self
    }

    /// Opens the file for writing.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.options.write(write);
        self
    }

    /// Appends every write to the end of the file (`O_APPEND`).
    pub fn append(&mut self, append: bool) -> &mut OpenOptions {
        self.options.append(append);
        self
    }

    /// Truncates the file to length 0.
    pub fn truncate(&mut self, truncate: bool) -> &mut OpenOptions {
        self.options.truncate(truncate);
        self
    }

    /// Creates the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut OpenOptions {
        self.options.create(create);
        self
    }

    /// Creates the file, and fails if it already exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut OpenOptions {
        self.options.create_new(create_new);
        self
    }

    /// The file's mode: its writeback and residency. The default is that of its
    /// disk in the configuration file, or else `dontcache`.
    pub fn cache_mode(&mut self, mode: Mode) -> &mut OpenOptions {
        self.settings.mode = Some(mode);
        self
    }

    /// The window in bytes, at least 64 KiB. Up to twice the window may be dirty or under
    /// writeback before a writer waits. Writes of 256 KiB and more slow down on the last
    /// quarter of that. The default is that of the disk in the configuration file. Without one,
    /// it is what the disk writes in a quarter of a second, up to 16 MiB, in the write-behind
    /// modes. In the others it is the least that keeps the disk busy, 8 MiB on most, and a
    /// share of that if many files are written.
    pub fn window_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.settings.window_bytes = Some(bytes);
        self
    }

    /// The size of one write request to the disk, in bytes, at least a page. The default is
    /// that of the disk in the configuration file, or else its `max_sectors_kb`.
    pub fn request_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.settings.request_bytes = Some(bytes);
        self
    }

    /// Emulated or native. The default is whichever is better here.
    pub fn strategy(&mut self, strategy: Strategy) -> &mut OpenOptions {
        self.settings.strategy = strategy;
        self
    }

    /// Expects random access: no readahead, no write-behind.
    pub fn random(&mut self, random: bool) -> &mut OpenOptions {
        self.settings.random = random;
        self
    }

    /// Uses this flusher instead of the shared one.
    #[cfg(target_os = "linux")]
    pub fn flusher(&mut self, flusher: &Flusher) -> &mut OpenOptions {
        self.settings.flusher = Some(flusher.clone());
        self
    }

    /// Checks the window and the request size, as opening does first.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if one is out of range.
    pub fn check(&self) -> io::Result<()> {
        self.settings.check()
    }

    /// Opens the file.
    ///
    /// # Errors
    /// Those of `open(2)`; [`io::ErrorKind::InvalidInput`] if the window or request size is
    /// out of range. In that case nothing has been opened or created.
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        self.settings.check()?;
        let file = self.options.open(path)?;
        File::with_settings(file, self.settings.clone(), false).map_err(|(_, error)| error)
    }

    /// Takes over an open file with these settings. Its open flags don't change. Pages that
    /// are already cached or dirty are left alone. A failure closes the file; with
    /// [`OpenOptions::try_adopt`] it doesn't.
    ///
    /// # Errors
    /// Those of `fstat(2)` and `fcntl(2)`; [`io::ErrorKind::InvalidInput`] if the window or
    /// request size is out of range.
    pub fn adopt(&self, file: fs::File) -> io::Result<File> {
        self.try_adopt(file).map_err(|(_, error)| error)
    }

    /// Does what [`OpenOptions::adopt`] does, but gives the file back if it fails.
    ///
    /// # Errors
    /// Those of [`OpenOptions::adopt`], with the file.
    pub fn try_adopt(&self, file: fs::File) -> Result<File, (fs::File, io::Error)> {
        if let Err(error) = self.settings.check() {
            return Err((file, error));
        }
        File::with_settings(file, self.settings.clone(), true)
    }
}

#[cfg(target_os = "linux")]
impl OpenOptions {
    /// Attaches an open file that the program goes on using by itself, such as through io_uring,
    /// with these settings. `file` is whatever holds the descriptor: the file, a reference to it,
    /// an `Arc`. The strategy doesn't matter.
    ///
    /// In a mode that drops, this finds out what of the file is cached, so that it stays.
    ///
    /// # Errors
    /// As for [`OpenOptions::adopt`].
    pub fn attach<F: AsFd>(&self, file: F) -> io::Result<Attached<F>> {
        self.settings.check()?;
        Attached::new(file, self.settings.clone())
    }
}

/// As for [`std::fs::OpenOptions`]. With the flag `O_DIRECT` the cache mode has no effect; with
/// `O_SYNC` or `O_DSYNC` it does no write-behind.
#[cfg(unix)]
impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.options.mode(mode);
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.options.custom_flags(flags);
        self
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use dropbehind_testbed::Scratch;

    #[test]
    fn an_adopted_file_gets_all_options() {
        let home = Scratch::new().expect("a scratch folder");
        let made = || fs::File::create(home.file("file")).expect("a file");
        let mut options = OpenOptions::new();
        let ours = options
            .cache_mode(Mode::NOREUSE)
            .adopt(made())
            .expect("ours");
        assert_eq!(ours.mode(), Mode::NOREUSE);
        let refused = options.window_bytes(1).adopt(made()).err();
        let kind = refused.map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::InvalidInput));
    }
}
