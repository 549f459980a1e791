//! `cachedel [-n N] FILE`: drops a file's clean pages, and starts writing the others;
//! with -n, N times.

use super::named_file::{call_failed, open};
use crate::error::shown;
use dropbehind_linux::drop_clean;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(name: &OsStr, args: &[OsString]) -> ExitCode {
    let (times, path) = match args {
        [path] => (1, path),
        [option, times, path] if option == "-n" => (leading_number(times), path),
        _ => {
            complain!(
                "usage: {} [-n <n>] <file> -- call fadvise(DONTNEED) <n> times on file",
                shown(Path::new(name))
            );
            return ExitCode::FAILURE;
        }
    };
    let (file, size) = match open(path) {
        Ok(opened) => opened,
        Err(code) => return code,
    };
    if size == 0 {
        complain!("{}: file size is 0!", shown(Path::new(path)));
        return ExitCode::FAILURE;
    }
    for _ in 0..times {
        // To the end of the file.
        if let Err(error) = drop_clean(file.as_fd(), 0, 0) {
            return call_failed("posix_fadvise", &error);
        }
    }
    ExitCode::SUCCESS
}

/// Like atoi(3): the digits that a text begins with, 0 without any.
fn leading_number(text: &OsStr) -> u32 {
    let text = text.to_string_lossy();
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text
        .find(|letter: char| !letter.is_ascii_digit())
        .unwrap_or(text.len());
    text[..end].parse().unwrap_or_default()
}
