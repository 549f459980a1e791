//! A disk with a place that cannot be written.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dropbehind_testbed::slow_disk::RequestKind;
use dropbehind_testbed::{Fs, MountedFs, Need, SlowDisk, SlowDiskOptions, pattern, residency};

use crate::common::{KIB, MIB, write_pattern};
use crate::twins::{Log, Twin};

/// A disk with a file whose middle cannot be written. The file system can write all of its
/// own blocks, so only the data's errors count.
pub(crate) struct BadSpot {
    pub(crate) path: PathBuf,
    _mounted: Option<MountedFs>,
    pub(crate) disk: SlowDisk,
}

impl BadSpot {
    pub(crate) const FILE_BYTES: u64 = 24 * MIB;

    pub(crate) fn needs(filesystem: Option<Fs>) -> Vec<Need> {
        let mut needs = SlowDisk::needs();
        needs.extend(filesystem.into_iter().flat_map(Fs::needs));
        needs.push(Need::Cachestat);
        needs
    }

    pub(crate) fn new(filesystem: Option<Fs>) -> BadSpot {
        let disk = SlowDisk::new(SlowDiskOptions {
            size_bytes: 384 * MIB,
            ..SlowDiskOptions::default()
        })
        .unwrap();
        let mounted = filesystem.map(|filesystem| disk.mount(filesystem).unwrap());
        let path = mounted
            .as_ref()
            .map_or(disk.device().to_owned(), |mounted| mounted.file("data"));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(mounted.is_some())
            .truncate(false)
            .open(&path)
            .unwrap();
        disk.forget_requests().unwrap();
        write_pattern(&mut file, 1, 0, Self::FILE_BYTES, MIB);
        file.sync_all().unwrap();
        // Nearly everything written is the file's, so the middle of it is, too.
        let mut written = disk.requests().unwrap();
        written.retain(|one| one.kind == RequestKind::Write && one.length >= 64 * KIB);
        written.sort_by_key(|one| one.offset);
        let middle = &written[written.len() / 2];
        disk.add_bad_range(middle.offset..middle.offset + 64 * KIB)
            .unwrap();
        residency::evict(&path);
        BadSpot {
            path,
            _mounted: mounted,
            disk,
        }
    }

    pub(crate) fn overwrite(log: &mut Log, file: &mut Twin) {
        for block in 0..Self::FILE_BYTES / MIB {
            let data = pattern::filled(2, block * MIB, MIB as usize);
            if let Err(error) = file.write_all(&data) {
                log.note_done("write", Err(error));
            }
        }
    }

    /// Logs the blocks that don't read back as `overwrite` wrote them. The bad spot cannot be
    /// read either.
    pub(crate) fn note_wrong_blocks(log: &mut Log, path: &Path) {
        let file = fs::File::open(path).unwrap();
        let wrong = (0..Self::FILE_BYTES).step_by(MIB as usize).filter(|&at| {
            let mut data = vec![0; MIB as usize];
            let read = file.read_exact_at(&mut data, at);
            read.is_err() || pattern::check(2, at, &data).is_err()
        });
        log.note("blocks that are not read back", Ok(wrong.count()));
    }
}
