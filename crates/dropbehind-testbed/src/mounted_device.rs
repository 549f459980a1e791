//! Which file system a path is in.

use std::fs;
use std::io;
use std::path::Path;

/// The device number of the file system that a path is in, which a file's own
/// status does not tell on btrfs.
pub(crate) fn mounted_device(path: &Path) -> io::Result<(u32, u32)> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let status = statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID)?;
    let mount = status.stx_mnt_id.to_string();
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    // Its fields are: the mount's number, its parent's, and MAJOR:MINOR.
    let device = table.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let device = (fields.next() == Some(mount.as_str())).then(|| fields.nth(1))??;
        let (major, minor) = device.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    device.ok_or_else(|| io::Error::other(format!("{} is on no mount", path.display())))
}
