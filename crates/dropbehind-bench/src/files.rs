//! Files before a case: made, filled, and out of the cache.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::scenario::{Case, FilePlan};

const CHUNK_BYTES: u64 = 1 << 20;
/// Filling keeps its own dirty pages low.
const BATCH_BYTES: u64 = 16 << 20;

/// A folder for the benchmark's files, removed on drop.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(parent: &Path) -> Result<Self, Error> {
        let path = parent.join(format!("dropbehind-bench-{}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => Ok(Self(path)),
            Err(error) => Err(Error::io("making the folder", &path, &error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the files in it.
    pub(crate) fn clear(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            // What cannot be removed is met again when the folder goes.
            let _ = fs::remove_file(entry.path());
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let path = self.0.display();
            eprintln!("dropbehind: {path} could not be removed: {error}. Remove it by hand.");
        }
    }
}

/// Makes what the case wants to find: new, empty files, and full ones, which
/// stay from case to case.
pub(crate) fn prepare(case: &Case) -> Result<(), Error> {
    for plan in &case.files {
        let failed = |error: io::Error| Error::io("preparing", &plan.path, &error);
        if plan.bytes == 0 {
            match fs::remove_file(&plan.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => drop(File::create_new(&plan.path).map_err(failed)?),
            }
        } else if !is_full(plan) {
            fill(&plan.path, plan.bytes).map_err(failed)?;
        }
    }
    Ok(())
}

fn is_full(plan: &FilePlan) -> bool {
    fs::metadata(&plan.path).is_ok_and(|metadata| metadata.len() == plan.bytes)
}

/// Writes a file or device full, with data that does not compress.
pub(crate) fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let block = noise(CHUNK_BYTES as usize);
    let mut at = 0;
    while at < bytes {
        let length = CHUNK_BYTES.min(bytes - at);
        file.write_all(&block[..length as usize])?;
        at += length;
        if at % BATCH_BYTES == 0 {
            // A head start for the sync; where it is missing, the sync does all.
            let _ = dropbehind_linux::start_writeback(file.as_fd(), at - BATCH_BYTES, BATCH_BYTES);
            let _ = dropbehind_linux::drop_clean(file.as_fd(), 0, at);
        }
    }
    file.sync_all()?;
    dropbehind_linux::drop_clean(file.as_fd(), 0, 0)
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = Vec::with_capacity(bytes);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}

/// How much a case needs on the disk.
pub(crate) fn needed_bytes(case: &Case) -> u64 {
    let full: u64 = case.files.iter().map(|file| file.bytes).sum();
    let tasks = case.processes.iter().flat_map(|process| &process.tasks);
    let written = tasks.filter(|task| task.operation == crate::job::Operation::Write);
    full + written.map(|task| task.bytes).sum::<u64>()
}

/// What is free where a file would be.
pub(crate) fn free_bytes(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}
