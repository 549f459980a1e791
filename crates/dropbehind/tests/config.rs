//! The configuration file, in a program that uses the library.

mod common;

use common::{FILE_VARIABLE, MIB, part, write_pattern};
use dropbehind::flusher::Flusher;
use dropbehind::{File, Mode, OpenOptions};
use dropbehind_testbed::Scratch;
use std::os::fd::AsFd;

/// Runs a part with this configuration; in it, DISK is the disk's name.
fn with_config(name: &str, text: &str) {
    let home = Scratch::new().unwrap();
    let path = home.file("file");
    std::fs::write(&path, b"").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    let disk = dropbehind_linux::disk_of(file.as_fd()).unwrap().name;
    std::fs::write(home.file("config"), text.replace("DISK", &disk)).unwrap();
    let status = part(name)
        .env(FILE_VARIABLE, &path)
        .env("DROPBEHIND_CONFIG", home.file("config"))
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

fn path() -> std::path::PathBuf {
    std::env::var_os(FILE_VARIABLE).unwrap().into()
}

#[test]
fn a_disk_has_a_mode_of_its_own() {
    with_config(
        "opens_in_the_disks_mode",
        "[disk.\"DISK\"]\nmode = \"noreuse\"",
    );
}

#[test]
#[ignore = "a part of another test"]
fn opens_in_the_disks_mode() {
    assert_eq!(File::create(path()).unwrap().mode(), Mode::NOREUSE);
    let mut options = OpenOptions::new();
    let file = options.write(true).cache_mode(Mode::DONTCACHE).open(path());
    assert_eq!(
        file.unwrap().mode(),
        Mode::DONTCACHE,
        "what is set goes first"
    );
    assert_eq!(dropbehind::config::problem(), None);
}

#[test]
fn a_disk_that_is_off_has_no_effect() {
    with_config("is_off", "[disk.\"DISK\"]\nenabled = false");
}

#[test]
#[ignore = "a part of another test"]
fn is_off() {
    let mut file = File::create(path()).unwrap();
    assert!(
        file.without_effect()
            .is_some_and(|why| why.contains("turned off"))
    );
    write_pattern(&mut file, 1, 0, 8 * MIB, MIB);
    file.sync_all().unwrap();
    assert_eq!(file.stats().writeback_bytes.total(), 0);
    assert_eq!(common::cached_bytes(&path()), 8 * MIB);
}

/// A mistake of the administrator's is no reason for a program to fail.
#[test]
fn a_mistake_is_reported_and_fails_no_open() {
    with_config("goes_on_with_a_mistake", "[disk.\"DISK\"]\nmode = \"fast\"");
}

#[test]
#[ignore = "a part of another test"]
fn goes_on_with_a_mistake() {
    let mut file = File::create(path()).unwrap();
    assert_eq!(file.mode(), Mode::DONTCACHE);
    write_pattern(&mut file, 1, 0, 8 * MIB, MIB);
    file.sync_all().unwrap();
    let notes = Flusher::shared().unwrap().degraded();
    assert!(
        notes
            .iter()
            .any(|note| note.contains("config:2:8: \"fast\"")),
        "{notes:?}"
    );
}

/// A program may have no descriptor left just then.
#[test]
fn a_file_that_could_not_be_read_is_read_at_the_next_open() {
    with_config("is_off_later", "[disk.\"DISK\"]\nenabled = false");
}

#[test]
#[ignore = "a part of another test"]
fn is_off_later() {
    let mut all: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    all.pop();
    assert_eq!(File::open(path()).unwrap().without_effect(), None);
    drop(all);
    assert!(File::open(path()).unwrap().without_effect().is_some());
}
