//! What to do where something has the name of a copy already.

use super::Copying;
use super::backups::{is_same_name, shown_path};
use super::choices::{Dereference, Making, Overwrite};
use super::links::inode;
use super::making::metadata_of;
use crate::error::{Doing, Failure, quoted, shown};
use crate::input::{Identity, is_cached_kind};
use crate::options::Voice;
use crate::place::Place;
use rustix::fs::{Access, AtFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What becomes of the copy.
pub(super) enum Way {
    /// There is none.
    Skip,
    /// There is none, since what is there is not older than the source.
    Newer,
    /// Nothing is in its way now.
    Clear,
    /// It goes into what is there, which looks like this.
    Into(Box<Metadata>),
    /// It is made where a symbolic link points to.
    ThroughLink,
}

/// Whether source and destination are the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sameness {
    /// They are not, or it does no harm.
    Harmless,
    /// They are, and what was asked for is there already.
    Done,
    Refused,
}

/// The two sides, as they look.
struct Sides<'a> {
    source: &'a Place<'a>,
    from: &'a Metadata,
    target: &'a Place<'a>,
    /// The destination itself, and what it stands for if it is a link that is followed.
    itself: &'a Metadata,
    to: &'a Metadata,
}

impl Copying<'_> {
    /// Looks at what has the name of a copy, asks the user where that was wanted, and takes away
    /// what is to be replaced.
    pub(super) fn way(
        &mut self,
        source: &Place<'_>,
        from: &Metadata,
        target: &Place<'_>,
        is_named: bool,
    ) -> Result<Way, Failure> {
        let failed = |errno: Errno| Failure::io(Doing::Look, target.path, &errno.into());
        let itself = match target.pin() {
            Err(Errno::NOENT) => return Ok(Way::Clear),
            pinned => metadata_of(&pinned.map_err(failed)?, target)?,
        };
        if is_named && itself.is_symlink() && self.backups.is_none() {
            self.refuse_just_made(source, target)?;
        }
        let mut to = itself.clone();
        if itself.is_symlink() && self.follows_target(from, target) {
            match target.look() {
                Ok(found) => to = metadata_of(&found, target)?,
                Err(Errno::NOENT) => return dangling(target),
                Err(Errno::LOOP) if self.choices.force => return self.remove(target, false),
                Err(errno) => return Err(failed(errno)),
            }
        }
        let sides = Sides {
            source,
            from,
            target,
            itself: &itself,
            to: &to,
        };
        let sameness = match self.choices.overwrite {
            Overwrite::Skip | Overwrite::Fail => Sameness::Harmless,
            _ => self.sameness(&sides),
        };
        if sameness == Sameness::Refused {
            return Err(same_file(source, target));
        }
        if self.is_newer(&sides) {
            if self.has_more_names(from, is_named) && self.links.earlier(from).is_none() {
                self.links.remember(from, target.path, inode(&itself));
            }
            return Ok(Way::Newer);
        }
        match self.choices.overwrite {
            Overwrite::Skip => return Ok(Way::Skip),
            Overwrite::Fail => return Err(not_replacing(target)),
            Overwrite::Ask if !self.user_agrees(target, &to) => return Ok(Way::Skip),
            _ => {}
        }
        if sameness == Sameness::Done {
            return Ok(Way::Skip);
        }
        if to.is_dir() {
            return Err(is_directory(target));
        }
        if is_named && self.backups.is_none() && self.copies.contains(target.path) {
            return Err(just_made(source, target));
        }
        if self.choices.atomic && self.takes_data(from) && to.is_file() && !itself.is_symlink() {
            return Ok(Way::Into(Box::new(to)));
        }
        if let Some(way) = self.back_up(&sides)? {
            return Ok(way);
        }
        if self.goes_first(&sides) {
            return self.remove(target, self.choices.verbose);
        }
        if itself.is_symlink() && !self.follows_target(from, target) && self.takes_data(from) {
            return self.link_in_the_way(target, &itself);
        }
        let is_regular = to.is_file();
        if !target.follows_links && self.takes_data(from) {
            if !is_regular {
                return self.link_in_the_way(target, &itself);
            }
            // In a tree, another name of the file may be anywhere, and the copy gets an owner and
            // permissions that a process which has the old file open must not gain.
            let is_anew = self.choices.preserve.takes_new_file() || to.nlink() > 1;
            if is_anew && self.choices.making == Making::Copies {
                return self.remove(target, false);
            }
        }
        Ok(Way::Into(Box::new(to)))
    }

    /// Whether the data of a source is written into what is there.
    fn takes_data(&self, from: &Metadata) -> bool {
        let making = self.choices.making;
        matches!(making, Making::Copies | Making::Attributes)
            && (from.is_file() || self.choices.as_regular && !from.is_symlink())
    }

    /// Whether a link of the target's name stands for what it points to.
    fn follows_target(&self, from: &Metadata, target: &Place<'_>) -> bool {
        target.follows_links
            && self.takes_data(from)
            && self.backups.is_none()
            && !self.choices.remove_destination
    }

    /// Whether what is there is not older than the source, under `--update`.
    fn is_newer(&self, sides: &Sides<'_>) -> bool {
        if !self.choices.only_newer || sides.to.is_dir() {
            return false;
        }
        let (to, from) = (nanoseconds(sides.to), nanoseconds(sides.from));
        // A copy has the times of its source as far as its file system can hold them.
        let step = match self.choices.preserve.timestamps {
            true => resolution(sides.to),
            false => 1,
        };
        to >= from - from.rem_euclid(step)
    }

    /// Whether what is there stays as it is, whatever the source holds.
    pub(super) fn stays(&self, source: &Place<'_>, from: &Metadata, target: &Place<'_>) -> bool {
        let look = |found: Result<File, Errno>| metadata_of(&found.ok()?, target).ok();
        let Some(itself) = look(target.pin()) else {
            return false;
        };
        let to = match itself.is_symlink() && self.follows_target(from, target) {
            true => look(target.look()),
            false => Some(itself.clone()),
        };
        to.is_some_and(|to| {
            self.choices.leaves_what_is_there()
                || self.is_newer(&Sides {
                    source,
                    from,
                    target,
                    itself: &itself,
                    to: &to,
                })
        })
    }

    /// Asks whether to overwrite something.
    fn user_agrees(&self, target: &Place<'_>, to: &Metadata) -> bool {
        let name = quoted(target.path);
        let flags = AtFlags::EACCESS;
        let may_write =
            rustix::fs::accessat(target.directory, target.name, Access::WRITE_OK, flags).is_ok();
        let question = if may_write || to.is_symlink() {
            format!("overwrite {name}? ")
        } else {
            let bits = to.mode() & 0o7777;
            format!("replace {name}, overriding mode {bits:04o}? ")
        };
        let program = match self.choices.settings.voice {
            Voice::Own => "dropbehind",
            Voice::Cp => "cp",
        };
        let _ = write!(io::stderr(), "{program}: {question}");
        let _ = io::stderr().flush();
        let mut answer = String::new();
        let waited = self.interruption.wait(true);
        let _ = io::stdin().read_line(&mut answer);
        self.interruption.wait(waited);
        answer.starts_with(['y', 'Y'])
    }

    /// Whether source and destination are the same file, in one of the many ways in which that
    /// matters.
    fn sameness(&self, sides: &Sides<'_>) -> Sameness {
        let choices = &self.choices;
        let Sides { from, to, .. } = *sides;
        let makes_links = choices.making == Making::HardLinks;
        let is_same = inode(from) == inode(to);
        let same_name = || is_same_name(sides.source, sides.target);
        if is_same && makes_links {
            return Sameness::Done;
        }
        let follows = choices.dereference != Dereference::Never;
        if !follows && from.is_symlink() && to.is_symlink() {
            return if same_name() {
                Sameness::Refused
            } else if is_same && self.backups.is_none() {
                Sameness::Done
            } else {
                Sameness::Harmless
            };
        }
        let is_same_device = Identity::of(from) == Identity::of(to) && self.takes_data(from);
        if follows && !is_same && !is_same_device {
            return Sameness::Harmless;
        }
        // A pipe or a terminal may well be both.
        if follows && !is_cached_kind(from) && !from.is_dir() && self.backups.is_none() {
            return Sameness::Harmless;
        }
        let found = sides
            .source
            .pin()
            .ok()
            .and_then(|file| file.metadata().ok());
        let Some(link) = found else {
            return Sameness::Harmless;
        };
        let (from_itself, to_itself) = if follows {
            (&link, sides.itself)
        } else {
            (from, to)
        };
        if follows
            && from_itself.is_symlink()
            && to_itself.is_symlink()
            && choices.remove_destination
        {
            return Sameness::Harmless;
        }
        let is_same_itself = inode(from_itself) == inode(to_itself);
        let harmless_if = |harmless: bool| match harmless {
            true => Sameness::Harmless,
            false => Sameness::Refused,
        };
        if self.backups.is_some() {
            // The backup holds what would be lost, unless it is the source itself, or the source
            // is a link that would then point to nothing.
            return harmless_if(if is_same_itself {
                !same_name()
            } else {
                !(follows && from_itself.is_symlink() && !to_itself.is_symlink())
            });
        }
        if choices.remove_destination {
            let is_link_elsewhere = is_same_itself && to_itself.nlink() > 1 && !same_name();
            if to_itself.is_symlink() || is_link_elsewhere {
                return Sameness::Harmless;
            }
        }
        if !from_itself.is_symlink() && !to_itself.is_symlink() {
            return harmless_if(!is_same_itself && !is_same_device);
        }
        if choices.making == Making::SymbolicLinks && to_itself.is_symlink() {
            return Sameness::Harmless;
        }
        if !follows {
            let behind = |place: &Place<'_>, itself: &Metadata| {
                if !itself.is_symlink() {
                    return Some(inode(itself));
                }
                let stat =
                    rustix::fs::statat(place.directory, place.name, AtFlags::empty()).ok()?;
                Some((stat.st_dev, stat.st_ino))
            };
            let behind_source = behind(sides.source, from_itself);
            let behind_target = behind(sides.target, to_itself);
            if behind_source.is_none() || behind_source != behind_target {
                return Sameness::Harmless;
            }
            if makes_links {
                return match to_itself.is_symlink() {
                    true => Sameness::Harmless,
                    false => Sameness::Done,
                };
            }
        }
        Sameness::Refused
    }

    /// Moves what is there aside, if that is wanted.
    fn back_up(&mut self, sides: &Sides<'_>) -> Result<Option<Way>, Failure> {
        let Some(backups) = &self.backups else {
            return Ok(None);
        };
        let (source, target) = (sides.source, sides.target);
        if let (Some(name), Some(of)) = (source.name.file_name(), target.name.file_name())
            && backups.would_be(name, of)
        {
            let backup = target.name.with_file_name(name);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            let stat = rustix::fs::statat(target.directory, &backup, flags);
            if stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == inode(sides.from)) {
                return Err(Failure::new(format!(
                    "cannot copy {} to {}: the backup of {1} would destroy the source. Choose \
                     another suffix (-S) or numbered backups (--backup=numbered).",
                    shown(source.path),
                    shown(target.path)
                ))
                .like_cp(format!(
                    "backing up {} might destroy source;  {} not copied",
                    quoted(target.path),
                    quoted(source.path)
                )));
            }
        }
        match backups.make(target) {
            Ok(name) => self.backup = Some(name),
            Err(Errno::NOENT) => {}
            Err(errno) => {
                let error = errno.into();
                let reason = crate::error::reason(&error);
                return Err(Failure::io(Doing::Remove, target.path, &error)
                    .like_cp(format!("cannot backup {}: {reason}", quoted(target.path))));
            }
        }
        Ok(Some(Way::Clear))
    }

    /// Whether what is there is removed before anything is made.
    fn goes_first(&self, sides: &Sides<'_>) -> bool {
        let choices = &self.choices;
        let copies = choices.making != Making::Attributes;
        choices.remove_destination
            || copies && choices.preserve.links && sides.to.nlink() > 1
            || copies && choices.dereference == Dereference::Never && !sides.from.is_file()
    }

    /// Removes what is there.
    pub(super) fn remove(&self, target: &Place<'_>, says_so: bool) -> Result<Way, Failure> {
        match rustix::fs::unlinkat(target.directory, target.name, AtFlags::empty()) {
            Ok(()) if says_so => {
                self.tell(&format!("removed {}", quoted(target.path)));
            }
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Failure::io(Doing::Remove, target.path, &errno.into())),
        }
        Ok(Way::Clear)
    }

    /// A copy inside of a directory does not go through what is no regular file.
    fn link_in_the_way(&self, target: &Place<'_>, itself: &Metadata) -> Result<Way, Failure> {
        if self.choices.force {
            return self.remove(target, false);
        }
        let kind = if itself.is_symlink() {
            "a symbolic link, which may lead out of the destination"
        } else {
            "no regular file"
        };
        let name = shown(target.path);
        Err(Failure::new(format!(
            "cannot overwrite {name}: it is {kind}. Remove it, or use -f to replace it."
        )))
    }

    fn refuse_just_made(&self, source: &Place<'_>, target: &Place<'_>) -> Result<(), Failure> {
        if !self.copies.contains(target.path) {
            return Ok(());
        }
        Err(copied_before(source, target).like_cp(format!(
            "will not copy {} through just-created symlink {}",
            quoted(source.path),
            quoted(target.path)
        )))
    }

    /// Puts a backup back where no copy was made in its place, and says what it is called if not.
    pub(super) fn end_backup(&mut self, target: &Place<'_>, is_made: bool) -> Option<PathBuf> {
        let backup = self.backup.take()?;
        if is_made {
            return Some(shown_path(target, &backup));
        }
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let (from, to) = (backup.as_path(), target.name);
        let _ = rustix::fs::renameat_with(target.directory, from, target.directory, to, flags);
        None
    }
}

/// The steps in which file systems count, from FAT's on.
const RESOLUTIONS_NS: [i128; 6] = [
    2_000_000_000,
    1_000_000_000,
    10_000_000,
    1_000_000,
    1000,
    100,
];

/// The time of the last change of the data since 1970.
fn nanoseconds(metadata: &Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// The coarsest steps that a file's times can have been counted in. The kernel sets that of the
/// last change of its attributes as exactly as the file system can hold it.
fn resolution(metadata: &Metadata) -> i128 {
    let changed = i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec());
    let times = [nanoseconds(metadata), changed];
    let mut steps = RESOLUTIONS_NS.into_iter();
    steps
        .find(|step| times.iter().all(|time| time % step == 0))
        .unwrap_or(1)
}

/// A link that points to nothing: no file is made there, since the user may not know of the
/// link. POSIX wants it to be made.
fn dangling(target: &Place<'_>) -> Result<Way, Failure> {
    if std::env::var_os("POSIXLY_CORRECT").is_some() {
        return Ok(Way::ThroughLink);
    }
    Err(Failure::new(format!(
        "cannot create {}: it is a symbolic link to a file that is not there. Remove the link, or \
         make the file first.",
        shown(target.path)
    ))
    .like_cp(format!(
        "not writing through dangling symlink {}",
        quoted(target.path)
    )))
}

fn same_file(source: &Place<'_>, target: &Place<'_>) -> Failure {
    Failure::new(format!(
        "{} and {} are the same file. Name another destination.",
        shown(source.path),
        shown(target.path)
    ))
    .like_cp(format!(
        "{} and {} are the same file",
        quoted(source.path),
        quoted(target.path)
    ))
}

fn not_replacing(target: &Place<'_>) -> Failure {
    Failure::new(format!(
        "not replacing {}: it is there already. Leave out --update=none-fail to overwrite it.",
        shown(target.path)
    ))
    .like_cp(format!("not replacing {}", quoted(target.path)))
}

fn is_directory(target: &Place<'_>) -> Failure {
    Failure::io(Doing::Write, target.path, &Errno::ISDIR.into()).like_cp(format!(
        "cannot overwrite directory {} with non-directory",
        quoted(target.path)
    ))
}

fn copied_before(source: &Place<'_>, target: &Place<'_>) -> Failure {
    Failure::new(format!(
        "cannot copy {} to {}: that is the copy of another source just made. Copy it under \
         another name.",
        shown(source.path),
        shown(target.path)
    ))
}

fn just_made(source: &Place<'_>, target: &Place<'_>) -> Failure {
    copied_before(source, target).like_cp(format!(
        "will not overwrite just-created {} with {}",
        quoted(target.path),
        quoted(source.path)
    ))
}
