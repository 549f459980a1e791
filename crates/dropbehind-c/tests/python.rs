//! The Python module, which calls this library.

use std::fs;
use std::path::Path;
use std::process::Command;

use dropbehind_testbed::{Need, Scratch, need, skip};

mod common;
use common::{archive, repository, run};

/// Debian's, since that is where its packages put modules.
const PYTHON: &str = "/usr/bin/python3";

/// Why Python lacks these modules, if it does.
fn missing(modules: &str) -> Option<String> {
    let import = format!("import {modules}");
    let tried = Command::new(PYTHON).args(["-c", &import]).output();
    let found = tried.is_ok_and(|output| output.status.success());
    (!found).then(|| format!("needs {PYTHON} with {modules}"))
}

#[test]
fn the_module_does_what_open_does() {
    need!(Need::Tool("gcc"), Need::Tool("fincore"), Need::Cachestat);
    if let Some(why) = missing("unittest") {
        skip!("{why}");
    }
    let home = Scratch::new().unwrap();
    let root = home.file("root");
    let mut install = Command::new(repository().join("packaging/libdropbehind"));
    run(install.arg("").arg(&root).env("ARCHIVE", archive()));
    let mut test = Command::new(PYTHON);
    test.args([
        "-X", "dev", "-W", "error", "-m", "unittest", "discover", "-s", "tests",
    ])
    .current_dir(repository().join("python"))
    .env("PYTHONPATH", repository().join("python"))
    .env("PYTHONDONTWRITEBYTECODE", "1")
    .env("DROPBEHIND_TEST_DIR", home.path())
    .env("DROPBEHIND_LIBRARY", root.join("lib/libdropbehind.so"));
    run(&mut test);
}

/// A wheel, unpacked where nothing else is, and the example of docs/library.md.
#[test]
fn the_wheel_is_complete() {
    need!(Need::Tool("gcc"), Need::Cachestat);
    if let Some(why) = missing("setuptools, wheel") {
        skip!("{why}");
    }
    let home = Scratch::new().unwrap();
    let mut build = Command::new(repository().join("packaging/wheel"));
    build
        .arg(home.path())
        .env("ARCHIVE", archive())
        .env("PYTHON", PYTHON);
    let wheel = run(&mut build);
    let wheel = Path::new(wheel.trim());
    let name = wheel.file_name().unwrap().to_string_lossy().into_owned();
    assert!(name.contains("-py3-none-linux_"), "{name}");
    let site = home.file("site");
    let mut unpack = Command::new(PYTHON);
    run(unpack.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&site));
    let page = fs::read_to_string(repository().join("docs/library.md")).unwrap();
    let example = page
        .split("```python\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let check = "print(tarfile.open('backup.tar').getnames(), dropbehind.__file__)";
    let mut python = Command::new(PYTHON);
    python.args(["-c", &format!("{example}\n{check}")]);
    let said = run(python.env("PYTHONPATH", &site).current_dir(home.path()));
    assert!(said.starts_with("['etc/hostname']"), "{said}");
    assert!(said.contains(&*site.to_string_lossy()), "{said}");
}
