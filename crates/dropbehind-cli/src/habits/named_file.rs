//! The file that cachestats or cachedel is asked about, and their errors.

use crate::error::{reason, shown};
use rustix::fs::OFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

/// What the tools exit with when a call failed.
const CALL_FAILED: u8 = 255;

/// Reports a failed call as perror(3) does.
pub(super) fn call_failed(call: &str, error: &io::Error) -> ExitCode {
    complain!("{call}: {}", reason(error));
    ExitCode::from(CALL_FAILED)
}

/// Opens a regular file, and returns its size as well.
pub(super) fn open(name: &OsStr) -> Result<(File, u64), ExitCode> {
    // It must not wait for a pipe's other end.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(name);
    let file = file.map_err(|error| call_failed("open", &error))?;
    let metadata = file.metadata();
    let metadata = metadata.map_err(|error| call_failed("fstat", &error))?;
    if !metadata.is_file() {
        complain!("{}: S_ISREG: not a regular file", shown(Path::new(name)));
        return Err(ExitCode::FAILURE);
    }
    Ok((file, metadata.len()))
}
