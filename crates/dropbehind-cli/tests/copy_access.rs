//! Who may read what `dropbehind cp` makes: access control lists and their masks.

mod user;

use dropbehind_testbed::{Need, need};
use rustix::fs::XattrFlags;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use user::User;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// Any user but the one of the tests.
const NAMED_USER: u32 = 1000;

/// A list: the owner, a named user, the group, the mask and the others.
fn acl(owner: u16, named: u16, group: u16, mask: u16, others: u16) -> Vec<u8> {
    let nobody = u32::MAX;
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, permission, id) in [
        (0x01_u16, owner, nobody),
        (0x02, named, NAMED_USER),
        (0x04, group, nobody),
        (0x10, mask, nobody),
        (0x20, others, nobody),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permission.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set(path: &Path, name: &str, list: &[u8]) {
    rustix::fs::setxattr(path, name, list, XattrFlags::empty()).expect("a list");
}

fn list(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(256);
    rustix::fs::getxattr(path, name, rustix::buffer::spare_capacity(&mut bytes)).ok()?;
    Some(bytes)
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

/// A tree with a file, a directory and a pipe, each with a list.
fn with_lists() -> (User, Vec<u8>) {
    let user = User::new();
    assert_eq!(
        user.sh("mkdir -p tree/s; umask 077; touch tree/f; mkfifo tree/p")
            .code,
        0
    );
    let read = acl(6, 4, 0, 4, 0);
    set(&user.file("tree/f"), ACCESS, &read);
    set(&user.file("tree/p"), ACCESS, &read);
    set(&user.file("tree/s"), ACCESS, &acl(7, 5, 0, 5, 0));
    set(&user.file("tree/s"), DEFAULT, &read);
    assert_eq!(mode(&user.file("tree/f")), 0o640);
    (user, read)
}

#[test]
fn preserve_keeps_access_control_lists() {
    let (user, read) = with_lists();
    user.does("cp -rp tree copy");
    for name in ["copy/f", "copy/p"] {
        assert_eq!(list(&user.file(name), ACCESS), Some(read.clone()), "{name}");
        assert_eq!(mode(&user.file(name)), 0o640, "{name}");
    }
    assert_eq!(list(&user.file("copy/s"), ACCESS), Some(acl(7, 5, 0, 5, 0)));
    assert_eq!(list(&user.file("copy/s"), DEFAULT), Some(read));
    // A copy does not keep what its directory would hand down.
    set(&user.file("copy"), DEFAULT, &acl(7, 7, 7, 7, 7));
    user.sh("mkdir -m 700 plain; install -m 600 /dev/null plain/f");
    user.does("cp -rp plain copy");
    for (name, bits) in [("copy/plain", 0o700), ("copy/plain/f", 0o600)] {
        assert_eq!(list(&user.file(name), ACCESS), None, "{name}");
        assert_eq!(mode(&user.file(name)), bits, "{name}");
    }
    assert_eq!(list(&user.file("copy/plain"), DEFAULT), None);
}

#[test]
fn a_mask_does_not_become_a_right_of_the_group() {
    let (user, _) = with_lists();
    user.sh("umask 000; dropbehind cp -r tree copy");
    for (name, bits) in [("copy/f", 0o600), ("copy/p", 0o600), ("copy/s", 0o700)] {
        assert_eq!(mode(&user.file(name)), bits, "{name}");
    }
}

#[test]
fn a_list_that_the_file_system_does_not_take_is_told() {
    need!(Need::Root);
    let (user, _) = with_lists();
    // ramfs has no lists.
    assert_eq!(
        user.sh("mkdir m; mount -t ramfs ramfs m; chmod 755 m").code,
        0
    );
    let said = user.runs("cp -rp tree m");
    let modes: Vec<_> = ["m/tree/f", "m/tree/p", "m/tree/s"]
        .map(|name| mode(&user.file(name)))
        .into();
    assert_eq!(user.sh("umount m").code, 0);
    assert_eq!(modes, [0o600, 0o600, 0o700]);
    said.fails(1, "the access control list of its source");
}

#[test]
fn a_directory_inherits_its_list() {
    let user = User::new();
    user.sh("mkdir -p tree/s d plain; chmod 777 tree/s; touch tree/s/f; chmod 666 tree/s/f");
    for target in ["d", "plain"] {
        set(&user.file(target), DEFAULT, &acl(7, 7, 5, 5, 1));
    }
    user.sh("cp -r tree plain");
    user.does("cp -r tree d");
    for name in ["tree/s", "tree/s/f"] {
        let (ours, plain) = (
            user.file(&format!("d/{name}")),
            user.file(&format!("plain/{name}")),
        );
        assert_eq!(mode(&ours), mode(&plain), "{name}");
        assert_eq!(list(&ours, ACCESS), list(&plain, ACCESS), "{name}");
    }
}
