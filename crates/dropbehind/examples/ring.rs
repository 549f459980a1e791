//! io_uring and dropbehind: a program that drives its own ring attaches its file, and reports
//! what completes.
//!
//! `ring FILE` writes 64 MiB to FILE twice, at a depth of 16, and says what is left in the page
//! cache: once with the ring alone, where each write is linked with a request that writes it
//! back and one that drops it; and once attached, in random order, where the flusher does that.
//! The linked way waits for the disk in the kernel's worker threads, sends each write by itself,
//! and takes errors that `fsync` should have reported.

use dropbehind::{Mode, OpenOptions};
use io_uring::{IoUring, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const BLOCK_BYTES: usize = 128 << 10;
const BLOCKS: u64 = 512;
const DEPTH: u64 = 16;

fn main() -> io::Result<()> {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: ring FILE");
        std::process::exit(2);
    };
    let open = || {
        let mut options = File::options();
        options.write(true).read(true).create(true).truncate(true);
        options.open(&path)
    };
    let file = open()?;
    linked_write_and_drop(&file)?;
    say("linked", &file)?;

    let file = open()?;
    let mut options = OpenOptions::new();
    let attached = options
        .cache_mode(Mode::DONTCACHE)
        .random(true)
        .attach(&file)?;
    // Any order will do: 389 and the number of blocks have no common factor.
    let order = (0..BLOCKS).map(|block| block * 389 % BLOCKS);
    write_each(&file, order, |offset| {
        if attached.wrote(offset, BLOCK_BYTES as u64) {
            attached.wait_for_room();
        }
    })?;
    // With IORING_OP_FSYNC it is the same: report what it returned.
    attached.synced(file.sync_all())?;
    attached.settle(std::time::Duration::from_secs(60));
    say("attached", &file)
}

fn say(way: &str, file: &File) -> io::Result<()> {
    let pages = dropbehind_linux::cachestat(file.as_fd(), 0, 0)?;
    let (cached, dirty) = (pages.cached_pages, pages.dirty_pages);
    println!("{way}: {cached} pages cached, {dirty} of them dirty");
    Ok(())
}

/// Adds requests that will be submitted together.
fn push(ring: &mut IoUring, entries: &[squeue::Entry]) {
    // SAFETY: the entries' buffers and descriptors belong to the callers, who keep them until
    // they have seen all completions.
    let pushed = unsafe { ring.submission().push_multiple(entries) };
    pushed.expect("the ring has room for what is in flight");
}

fn linked_write_and_drop(file: &File) -> io::Result<()> {
    const WRITE: u64 = 1;
    let block = vec![1; BLOCK_BYTES];
    let fd = types::Fd(file.as_raw_fd());
    let mut ring = IoUring::new(64)?;
    for offset in (0..BLOCKS).map(|block| block * BLOCK_BYTES as u64) {
        let write = opcode::Write::new(fd, block.as_ptr(), BLOCK_BYTES as u32)
            .offset(offset)
            .build()
            .user_data(WRITE)
            .flags(squeue::Flags::IO_LINK);
        let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let write_back = opcode::SyncFileRange::new(fd, BLOCK_BYTES as u32)
            .offset(offset)
            .flags(all)
            .build()
            .flags(squeue::Flags::IO_LINK);
        let advice = libc::POSIX_FADV_DONTNEED;
        let forget = opcode::Fadvise::new(fd, BLOCK_BYTES as libc::off_t, advice)
            .offset(offset)
            .build();
        push(&mut ring, &[write, write_back, forget]);
        ring.submit_and_wait(3)?;
        let completions = ring.completion();
        let mut results: Vec<(u64, i32)> = completions
            .map(|completion| (completion.user_data(), completion.result()))
            .collect();
        // What is linked behind a request that fails or falls short is cancelled, and may complete first.
        results.sort_by_key(|(_, result)| *result == -libc::ECANCELED);
        for (request, result) in results {
            if check(result)? < BLOCK_BYTES && request == WRITE {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
    }
    Ok(())
}

/// Writes the blocks, several at a time, and tells `done` of each that is written.
fn write_each(
    file: &File,
    mut blocks: impl Iterator<Item = u64>,
    mut done: impl FnMut(u64),
) -> io::Result<()> {
    let block = vec![2; BLOCK_BYTES];
    let fd = types::Fd(file.as_raw_fd());
    let mut ring = IoUring::new(DEPTH as u32)?;
    let mut in_flight = 0;
    loop {
        while in_flight < DEPTH
            && let Some(number) = blocks.next()
        {
            let offset = number * BLOCK_BYTES as u64;
            let write = opcode::Write::new(fd, block.as_ptr(), BLOCK_BYTES as u32)
                .offset(offset)
                .build()
                .user_data(offset);
            push(&mut ring, &[write]);
            in_flight += 1;
        }
        if in_flight == 0 {
            return Ok(());
        }
        ring.submit_and_wait(1)?;
        for completion in ring.completion() {
            in_flight -= 1;
            if check(completion.result())? < BLOCK_BYTES {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done(completion.user_data());
        }
    }
}

fn check(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
