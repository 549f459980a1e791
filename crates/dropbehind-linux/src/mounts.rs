//! Mounts: `/proc/PID/mountinfo`, proc_pid_mountinfo(5), and the mount that a file was opened
//! through.

use crate::file::MNT_ID_UNIQUE;
use rustix::fs::{AtFlags, StatxFlags};
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The number of the mount that a path is on, which is not reused until the next boot; `None`
/// before Linux 6.8. An empty path means the directory itself.
///
/// # Errors
///
/// Those of statx(2).
pub fn mount_number(directory: BorrowedFd<'_>, path: &Path) -> io::Result<Option<u64>> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
    let statx = rustix::fs::statx(directory, path, flags, MNT_ID_UNIQUE)?;
    let is_told = statx.stx_mask & MNT_ID_UNIQUE.bits() != 0;
    Ok(is_told.then_some(statx.stx_mnt_id))
}

/// A mount: one line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The mount's ID, unique while it exists (`STATX_MNT_ID`).
    pub id: u64,
    /// The ID of the mount that it is on; its own for the topmost.
    pub parent: u64,
    /// The device number of the mounted file system itself. On btrfs and overlayfs, files may
    /// show other ones.
    pub device: u64,
    /// Which part of the file system is mounted: `/`, or a subtree in a bind mount. For files
    /// of namespaces, a name such as `mnt:[4026531840]`.
    pub root: PathBuf,
    /// Where it is mounted, as seen from the process's root directory.
    pub mount_point: PathBuf,
    /// The file system's type, `ext4` or `fuse.sshfs`.
    pub filesystem: String,
    /// What was mounted: a device, or any text, depending on the file system.
    pub source: PathBuf,
    /// The file system's own options, separated by commas, such as `rw,errors=remount-ro`, and
    /// still escaped.
    options: Vec<u8>,
}

/// Undoes mountinfo's escapes, such as `\054`, for characters that would end a field.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if byte == b'\\' => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}

impl Mount {
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
        let id = number(fields.next()?)?;
        let parent = number(fields.next()?)?;
        let device = std::str::from_utf8(fields.next()?).ok()?;
        let (major, minor) = device.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        let root = unescape(fields.next()?);
        let mount_point = unescape(fields.next()?);
        // Optional fields end with a lone dash; type, source, options follow.
        fields.by_ref().find(|&field| field == b"-")?;
        let filesystem = unescape(fields.next()?);
        let source = unescape(fields.next()?);
        Some(Self {
            id,
            parent,
            device,
            root: path(root),
            mount_point: path(mount_point),
            filesystem: String::from_utf8_lossy(&filesystem).into_owned(),
            source: path(source),
            options: fields.next()?.to_vec(),
        })
    }

    /// Parses all lines of a table.
    pub(crate) fn parse_table(table: &[u8]) -> impl Iterator<Item = Self> {
        table.split(|&byte| byte == b'\n').filter_map(Self::parse)
    }

    /// Returns whether it has an option without a value.
    pub(crate) fn has_option(&self, name: &str) -> bool {
        let mut options = self.options.split(|&byte| byte == b',');
        options.any(|option| option == name.as_bytes())
    }

    /// The values of a `name=value` option.
    fn option(&self, name: &str) -> impl Iterator<Item = Vec<u8>> {
        self.options
            .split(|&byte| byte == b',')
            .filter_map(move |option| {
                let value = option.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
                Some(unescape(value))
            })
    }

    /// The possible names of an overlay's upper directory: it depends on the mount call
    /// whether backslashes are part of the name or escape commas.
    pub(crate) fn upper_directories(&self) -> Vec<PathBuf> {
        let Some(name) = self.option("upperdir").next() else {
            return Vec::new();
        };
        let mut plain = Vec::with_capacity(name.len());
        let mut bytes = name.iter().copied();
        while let Some(byte) = bytes.next() {
            plain.extend(if byte == b'\\' {
                bytes.next()
            } else {
                Some(byte)
            });
        }
        let mut names = vec![path(name), path(plain)];
        names.dedup();
        names
    }

    /// An overlay's lower directories, topmost first. They are separated by colons, with
    /// colons in names escaped; since Linux 6.7 they may also be given one by one.
    pub(crate) fn lower_directories(&self) -> Vec<PathBuf> {
        let single: Vec<PathBuf> = self.option("lowerdir+").map(path).collect();
        if !single.is_empty() {
            return single;
        }
        let mut names = Vec::new();
        for all in self.option("lowerdir") {
            let mut name = Vec::new();
            let mut bytes = all.into_iter();
            while let Some(byte) = bytes.next() {
                match byte {
                    b':' => names.push(path(std::mem::take(&mut name))),
                    b'\\' => name.extend(bytes.next()),
                    byte => name.push(byte),
                }
            }
            names.push(path(name));
        }
        // Two colons precede data-only layers.
        names.retain(|name| !name.as_os_str().is_empty());
        names
    }

    /// All directories of an overlay, topmost first, with both possible names of the upper
    /// one.
    #[must_use]
    pub fn layers(&self) -> Vec<PathBuf> {
        let mut layers = self.upper_directories();
        layers.extend(self.lower_directories());
        layers
    }
}

/// The mount that the descriptor was opened through, by its mount ID (statx(2)
/// `STATX_MNT_ID`, since Linux 5.8) or else by device number; `None` for mounts in another
/// namespace.
pub(crate) fn mount_of(fd: BorrowedFd<'_>, device: u64) -> io::Result<Option<Mount>> {
    let id = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
        .ok()
        .filter(|statx| statx.stx_mask & StatxFlags::MNT_ID.bits() != 0)
        .map(|statx| statx.stx_mnt_id);
    let table = std::fs::read("/proc/thread-self/mountinfo")?;
    let mut by_device = None;
    for mount in Mount::parse_table(&table) {
        if Some(mount.id) == id {
            return Ok(Some(mount));
        }
        if mount.device == device {
            by_device = Some(mount);
        }
    }
    Ok(by_device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn reads_an_overlay_with_odd_names() {
        let line = br"36 35 0:50 / /mnt/a\040b rw,noatime master:1 shared:2 - overlay none rw,lowerdir=/l\134:1:/l2,upperdir=/up\134\054per\040x,workdir=/w";
        let mount = Mount::parse(line).unwrap();
        assert_eq!(mount.id, 36);
        assert_eq!(mount.device, rustix::fs::makedev(0, 50));
        assert_eq!((mount.parent, mount.filesystem.as_str()), (35, "overlay"));
        assert_eq!(mount.root, PathBuf::from("/"));
        assert_eq!(mount.mount_point, PathBuf::from("/mnt/a b"));
        assert_eq!(mount.source, PathBuf::from("none"));
        assert_eq!(
            mount.upper_directories(),
            [PathBuf::from(r"/up\,per x"), PathBuf::from("/up,per x")]
        );
        assert_eq!(
            mount.lower_directories(),
            [PathBuf::from("/l:1"), PathBuf::from("/l2")]
        );
    }

    #[test]
    fn reads_a_plain_mount() {
        let mount = Mount::parse(b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard").unwrap();
        assert_eq!(mount.device, rustix::fs::makedev(254, 0));
        assert_eq!(mount.source, PathBuf::from("/dev/vda"));
        assert!(mount.upper_directories().is_empty());
        assert_eq!(mount.options, b"rw,discard");
        assert_eq!(Mount::parse(b""), None);
        assert_eq!(Mount::parse(b"27 1 254:0 / / rw"), None);
    }

    #[test]
    fn any_table_has_no_more_mounts_than_lines_and_no_longer_names() {
        dropbehind_testbed::fuzz("tests/corpus/mountinfo", |table| {
            let mut mounts = 0;
            for mount in Mount::parse_table(table) {
                mounts += 1;
                let names = mount.layers();
                assert!(
                    names
                        .iter()
                        .all(|name| name.as_os_str().len() <= mount.options.len())
                );
                // Written again with every byte of its names escaped, it parses to the same
                // mount.
                let escaped = |name: &OsStr| -> String {
                    let bytes = name.as_bytes().iter();
                    bytes.map(|byte| format!("\\{byte:03o}")).collect()
                };
                let mut line = format!(
                    "{} {} {}:{} {} {} rw - {} {} ",
                    mount.id,
                    mount.parent,
                    rustix::fs::major(mount.device),
                    rustix::fs::minor(mount.device),
                    escaped(mount.root.as_os_str()),
                    escaped(mount.mount_point.as_os_str()),
                    escaped(OsStr::new(&mount.filesystem)),
                    escaped(mount.source.as_os_str()),
                )
                .into_bytes();
                line.extend(&mount.options);
                assert_eq!(Mount::parse(&line), Some(mount));
            }
            assert!(mounts <= table.split(|&byte| byte == b'\n').count());
        });
    }

    /// A name as the kernel writes it: mangle_path() and seq_escape(), fs/seq_file.c.
    fn written(name: &[u8], escaped: &[u8]) -> Vec<u8> {
        let mut written = Vec::new();
        for byte in name {
            match escaped.contains(byte) {
                true => written.extend(format!("\\{byte:03o}").bytes()),
                false => written.push(*byte),
            }
        }
        written
    }

    #[test]
    fn any_name_is_read_as_it_was_given() {
        dropbehind_testbed::fuzz("tests/corpus/mountinfo", |name| {
            let field = written(name, b" \t\n\\");
            let option = written(name, b",= \t\n\\");
            // Whoever mounts it escapes colons.
            let mut lower = Vec::new();
            for &byte in name {
                lower.extend([b'\\'].iter().filter(|_| matches!(byte, b':' | b'\\')));
                lower.push(byte);
            }
            let lower = written(&lower, b",= \t\n\\");
            let line = [
                b"36 35 0:50 ",
                &field[..],
                b" ",
                &field,
                b" rw - overlay ",
                &field,
                b" rw,upperdir=",
                &option,
                b",lowerdir=",
                &lower,
                b":/l2",
            ];
            let mount = Mount::parse(&line.concat()).unwrap();
            let name = path(name.to_vec());
            assert_eq!(mount.root, name);
            assert_eq!(mount.mount_point, name);
            assert_eq!(mount.source, name);
            assert_eq!(mount.upper_directories()[0], name);
            let second = PathBuf::from("/l2");
            match name.as_os_str().is_empty() {
                true => assert_eq!(mount.lower_directories(), [second]),
                false => assert_eq!(mount.lower_directories(), [name, second]),
            }
        });
    }
}
