//! `watch --explain`: which rule decides about one file.

use super::super::{print, report};
use super::check;
use crate::error::{Doing, Exit, Failure, shown};
use crate::size;
use dropbehind_linux::disk_of;
use dropbehind_observer::left_alone;
use dropbehind_observer::rules::Candidate;
use dropbehind_observer::rules_file::RulesFile;
use nix::libc::O_PATH;
use std::fs::{File, FileType, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(super) fn run(config: &Path, path: &Path, program: Option<&str>) -> Exit {
    let rules = match check::read(config) {
        Ok(rules) => rules,
        Err(exit) => return exit,
    };
    match explain(&rules, path, program) {
        Ok(text) => print(text.as_bytes()),
        Err(failure) => report(&failure),
    }
}

fn explain(rules: &RulesFile, path: &Path, program: Option<&str>) -> Result<String, Failure> {
    let (path, metadata) = find(path).map_err(|error| Failure::io(Doing::Open, path, &error))?;
    let kind = metadata.as_ref().map(Metadata::file_type);
    let is = |of: fn(&FileType) -> bool| kind.as_ref().is_some_and(of);
    let name = shown(&path);
    if is(FileType::is_dir) {
        return Err(Failure::new(format!(
            "{name} is a folder, and rules are about files. Name a file in it, which need not be \
             there."
        )));
    }
    let is_device = is(FileType::is_block_device);
    if kind.is_some() && !is_device && !is(FileType::is_file) {
        return Err(Failure::new(format!(
            "{name} is neither a file nor a block device, and never observed. Name another one."
        )));
    }
    let disk = disk_name(&path, is_device);
    let bytes = metadata.map_or(0, |metadata| metadata.len());
    let size_bytes = (!is_device).then_some(bytes);
    let state = match (is_device, kind) {
        (true, _) => "a block device".to_owned(),
        (false, Some(_)) => size::show(bytes),
        (false, None) => "not there yet, and so empty when it is opened".to_owned(),
    };
    let title = format!("{name} (disk {}; {state})\n", shown(&disk));
    let alone = if is_device {
        None
    } else {
        left_alone(&path, rules).ok().flatten()
    };
    if let Some(why) = alone {
        return Ok(format!("{title}left alone: {why}\n"));
    }
    let candidate = Candidate {
        path: &path,
        process: 0,
        name: None,
        size_bytes,
        disk: &disk,
    };
    Ok(title + &rules.explain(candidate, program))
}

/// A file's path without links, and what is there, if anything is.
fn find(path: &Path) -> io::Result<(PathBuf, Option<Metadata>)> {
    let real = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let absolute = std::path::absolute(path)?;
            // Its folder may be a link.
            let folder = absolute.parent().map(std::fs::canonicalize);
            return Ok(match (folder, absolute.file_name()) {
                (Some(Ok(folder)), Some(name)) => (folder.join(name), None),
                _ => (absolute, None),
            });
        }
        Err(error) => return Err(error),
    };
    let metadata = std::fs::metadata(&real)?;
    Ok((real, Some(metadata)))
}

/// The disk of a file, or of the folder that it would be in; empty if that cannot be told.
fn disk_name(path: &Path, is_device: bool) -> String {
    let flags = if is_device { O_PATH } else { 0 };
    let open = |path| File::options().read(true).custom_flags(flags).open(path);
    let there = path.ancestors().find_map(|path| open(path).ok());
    let disk = there.and_then(|there| disk_of(there.as_fd()).ok());
    disk.map_or_else(String::new, |disk| disk.name)
}
