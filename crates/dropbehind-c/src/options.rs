//! The settings of a file.

use std::ffi::{CStr, c_char, c_int};
use std::io;

use dropbehind::{Mode, OpenOptions};

use crate::errno;

/// The settings of a file: its mode, window, request size and access pattern.
#[derive(Clone, Debug, Default)]
pub struct dropbehind_options {
    settings: OpenOptions,
}

/// # Safety
/// `options` is NULL or valid.
pub(crate) unsafe fn settings(options: *const dropbehind_options) -> OpenOptions {
    // SAFETY: by the caller.
    match unsafe { options.as_ref() } {
        Some(options) => options.settings.clone(),
        None => OpenOptions::new(),
    }
}

/// New options, all with their defaults.
#[unsafe(no_mangle)]
pub extern "C" fn dropbehind_options_new() -> *mut dropbehind_options {
    errno::owned(Ok(dropbehind_options::default()))
}

/// Frees options. Files that were opened with them keep their settings. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_options_free(options: *mut dropbehind_options) {
    if !options.is_null() {
        // SAFETY: it came from `dropbehind_options_new`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// Sets the mode by its name: "buffered", "dontcache", "write-behind", "write-behind-any",
/// "write-through", "noreuse", "auto", which does the same as "dontcache" here, or a pair such as
/// "behind+drop". The default is that of the file's disk in the configuration file, or else
/// "dontcache".
///
/// EINVAL: there is no such mode.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_options_set_mode(
    options: *mut dropbehind_options,
    name: *const c_char,
) -> c_int {
    // SAFETY: both are valid, as the header's head requires.
    let (options, name) = unsafe { (&mut *options, CStr::from_ptr(name)) };
    let mode = name
        .to_str()
        .ok()
        .and_then(|name| name.parse::<Mode>().ok());
    errno::status(match mode {
        Some(mode) => {
            options.settings.cache_mode(mode);
            Ok(())
        }
        None => Err(io::ErrorKind::InvalidInput.into()),
    })
}

/// Sets the window in bytes, at least 64 KiB: up to twice as much may be dirty or under
/// writeback before a writer waits.
///
/// EINVAL: it is too small. The options stay as they were.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_options_set_window(
    options: *mut dropbehind_options,
    bytes: u64,
) -> c_int {
    // SAFETY: valid, as the header's head requires.
    change(unsafe { &mut *options }, |settings| {
        settings.window_bytes(bytes);
    })
}

/// Sets the size of one write request to the disk in bytes, at least a page.
///
/// EINVAL: it is too small. The options stay as they were.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_options_set_request(
    options: *mut dropbehind_options,
    bytes: u64,
) -> c_int {
    // SAFETY: valid, as the header's head requires.
    change(unsafe { &mut *options }, |settings| {
        settings.request_bytes(bytes);
    })
}

fn change(options: &mut dropbehind_options, change: impl Fn(&mut OpenOptions)) -> c_int {
    let mut settings = options.settings.clone();
    change(&mut settings);
    errno::status(settings.check().map(|()| options.settings = settings))
}

/// Expects random access if `random` is not 0: no readahead and no write-behind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dropbehind_options_set_random(
    options: *mut dropbehind_options,
    random: c_int,
) {
    // SAFETY: valid, as the header's head requires.
    unsafe { &mut *options }.settings.random(random != 0);
}
