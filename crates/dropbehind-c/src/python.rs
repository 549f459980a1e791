//! The methods with which the Python module's files read, write and seek.
//!
//! They are C functions for CPython, as those of its own files are. It runs signal handlers between
//! instructions of Python code. If a method were Python code and a handler raised an exception
//! after the transfer, the count would be lost, and the buffered file above would write the same
//! again, or skip what was read.
//!
//! Nothing here is linked with Python: what it needs is looked up in the process. All of that is in
//! CPython's stable ABI, and `Py_buffer` has always been as it is there.
//!
//! Nor has anything here a destructor: Python up to 3.13 ends, when the interpreter does, threads
//! that wait for the GIL with `pthread_exit`, which unwinds their stacks.

use std::ffi::{CStr, c_char, c_int, c_longlong, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;
use std::{io, mem};

use rustix::fs::{SeekFrom, seek as seek_fd};

use crate::errno;
use crate::file::{
    dropbehind_file, dropbehind_fileno, dropbehind_lseek, dropbehind_read, dropbehind_write,
};

/// What `readall` reads at once.
const PART_BYTES: usize = 1 << 20;

/// A `PyObject`.
#[repr(C)]
struct Object {
    _private: [u8; 0],
}

/// A `Py_buffer`.
#[repr(C)]
struct Buffer {
    start: *mut c_void,
    object: *mut Object,
    length: isize,
    item_bytes: isize,
    is_read_only: c_int,
    dimensions: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

const SIMPLE: c_int = 0;
const WRITABLE: c_int = 1;

macro_rules! api {
    ($($field:ident = $symbol:literal: $type:ty,)*) => {
        /// Python's functions and objects.
        struct Api {
            $($field: $type,)*
        }

        impl Api {
            /// None if the process has no Python.
            fn find() -> Option<Api> {
                Some(Api {
                    // SAFETY: Python declares it so.
                    $($field: unsafe {
                        mem::transmute::<*mut c_void, $type>(address_of($symbol)?)
                    },)*
                })
            }
        }
    };
}

api! {
    none = c"_Py_NoneStruct": *mut Object,
    parse_tuple = c"PyArg_ParseTuple": unsafe extern "C-unwind" fn(*mut Object, *const c_char, ...) -> c_int,
    release_buffer = c"PyBuffer_Release": unsafe extern "C-unwind" fn(*mut Buffer),
    bytes_start = c"PyBytes_AsString": unsafe extern "C-unwind" fn(*mut Object) -> *mut c_char,
    new_bytes = c"PyBytes_FromStringAndSize":
        unsafe extern "C-unwind" fn(*const c_char, isize) -> *mut Object,
    resize_bytes = c"_PyBytes_Resize": unsafe extern "C-unwind" fn(*mut *mut Object, isize) -> c_int,
    check_signals = c"PyErr_CheckSignals": unsafe extern "C-unwind" fn() -> c_int,
    has_exception = c"PyErr_Occurred": unsafe extern "C-unwind" fn() -> *mut Object,
    take_gil = c"PyEval_RestoreThread": unsafe extern "C-unwind" fn(*mut c_void),
    leave_gil = c"PyEval_SaveThread": unsafe extern "C-unwind" fn() -> *mut c_void,
    long_as_pointer = c"PyLong_AsVoidPtr": unsafe extern "C-unwind" fn(*mut Object) -> *mut c_void,
    new_long = c"PyLong_FromLongLong": unsafe extern "C-unwind" fn(c_longlong) -> *mut Object,
    long_as_i64 = c"PyLong_AsLongLong": unsafe extern "C-unwind" fn(*mut Object) -> c_longlong,
    index = c"PyNumber_Index": unsafe extern "C-unwind" fn(*mut Object) -> *mut Object,
    call_method = c"PyObject_CallMethod":
        unsafe extern "C-unwind" fn(*mut Object, *const c_char, *const c_char, ...) -> *mut Object,
    attribute = c"PyObject_GetAttrString":
        unsafe extern "C-unwind" fn(*mut Object, *const c_char) -> *mut Object,
    get_buffer = c"PyObject_GetBuffer":
        unsafe extern "C-unwind" fn(*mut Object, *mut Buffer, c_int) -> c_int,
    hold = c"Py_IncRef": unsafe extern "C-unwind" fn(*mut Object),
    release = c"Py_DecRef": unsafe extern "C-unwind" fn(*mut Object),
}

// SAFETY: the objects are as static as the functions, and used under the GIL alone.
unsafe impl Sync for Api {}
// SAFETY: the same.
unsafe impl Send for Api {}

fn address_of(symbol: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, symbol.as_ptr()) };
    (!address.is_null()).then_some(address)
}

static API: OnceLock<Option<Api>> = OnceLock::new();

fn api() -> &'static Api {
    let api = API.get().and_then(Option::as_ref);
    api.expect("the methods are given out once all was found")
}

/// A `PyMethodDef`.
#[repr(C)]
pub struct Method {
    name: *const c_char,
    function: Option<unsafe extern "C-unwind" fn(*mut Object, *mut Object) -> *mut Object>,
    flags: c_int,
    text: *const c_char,
}

// SAFETY: the pointers are to constants.
unsafe impl Sync for Method {}

const VARARGS: c_int = 1;
const NO_ARGUMENT: c_int = 4;
const ONE_ARGUMENT: c_int = 8;

macro_rules! method {
    ($name:literal, $function:expr, $flags:expr, $text:literal) => {
        Method {
            name: concat!($name, "\0").as_ptr().cast(),
            function: Some($function),
            flags: $flags,
            text: concat!($text, "\0").as_ptr().cast(),
        }
    };
}

static METHODS: [Method; 6] = [
    method!(
        "readinto",
        readinto,
        ONE_ARGUMENT,
        "Reads into a buffer. Returns the bytes read, or None if it would block."
    ),
    method!(
        "read",
        read,
        VARARGS,
        "Reads at most so many bytes at once, and without a number up to the end."
    ),
    method!("readall", readall, NO_ARGUMENT, "Reads up to the end."),
    method!(
        "write",
        write,
        ONE_ARGUMENT,
        "Writes once. Returns the bytes written, or None if it would block."
    ),
    method!("seek", seek, VARARGS, "Moves the position, and returns it."),
    Method {
        name: null(),
        function: None,
        flags: 0,
        text: null(),
    },
];

/// For the Python module alone: what `PyDescr_NewMethod` takes for each method of `FileIO`, up to
/// one without a name. NULL if the process has no Python. The module may be older than the library,
/// so the attributes `_handle`, `_pointer` and `_failed` keep their meaning.
///
/// cbindgen:ignore
#[unsafe(no_mangle)]
pub extern "C" fn dropbehind_python_methods() -> *const Method {
    match API.get_or_init(Api::find) {
        Some(_) => METHODS.as_ptr(),
        None => null(),
    }
}

/// What a method returns instead of a count: None, or NULL with an exception.
struct Failure {
    returned: *mut Object,
    errno: c_int,
}

impl Failure {
    /// An exception has been set.
    fn raised() -> Failure {
        Failure {
            returned: null_mut(),
            errno: 0,
        }
    }
}

/// A new reference from Python, or NULL with an exception.
fn new(object: *mut Object) -> Result<*mut Object, Failure> {
    match object.is_null() {
        true => Err(Failure::raised()),
        false => Ok(object),
    }
}

/// Calls the library for a `FileIO`, without the GIL, and again after a signal (PEP 475). None means
/// that it would block; of other failures `_failed` makes an exception, told what the call was for.
///
/// # Safety
/// `this` is a `FileIO`, and the GIL is held.
unsafe fn call(
    this: *mut Object,
    purpose: &CStr,
    mut transfer: impl FnMut(*mut dropbehind_file) -> i64,
) -> Result<i64, Failure> {
    let api = api();
    // SAFETY: by the caller; only the transfer runs without the GIL.
    unsafe {
        // Held, so that a close by another thread doesn't end the file meanwhile.
        let pointer = pointer_of(this)?;
        let result = loop {
            let failed = |errno: c_int| {
                let (name, format) = (c"_failed".as_ptr(), c"is".as_ptr());
                let returned = (api.call_method)(this, name, format, errno, purpose.as_ptr());
                Err(Failure { returned, errno })
            };
            if pointer == api.none {
                break failed(libc::EBADF);
            }
            let file: *mut dropbehind_file = (api.long_as_pointer)(pointer).cast();
            let thread = (api.leave_gil)();
            let result = transfer(file);
            let errno = errno::get();
            (api.take_gil)(thread);
            if result >= 0 {
                break Ok(result);
            }
            match errno {
                libc::EINTR if (api.check_signals)() == 0 => (),
                libc::EINTR => break Err(Failure::raised()),
                libc::EAGAIN => {
                    (api.hold)(api.none);
                    let returned = api.none;
                    break Err(Failure { returned, errno });
                }
                _ => break failed(errno),
            }
        };
        (api.release)(pointer);
        result
    }
}

/// A `FileIO`'s pointer to our file, or None if it is not open.
///
/// # Safety
/// As of [`call`].
unsafe fn pointer_of(this: *mut Object) -> Result<*mut Object, Failure> {
    let api = api();
    // SAFETY: by the caller.
    unsafe {
        let handle = new((api.attribute)(this, c"_handle".as_ptr()))?;
        if handle == api.none {
            return Ok(handle);
        }
        let pointer = (api.attribute)(handle, c"_pointer".as_ptr());
        (api.release)(handle);
        new(pointer)
    }
}

/// What the method returns to Python.
fn returned(result: Result<*mut Object, Failure>) -> *mut Object {
    result.unwrap_or_else(|failure| {
        // A buffered file that gets None looks at it.
        errno::set(failure.errno);
        failure.returned
    })
}

fn long(number: i64) -> *mut Object {
    // SAFETY: Python calls the methods with the GIL.
    unsafe { (api().new_long)(number) }
}

/// Calls the library with an object's bytes, which stay where they are meanwhile.
///
/// # Safety
/// As of [`call`], and the object is valid.
unsafe fn call_with(
    this: *mut Object,
    purpose: &CStr,
    data: *mut Object,
    flags: c_int,
    transfer: impl Fn(*mut dropbehind_file, *mut c_void, usize) -> isize,
) -> *mut Object {
    let api = api();
    let mut buffer = Buffer {
        start: null_mut(),
        object: null_mut(),
        length: 0,
        item_bytes: 0,
        is_read_only: 0,
        dimensions: 0,
        format: null_mut(),
        shape: null_mut(),
        strides: null_mut(),
        suboffsets: null_mut(),
        internal: null_mut(),
    };
    // SAFETY: by the caller.
    unsafe {
        if (api.get_buffer)(data, &mut buffer, flags) < 0 {
            return null_mut();
        }
        let (start, length) = (buffer.start, buffer.length as usize);
        let result = call(this, purpose, |file| transfer(file, start, length) as i64);
        (api.release_buffer)(&mut buffer);
        returned(result.map(long))
    }
}

unsafe extern "C-unwind" fn readinto(this: *mut Object, data: *mut Object) -> *mut Object {
    // SAFETY: Python gives valid objects and the GIL, and what `call` gives is valid.
    unsafe {
        call_with(this, c"reading", data, WRITABLE, |file, start, length| {
            dropbehind_read(file, start, length)
        })
    }
}

unsafe extern "C-unwind" fn write(this: *mut Object, data: *mut Object) -> *mut Object {
    // SAFETY: Python gives valid objects and the GIL, and what `call` gives is valid.
    unsafe {
        call_with(this, c"writing", data, SIMPLE, |file, start, length| {
            dropbehind_write(file, start, length)
        })
    }
}

unsafe extern "C-unwind" fn read(this: *mut Object, arguments: *mut Object) -> *mut Object {
    // SAFETY: Python gives valid objects, and the GIL.
    let read = || unsafe {
        match size_of_read(arguments)? {
            Some(size) => part(this, size),
            None => rest(this),
        }
    };
    returned(read())
}

unsafe extern "C-unwind" fn readall(this: *mut Object, _: *mut Object) -> *mut Object {
    // SAFETY: Python gives valid objects, and the GIL.
    returned(unsafe { rest(this) })
}

/// The only argument of `read`, unless it is to read up to the end.
///
/// # Safety
/// The arguments are a tuple, and the GIL is held.
unsafe fn size_of_read(arguments: *mut Object) -> Result<Option<isize>, Failure> {
    let api = api();
    let mut size = api.none;
    // SAFETY: the format takes one pointer to a pointer, and the tuple keeps the object.
    unsafe {
        if (api.parse_tuple)(arguments, c"|O:read".as_ptr(), &raw mut size) == 0 {
            return Err(Failure::raised());
        }
        if size == api.none {
            return Ok(None);
        }
        let size = integer(size)?;
        // What doesn't fit is too much for Python, too.
        Ok((size >= 0).then(|| isize::try_from(size).unwrap_or(isize::MAX)))
    }
}

/// # Safety
/// The object is valid, and the GIL is held.
unsafe fn integer(object: *mut Object) -> Result<i64, Failure> {
    let api = api();
    // SAFETY: by the caller.
    unsafe {
        let object = new((api.index)(object))?;
        let number = (api.long_as_i64)(object);
        (api.release)(object);
        match number == -1 && !(api.has_exception)().is_null() {
            true => Err(Failure::raised()),
            false => Ok(number),
        }
    }
}

/// What one read gives.
///
/// # Safety
/// As of [`call`].
unsafe fn part(this: *mut Object, size: isize) -> Result<*mut Object, Failure> {
    // SAFETY: by the caller; nobody else has the bytes yet.
    unsafe {
        let bytes = new((api().new_bytes)(null(), size))?;
        match read_at(this, bytes, 0, size as usize) {
            Ok(got) => resized(bytes, got),
            Err(failure) => {
                (api().release)(bytes);
                Err(failure)
            }
        }
    }
}

/// What there is up to the end, or until a read would block.
///
/// # Safety
/// As of [`call`].
unsafe fn rest(this: *mut Object) -> Result<*mut Object, Failure> {
    let api = api();
    let (mut size, mut got) = (PART_BYTES, 0);
    // SAFETY: by the caller; nobody else has the bytes yet.
    unsafe {
        let mut bytes = new((api.new_bytes)(null(), size as isize))?;
        loop {
            match read_at(this, bytes, got, PART_BYTES) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(failure) if got > 0 && failure.returned == api.none => {
                    (api.release)(failure.returned);
                    break;
                }
                Err(failure) => {
                    (api.release)(bytes);
                    return Err(failure);
                }
            }
            if size - got < PART_BYTES {
                size *= 2;
                bytes = resized(bytes, size)?;
            }
        }
        resized(bytes, got)
    }
}

/// Reads into bytes that nobody else has.
///
/// # Safety
/// As of [`call`], and they are long enough.
unsafe fn read_at(
    this: *mut Object,
    bytes: *mut Object,
    at: usize,
    length: usize,
) -> Result<usize, Failure> {
    // SAFETY: by the caller, and what `call` gives is valid.
    unsafe {
        let start = (api().bytes_start)(bytes).add(at).cast();
        let read = |file| dropbehind_read(file, start, length) as i64;
        call(this, c"reading", read).map(|got| got as usize)
    }
}

/// Bytes that nobody else has, with another length.
///
/// # Safety
/// The GIL is held.
unsafe fn resized(mut bytes: *mut Object, length: usize) -> Result<*mut Object, Failure> {
    // SAFETY: by the caller; if it fails, it frees them, raises an exception, and leaves NULL.
    unsafe { (api().resize_bytes)(&mut bytes, length as isize) };
    new(bytes)
}

unsafe extern "C-unwind" fn seek(this: *mut Object, arguments: *mut Object) -> *mut Object {
    let (mut offset, mut whence) = (null_mut::<Object>(), libc::SEEK_SET);
    // SAFETY: the format takes these two pointers; Python gives valid objects, and the GIL.
    let mut seek = || unsafe {
        let format = c"O|i:seek".as_ptr();
        if (api().parse_tuple)(arguments, format, &raw mut offset, &raw mut whence) == 0 {
            return Err(Failure::raised());
        }
        let offset = integer(offset)?;
        call(this, c"seeking", |file| seek_in(file, offset, whence))
    };
    returned(seek().map(long))
}

/// # Safety
/// The file is valid.
unsafe fn seek_in(file: *mut dropbehind_file, offset: i64, whence: c_int) -> i64 {
    // The kernel's number is signed.
    let to = match whence {
        libc::SEEK_DATA => SeekFrom::Data(offset as u64),
        libc::SEEK_HOLE => SeekFrom::Hole(offset as u64),
        // SAFETY: by the caller.
        _ => return unsafe { dropbehind_lseek(file, offset, whence) },
    };
    // SAFETY: by the caller; its descriptor is open as long.
    let found = seek_fd(
        unsafe { BorrowedFd::borrow_raw(dropbehind_fileno(file)) },
        to,
    );
    match errno::position(found.map_err(io::Error::from)) {
        -1 => -1,
        // The library must learn where that led.
        // SAFETY: by the caller.
        position => unsafe { dropbehind_lseek(file, position, libc::SEEK_SET) },
    }
}
