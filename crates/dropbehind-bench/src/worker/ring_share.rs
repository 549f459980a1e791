//! The work of one thread that drives a ring.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use dropbehind::Reading;
use dropbehind_linux::{IoFlags, Ring};

use super::Trouble;
use super::buffer::Buffer;
use super::handle::Handle;
use super::stream::{Share, Stream, verb};
use crate::clock::now_ns;
use crate::job::{Operation, Task};

/// A request under way.
struct Request {
    file: usize,
    offset: u64,
    begun_ns: u64,
    /// Announced to the library.
    reading: Option<Reading>,
}

/// Moves the blocks that `next` names, until it names none.
pub(super) fn ring_share(
    stream: &Stream,
    share: &mut Share,
    stop: &AtomicBool,
    deadline_ns: u64,
) -> Result<(), Trouble> {
    let task = stream.task();
    let mut ring = new_ring(task)?;
    let mut requests: Vec<Option<Request>> = Vec::new();
    requests.resize_with(task.ring_depth as usize, || None);
    loop {
        while let Some(block) = ring.idle() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if now_ns() > deadline_ns {
                share.cut_short = true;
                break;
            }
            let Some(place) = stream.next_place() else {
                break;
            };
            let handle = stream.handle(place.file);
            requests[block] = Some(Request {
                file: place.file,
                offset: place.offset,
                begun_ns: now_ns(),
                reading: submit(&mut ring, handle, task, block, place.offset),
            });
        }
        if ring.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        let waited = ring.wait(|block, result| {
            let Some(request) = requests[block].take() else {
                return;
            };
            if let Err(error) = finish(stream, share, request, result) {
                failed = Some(error);
            }
        });
        match waited {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => {
                other.map_err(|error| Trouble::Failed(format!("waiting for a ring: {error}")))?
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
}

fn new_ring(task: &Task) -> Result<Ring, Trouble> {
    let blocks = (0..u64::from(task.ring_depth)).map(|number| {
        let buffer = Buffer::new(task.block_bytes as usize, number + task.seed + 1);
        buffer.get().into()
    });
    Ring::new(blocks.collect()).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => {
            Trouble::Unavailable("there is no io_uring here".to_owned())
        }
        _ => Trouble::Failed(format!("making a ring: {error}")),
    })
}

fn submit(
    ring: &mut Ring,
    handle: &Handle,
    task: &Task,
    block: usize,
    offset: u64,
) -> Option<Reading> {
    let (fd, flags) = match handle {
        Handle::Plain(file) | Handle::Snippet(file) => (file.as_fd(), IoFlags::NONE),
        Handle::Native(file) => (file.as_fd(), IoFlags::DONTCACHE),
        Handle::Ours(file) => (file.as_fd(), IoFlags::NONE),
        Handle::Attached(file) => (file.get_ref().as_fd(), IoFlags::NONE),
    };
    match task.operation {
        Operation::Write => {
            ring.write(fd, block, offset, flags);
            None
        }
        Operation::Read => {
            let reading = match handle {
                Handle::Attached(file) => Some(file.will_read(offset, task.block_bytes)),
                _ => None,
            };
            ring.read(fd, block, offset, flags);
            reading
        }
    }
}

fn finish(
    stream: &Stream,
    share: &mut Share,
    request: Request,
    result: io::Result<usize>,
) -> Result<(), Trouble> {
    let task = stream.task();
    let handle = stream.handle(request.file);
    let path: &Path = &task.files[request.file];
    let moved = result.and_then(|count| match count as u64 == task.block_bytes {
        true => Ok(()),
        false => Err(io::Error::other("a request was cut short")),
    });
    moved.map_err(|error| handle.trouble(verb(task.operation), path, &error))?;
    if let Handle::Attached(file) = handle {
        match request.reading {
            Some(reading) => file.read_done(reading),
            None if file.wrote(request.offset, task.block_bytes) => file.wait_for_room(),
            None => {}
        }
    }
    share.moved(task, request.begun_ns, now_ns());
    Ok(())
}
