//! The way from the top of a tree down to where a walk is, by descriptors.
//!
//! Trees may be deeper than a process may have descriptors. So only the top and the lowest few
//! directories stay open. On the way back, the others are reopened through `..`, and must still
//! be the directories that the walk came through. If one was moved, the walk goes on in the
//! lowest directory that is still where it was.

use crate::input::Identity;
use crate::place::Place;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;

/// How many directories stay open at the lower end.
const OPEN_LEVELS: usize = 6;
/// The most descriptors that one descent holds.
pub(super) const DESCRIPTORS: u64 = OPEN_LEVELS as u64 + 1;

/// Directories, each inside the one before.
#[derive(Debug, Default)]
pub(super) struct Descent {
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    identity: Identity,
    directory: Option<File>,
    /// A link in it was followed, from where `..` does not lead back.
    stays_open: bool,
}

impl Descent {
    /// The directory that the walk is in.
    pub(super) fn current(&self) -> Option<&File> {
        self.levels.last()?.directory.as_ref()
    }

    /// Whether the way leads through this directory.
    pub(super) fn is_through(&self, identity: Identity) -> bool {
        self.levels.iter().any(|level| level.identity == identity)
    }

    /// Goes down into a directory of the current one, or begins at the top.
    pub(super) fn enter(&mut self, directory: File, identity: Identity) {
        self.levels.push(Level {
            identity,
            directory: Some(directory),
            stays_open: false,
        });
        let too_many = self.levels.len().checked_sub(OPEN_LEVELS + 1);
        if let Some(index) = too_many.filter(|&index| index > 0 && !self.levels[index].stays_open) {
            self.levels[index].directory = None;
        }
    }

    /// Keeps the current directory open while the walk is below it: it goes on through a link.
    pub(super) fn keep_open(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.stays_open = true;
        }
    }

    /// Goes down again from the top by these names, as far as the way is still there. Returns
    /// the number of directories on it.
    pub(super) fn find_again(&mut self, names: &[&OsStr]) -> usize {
        let mut found = 1;
        for name in names {
            let (above, below) = self.levels.split_at_mut(found);
            let (Some(parent), Some(child)) = (above.last_mut(), below.first_mut()) else {
                break;
            };
            let directory = parent.directory.as_ref();
            if directory.is_none_or(|from| child.open_from(from, Path::new(name)).is_err()) {
                break;
            }
            if found > 1 {
                parent.directory = None;
            }
            found += 1;
        }
        self.levels.truncate(found);
        found
    }

    /// Goes up. Returns the directory that was left, and whether its parent is open again.
    pub(super) fn leave(&mut self) -> Option<(File, Result<(), Errno>)> {
        let left = self.levels.pop()?.directory?;
        let back = match self.levels.last_mut() {
            Some(parent) if parent.directory.is_none() => parent.open_from(&left, Path::new("..")),
            _ => Ok(()),
        };
        Some((left, back))
    }
}

impl Level {
    fn open_from(&mut self, neighbour: &File, name: &Path) -> Result<(), Errno> {
        let directory = Place::within(neighbour, name, name).open_directory()?;
        let metadata = directory
            .metadata()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        // Another directory took its place, or the neighbour was moved.
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

    /// Whether each step up led back, until one did not.
    fn ways_back(descent: &mut Descent) -> Vec<bool> {
        let mut ways = Vec::new();
        while ways.last() != Some(&false)
            && let Some((_, back)) = descent.leave()
        {
            ways.push(back.is_ok());
        }
        ways
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
        // What was not moved is found from the top.
        let names = [OsStr::new("d"); DEPTH];
        let above = OPEN_LEVELS - 1;
        assert_eq!(descent.find_again(&names[..above - 1]), above);
        assert_eq!(ways_back(&mut descent), [true; OPEN_LEVELS - 1]);
    }

    #[test]
    fn finds_no_directory_that_took_the_place_of_another() {
        let home = Scratch::new().expect("a scratch folder");
        let mut descent = descended(&home);
        std::fs::rename(home.file("d/d/d"), home.file("d/d/e")).expect("a move");
        std::fs::create_dir_all(home.file("d/d/d/d")).expect("directories");
        let names = [OsStr::new("d"); DEPTH];
        assert_eq!(descent.find_again(&names[1..]), 2);
        assert_eq!(ways_back(&mut descent), [true; 2]);
    }
}
