//! The C interface of dropbehind.
//!
//! `dropbehind.h` is made from this source and says how to use it. There are two levels: a file
//! of ours (`dropbehind_open`), and a descriptor of the caller's (`dropbehind_attach`), whose
//! I/O the caller does by itself and reports.

#![cfg(target_os = "linux")]
#![allow(non_camel_case_types)]

mod attached;
mod errno;
mod file;
mod options;
mod python;
mod stats;
mod text;

pub use attached::*;
pub use file::*;
pub use options::*;
#[doc(hidden)]
pub use python::dropbehind_python_methods;
pub use stats::*;

use std::ffi::{CStr, c_char};

/// The library's version, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn dropbehind_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(text) => text,
            Err(_) => unreachable!(),
        };
    VERSION.as_ptr()
}
