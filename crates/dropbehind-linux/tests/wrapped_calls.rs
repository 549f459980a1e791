//! What touches the page cache, writeback, fanotify, tracing or other processes is
//! wrapped in this crate, so that its traps are known in one place.

use std::fs;
use std::path::{Path, PathBuf};

/// Calls that no other crate makes by itself, as libc, rustix and nix name them.
const WRAPPED: [&str; 14] = [
    "fadvise",
    "readahead",
    "sync_file_range",
    "cachestat",
    "mincore",
    "madvise",
    "preadv2",
    "pwritev2",
    "fanotify",
    "perf_event_open",
    "SYS_bpf",
    "ptrace",
    "process_vm_readv",
    "pidfd_getfd",
];
const DOORS: [&str; 3] = ["libc::", "rustix::", "nix::"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_other_crate_makes_the_wrapped_calls_by_itself() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let path = entry.unwrap().path();
        // The testbed bears witness by calls of its own.
        let exempt = ["dropbehind-linux", "dropbehind-testbed"];
        if !exempt.iter().any(|name| path.ends_with(name)) {
            sources(&path.join("src"), &mut files);
        }
    }
    assert!(files.len() > 200, "{} files", files.len());
    for file in files {
        for (number, line) in (1..).zip(fs::read_to_string(&file).unwrap().lines()) {
            let by_itself = DOORS.iter().any(|door| {
                let mut calls = line.split(door).skip(1);
                calls.any(|call| WRAPPED.iter().any(|name| call.contains(name)))
            });
            assert!(!by_itself, "{}:{number}: {line}", file.display());
        }
    }
}
