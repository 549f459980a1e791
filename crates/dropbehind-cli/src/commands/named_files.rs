//! The files that a command line names: each by itself, in a list, or as a tree.

use crate::error::{Doing, Failure, shown};
use crate::input::check_open;
use clap::Args;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, openat2};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The arguments that name files.
#[derive(Debug, Args)]
pub(crate) struct NamedFiles {
    /// The files or block devices; with -r also directories
    #[arg(
        value_name = "FILE",
        required_unless_present = "files0_from",
        conflicts_with = "files0_from",
        value_hint = clap::ValueHint::AnyPath
    )]
    files: Vec<PathBuf>,
    /// All files in the directories that are named, too; links in them are not followed
    #[arg(short, long)]
    recursive: bool,
    /// Take the names from this file, where each ends with a zero byte (find -print0); - is
    /// standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files0_from: Option<PathBuf>,
}

/// A file to work on, or why there is none.
pub(crate) type Named = Result<(PathBuf, File), Failure>;

impl NamedFiles {
    /// The names, in their order.
    pub(crate) fn names(&self) -> Result<Vec<PathBuf>, Failure> {
        let Some(list) = &self.files0_from else {
            return Ok(self.files.clone());
        };
        let failed = |error: io::Error| Failure::io(Doing::Read, list, &error);
        let mut names = Vec::new();
        match list.as_os_str() == "-" {
            true => check_open(0)
                .and_then(|()| io::stdin().read_to_end(&mut names))
                .map_err(failed)?,
            false => File::open(list)
                .and_then(|mut list| list.read_to_end(&mut names))
                .map_err(failed)?,
        };
        let names = names.split(|&byte| byte == 0);
        let names = names.filter(|name| !name.is_empty());
        Ok(names
            .map(|name| PathBuf::from(OsString::from_vec(name.to_vec())))
            .collect())
    }

    /// Goes through what this name stands for: the file itself or, where that is asked for, all
    /// files of the tree. What is neither a file nor a block device is passed over in trees.
    pub(crate) fn each(&self, name: &Path, mut each: impl FnMut(Named)) {
        if !self.recursive || !name.is_dir() {
            return each(super::stat::open(name).map(|file| (name.to_owned(), file)));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match rustix::fs::open(name, flags, Mode::empty()) {
            Ok(root) => root,
            Err(errno) => return each(Err(Failure::io(Doing::Open, name, &errno.into()))),
        };
        let mut ahead = vec![PathBuf::from(".")];
        while let Some(below) = ahead.pop() {
            let path = || name.join(below.strip_prefix(".").unwrap_or(&below));
            let listed = directory(&root, &below).and_then(|listed| entries(&listed));
            let entries = match listed {
                Ok(entries) => entries,
                Err(error) => {
                    each(Err(Failure::io(Doing::Open, &path(), &error)));
                    continue;
                }
            };
            for (entry, kind) in entries {
                let (below, path) = (below.join(&entry), path().join(&entry));
                match kind {
                    FileType::Directory => ahead.push(below),
                    FileType::RegularFile => match file(&root, &below) {
                        Ok(None) => {}
                        Ok(Some(file)) => each(Ok((path, file))),
                        Err(error) => each(Err(Failure::io(Doing::Open, &path, &error))),
                    },
                    _ => {}
                }
            }
        }
    }
}

/// Whoever owns the tree may change it meanwhile, but leads us nowhere else.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

fn directory(root: &OwnedFd, below: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(root, below, flags, Mode::empty(), INSIDE)?)
}

/// The names in a directory, in order, and what they were when it was listed.
fn entries(directory: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
        if name.as_bytes() == b"." || name.as_bytes() == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                let stat = rustix::fs::statat(directory, &name, flags);
                stat.map_or(FileType::Unknown, |stat| {
                    FileType::from_raw_mode(stat.st_mode)
                })
            }
            known => known,
        };
        entries.push((name, kind));
    }
    entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}

/// Opens a file of the tree; `None` if something else is there by now.
fn file(root: &OwnedFd, below: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let named = File::from(openat2(root, below, flags, Mode::empty(), INSIDE)?);
    if !named.metadata()?.is_file() {
        return Ok(None);
    }
    File::open(crate::place::proc_path(named.as_fd())).map(Some)
}

/// The sentence about files whose pages we may not count, if there were any.
pub(crate) fn uncounted(files: &[PathBuf]) -> Option<String> {
    let which = match files {
        [] => return None,
        [one] => shown(one),
        [one, ..] => format!("{} files, such as {},", files.len(), shown(one)),
    };
    Some(format!(
        "what is cached of {which} cannot be counted: the kernel shows that only to a file's owner \
         and to those who may write to it. Run this as one of them, or as root"
    ))
}
