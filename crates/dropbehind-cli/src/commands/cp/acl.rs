//! POSIX access control lists, as the kernel keeps them in extended attributes
//! (include/uapi/linux/posix_acl_xattr.h).

use super::xattrs;
use crate::place::proc_path;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// One of a file's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Says who may do what with the file.
    Access,
    /// Given to whatever is made in the directory.
    Default,
}

impl Kind {
    /// The attribute that holds it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Access => "system.posix_acl_access",
            Self::Default => "system.posix_acl_default",
        }
    }
}

/// A list that says more than permission bits can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Acl(Vec<u8>);

impl Acl {
    /// A file's list, if it has one.
    pub(super) fn of(file: BorrowedFd<'_>, kind: Kind) -> Result<Option<Self>, Errno> {
        match xattrs::value(file, kind.name()) {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
            got => got.map(|bytes| Some(Self(bytes))),
        }
    }

    /// Gives a file this list.
    pub(super) fn set(&self, file: BorrowedFd<'_>, kind: Kind) -> Result<(), Errno> {
        xattrs::set(file, kind.name(), &self.0)
    }

    /// Removes a list that a file may have inherited.
    pub(super) fn remove(file: BorrowedFd<'_>, kind: Kind) -> Result<(), Errno> {
        let removed = match rustix::fs::fremovexattr(file, kind.name()) {
            Err(Errno::BADF) => rustix::fs::removexattr(proc_path(file), kind.name()),
            removed => removed,
        };
        match removed {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            removed => removed,
        }
    }

    fn permission(&self, tag: u16) -> Option<u32> {
        let entries = self.0.get(HEADER_BYTES..)?.chunks_exact(ENTRY_BYTES);
        entries
            .map(|entry| {
                let field = |at| u16::from_le_bytes([entry[at], entry[at + 1]]);
                (field(0), u32::from(field(2)))
            })
            .find_map(|(found, permission)| (found == tag).then_some(permission & 0o7))
    }

    fn bits(&self, group: u32) -> u32 {
        let of = |tag| self.permission(tag).unwrap_or(0);
        of(USER_OBJ) << 6 | group << 3 | of(OTHER)
    }

    /// The permission bits of a file that has this list: the group's are the mask, the most that
    /// anybody on the list may do.
    pub(super) fn permissions_shown(&self) -> u32 {
        let group = self.permission(MASK).or(self.permission(GROUP_OBJ));
        self.bits(group.unwrap_or(0))
    }

    /// The permission bits without the list: the group gets what it had, and those whom the list
    /// named get nothing of their own.
    pub(super) fn permissions_without(&self) -> u32 {
        let group = self.permission(GROUP_OBJ).unwrap_or(0);
        self.bits(group & self.permission(MASK).unwrap_or(0o7))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Acl {
        let mut bytes = vec![2, 0, 0, 0];
        for (tag, permission) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permission.to_le_bytes());
            bytes.extend(u32::MAX.to_le_bytes());
        }
        Acl(bytes)
    }

    #[test]
    fn a_mask_is_no_right_of_the_group() {
        let named = 0x02;
        let list = acl(&[
            (USER_OBJ, 6),
            (named, 4),
            (GROUP_OBJ, 0),
            (MASK, 4),
            (OTHER, 0),
        ]);
        assert_eq!(list.permissions_shown(), 0o640);
        assert_eq!(list.permissions_without(), 0o600);
        // Nor does the group keep a right that the mask takes from it.
        let list = acl(&[(USER_OBJ, 6), (GROUP_OBJ, 7), (MASK, 4), (OTHER, 1)]);
        assert_eq!(list.permissions_without(), 0o641);
        let list = acl(&[(USER_OBJ, 7), (GROUP_OBJ, 5), (OTHER, 0)]);
        assert_eq!(list.permissions_shown(), 0o750);
        assert_eq!(list.permissions_without(), 0o750);
    }

    #[test]
    fn a_broken_list_gives_nobody_anything() {
        for bytes in [vec![], vec![2], vec![2, 0, 0, 0, 1, 0, 7]] {
            assert_eq!(Acl(bytes).permissions_without(), 0);
        }
    }
}
