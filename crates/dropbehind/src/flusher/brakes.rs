//! Watches what is unwritten of a disk's observed files, and has their writers
//! held beyond a limit.
//!
//! That takes a thread of its own: the disk's waits for the disk, and just when
//! much is on its way.

use std::sync::Arc;
use std::time::Duration;

use super::brake::Brake;
use super::processor_time::processor_time;
use super::{DiskHandle, spawn};
use crate::handle::lock;

/// A file of which this share of the limit is unwritten is watched.
const WATCHED: u64 = 8;
/// A file is watched for so long after it was used, or had that much unwritten.
/// When nothing has happened to it for as long, the next use is told.
const CALM: Duration = Duration::from_secs(1);
/// Files are counted again as soon as writers can have come to the limit, at this
/// speed,
const WRITERS_BYTES_PER_MS: u128 = 4 << 20;
/// but no more often than this,
const LOOK_MIN: Duration = Duration::from_millis(1);
/// no less often than this,
const LOOK_MAX: Duration = Duration::from_millis(8);
/// and in no more than one part in so many of the time.
const LOOK_SHARE: u32 = 25;

/// The brakes of a disk's files.
#[derive(Debug, Default)]
pub(super) struct Brakes {
    files: Vec<Arc<Brake>>,
    thread_runs: bool,
}

impl DiskHandle {
    /// Watches a file from now on, until its brake is stopped.
    pub(super) fn add_brake(self: &Arc<Self>, brake: &Arc<Brake>) {
        lock(&self.brakes).files.push(Arc::clone(brake));
        self.watch_writers(brake);
    }

    /// A file is in use.
    pub(super) fn watch_writers(self: &Arc<Self>, brake: &Brake) {
        brake.watch_for(CALM);
        let mut brakes = lock(&self.brakes);
        if !brakes.thread_runs {
            let disk = Arc::clone(self);
            brakes.thread_runs = spawn("dropbehind-brak", move || disk.watch_all()).is_ok();
        }
    }

    /// So much of a file was unwritten when the disk's thread counted it.
    pub(super) fn saw_unwritten(self: &Arc<Self>, brake: &Brake, unwritten_bytes: u64) {
        if brake.is_watched() {
            return;
        }
        brake.counted(unwritten_bytes);
        if unwritten_bytes >= brake.limit_bytes() / WATCHED && !brake.is_over() {
            self.watch_writers(brake);
        }
    }

    fn watch_all(self: Arc<Self>) {
        loop {
            let before = processor_time();
            let mut watched = Vec::new();
            let mut sum_bytes = 0;
            {
                let mut brakes = lock(&self.brakes);
                brakes.files.retain(|brake| !brake.is_over());
                for brake in &brakes.files {
                    if brake.is_watched() {
                        watched.push(Arc::clone(brake));
                    } else {
                        sum_bytes += brake.unwritten_bytes();
                    }
                }
                if watched.is_empty() {
                    brakes.thread_runs = false;
                    return;
                }
            }
            for brake in &watched {
                let own_bytes = brake.count();
                if own_bytes >= brake.limit_bytes() / WATCHED {
                    brake.watch_for(CALM);
                }
                sum_bytes += own_bytes;
            }
            let cost = processor_time() - before;
            let mut pause = LOOK_MAX;
            for brake in watched {
                let room_bytes = brake.limit_bytes().saturating_sub(sum_bytes);
                let room_ns = u128::from(room_bytes) * 1_000_000 / WRITERS_BYTES_PER_MS;
                pause = pause.min(Duration::from_nanos(room_ns as u64));
                let share_bytes = brake.share_bytes(sum_bytes);
                if brake.unwritten_bytes() > share_bytes && brake.try_take() {
                    self.hold_writers(brake, share_bytes);
                }
            }
            std::thread::sleep(pause.max(LOOK_MIN).max(cost * LOOK_SHARE));
        }
    }

    fn hold_writers(self: &Arc<Self>, brake: Arc<Brake>, share_bytes: u64) {
        let (held, disk) = (Arc::clone(&brake), Arc::clone(self));
        let started = spawn("dropbehind-hold", move || {
            if let Err(error) = held.hold(share_bytes) {
                disk.note(format!(
                    "writers of some files on {} are not held back where they outrun the disk: \
                     {error}",
                    disk.name()
                ));
            }
        });
        if started.is_err() {
            brake.let_go();
        }
    }
}
