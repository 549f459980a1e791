//! Cleaning up scratch folders, those of killed test runs included.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::{mount_point, scratch};

/// Removes every scratch folder in `base` whose owner is gone.
pub(crate) fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let ours = entry
            .file_name()
            .as_bytes()
            .starts_with(scratch::PREFIX.as_bytes());
        if !ours {
            continue;
        }
        // The lock says whether the owner lives; a process id could be reused.
        if let Ok(Some(_lock)) = scratch::claim(&entry.path()) {
            remove(&entry.path());
        }
    }
}

/// Unmounts what is mounted below a folder and removes it.
pub(crate) fn remove(folder: &Path) {
    // The latest mount is last in the list and must go first.
    for mounted in mounts_below(folder).iter().rev() {
        mount_point::detach(mounted);
    }
    // A failure leaves a folder that the next sweep finds.
    let _ = fs::remove_dir_all(folder);
}

fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(table) = fs::read("/proc/self/mountinfo") else {
        return Vec::new();
    };
    table
        .split(|&byte| byte == b'\n')
        .filter_map(|line| line.split(|&byte| byte == b' ').nth(4))
        .map(unescaped)
        .filter(|path| path.starts_with(folder))
        .collect()
}

/// Undoes the kernel's `\ooo` for blanks and backslashes in paths.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = (first == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal {
            bytes.push(byte);
            rest = &tail[3..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_are_undone() {
        assert_eq!(unescaped(br"/a\040b\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped(br"/plain\9"), Path::new("/plain\\9"));
    }
}
