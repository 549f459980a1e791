//! The policy stays what its first lines say: no clock, no system call, no
//! thread, which `no_std` without dependencies makes sure of.

use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_crate_is_no_std_and_without_unsafe() {
    let root = read("src/lib.rs");
    for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
        assert!(root.lines().any(|line| line == attribute), "{attribute}");
    }
    assert!(!root.contains("extern crate std"));
}

#[test]
fn the_crate_has_no_dependencies() {
    let manifest = read("Cargo.toml");
    let sections: Vec<&str> = manifest
        .lines()
        .filter(|line| line.starts_with('[') && line.contains("dependencies"))
        .filter(|line| *line != "[dev-dependencies]")
        .collect();
    assert_eq!(sections, Vec::<&str>::new());
}
