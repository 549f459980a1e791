//! C programs that use the library, compiled by the compilers that people have.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dropbehind_testbed::reclaim::in_some_attempt;
use dropbehind_testbed::{FailingDisk, Need, Scratch, need, pattern, residency};

mod common;
use common::{archive, repository, run};

const HOME: &str = env!("CARGO_MANIFEST_DIR");
const BYTES: u64 = 16 << 20;

/// Compiles a program, linked with the static library.
fn compile(home: &Scratch, compiler: &str, flags: &[&str]) -> PathBuf {
    let program = home.file("program");
    let mut command = Command::new(compiler);
    command
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g"])
        .args(flags)
        .args(["-I", HOME, "-o"])
        .arg(&program)
        .arg(Path::new(HOME).join("tests/c/behaviour.c"))
        .arg(archive())
        .args(["-lpthread", "-lm", "-ldl"]);
    run(&mut command);
    program
}

/// Runs a part of `behaviour.c` on a file.
fn behave(part: &str, file: &Path) {
    let home = Scratch::new().unwrap();
    let program = compile(&home, "gcc", &[]);
    run(Command::new(program).arg(part).arg(file));
}

fn cached_pages(file: &Path) -> u64 {
    residency::cached(file).unwrap().cached_pages
}

#[test]
fn calls_return_what_the_system_calls_do() {
    need!(Need::Tool("gcc"), Need::Cachestat);
    let home = Scratch::new().unwrap();
    behave("calls", &home.file("file"));
    behave("cache", &home.file("other"));
}

#[test]
fn threads_share_a_file() {
    need!(Need::Tool("gcc"), Need::Cachestat);
    let home = Scratch::new().unwrap();
    let file = home.file("file");
    behave("threads", &file);
    assert_eq!(fs::metadata(&file).unwrap().len(), BYTES);
    assert_eq!(cached_pages(&file), 0);
}

#[test]
fn a_child_goes_on_with_its_parents_file() {
    need!(Need::Tool("gcc"), Need::Cachestat);
    let home = Scratch::new().unwrap();
    let file = home.file("file");
    behave("forks", &file);
    assert_eq!(cached_pages(&file), 0);
}

#[test]
fn what_was_cached_before_a_descriptor_was_attached_stays() {
    need!(Need::Tool("gcc"), Need::Cachestat);
    let home = Scratch::new().unwrap();
    let path = home.file("file");
    fs::write(&path, pattern::filled(1, 0, BYTES as usize)).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    in_some_attempt(|reclaim| {
        residency::evict(&path);
        residency::warm(&path, 0..BYTES / 2);
        behave("attached", &path);
        let cached = |range| {
            let counted = residency::cached_range(&path, range).unwrap();
            counted.cached_pages * residency::page_bytes()
        };
        assert_eq!(cached(BYTES / 2..BYTES), 0);
        reclaim.stays(&path, cached(0..BYTES / 2), BYTES / 2)
    });
}

#[test]
fn a_failing_disks_error_is_returned() {
    need!(Need::Tool("gcc"), Need::Cachestat);
    need!(all FailingDisk::needs(None));
    let disk = FailingDisk::raw().unwrap();
    behave("failing", disk.device());
}

#[test]
fn clang_compiles_it_and_cpp_takes_the_header() {
    need!(Need::Tool("clang"), Need::Cachestat);
    let home = Scratch::new().unwrap();
    let program = compile(&home, "clang", &["-Wno-unused-command-line-argument"]);
    run(Command::new(program).arg("calls").arg(home.file("file")));
    let header = Path::new(HOME).join("dropbehind.h");
    let mut check = Command::new("clang");
    check.args([
        "-x",
        "c++",
        "-std=c++11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsyntax-only",
    ]);
    run(check.arg("-Wno-pragma-once-outside-header").arg(header));
}

#[test]
fn sanitizers_find_nothing() {
    need!(Need::Tool("gcc"), Need::Cachestat);
    let home = Scratch::new().unwrap();
    let flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
    let program = compile(&home, "gcc", &flags);
    for part in ["calls", "threads", "forks", "attached"] {
        let mut command = Command::new(&program);
        command.arg(part).arg(home.file("file"));
        // The leak detector takes what the parent's threads hold for lost in the child.
        if part == "forks" {
            command.env("ASAN_OPTIONS", "detect_leaks=0");
        }
        run(&mut command);
        if part == "calls" {
            fs::remove_file(home.file("file")).unwrap();
        }
    }
}

#[test]
fn valgrind_finds_nothing() {
    need!(Need::Tool("gcc"), Need::Tool("valgrind"), Need::Cachestat);
    let home = Scratch::new().unwrap();
    let program = compile(&home, "gcc", &[]);
    let mut valgrind = Command::new("valgrind");
    // It takes what inline system calls return for undefined, and lacks cachestat.
    valgrind.args(["--quiet", "--error-exitcode=9", "--undef-value-errors=no"]);
    let known = Path::new(HOME).join("tests/c/valgrind.supp");
    valgrind.arg(format!("--suppressions={}", known.display()));
    run(valgrind.arg(program).arg("calls").arg(home.file("file")));
}

/// The library as it is installed, and the examples, those of docs/library.md too, built with what pkg-config says.
#[test]
fn the_installed_library_is_found_and_used() {
    need!(
        Need::Tool("gcc"),
        Need::Tool("pkg-config"),
        Need::Tool("readelf"),
        Need::Cachestat
    );
    let home = Scratch::new().unwrap();
    let root = home.file("root");
    let mut install = Command::new(repository().join("packaging/libdropbehind"));
    install.arg("").arg(&root).env("ARCHIVE", archive());
    run(&mut install);

    let library = root.join("lib/libdropbehind.so");
    let symbols = run(Command::new("readelf")
        .args(["--dyn-syms", "--wide"])
        .arg(&library));
    let exported: Vec<&str> = symbols
        .lines()
        .filter(|line| line.contains(" GLOBAL ") && !line.contains(" UND "))
        .filter(|line| !line.contains(" ABS "))
        .filter_map(|line| line.split_whitespace().nth(7))
        .collect();
    assert!(
        exported.contains(&"dropbehind_write@@DROPBEHIND_0.1"),
        "{symbols}"
    );
    let others: Vec<_> = exported
        .iter()
        .filter(|name| !(name.starts_with("dropbehind_") && name.ends_with("@@DROPBEHIND_0.1")))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    let dynamic = run(Command::new("readelf").arg("--dynamic").arg(&library));
    assert!(
        dynamic.contains("soname: [libdropbehind.so.1]"),
        "{dynamic}"
    );

    let mut ask = Command::new("pkg-config");
    ask.args(["--cflags", "--libs", "dropbehind"]);
    ask.env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
    let flags = run(&mut ask);
    let file = home.file("file");
    let page = fs::read_to_string(repository().join("docs/library.md")).unwrap();
    let (_, example) = page.split_once("```c\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    fs::write(home.file("page.c"), example).unwrap();
    let example_source = |name| Path::new(HOME).join(format!("examples/{name}.c"));
    let sources = [
        ("stream", example_source("stream")),
        ("engine", example_source("engine")),
        ("page", home.file("page.c")),
    ];
    for (example, source) in sources {
        let program = home.file(example);
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&program);
        gcc.arg(source);
        run(gcc.args(flags.split_whitespace()));
        let mut command = Command::new(&program);
        command.arg(&file).env("LD_LIBRARY_PATH", root.join("lib"));
        if example == "stream" {
            let input = home.file("input");
            fs::write(&input, pattern::filled(1, 0, BYTES as usize)).unwrap();
            let output = command
                .stdin(fs::File::open(&input).unwrap())
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            let said = String::from_utf8(output.stdout).unwrap();
            assert_eq!(
                said,
                format!("{BYTES} bytes written, 0 left in the page cache\n")
            );
            assert_eq!(cached_pages(&file), 0);
            assert!(fs::read(&input).unwrap() == fs::read(&file).unwrap());
        } else if example == "page" {
            run(command.current_dir(home.path()));
            assert_eq!(fs::read(home.file("backup")).unwrap(), b"...");
        } else {
            run(&mut command);
            assert_eq!(fs::metadata(&file).unwrap().len(), 64 << 20);
            assert_eq!(cached_pages(&file), 0);
        }
    }
}
