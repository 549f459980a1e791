//! Watches how much of a disk's observed files is unwritten, and has their writers held
//! beyond a limit. Whoever closes a file and opens another one is not held by that, so an
//! [`ExcessSink`] is told.
//!
//! That takes a thread of its own: the disk's thread waits for the disk just when much is on
//! its way.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use dropbehind_policy::brake::{COUNT_MAX_NS, COUNT_MIN_NS};

use super::brake::{Brake, Taken, pause};
use super::unwritten::UnwrittenSum;
use crate::disk_handle::DiskHandle;
use crate::keeper::spawn;
use crate::lock;
use dropbehind_linux::processor_time;

/// A file is watched for this long after it was used or had much unwritten. If nothing
/// happens to it for as long, the next use is reported.
const CALM: Duration = Duration::from_secs(1);
/// The most files of a disk whose writers are held at once. Each takes two threads, and a user
/// who keeps a file's lock keeps them for ever.
const HELD: usize = 256;

/// The brakes of a disk's files.
#[derive(Debug, Default)]
pub(crate) struct Brakes {
    watch: Mutex<Watch>,
    /// Signals that there is another file to watch.
    news: Condvar,
    /// The unwritten bytes of all these files.
    pub(super) sum: Arc<UnwrittenSum>,
    /// Shared by as many threads as hold writers.
    held: Arc<()>,
}

#[derive(Debug, Default)]
struct Watch {
    files: Vec<Arc<Brake>>,
    thread_runs: bool,
    /// Set along with the signal, so that none is missed.
    news: bool,
}

impl Brakes {
    /// The files to count. `None` if there are none; the thread then counts as ended.
    fn watched(&self) -> Option<Vec<Arc<Brake>>> {
        let mut watch = lock(&self.watch);
        watch.files.retain(|brake| !brake.is_over());
        let watched: Vec<_> = watch
            .files
            .iter()
            .filter(|brake| brake.is_watched())
            .cloned()
            .collect();
        watch.thread_runs = !watched.is_empty();
        watch.thread_runs.then_some(watched)
    }

    /// Sleeps for `time`, or until there is another file to watch.
    fn pause(&self, time: Duration) {
        // Never count more often than this.
        let least = Duration::from_nanos(COUNT_MIN_NS);
        std::thread::sleep(least);
        let watch = lock(&self.watch);
        let waited = self
            .news
            .wait_timeout_while(watch, time.saturating_sub(least), |watch| !watch.news);
        let (mut watch, _) = waited.unwrap_or_else(PoisonError::into_inner);
        watch.news = false;
    }
}

/// Lets another thread start if the watching one panics.
struct Watching<'a> {
    brakes: &'a Brakes,
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.brakes.watch).thread_runs = false;
        }
    }
}

impl DiskHandle {
    /// Watches a file from now on, until its brake is stopped.
    pub(crate) fn add_brake(self: &Arc<Self>, brake: &Arc<Brake>) {
        lock(&self.brakes.watch).files.push(Arc::clone(brake));
        self.watch_writers(brake);
    }

    /// Watches the writers of a file, which is in use.
    pub(crate) fn watch_writers(self: &Arc<Self>, brake: &Brake) {
        let watched = brake.is_watched();
        brake.watch_for(CALM);
        let mut watch = lock(&self.brakes.watch);
        if !watch.thread_runs {
            let disk = Arc::clone(self);
            watch.thread_runs = spawn("dropbehind-brak", move || disk.watch_all()).is_ok();
        } else if !watched {
            watch.news = true;
            self.brakes.news.notify_one();
        }
    }

    /// Records how much of a file the disk's thread found unwritten, and whether it is written
    /// behind its writer.
    pub(crate) fn saw_unwritten(
        self: &Arc<Self>,
        brake: &Brake,
        unwritten_bytes: u64,
        written_behind: bool,
    ) {
        brake.is_written_behind(written_behind);
        if brake.is_over() || brake.is_watched() && brake.is_counted() {
            return;
        }
        brake.counted(unwritten_bytes);
        if brake.load().wants_watching() {
            self.watch_writers(brake);
        }
    }

    fn watch_all(self: Arc<Self>) {
        let _watching = Watching {
            brakes: &self.brakes,
        };
        while let Some(watched) = self.brakes.watched() {
            let pause = self.look_at_writers(&watched);
            self.brakes.pause(pause);
        }
    }

    /// Starts holding the writers that should wait. Returns the time until the next look.
    fn look_at_writers(self: &Arc<Self>, watched: &[Arc<Brake>]) -> Duration {
        let before = processor_time();
        let mut open = Vec::new();
        for brake in watched {
            let found = brake.count();
            open.extend(found.filter(|_| brake.is_open()).map(|_| brake));
            if brake.load().wants_watching() {
                brake.watch_for(CALM);
            }
        }
        let cost = processor_time() - before;
        self.tell_excess(watched);
        let mut room_ns = COUNT_MAX_NS;
        for brake in open {
            room_ns = room_ns.min(brake.load().room_ns());
            if brake.load().is_beyond()
                && let Some(taken) = brake.try_take()
            {
                self.hold_writers(taken);
            }
        }
        let near = watched.iter().any(|brake| brake.load().is_near());
        pause(cost, room_ns, near)
    }

    fn tell_excess(&self, watched: &[Arc<Brake>]) {
        let Some(sink) = &self.excess else { return };
        let closed = watched.iter().filter(|brake| !brake.is_open());
        let closed_bytes: u64 = closed.map(|brake| brake.load().own_bytes).sum();
        for brake in watched {
            let devices = brake.devices_in_excess(closed_bytes);
            devices.iter().for_each(|device| sink.tell(*device));
        }
    }

    fn hold_writers(self: &Arc<Self>, taken: Taken) {
        // The threads that hold writers have the others. Nobody but this thread takes one.
        let place = Arc::clone(&self.brakes.held);
        if Arc::strong_count(&place) > 1 + HELD {
            return self.note(format!(
                "writers of some files on {} are not held back where they outrun the disk: as \
                 many writers are held as may be at once",
                self.name()
            ));
        }
        let disk = Arc::clone(self);
        // If no thread can be started, dropping `taken` gives the right back.
        let _ = spawn("dropbehind-hold", move || {
            let _place = place;
            if let Err(error) = taken.hold() {
                disk.note(format!(
                    "writers of some files on {} are not held back where they outrun the disk: \
                     {error}",
                    disk.name()
                ));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_and_panics_is_followed_by_another() {
        let brakes = Arc::new(Brakes::default());
        lock(&brakes.watch).thread_runs = true;
        let watched = Arc::clone(&brakes);
        let watcher = std::thread::spawn(move || {
            let _watching = Watching { brakes: &watched };
            panic!("as a fault would");
        });
        assert!(watcher.join().is_err());
        assert!(!lock(&brakes.watch).thread_runs);
    }
}
