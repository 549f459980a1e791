//! What the tests share.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The library as it was built together with this test. cargo adds a hash to its name.
pub(crate) fn archive() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = fs::read_dir(test.parent().unwrap()).unwrap();
    built
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libdropbehind_c-") && name.ends_with(".a")
        })
        .max_by_key(|path| {
            fs::metadata(path)
                .and_then(|metadata| metadata.modified())
                .ok()
        })
        .expect("cargo builds libdropbehind_c.a before its tests")
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{complaints}");
    said
}

/// The folder that has `packaging` and `python`.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
