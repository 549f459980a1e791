//! Processes as others see them.

use crate::setup::{Loop, MIB, directory, dirty_file, wait_for};
use dropbehind_linux::{
    FileKind, FileLink, KernelDevices, Pidfd, cgroups, children, command_name, executable,
    file_info, file_links, mapped_files, process_stat, processes, processes_started,
};
use dropbehind_testbed::Running;
use rustix::fs::{Mode, OFlags};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn self_id() -> i32 {
    std::process::id().try_into().unwrap()
}

struct Sleeper(Running);

impl Sleeper {
    fn new() -> Self {
        Self(Running::start(Command::new("sleep").arg("600")))
    }

    fn id(&self) -> i32 {
        self.0.id().try_into().unwrap()
    }
}

/// The files that a process has open for reading or writing, and for which of them.
fn open_files(process: i32) -> impl Iterator<Item = (FileLink, bool)> {
    let links = file_links(process).unwrap().flatten();
    links.filter_map(|link| Some((link, link.writable()?)))
}

#[test]
fn each_process_and_thread_that_starts_counts() {
    let before = processes_started().unwrap();
    let _sleeper = Sleeper::new();
    std::thread::spawn(|| {}).join().unwrap();
    assert!(processes_started().unwrap() >= before + 2);
}

#[test]
fn open_files_tell_readers_and_writers() {
    let directory = directory();
    let (path, writer) = dirty_file(directory.path(), 4096);
    let reader = File::open(&path).unwrap();
    let id = file_info(writer.as_fd()).unwrap().id;
    let mut found: Vec<_> = open_files(self_id())
        .filter(|(file, _)| file.id == id)
        .inspect(|(file, writable)| assert_eq!(file.seems_writable(), Some(*writable)))
        .map(|(file, writable)| (file.descriptor, writable, file.kind))
        .collect();
    found.sort_unstable_by_key(|file| !file.1);
    assert_eq!(
        found,
        [
            (writer.as_raw_fd(), true, FileKind::Regular),
            (reader.as_raw_fd(), false, FileKind::Regular)
        ]
    );
    assert!(file_links(i32::MAX).is_err());
}

/// Another thread of a program may exchange what a descriptor is at any moment.
#[test]
fn what_took_a_files_place_is_not_opened() {
    let directory = directory();
    let (path, writer) = dirty_file(directory.path(), 4096);
    let id = file_info(writer.as_fd()).unwrap().id;
    let found = || {
        let mut files = open_files(self_id());
        files.find(|(file, _)| file.id == id).unwrap().0
    };
    let open = found();
    let again = open.name().unwrap().open().unwrap();
    assert_eq!(file_info(again.as_fd()).unwrap().id, id);
    drop(again);
    let mut place: OwnedFd = writer.into();
    let other = File::create(directory.path().join("other")).unwrap();
    let terminal = rustix::fs::open("/dev/ptmx", OFlags::RDWR | OFlags::NOCTTY, Mode::empty());
    let terminal = terminal.unwrap();
    let named = rustix::fs::open("/dev/null", OFlags::PATH, Mode::empty()).unwrap();
    for other in [other.as_fd(), terminal.as_fd(), named.as_fd()] {
        rustix::io::dup2(other, &mut place).unwrap();
        let error = open.name().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
    // The same file by another name is the same file.
    rustix::io::dup2(File::open(&path).unwrap(), &mut place).unwrap();
    assert!(open.name().is_ok());
}

#[test]
fn who_can_neither_read_nor_write_uses_nothing() {
    let directory = directory();
    let (path, writer) = dirty_file(directory.path(), 4096);
    let id = file_info(writer.as_fd()).unwrap().id;
    let open = |flags| rustix::fs::open(&path, flags, Mode::empty()).unwrap();
    let named = open(OFlags::PATH);
    let controlled = open(OFlags::WRONLY | OFlags::RDWR);
    let files = open_files(self_id());
    let found: Vec<_> = files.filter(|(file, _)| file.id == id).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0.descriptor, writer.as_raw_fd());
    let links = file_links(self_id()).unwrap().flatten();
    let seem: Vec<_> = links
        .filter(|link| link.id == id && link.seems_writable().is_some())
        .collect();
    assert_eq!(seem, [found[0].0]);
    drop((named, controlled));
}

/// Between the questions which file it is and how it is open, a descriptor's
/// number may have come to mean another file.
#[test]
fn a_number_that_is_used_again_confuses_no_files() {
    let directory = directory();
    let (_, written) = dirty_file(directory.path(), 4096);
    let read_path = directory.path().join("read");
    std::fs::write(&read_path, "read").unwrap();
    let read = File::open(&read_path).unwrap();
    let [written_id, read_id] = [&written, &read].map(|file| file_info(file.as_fd()).unwrap().id);
    // On a file system where a file may have another number when it is open.
    let elsewhere = File::open("/proc/self/status").unwrap();
    let mut number = OwnedFd::from(written.try_clone().unwrap());
    let descriptor = number.as_raw_fd();
    let done = AtomicBool::new(false);
    let found: HashSet<_> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for file in [&read, &written, &elsewhere] {
                    rustix::io::dup2(file, &mut number).unwrap();
                }
            }
        });
        let found = (0..5000).flat_map(|_| open_files(self_id()));
        let found = found
            .filter(|(file, _)| file.descriptor == descriptor)
            .map(|(file, writable)| (file.id, writable))
            .collect();
        done.store(true, Ordering::Relaxed);
        found
    });
    let found = found
        .into_iter()
        .filter(|(id, _)| [written_id, read_id].contains(id));
    let wanted = HashSet::from([(written_id, true), (read_id, false)]);
    assert_eq!(found.collect::<HashSet<_>>(), wanted);
}

#[test]
fn another_processs_writer_is_found() {
    let directory = directory();
    let (path, file) = dirty_file(directory.path(), 4096);
    let id = file_info(file.as_fd()).unwrap().id;
    drop(file);
    let output = File::options().append(true).open(&path).unwrap();
    let writer = Sleeper(Running::start(
        Command::new("sleep").arg("600").stdout(output),
    ));
    wait_for("exec", || command_name(writer.id()).unwrap() == "sleep");
    let mut files = open_files(writer.id());
    let (found, writable) = files.find(|(file, _)| file.id == id).unwrap();
    assert_eq!((found.descriptor, writable), (1, true));
}

#[test]
fn block_devices_are_told_by_their_number() {
    let Some(disk) = Loop::new("block_devices_are_told_by_their_number", MIB) else {
        return;
    };
    let file = disk.open();
    let number = rustix::fs::fstat(&file).unwrap().st_rdev;
    let mut files = open_files(self_id());
    let found = files.find(|(open, _)| open.descriptor == file.as_raw_fd());
    let (found, writable) = found.unwrap();
    assert_eq!(found.kind, FileKind::Block);
    assert_eq!((found.block_device, writable), (number, true));
}

#[test]
fn shared_writable_mappings_outlive_their_descriptors() {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let directory = directory();
    let (_, file) = dirty_file(directory.path(), 8192);
    let inode = KernelDevices::new().inode_of(file.as_fd()).unwrap();
    let map = |rights, flags| {
        // SAFETY: new mappings at places of the kernel's choice.
        unsafe { mmap(std::ptr::null_mut(), 8192, rights, flags, &file, 0) }.unwrap()
    };
    let times = || {
        let files = mapped_files(self_id(), false).unwrap().flatten();
        files.filter(|file| *file == inode).count()
    };
    let both = ProtFlags::READ | ProtFlags::WRITE;
    let private = map(both, MapFlags::PRIVATE);
    let read_only = map(ProtFlags::READ, MapFlags::SHARED);
    assert_eq!(times(), 0);
    let shared = map(both, MapFlags::SHARED);
    drop(file);
    assert_eq!(times(), 1);
    for mapping in [private, read_only, shared] {
        // SAFETY: mapped above with this length, and not used.
        unsafe { munmap(mapping, 8192) }.unwrap();
    }
    assert_eq!(times(), 0);
}

#[test]
fn a_process_is_described() {
    let child = Sleeper::new();
    let id = child.id();
    wait_for("exec", || command_name(id).unwrap() == "sleep");
    assert!(processes().unwrap().any(|process| process == id));
    assert_eq!(executable(id).unwrap().file_name().unwrap(), "sleep");
    let stat = process_stat(id).unwrap();
    assert_eq!(stat.parent, self_id());
    assert!(children(self_id()).unwrap().contains(&id));
    assert_eq!(children(id).unwrap(), []);
    assert_eq!(cgroups(id).unwrap(), cgroups(self_id()).unwrap());
    assert!(Path::new("/proc/self/cgroup").exists() || cgroups(id).is_err());

    let pidfd = Pidfd::open(id).unwrap();
    pidfd.send_signal(libc::SIGSTOP).unwrap();
    wait_for("stopped", || process_stat(id).unwrap().state == 'T');
    pidfd.send_signal(libc::SIGCONT).unwrap();
    wait_for("going on", || process_stat(id).unwrap().state == 'S');
    drop(child);
    assert!(process_stat(id).is_err());
    assert!(command_name(id).is_err());
}

#[test]
fn a_pidfd_tells_of_the_end_and_of_no_other() {
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pidfd = Pidfd::open(child.id().try_into().unwrap()).unwrap();
    pidfd.send_signal(0).unwrap();
    assert!(!pidfd.wait(Some(Duration::ZERO)).unwrap());
    drop(child.stdin.take());
    assert!(pidfd.wait(None).unwrap());
    child.wait().unwrap();
    let error = pidfd.send_signal(0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    let error = Pidfd::open(i32::MAX).map(drop).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
    let error = Pidfd::open(0).map(drop).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
}
