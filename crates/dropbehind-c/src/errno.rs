//! Rust's errors as C reports them.

use std::ffi::c_int;
use std::io;

pub(crate) fn set(number: c_int) {
    // SAFETY: the pointer is to this thread's errno, valid as long as the thread.
    unsafe { *libc::__errno_location() = number };
}

pub(crate) fn get() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

fn number_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => libc::EIO,
    })
}

/// The value, or -1 with `errno`.
fn or_minus_one<C: From<i8>>(result: io::Result<C>) -> C {
    result.unwrap_or_else(|error| {
        set(number_of(&error));
        C::from(-1)
    })
}

/// 0, or -1 with `errno`.
pub(crate) fn status(result: io::Result<()>) -> c_int {
    or_minus_one(result.map(|()| 0))
}

/// The count, or -1 with `errno`.
pub(crate) fn count(result: io::Result<usize>) -> isize {
    // No call moves more than `isize::MAX` bytes.
    or_minus_one(result.map(|count| count as isize))
}

/// The position, or -1 with `errno`.
pub(crate) fn position(result: io::Result<u64>) -> i64 {
    // The kernel's positions are signed.
    or_minus_one(result.map(|position| position as i64))
}

/// A pointer that the caller owns, or NULL with `errno`.
pub(crate) fn owned<T>(result: io::Result<T>) -> *mut T {
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(error) => {
            set(number_of(&error));
            std::ptr::null_mut()
        }
    }
}

/// A file offset of C's. Negative ones are refused, as the kernel does.
pub(crate) fn offset(offset: i64) -> io::Result<u64> {
    u64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
