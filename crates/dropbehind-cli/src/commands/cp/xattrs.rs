//! Extended attributes, capabilities among them; access control lists are in [`super::acl`].

use super::choices::Preserve;
use crate::place::proc_path;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

const USUAL_BYTES: usize = 512;
/// `XATTR_SIZE_MAX` and `XATTR_LIST_MAX`.
const MOST_BYTES: usize = 1 << 16;
/// Where SELinux keeps its context.
const CONTEXT: &[u8] = b"security.selinux";

/// The names of a file's extended attributes.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Vec<u8>);

impl Names {
    /// The names of an open file; none where the file system has no attributes.
    pub(super) fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        loop {
            let spare = rustix::buffer::spare_capacity(&mut bytes);
            let got = match rustix::fs::flistxattr(file, spare) {
                // The descriptor was opened with `O_PATH`.
                Err(Errno::BADF) => {
                    let spare = rustix::buffer::spare_capacity(&mut bytes);
                    rustix::fs::listxattr(proc_path(file), spare)
                }
                got => got,
            };
            match got {
                Ok(_) => return Ok(Self(bytes)),
                Err(Errno::RANGE) if bytes.capacity() < MOST_BYTES => bytes.reserve(MOST_BYTES),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Self::default()),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn each(&self) -> impl Iterator<Item = &CStr> {
        let ends = self.0.split_inclusive(|&byte| byte == 0);
        ends.filter_map(|name| CStr::from_bytes_with_nul(name).ok())
    }

    /// Whether there is one of this name.
    pub(super) fn have(&self, name: &str) -> bool {
        self.each().any(|found| found.to_bytes() == name.as_bytes())
    }

    /// Gives a copy those that are wanted.
    ///
    /// The first error ends nothing: the others are still copied. Where `-a` asks for all, it is
    /// no error that the user may not set one, or that the file system takes none.
    pub(super) fn copy(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        wanted: Preserve,
    ) -> Result<(), Errno> {
        let may_fail = wanted.xattrs && !wanted.xattrs_by_name;
        let is_wanted = |name: &[u8]| match name == CONTEXT {
            true => wanted.context,
            false => wanted.xattrs && is_data(name),
        };
        let mut result = Ok(());
        for name in self.each().filter(|name| is_wanted(name.to_bytes())) {
            result = result.and(match copy(name, from, to) {
                Err(Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) if may_fail => Ok(()),
                copied => copied,
            });
        }
        result
    }
}

/// Whether an attribute belongs to the data: not to what the kernel or the file system keeps there
/// for itself. Lists are copied with the permissions.
fn is_data(name: &[u8]) -> bool {
    let is_below = |prefix: &[u8]| name.starts_with(prefix);
    !is_below(b"system.") && !is_below(b"trusted.SGI_") && name != b"security.evm"
}

fn copy(name: &CStr, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    match value(from, name) {
        // Somebody removed it.
        Err(Errno::NODATA) => Ok(()),
        got => set(to, name, &got?),
    }
}

/// An attribute's value, also of a file that is open with `O_PATH`.
pub(super) fn value(file: BorrowedFd<'_>, name: impl Arg + Copy) -> Result<Vec<u8>, Errno> {
    let mut value = Vec::with_capacity(USUAL_BYTES);
    loop {
        let spare = rustix::buffer::spare_capacity(&mut value);
        let got = match rustix::fs::fgetxattr(file, name, spare) {
            Err(Errno::BADF) => {
                let spare = rustix::buffer::spare_capacity(&mut value);
                rustix::fs::getxattr(proc_path(file), name, spare)
            }
            got => got,
        };
        match got {
            Ok(_) => return Ok(value),
            Err(Errno::RANGE) if value.capacity() < MOST_BYTES => value.reserve(MOST_BYTES),
            Err(errno) => return Err(errno),
        }
    }
}

/// Sets an attribute, also of a file that is open with `O_PATH`.
pub(super) fn set(file: BorrowedFd<'_>, name: impl Arg + Copy, value: &[u8]) -> Result<(), Errno> {
    let flags = XattrFlags::empty();
    match rustix::fs::fsetxattr(file, name, value, flags) {
        Err(Errno::BADF) => rustix::fs::setxattr(proc_path(file), name, value, flags),
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropbehind_testbed::{Need, Scratch, need};
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_context_is_copied_where_it_alone_is_wanted() {
        need!(Need::Root);
        let home = Scratch::new().expect("a scratch folder");
        let file = |name: &str| File::create(home.file(name)).expect("a file");
        let (from, to) = (file("from"), file("to"));
        for name in ["security.selinux", "user.x"] {
            let set = rustix::fs::fsetxattr(&from, name, b"value", XattrFlags::empty());
            set.expect("an attribute");
        }
        let names = Names::of(from.as_fd()).expect("their names");
        let wanted = Preserve {
            context: true,
            ..Preserve::default()
        };
        let copied = names.copy(from.as_fd(), to.as_fd(), wanted);
        assert_eq!(copied, Ok(()));
        let names = Names::of(to.as_fd()).expect("their names");
        assert!(names.have("security.selinux") && !names.have("user.x"));
    }
}
