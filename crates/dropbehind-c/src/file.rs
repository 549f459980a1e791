//! A file of ours.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd};
use std::slice;
use std::time::Duration;

use dropbehind::File;
use libc::{iovec, mode_t, size_t, ssize_t};

use crate::errno;
use crate::options::{dropbehind_options, settings};
use crate::stats::{dropbehind_cache_state, dropbehind_stats};
use crate::text;

/// An open file, read and written through the page cache under its mode.
#[derive(Debug)]
pub struct dropbehind_file {
    file: File,
}

/// # Safety
/// `file` is valid.
unsafe fn of<'a>(file: *const dropbehind_file) -> &'a File {
    // SAFETY: by the caller.
    unsafe { &(*file).file }
}

/// The caller's buffer, to be read into.
///
/// # Safety
/// `buffer` is valid for `length` bytes of writes, or `length` is 0.
unsafe fn buffer_mut<'a>(buffer: *mut c_void, length: size_t) -> io::Result<&'a mut [u8]> {
    if length == 0 {
        return Ok(&mut []);
    }
    check_length(length)?;
    // SAFETY: by the caller; only the kernel looks at what is in it.
    Ok(unsafe { slice::from_raw_parts_mut(buffer.cast(), length) })
}

/// The caller's buffer, to be written.
///
/// # Safety
/// `buffer` is valid for `length` bytes of reads, or `length` is 0.
unsafe fn buffer<'a>(buffer: *const c_void, length: size_t) -> io::Result<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    check_length(length)?;
    // SAFETY: by the caller.
    Ok(unsafe { slice::from_raw_parts(buffer.cast(), length) })
}

/// Refuses lengths beyond `SSIZE_MAX`, which are negative as a `ssize_t`: the kernel moves nothing
/// for those.
fn check_length(length: size_t) -> io::Result<()> {
    match isize::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// The caller's list of buffers.
///
/// # Safety
/// `list` is valid for `count` elements of reads, or `count` is 0.
unsafe fn vector<'a>(list: *const iovec, count: c_int) -> io::Result<&'a [iovec]> {
    match count {
        0 => Ok(&[]),
        // IOV_MAX, as readv(2) has it.
        // SAFETY: by the caller.
        1..=1024 => Ok(unsafe { slice::from_raw_parts(list, count as usize) }),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Opens a file as open(2) does; `mode` counts if the flags make a file. `options` may be NULL.
///
/// Errors: those of open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_open(
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
    options: *const dropbehind_options,
) -> *mut dropbehind_file {
    // SAFETY: both are valid, as the header's head requires.
    let (path, settings) = unsafe { (CStr::from_ptr(path), settings(options)) };
    let open = || {
        let flags = rustix::fs::OFlags::from_bits_retain(flags as u32);
        let mode = rustix::fs::Mode::from_bits_retain(mode);
        let file = rustix::fs::open(path, flags, mode)?;
        let file = settings.adopt(file.into())?;
        Ok(dropbehind_file { file })
    };
    errno::owned(open())
}

/// Takes over an open descriptor, which dropbehind_close will close. After a failure it is still
/// the caller's, and open. Pages that are cached or dirty already are left alone. `options` may be
/// NULL.
///
/// EBADF: it is not open. Other errors: those of fstat(2), fcntl(2) and posix_fadvise(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_adopt(
    fd: c_int,
    options: *const dropbehind_options,
) -> *mut dropbehind_file {
    // SAFETY: valid, as the header's head requires.
    let settings = unsafe { settings(options) };
    let adopt = || {
        if fd < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        // SAFETY: the caller's, and open if the next line says so.
        rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })?;
        // SAFETY: the caller gives it away, and gets it back if that fails.
        let file = unsafe { fs::File::from_raw_fd(fd) };
        match settings.try_adopt(file) {
            Ok(file) => Ok(dropbehind_file { file }),
            Err((file, error)) => {
                let _ = file.into_raw_fd();
                Err(error)
            }
        }
    };
    errno::owned(adopt())
}

/// The descriptor, for calls that the library doesn't have. What is written through it directly
/// stays in the page cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_fileno(file: *const dropbehind_file) -> c_int {
    // SAFETY: valid, as the header's head requires.
    unsafe { of(file) }.as_raw_fd()
}

/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_read(
    file: *mut dropbehind_file,
    buf: *mut c_void,
    count: size_t,
) -> ssize_t {
    // SAFETY: both are valid, as the header's head requires.
    let (mut file, buf) = unsafe { (of(file), buffer_mut(buf, count)) };
    errno::count(buf.and_then(|buf| file.read(buf)))
}

/// As write(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_write(
    file: *mut dropbehind_file,
    buf: *const c_void,
    count: size_t,
) -> ssize_t {
    // SAFETY: both are valid, as the header's head requires.
    let (mut file, buf) = unsafe { (of(file), buffer(buf, count)) };
    errno::count(buf.and_then(|buf| file.write(buf)))
}

/// As pread(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_pread(
    file: *mut dropbehind_file,
    buf: *mut c_void,
    count: size_t,
    offset: i64,
) -> ssize_t {
    // SAFETY: both are valid, as the header's head requires.
    let (file, buf) = unsafe { (of(file), buffer_mut(buf, count)) };
    errno::count(buf.and_then(|buf| file.read_at(buf, errno::offset(offset)?)))
}

/// As pwrite(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_pwrite(
    file: *mut dropbehind_file,
    buf: *const c_void,
    count: size_t,
    offset: i64,
) -> ssize_t {
    // SAFETY: both are valid, as the header's head requires.
    let (file, buf) = unsafe { (of(file), buffer(buf, count)) };
    errno::count(buf.and_then(|buf| file.write_at(buf, errno::offset(offset)?)))
}

/// As readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_readv(
    file: *mut dropbehind_file,
    iov: *const iovec,
    iovcnt: c_int,
) -> ssize_t {
    // SAFETY: valid, as the header's head requires.
    let mut file = unsafe { of(file) };
    // SAFETY: the same.
    errno::count(
        unsafe { vector(iov, iovcnt) }.and_then(|list| file.read_vectored(&mut slices_mut(list)?)),
    )
}

/// As writev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_writev(
    file: *mut dropbehind_file,
    iov: *const iovec,
    iovcnt: c_int,
) -> ssize_t {
    // SAFETY: valid, as the header's head requires.
    let mut file = unsafe { of(file) };
    // SAFETY: the same.
    errno::count(
        unsafe { vector(iov, iovcnt) }.and_then(|list| file.write_vectored(&slices(list)?)),
    )
}

/// As preadv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_preadv(
    file: *mut dropbehind_file,
    iov: *const iovec,
    iovcnt: c_int,
    offset: i64,
) -> ssize_t {
    // SAFETY: valid, as the header's head requires.
    let file = unsafe { of(file) };
    // SAFETY: the same.
    errno::count(
        unsafe { vector(iov, iovcnt) }
            .and_then(|list| file.read_vectored_at(&mut slices_mut(list)?, errno::offset(offset)?)),
    )
}

/// As pwritev(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_pwritev(
    file: *mut dropbehind_file,
    iov: *const iovec,
    iovcnt: c_int,
    offset: i64,
) -> ssize_t {
    // SAFETY: valid, as the header's head requires.
    let file = unsafe { of(file) };
    // SAFETY: the same.
    errno::count(
        unsafe { vector(iov, iovcnt) }
            .and_then(|list| file.write_vectored_at(&slices(list)?, errno::offset(offset)?)),
    )
}

fn slices<'a>(list: &[iovec]) -> io::Result<Vec<IoSlice<'a>>> {
    // SAFETY: the caller's list is of valid buffers.
    let parts = list
        .iter()
        .map(|part| unsafe { buffer(part.iov_base, part.iov_len) });
    parts.map(|part| part.map(IoSlice::new)).collect()
}

fn slices_mut<'a>(list: &[iovec]) -> io::Result<Vec<IoSliceMut<'a>>> {
    // SAFETY: the caller's list is of valid buffers.
    let parts = list
        .iter()
        .map(|part| unsafe { buffer_mut(part.iov_base, part.iov_len) });
    parts.map(|part| part.map(IoSliceMut::new)).collect()
}

/// As lseek(2), with SEEK_SET, SEEK_CUR and SEEK_END.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_lseek(
    file: *mut dropbehind_file,
    offset: i64,
    whence: c_int,
) -> i64 {
    // SAFETY: valid, as the header's head requires.
    let mut file = unsafe { of(file) };
    let to = match whence {
        libc::SEEK_SET => errno::offset(offset).map(SeekFrom::Start),
        libc::SEEK_CUR => Ok(SeekFrom::Current(offset)),
        libc::SEEK_END => Ok(SeekFrom::End(offset)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    errno::position(to.and_then(|to| file.seek(to)))
}

/// As ftruncate(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_ftruncate(file: *mut dropbehind_file, length: i64) -> c_int {
    // SAFETY: valid, as the header's head requires.
    let file = unsafe { of(file) };
    errno::status(errno::offset(length).and_then(|length| file.set_len(length)))
}

/// As fsync(2). Use this one rather than fsync(2) on the descriptor: after a failed one, the
/// library keeps the pages that the disk never got.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_fsync(file: *mut dropbehind_file) -> c_int {
    // SAFETY: valid, as the header's head requires.
    errno::status(unsafe { of(file) }.sync_all())
}

/// As fdatasync(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_fdatasync(file: *mut dropbehind_file) -> c_int {
    // SAFETY: valid, as the header's head requires.
    errno::status(unsafe { of(file) }.sync_data())
}

/// Waits until everything this file brought into the cache is clean and dropped, but for what has
/// to stay (left_bytes), such as all of a file whose writeback failed. Syncs nothing.
/// A negative timeout waits for as long as it takes.
///
/// ETIMEDOUT: the milliseconds have passed, or the file is left to the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_settle(file: *mut dropbehind_file, timeout_ms: c_int) -> c_int {
    // SAFETY: valid, as the header's head requires.
    let settled = unsafe { of(file) }.settle(timeout(timeout_ms));
    errno::status(settled.and_then(in_time))
}

pub(crate) fn timeout(timeout_ms: c_int) -> Duration {
    u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis)
}

pub(crate) fn in_time(settled: bool) -> io::Result<()> {
    match settled {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
    }
}

/// The range of an offset and a length of C's; a length of 0 means to the end of the file.
pub(crate) fn range(offset: i64, length: i64) -> io::Result<Range<u64>> {
    let (start, length) = (errno::offset(offset)?, errno::offset(length)?);
    let end = match length {
        0 => u64::MAX,
        _ => start.saturating_add(length),
    };
    Ok(start..end)
}

/// Drops the clean pages of a range, and returns how many bytes left the cache. A length of 0
/// means to the end of the file. In a mode that drops, pages that were cached before this
/// file's I/O are kept; in the others all clean pages go.
///
/// Errors: those of posix_fadvise(2) and cachestat(2); EIO or ENOSPC if writing back the file
/// failed, so that the cache may have the only copy: nothing goes then. EAGAIN if the mode
/// keeps pages and no thread can be started to ask about that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_drop(
    file: *mut dropbehind_file,
    offset: i64,
    length: i64,
) -> i64 {
    // SAFETY: valid, as the header's head requires.
    let file = unsafe { of(file) };
    let dropped = range(offset, length).and_then(|range| file.drop_behind(range));
    errno::position(dropped.map(|outcome| outcome.dropped_bytes))
}

/// Counts the cached pages of a range in bytes. A length of 0 means to the end of the file.
///
/// Errors: those of cachestat(2): ENOSYS before Linux 6.5, EPERM for files that the caller
/// neither owns nor may write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_residency(
    file: *const dropbehind_file,
    offset: i64,
    length: i64,
    state: *mut dropbehind_cache_state,
) -> c_int {
    // SAFETY: valid, as the header's head requires.
    let file = unsafe { of(file) };
    errno::status(range(offset, length).and_then(|range| {
        let counted = file.residency(range)?;
        // SAFETY: valid, as the header's head requires.
        unsafe {
            *state = dropbehind_cache_state {
                cached_bytes: counted.cached_bytes,
                dirty_bytes: counted.dirty_bytes,
                writeback_bytes: counted.writeback_bytes,
            };
        }
        Ok(())
    }))
}

/// Returns why the mode has no effect on this file, such as that it is on a tmpfs, or NULL if it
/// has one. The text is valid until the next call by the same thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_without_effect(file: *const dropbehind_file) -> *const c_char {
    // SAFETY: valid, as the header's head requires.
    text::or_null(unsafe { of(file) }.without_effect())
}

/// Says what was done for the file. `size` is sizeof(dropbehind_stats).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_get_stats(
    file: *const dropbehind_file,
    stats: *mut dropbehind_stats,
    size: size_t,
) {
    // SAFETY: valid, as the header's head requires.
    unsafe { dropbehind_stats::from(of(file).stats()).copy_to(stats, size) };
}

/// Closes the file as close(2) does, whose error it returns. The library still finishes what was
/// written, while the process lives. It syncs nothing: call dropbehind_fsync first. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_close(file: *mut dropbehind_file) -> c_int {
    if file.is_null() {
        return 0;
    }
    // SAFETY: it came from us, and nobody uses it any more.
    let file = unsafe { Box::from_raw(file) };
    errno::status(file.file.close())
}

/// Ends the file as dropbehind_close does, but returns its descriptor, open. So the process keeps
/// its record locks on the file, which closing any of its descriptors releases.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_release(file: *mut dropbehind_file) -> c_int {
    // SAFETY: it came from us, and nobody uses it any more.
    let file = unsafe { Box::from_raw(file) };
    file.file.into_std().into_raw_fd()
}
