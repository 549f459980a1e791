//! A ring of reads and writes: io_uring(7), since Linux 5.1; the operations since 5.6.
//!
//! It owns its blocks of memory, which the kernel fills and reads while requests are under
//! way. Whoever wants more of io_uring uses the crate `io-uring` itself.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use crate::vectored::IoFlags;

/// A ring, and as many blocks as it may have requests under way.
pub struct Ring {
    ring: IoUring,
    blocks: Vec<Box<[u8]>>,
    /// Whether a request of this block is under way, or waits to be submitted.
    busy: Vec<bool>,
}

impl Ring {
    /// A ring with these blocks, one request for each at a time.
    ///
    /// # Errors
    /// Those of `io_uring_setup(2)`: `ENOSYS` and `EPERM` where there is none, `ENOMEM` beyond the
    /// limit on locked memory; `EINVAL` without blocks.
    pub fn new(blocks: Vec<Box<[u8]>>) -> io::Result<Ring> {
        let depth = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        Ok(Ring {
            ring: IoUring::new(depth)?,
            busy: vec![false; blocks.len()],
            blocks,
        })
    }

    /// The number of a block that no request uses.
    pub fn idle(&self) -> Option<usize> {
        self.busy.iter().position(|busy| !busy)
    }

    /// Returns whether no request is under way.
    pub fn is_empty(&self) -> bool {
        self.busy.iter().all(|busy| !busy)
    }

    /// Adds a write of an idle block.
    ///
    /// # Panics
    /// If the block is in use.
    pub fn write(&mut self, fd: BorrowedFd<'_>, block: usize, offset: u64, flags: IoFlags) {
        let memory = &self.blocks[block];
        let length = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        let write = opcode::Write::new(types::Fd(fd.as_raw_fd()), memory.as_ptr(), length)
            .offset(offset)
            .rw_flags(flags.bits().cast_signed());
        self.push(write.build(), block);
    }

    /// Adds a read into an idle block.
    ///
    /// # Panics
    /// If the block is in use.
    pub fn read(&mut self, fd: BorrowedFd<'_>, block: usize, offset: u64, flags: IoFlags) {
        let memory = &mut self.blocks[block];
        let length = u32::try_from(memory.len()).unwrap_or(u32::MAX);
        let read = opcode::Read::new(types::Fd(fd.as_raw_fd()), memory.as_mut_ptr(), length)
            .offset(offset)
            .rw_flags(flags.bits().cast_signed());
        self.push(read.build(), block);
    }

    fn push(&mut self, entry: squeue::Entry, block: usize) {
        assert!(!self.busy[block], "block {block} is in use");
        let entry = entry.user_data(block as u64);
        // SAFETY: the block belongs to the ring, is on the heap, and is neither freed nor lent
        // while it is busy: `drop` waits for all requests, or leaks the blocks.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue has an entry for each block");
        self.busy[block] = true;
    }

    /// Submits what was added, waits until at least one request is over, and tells `done` of
    /// each that is: its block, and what the call would have returned.
    ///
    /// # Errors
    /// Those of `io_uring_enter(2)`.
    pub fn wait(&mut self, mut done: impl FnMut(usize, io::Result<usize>)) -> io::Result<()> {
        self.ring.submit_and_wait(1)?;
        for completion in self.ring.completion() {
            let Ok(block) = usize::try_from(completion.user_data()) else {
                continue;
            };
            self.busy[block] = false;
            let result = completion.result();
            let result = usize::try_from(result);
            done(
                block,
                result.map_err(|_| io::Error::from_raw_os_error(-completion.result())),
            );
        }
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        while !self.is_empty() {
            match self.wait(|_, _| {}) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return std::mem::forget(std::mem::take(&mut self.blocks)),
                Ok(()) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn what_is_written_is_read_back() {
        let file = tempfile::tempfile().unwrap();
        let blocks = |fill| (0..4).map(|_| vec![fill; 4096].into()).collect();
        let Ok(mut ring) = Ring::new(blocks(7)) else {
            println!("SKIP a ring: this kernel or sandbox has none");
            return;
        };
        for number in 0..4 {
            let block = ring.idle().unwrap();
            ring.write(file.as_fd(), block, number * 4096, IoFlags::NONE);
        }
        assert_eq!(ring.idle(), None);
        let mut written = 0;
        while !ring.is_empty() {
            ring.wait(|_, result| written += result.unwrap()).unwrap();
        }
        assert_eq!(written, 4 * 4096);
        let mut ring = Ring::new(blocks(0)).unwrap();
        ring.read(file.as_fd(), 2, 4096, IoFlags::NONE);
        let mut read = None;
        ring.wait(|block, result| read = Some((block, result.unwrap())))
            .unwrap();
        assert_eq!(read, Some((2, 4096)));
        assert!(ring.blocks[2].iter().all(|&byte| byte == 7));
        ring.read(file.as_fd(), 0, 1 << 40, IoFlags::NONE);
        ring.wait(|_, result| assert_eq!(result.unwrap(), 0, "beyond the end"))
            .unwrap();
        // One that is still under way when it is dropped.
        ring.read(file.as_fd(), 0, 0, IoFlags::NONE);
    }
}
