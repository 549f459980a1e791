//! A descriptor of the caller's, whose I/O the caller does by itself and reports.

use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};

use dropbehind::{Attached, Reading};
use libc::size_t;

use crate::errno;
use crate::file::{in_time, range, timeout};
use crate::options::{dropbehind_options, settings};
use crate::stats::dropbehind_stats;
use crate::text;

/// A descriptor that the caller owns, and keeps open until it is detached.
#[derive(Debug)]
struct Theirs(RawFd);

impl AsFd for Theirs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the caller of `dropbehind_attach` keeps it open for as long as we exist.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// A descriptor of the caller's, whose I/O the caller does by itself and reports.
#[derive(Debug)]
pub struct dropbehind_attached {
    attached: Attached<Theirs>,
}

/// A read that was announced.
#[derive(Debug)]
pub struct dropbehind_reading {
    reading: Reading,
}

/// # Safety
/// `attached` is valid.
unsafe fn of<'a>(attached: *const dropbehind_attached) -> &'a Attached<Theirs> {
    // SAFETY: by the caller.
    unsafe { &(*attached).attached }
}

/// Attaches an open descriptor, with which the caller goes on reading and writing: with
/// pwrite(2), io_uring or another library. It must stay open until dropbehind_detach. What is
/// not reported stays cached, and the kernel writes it. In a mode that drops, this finds out
/// what of the file is cached, so that it stays. `options` may be NULL.
///
/// EBADF: it is not open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_attach(
    fd: c_int,
    options: *const dropbehind_options,
) -> *mut dropbehind_attached {
    // SAFETY: valid, as the header's head requires.
    let settings = unsafe { settings(options) };
    errno::owned(if fd < 0 {
        Err(io::Error::from_raw_os_error(libc::EBADF))
    } else {
        let attached = settings.attach(Theirs(fd));
        attached.map(|attached| dropbehind_attached { attached })
    })
}

/// Reports that a write of `length` bytes at `offset` has completed. With O_APPEND the offset
/// doesn't matter: all that the file has grown by counts as appended here. A few atomic operations; it never waits.
///
/// Returns 1 if so much is unwritten that the caller should submit no more before
/// dropbehind_wait_for_room, and 0 otherwise.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_wrote(
    attached: *mut dropbehind_attached,
    offset: u64,
    length: u64,
) -> c_int {
    // SAFETY: valid, as the header's head requires.
    c_int::from(unsafe { of(attached) }.wrote(offset, length))
}

/// Waits until dropbehind_wrote would return 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_wait_for_room(attached: *mut dropbehind_attached) {
    // SAFETY: valid, as the header's head requires.
    unsafe { of(attached) }.wait_for_room();
}

/// Announces a read of `length` bytes at `offset`, and finds out what of it is cached: the rest
/// is what the read brings in. The kernel may read ahead of it, which nobody reports, so those
/// pages stay; dropbehind_options_set_random prevents that.
///
/// The result, never NULL, goes to dropbehind_read_done. Until then no page of the range is
/// dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_will_read(
    attached: *mut dropbehind_attached,
    offset: u64,
    length: u64,
) -> *mut dropbehind_reading {
    // SAFETY: valid, as the header's head requires.
    let reading = unsafe { of(attached) }.will_read(offset, length);
    errno::owned(Ok(dropbehind_reading { reading }))
}

/// Reports that the read has completed, or failed, or was not submitted after all, and frees the
/// reading. What it brought in is dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_read_done(
    attached: *mut dropbehind_attached,
    reading: *mut dropbehind_reading,
) {
    // SAFETY: it came from `dropbehind_will_read`, and nobody uses it any more.
    let reading = unsafe { Box::from_raw(reading) };
    // SAFETY: valid, as the header's head requires.
    unsafe { of(attached) }.read_done(reading.reading);
}

/// Drops the clean pages of a range that were not cached before the file was attached, and
/// returns how many bytes left the cache. A length of 0 means to the end of the file.
///
/// Errors: those of `dropbehind_drop`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_attached_drop(
    attached: *mut dropbehind_attached,
    offset: i64,
    length: i64,
) -> i64 {
    // SAFETY: valid, as the header's head requires.
    let attached = unsafe { of(attached) };
    let dropped = range(offset, length).and_then(|range| attached.drop_behind(range));
    errno::position(dropped.map(|outcome| outcome.dropped_bytes))
}

/// Reports what an fsync(2) or fdatasync(2) of the caller's has returned: 0, or an error's number
/// as in errno. Call it for each one, since after a failed one nothing of the file is dropped.
///
/// Returns 0, or -1 with that errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_synced(
    attached: *mut dropbehind_attached,
    error: c_int,
) -> c_int {
    let result = match error {
        0 => Ok(()),
        number => Err(io::Error::from_raw_os_error(number)),
    };
    // SAFETY: valid, as the header's head requires.
    errno::status(unsafe { of(attached) }.synced(result))
}

/// Waits until all that was reported is clean and dropped. Syncs nothing. A negative timeout
/// waits for as long as it takes.
///
/// ETIMEDOUT: the milliseconds have passed, or the file is left to the kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_attached_settle(
    attached: *mut dropbehind_attached,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: valid, as the header's head requires.
    errno::status(in_time(unsafe { of(attached) }.settle(timeout(timeout_ms))))
}

/// Returns why the mode has no effect on this file, or NULL if it has one. The text is valid
/// until the next call by the same thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_attached_without_effect(
    attached: *const dropbehind_attached,
) -> *const c_char {
    // SAFETY: valid, as the header's head requires.
    text::or_null(unsafe { of(attached) }.without_effect())
}

/// Says what was done for the file. `size` is sizeof(dropbehind_stats).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_attached_get_stats(
    attached: *const dropbehind_attached,
    stats: *mut dropbehind_stats,
    size: size_t,
) {
    // SAFETY: valid, as the header's head requires.
    unsafe { dropbehind_stats::from(of(attached).stats()).copy_to(stats, size) };
}

/// Ends it. The descriptor stays open, and the library finishes what was reported. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_detach(attached: *mut dropbehind_attached) {
    if !attached.is_null() {
        // SAFETY: it came from us, and nobody uses it any more.
        drop(unsafe { Box::from_raw(attached) });
    }
}
