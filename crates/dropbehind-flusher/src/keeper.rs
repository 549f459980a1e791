//! The keeper: opens the flusher's own descriptions.
//!
//! It does nothing that can block on a disk, unless all descriptors are in use. So a program that
//! closes a file it has just written mostly waits for a wake-up until the flusher has its own
//! description.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dropbehind_linux::{Description, Sharing, futex_wait, futex_wake, reopen, thread_id};
use dropbehind_policy::residency::ResidencyMap;

use crate::disk_thread::{Attachment, Entry, Source};
use crate::lock;
use crate::own_file::OwnFile;
use crate::own_file::source::OwnSource;
use crate::totals::OpenFile;
use crate::trace::Label;

/// While all descriptors are in use, a file waits for one for this long. Its program, which closes
/// it, waits with it.
const DESCRIPTOR_PATIENCE: Duration = Duration::from_secs(2);
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Keeper {
    requests: Mutex<VecDeque<Request>>,
    bell: AtomicU32,
    stopping: AtomicBool,
    /// Requests that are queued or under way.
    pending: AtomicU32,
    own_table: bool,
    notes: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Request {
    file: Arc<OwnFile>,
    fd: RawFd,
    /// The thread in whose descriptor table `fd` is a number.
    thread: i32,
}

impl Keeper {
    pub(crate) fn start(own_table: bool) -> io::Result<Arc<Keeper>> {
        let keeper = Arc::new(Keeper {
            requests: Mutex::default(),
            bell: AtomicU32::new(0),
            stopping: AtomicBool::new(false),
            pending: AtomicU32::new(0),
            own_table,
            notes: Mutex::default(),
        });
        let own = Arc::clone(&keeper);
        spawn("dropbehind-keep", move || own.run())?;
        Ok(keeper)
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        lock(&self.notes).clone()
    }

    pub(crate) fn note(&self, note: String) {
        let mut notes = lock(&self.notes);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub(crate) fn register(&self, file: Arc<OwnFile>, fd: RawFd) {
        let thread = thread_id();
        self.pending.fetch_add(1, Ordering::SeqCst);
        lock(&self.requests).push_back(Request { file, fd, thread });
        self.ring();
    }

    /// Returns whether any description is still to be opened.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.ring();
    }

    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        let _ = futex_wake(&self.bell, 1);
    }

    fn run(self: Arc<Self>) {
        let unshared = match self.own_table {
            true => dropbehind_linux::unshare_descriptor_table(),
            false => Ok(()),
        };
        if let Err(error) = unshared {
            lock(&self.notes).push(format!(
                "no descriptor table of our own ({error}): descriptors are opened in the \
                 program's, and closing one releases the program's record locks on that file"
            ));
        }
        let mut waits = true;
        loop {
            let seen = self.bell.load(Ordering::SeqCst);
            let next = lock(&self.requests).pop_front();
            match next {
                Some(request) => {
                    self.attach(request, &mut waits);
                    self.pending.fetch_sub(1, Ordering::SeqCst);
                }
                None if self.stopping.load(Ordering::SeqCst) => return,
                None => {
                    let _ = futex_wait(&self.bell, seen, None);
                }
            }
        }
    }

    /// Opens a file again. While all descriptors are in use, has the disks finish closed files and
    /// waits for them, unless that has taken too long since the last file was opened.
    fn reopen(&self, request: &Request, waits: &mut bool) -> io::Result<(OwnedFd, Sharing)> {
        let began = Instant::now();
        loop {
            let opened = reopen(request.thread, request.fd, request.file.file_id);
            let lacks_descriptors = |error: &io::Error| {
                matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
            };
            if !*waits || !opened.as_ref().is_err_and(lacks_descriptors) {
                *waits |= opened.is_ok();
                return opened;
            }
            // Each time, since more files may have been closed.
            request.file.finish_closed_files();
            let ends = self.stopping.load(Ordering::SeqCst);
            *waits = !ends && began.elapsed() < DESCRIPTOR_PATIENCE;
            std::thread::sleep(DESCRIPTOR_PAUSE);
        }
    }

    fn attach(&self, request: Request, waits: &mut bool) {
        let opened = self.reopen(&request, waits);
        let Request { file, .. } = request;
        let (description, sharing) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let note =
                    format!("a file could not be opened again ({error}): it is left to the kernel");
                return refuse(&file, note);
            }
        };
        let disk = Arc::clone(&file.disk);
        let source = OwnSource::new(Arc::clone(&file), description.as_fd(), sharing);
        let attachment = Attachment {
            number: file.number,
            config: file.config(),
            before: ResidencyMap::unknown(),
            entry: Entry {
                description: Arc::new(Description::held(description)),
                source: Source::Own(source),
                label: Label::default(),
            },
        };
        match disk.attach(attachment) {
            Ok(()) => file.registered(true),
            Err(error) => {
                let note = format!("no thread for the disk could be started ({error})");
                refuse(&file, note);
            }
        }
    }
}

/// Leaves a file to the kernel.
fn refuse(file: &Arc<OwnFile>, note: String) {
    file.disk.note(note);
    let left = OpenFile::Own(Arc::clone(file));
    lock(&file.disk.totals).open(file.number, left);
    file.registered(false);
}

/// Starts a thread on which none of the program's signal handlers run.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let _blocked = dropbehind_linux::SignalsBlocked::new()?;
    std::thread::Builder::new()
        .name(name.chars().take(15).collect())
        .spawn(body)
        .map(drop)
}
