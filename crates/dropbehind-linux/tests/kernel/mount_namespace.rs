//! Namespaces and what is mounted in them. Mounting is done in threads with a
//! private namespace of their own.

use crate::setup::{Mounted, directory, is_root, skip};
use dropbehind_linux::{
    Interest, MountWatch, PollEntry, mount_namespace_of, mounts_of, poll, thread_id,
    unshare_mount_namespace,
};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

fn self_id() -> i32 {
    std::process::id().try_into().unwrap()
}

#[test]
fn a_new_namespace_is_another_one() {
    if !is_root() {
        skip!("a_new_namespace_is_another_one", "needs root");
    }
    let before = mount_namespace_of(0).unwrap();
    assert_eq!(mount_namespace_of(self_id()).unwrap(), before);
    let (own, by_number) = std::thread::spawn(|| {
        unshare_mount_namespace().unwrap();
        let own = mount_namespace_of(0).unwrap();
        (own, mount_namespace_of(thread_id()).unwrap())
    })
    .join()
    .unwrap();
    assert_ne!(own, before);
    assert_eq!(own, by_number);
    assert_eq!(mount_namespace_of(0).unwrap(), before);
    assert!(mount_namespace_of(i32::MAX).is_err());
}

#[test]
fn the_table_names_the_root() {
    let mounts = mounts_of(self_id()).unwrap();
    let root = mounts
        .iter()
        .rfind(|mount| mount.mount_point == Path::new("/"))
        .expect("something is mounted at the root");
    assert!(!root.filesystem.is_empty());
    let proc = mounts
        .iter()
        .find(|mount| mount.mount_point == Path::new("/proc"));
    assert_eq!(proc.expect("proc is mounted").filesystem, "proc");
}

#[test]
fn new_mounts_are_noticed() {
    if !is_root() {
        skip!("new_mounts_are_noticed", "needs root");
    }
    let watch = MountWatch::new(self_id()).unwrap();
    let directory = directory();
    let at = directory.path().join("new mount");
    let mounted = Mounted::new(&["-t", "tmpfs", "scratch"], &at).unwrap();
    // Other tests mount things as well, so only the presence can be told.
    let mut entry = [PollEntry::new(watch.as_fd(), Interest::Urgent)];
    assert_eq!(poll(&mut entry, Some(Duration::ZERO)).unwrap(), 1);
    let found = |watch: &MountWatch| {
        let mounts = watch.mounts().unwrap();
        mounts.into_iter().find(|mount| mount.mount_point == at)
    };
    let mount = found(&watch).expect("the new mount is in the table");
    assert_eq!(mount.filesystem, "tmpfs");
    assert_eq!(mount.source, Path::new("scratch"));
    assert_eq!(mount.root, Path::new("/"));
    drop(mounted);
    assert!(watch.has_changed().unwrap());
    assert!(found(&watch).is_none());
}

#[test]
fn quiet_tables_are_quiet() {
    if !is_root() {
        skip!("quiet_tables_are_quiet", "needs root");
    }
    std::thread::spawn(|| {
        unshare_mount_namespace().unwrap();
        // What others mount does not get here.
        make_mounts_private();
        let watch = MountWatch::new(thread_id()).unwrap();
        assert!(!watch.has_changed().unwrap());
        let directory = directory();
        let mounted = Mounted::new(&["-t", "tmpfs", "tmpfs"], &directory.path().join("at"));
        assert!(watch.has_changed().unwrap());
        assert!(!watch.has_changed().unwrap());
        drop(mounted);
        assert!(watch.has_changed().unwrap());
    })
    .join()
    .unwrap();
}

fn make_mounts_private() {
    // SAFETY: strings that end with a zero, and null pointers where the kernel
    // ignores them.
    let returned = unsafe {
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            libc::MS_REC | libc::MS_PRIVATE,
            std::ptr::null(),
        )
    };
    assert_eq!(returned, 0);
}
