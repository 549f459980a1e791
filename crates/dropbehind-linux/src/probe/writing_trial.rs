//! What is tried by writing, on a scratch file.

use super::Probe;
use super::blocks::{direct_io, direct_io_bytes, fiemap};
use super::page_count::{Counting, PATIENCE, stayed, wait_until};
use super::scratch_file::ScratchFile;
use super::support::Support;
use super::threads::{descriptor_table, io_priority, own_description};
use super::uncached_io::dontcache_read;
use crate::advice::drop_clean;
use crate::cachestat::{CacheStat, cachestat};
use crate::disk::disk_of;
use crate::file::file_info;
use crate::kernel::kernel_version;
use crate::mincore::resident_ranges;
use crate::writeback::start_writeback;
use std::io;
use std::path::Path;

impl ScratchFile {
    /// Tries everything; `directory` is where the file is.
    pub(super) fn probe(&self, directory: &Path) -> io::Result<Probe> {
        let fd = self.fd();
        let info = file_info(fd)?;
        let alignment = direct_io_bytes(info.direct_io_alignment, info.kind, fd);

        // In this order: each step leaves the file as the next one needs it, from dirty to
        // clean to not cached.
        let cachestat = self.cachestat();
        let mincore = self.mincore();
        let counting = if cachestat.works() {
            Counting::Cachestat
        } else if mincore.works() {
            Counting::Mincore
        } else {
            Counting::Impossible
        };
        let sync_file_range = self.sync_file_range(&cachestat);
        self.clean();
        let fiemap = fiemap(fd);
        let fadvise_dontneed = self.fadvise_dontneed(counting);
        let dontcache_read = dontcache_read(fd, 0, self.len(), counting);
        // Pages that a read failed to drop must not count against the write.
        let _ = drop_clean(fd, 0, 0);
        let dontcache_overwrite = self.dontcache_overwrite(counting);
        let dontcache_write = self.dontcache_write(directory, counting);
        Ok(Probe {
            kernel: kernel_version(),
            filesystem: info.filesystem,
            disk: disk_of(fd)?,
            cachestat,
            mincore,
            sync_file_range,
            fadvise_dontneed,
            dontcache_write,
            dontcache_overwrite,
            dontcache_read,
            fiemap,
            direct_io: direct_io(fd, alignment),
            own_description: own_description(fd, info.id),
            descriptor_table: descriptor_table(fd),
            io_priority: io_priority(),
        })
    }

    fn cachestat(&self) -> Support {
        match cachestat(self.fd(), 0, 0) {
            Ok(CacheStat {
                cached_pages: 0, ..
            }) => Support::ineffective("counts nothing of what was just written"),
            Ok(_) => Support::Works,
            Err(error) => Support::missing(&error),
        }
    }

    fn mincore(&self) -> Support {
        match resident_ranges(self.fd(), 0, self.len()) {
            Ok(ranges) if ranges.is_empty() => {
                Support::ineffective("sees nothing of what was just written")
            }
            Ok(_) => Support::Works,
            Err(error) => Support::missing(&error),
        }
    }

    /// Call it while the file is dirty.
    fn sync_file_range(&self, counts: &Support) -> Support {
        let dirty = || cachestat(self.fd(), 0, 0).map_or(0, |stat| stat.dirty_pages);
        let before = dirty();
        if let Err(error) = start_writeback(self.fd(), 0, 0) {
            return Support::missing(&error);
        }
        match counts {
            Support::Works if before == 0 => {
                Support::ineffective("what was just written is not dirty")
            }
            Support::Works => {
                let is_started = wait_until(PATIENCE, || {
                    // Pages that are locked or under writeback at that moment are skipped.
                    let _ = start_writeback(self.fd(), 0, 0);
                    dirty() == 0
                });
                if is_started {
                    Support::Works
                } else {
                    Support::ineffective(format!("{} of {before} pages stay dirty", dirty()))
                }
            }
            // Both calls look at the descriptor's own mapping, which is empty on overlayfs:
            // there, the layer's pages were seen to stay dirty.
            Support::Ineffective { .. } => {
                Support::ineffective("the file's pages are not where the call looks for them")
            }
            Support::Missing { .. } | Support::Untested { .. } => {
                Support::untested("accepted, but its effect cannot be seen without cachestat")
            }
        }
    }

    /// Call it while the file is clean and cached.
    fn fadvise_dontneed(&self, counting: Counting) -> Support {
        let Some(before) = counting.cached_pages(self.fd(), 0, self.len()) else {
            return Support::of(drop_clean(self.fd(), 0, 0));
        };
        let mut result = Ok(());
        let gone = wait_until(PATIENCE, || {
            result = drop_clean(self.fd(), 0, 0);
            result.is_err() || counting.is_empty(self.fd(), 0, self.len())
        });
        let after = counting.cached_pages(self.fd(), 0, self.len());
        match (result, after) {
            (Err(error), _) => Support::missing(&error),
            (Ok(()), _) if before == 0 => Support::untested("nothing is cached after a write"),
            (Ok(()), _) if gone => Support::Works,
            (Ok(()), after) => Support::ineffective(stayed(after, before)),
        }
    }
}
