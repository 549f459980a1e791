//! Which system calls count.

use std::io;
use std::str::FromStr;

use libc::c_long;

use super::call_table;
use super::listener::Call;

/// A system call by name, perhaps only with certain arguments.
///
/// As text, for the program `fail-nth`: `fsync`, `openat:path=/proc/self/`,
/// `ioctl:request=0x4c0a`, `pwritev2:flags=0x80`, `fcntl:arg1=1033`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFilter {
    name: String,
    number: c_long,
    condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Any,
    PathPrefix { argument: usize, prefix: String },
    OneOf { argument: usize, values: Vec<u64> },
    AnyBitOf { argument: usize, bits: u64 },
}

impl CallFilter {
    /// All calls of this name, as in the manual pages (but `newfstatat` and
    /// `pread64`). Unknown names, and those that this architecture does not
    /// have, are errors.
    pub fn new(name: &str) -> io::Result<Self> {
        let number = call_table::number_of(name)
            .ok_or_else(|| io::Error::other(format!("no system call {name:?} in the table")))?;
        Ok(Self {
            name: name.to_owned(),
            number,
            condition: Condition::Any,
        })
    }

    /// Only those whose path begins like this, as the program spelled it. An
    /// error for calls of which it is not known where they have a path.
    pub fn path_prefix(self, prefix: &str) -> io::Result<Self> {
        let argument = path_argument(&self.name).ok_or_else(|| self.has_no("path"))?;
        Ok(Self {
            condition: Condition::PathPrefix {
                argument,
                prefix: prefix.to_owned(),
            },
            ..self
        })
    }

    /// Only those with one of these request codes in their second argument:
    /// `ioctl` and `fcntl`.
    pub fn requests(self, values: &[u64]) -> Self {
        Self {
            condition: Condition::OneOf {
                argument: 1,
                values: values.to_vec(),
            },
            ..self
        }
    }

    /// Only those with at least one of these flags. An error for calls of
    /// which it is not known where they have flags.
    pub fn flags(self, bits: u64) -> io::Result<Self> {
        let argument = flags_argument(&self.name).ok_or_else(|| self.has_no("flags"))?;
        Ok(Self {
            condition: Condition::AnyBitOf { argument, bits },
            ..self
        })
    }

    /// Only those whose argument, counted from 0, has this value.
    pub fn argument(self, argument: usize, value: u64) -> Self {
        Self {
            condition: Condition::OneOf {
                argument,
                values: vec![value],
            },
            ..self
        }
    }

    /// The call's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn has_no(&self, what: &str) -> io::Error {
        io::Error::other(format!("{} has no {what} that is known", self.name))
    }

    pub(super) fn number(&self) -> c_long {
        self.number
    }

    /// Describes the call if it counts.
    pub(super) fn describe(&self, call: &Call) -> Option<String> {
        if call.number != self.number {
            return None;
        }
        let name = &self.name;
        match &self.condition {
            Condition::Any => Some(name.clone()),
            Condition::PathPrefix { argument, prefix } => {
                let path = call.path(*argument)?;
                path.starts_with(prefix.as_str())
                    .then(|| format!("{name} of {path}"))
            }
            Condition::OneOf { argument, values } => {
                let value = *call.arguments.get(*argument)?;
                values
                    .contains(&value)
                    .then(|| format!("{name} with {value:#x}"))
            }
            Condition::AnyBitOf { argument, bits } => {
                let value = *call.arguments.get(*argument)?;
                (value & bits != 0).then(|| format!("{name} with flags {value:#x}"))
            }
        }
    }
}

impl FromStr for CallFilter {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<Self> {
        let Some((name, condition)) = text.split_once(':') else {
            return Self::new(text);
        };
        let call = Self::new(name)?;
        let bad = || io::Error::other(format!("no condition: {condition:?}"));
        let (key, value) = condition.split_once('=').ok_or_else(bad)?;
        let number = || parse_number(value).ok_or_else(bad);
        Ok(match key {
            "path" => call.path_prefix(value)?,
            "request" => call.requests(&[number()?]),
            "flags" => call.flags(number()?)?,
            _ => {
                let index = key.strip_prefix("arg").and_then(|index| index.parse().ok());
                call.argument(index.filter(|&index| index < 6).ok_or_else(bad)?, number()?)
            }
        })
    }
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Where a call has its path.
fn path_argument(name: &str) -> Option<usize> {
    Some(match name {
        "open" | "creat" | "stat" | "lstat" | "access" | "truncate" | "statfs" | "execve"
        | "unlink" | "rename" | "rmdir" | "mkdir" | "readlink" | "link" | "symlink" | "mount"
        | "umount2" | "pivot_root" => 0,
        "openat" | "openat2" | "newfstatat" | "statx" | "unlinkat" | "renameat" | "renameat2"
        | "linkat" | "mkdirat" | "readlinkat" | "fchmodat" | "fchownat" | "utimensat"
        | "execveat" | "name_to_handle_at" | "open_tree" | "move_mount" | "mount_setattr"
        | "inotify_add_watch" => 1,
        "symlinkat" => 2,
        "fanotify_mark" => 4,
        _ => return None,
    })
}

/// Where a call has its flags.
fn flags_argument(name: &str) -> Option<usize> {
    Some(match name {
        "unshare" | "fanotify_init" | "inotify_init1" | "epoll_create1" => 0,
        "open" | "setns" | "umount2" | "eventfd2" | "pipe2" | "memfd_create" | "fanotify_mark" => 1,
        "openat" | "statx" | "unlinkat" | "dup3" | "close_range" | "msync" => 2,
        "newfstatat" | "sync_file_range" | "mmap" | "mremap" | "mount" | "cachestat" => 3,
        "renameat2" | "linkat" | "execveat" => 4,
        "preadv2" | "pwritev2" | "splice" | "copy_file_range" => 5,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_calls_mean_the_same() {
        let parse = |text: &str| text.parse::<CallFilter>().unwrap();
        let call = |name| CallFilter::new(name).unwrap();
        assert_eq!(parse("fsync"), call("fsync"));
        assert_eq!(
            parse("openat:path=/proc/self/"),
            call("openat").path_prefix("/proc/self/").unwrap()
        );
        assert_eq!(parse("ioctl:request=0x10"), call("ioctl").requests(&[16]));
        assert_eq!(
            parse("pwritev2:flags=128"),
            call("pwritev2").flags(128).unwrap()
        );
        assert_eq!(parse("fcntl:arg1=3"), call("fcntl").argument(1, 3));
        for wrong in [
            "nosuchcall",
            "fsync:",
            "fsync:arg6=1",
            "fsync:arg1=x",
            "fsync:what=1",
            "fsync:path=/",
        ] {
            assert!(wrong.parse::<CallFilter>().is_err(), "{wrong}");
        }
    }
}
