//! The way from the top of a tree down to where a walk is, by descriptors.
//!
//! Trees may be deeper than a process may have descriptors. So only the lowest few
//! directories stay open, and the top. On the way back the others are opened again
//! through `..`, and must still be the directories that the walk came through.

use crate::input::Identity;
use crate::place::Place;
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;

/// Directories that stay open at the lower end.
const OPEN_LEVELS: usize = 6;
/// Descriptors that one descent holds at most.
pub(super) const DESCRIPTORS: u64 = OPEN_LEVELS as u64 + 1;

/// Directories, each in the one before.
#[derive(Debug, Default)]
pub(super) struct Descent {
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    identity: Identity,
    directory: Option<File>,
}

impl Descent {
    /// Where the walk is.
    pub(super) fn current(&self) -> Option<&File> {
        self.levels.last()?.directory.as_ref()
    }

    /// Whether the way led through this directory.
    pub(super) fn is_through(&self, identity: Identity) -> bool {
        self.levels.iter().any(|level| level.identity == identity)
    }

    /// Goes down into a directory of the current one, or begins at the top.
    pub(super) fn enter(&mut self, directory: File, identity: Identity) {
        self.levels.push(Level {
            identity,
            directory: Some(directory),
        });
        let too_many = self.levels.len().checked_sub(OPEN_LEVELS + 1);
        if let Some(index) = too_many.filter(|&index| index > 0) {
            self.levels[index].directory = None;
        }
    }

    /// Goes up; gives what was left, and whether its parent is the current one now.
    pub(super) fn leave(&mut self) -> Option<(File, Result<(), Errno>)> {
        let left = self.levels.pop()?.directory?;
        let back = match self.levels.last_mut() {
            Some(parent) if parent.directory.is_none() => parent.open_from(&left),
            _ => Ok(()),
        };
        Some((left, back))
    }
}

impl Level {
    fn open_from(&mut self, child: &File) -> Result<(), Errno> {
        let up = Path::new("..");
        let directory = Place::within(child, up, up).open_directory()?;
        let metadata = directory
            .metadata()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // Moved, or the one that was entered was.
        if Identity::of(&metadata) != self.identity {
            return Err(Errno::STALE);
        }
        self.directory = Some(directory);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::Scratch;

    const DEPTH: usize = 3 * OPEN_LEVELS;

    fn descended(home: &Scratch) -> Descent {
        let name = Path::new("d");
        std::fs::create_dir_all(home.file(&"d/".repeat(DEPTH))).expect("directories");
        let mut directory = File::open(home.path()).expect("the top");
        let mut descent = Descent::default();
        for _ in 0..DEPTH {
            let below = Place::within(&directory, name, name);
            let below = below.open_directory().expect("a directory");
            let identity = Identity::of(&below.metadata().expect("its metadata"));
            descent.enter(below.try_clone().expect("a descriptor"), identity);
            directory = below;
        }
        descent
    }

    fn ways_back(descent: &mut Descent) -> Vec<bool> {
        let left = std::iter::from_fn(|| descent.leave());
        left.map(|(_, back)| back.is_ok()).collect()
    }

    #[test]
    fn comes_back_through_closed_directories() {
        let home = Scratch::new().expect("a scratch folder");
        let mut descent = descended(&home);
        let open = descent
            .levels
            .iter()
            .filter(|level| level.directory.is_some());
        assert!(open.count() as u64 <= DESCRIPTORS);
        assert_eq!(ways_back(&mut descent), [true; DEPTH]);
    }

    #[test]
    fn does_not_come_out_where_a_directory_was_moved_to() {
        let home = Scratch::new().expect("a scratch folder");
        let mut descent = descended(&home);
        std::fs::create_dir(home.file("elsewhere")).expect("a directory");
        let moved = home.file(&"d/".repeat(OPEN_LEVELS));
        std::fs::rename(moved, home.file("elsewhere/d")).expect("a move");
        let back = ways_back(&mut descent);
        assert_eq!(back.last(), Some(&false), "{back:?}");
        assert!(back.iter().filter(|&&is_back| !is_back).count() == 1);
    }
}
