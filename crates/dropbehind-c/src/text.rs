//! Texts of ours as C's.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// A copy that is valid until the next call by this thread; NULL for `None`.
pub(crate) fn or_null(text: Option<&str>) -> *const c_char {
    let Some(text) = text else {
        return std::ptr::null();
    };
    // No text of ours has a NUL.
    let copy = CString::new(text).unwrap_or_default();
    LAST.with_borrow_mut(|last| {
        *last = copy;
        last.as_ptr()
    })
}
