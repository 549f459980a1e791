//! `dropbehind write` and `dropbehind read`, from a user's chair.

mod user;

use dropbehind_testbed::{Need, need, pattern, residency};
use user::{User, holds};

#[test]
fn every_mode_writes_and_reads_every_byte() {
    let user = User::new();
    for size in [0, 1, 4095, 4096, (1 << 20) + 1, 3_000_000] {
        let data = pattern::filled(1, 0, size);
        for mode in dropbehind::Mode::ALL {
            let said = user.pipes(&data, &format!("write --mode {mode} file"));
            assert_eq!(said.code, 0, "{}", said.stderr);
            holds(&user.file("file"), size);
            let said = user.does(&format!("read --mode {mode} file"));
            assert!(said.stdout == data, "{mode} {size}");
        }
    }
}

#[test]
fn nothing_written_or_read_stays_in_the_page_cache() {
    need!(Need::Cachestat, Need::Tool("fincore"));
    let user = User::new();
    let file = user.file("file");
    let said = user.pipes(&pattern::filled(1, 0, 40 << 20), "write file");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(residency::fincore(&file).unwrap(), 0);
    user.does("read file");
    assert_eq!(residency::fincore(&file).unwrap(), 0);
    user.does("read --mode buffered file");
    assert!(residency::fincore(&file).unwrap() > 0);
}

#[test]
fn nothing_is_left_dirty_without_a_sync() {
    need!(Need::Cachestat);
    let user = User::new();
    let source = user.has("source", 40 << 20);
    user.has("small", 8 << 20);
    std::fs::File::open(&source).unwrap().sync_all().unwrap();
    for mode in ["dontcache", "write-behind", "write-through"] {
        for command in [
            "write MODE file < source",
            "write MODE --append file < source",
            "write MODE file < small",
            "cp MODE source file",
        ] {
            let line = command.replace("MODE", &format!("--no-sync --mode {mode}"));
            let said = user.sh(&format!("rm -f file; dropbehind {line}"));
            assert_eq!(said.code, 0, "{}", said.stderr);
            let left = residency::cached(&user.file("file")).unwrap();
            assert_eq!(left.dirty_pages, 0, "{line}: {left:?}");
        }
    }
}

#[test]
fn append_keeps_what_is_there() {
    let user = User::new();
    let data = pattern::filled(1, 0, 100_000);
    for part in data.chunks(33_333) {
        assert_eq!(user.pipes(part, "write --append log").code, 0);
    }
    holds(&user.file("log"), 100_000);
    assert_eq!(user.pipes(b"new", "write log").code, 0);
    assert_eq!(std::fs::read(user.file("log")).unwrap(), b"new");
}

#[test]
fn a_part_can_be_read() {
    let user = User::new();
    let data = pattern::filled(1, 0, 3 << 20);
    std::fs::write(user.file("file"), &data).unwrap();
    for (options, range) in [
        ("--offset 1", 1..data.len()),
        ("--offset 1MiB --length 4k", 1 << 20..(1 << 20) + 4096),
        ("--length 0", 0..0),
        ("--offset 0.5k --length 1", 512..513),
        ("--offset 1G", 0..0),
        ("--length 1E", 0..data.len()),
    ] {
        let said = user.does(&format!("read {options} file"));
        assert!(said.stdout == data[range], "{options}");
    }
    let said = user.sh("mkfifo p; echo x > p & dropbehind read --offset 1 p");
    said.fails(1, "Leave out --offset");
}

#[test]
fn a_reader_that_leaves_ends_it_quietly_as_it_ends_cat() {
    let user = User::new();
    user.has("file", 10 << 20);
    let said = user.sh("dropbehind read file | head -c 10 > /dev/null; exit ${PIPESTATUS[0]}");
    assert_eq!((said.code, said.stderr.as_str()), (141, ""));
}

#[test]
fn a_file_is_not_written_with_itself() {
    let user = User::new();
    user.has("file", 5000);
    user.sh("dropbehind write file < file")
        .fails(1, "are the same file");
    user.sh("dropbehind write --append file < file")
        .fails(1, "are the same file");
    holds(&user.file("file"), 5000);
}

#[test]
fn standard_input_is_read_from_where_it_is() {
    let user = User::new();
    let said = user.sh(
        "printf 123456 > a; (head -c 0; dd bs=1 count=2 status=none > /dev/null; \
                        dropbehind write b) < a; cat b",
    );
    assert_eq!(said.text(), "3456");
}

#[test]
fn new_files_get_the_usual_permissions() {
    let user = User::new();
    let said = user.sh("umask 027; echo | dropbehind write a; echo > b; stat -c %a a b");
    assert_eq!(said.text(), "640\n640\n");
}

#[test]
fn stats_have_exactly_the_promised_keys() {
    let user = User::new();
    user.has("a", 5_000_000);
    let keys = [
        "bytes_read",
        "bytes_written",
        "elapsed_ns",
        "peak_dirty_bytes",
        "peak_cached_bytes",
        "brought_bytes",
        "dropped_bytes",
        "kept_bytes",
        "left_bytes",
        "waits",
        "wait_ns",
        "kicks",
        "kicks_coalesced",
        "writeback_bytes",
    ];
    for line in ["cp --stats s a b", "read --stats s a", "write --stats s b"] {
        // Longer than any figures, to see it replaced whole.
        std::fs::write(user.file("s"), vec![b'x'; 5000]).unwrap();
        let said = user.pipes(b"0123456789", line);
        assert_eq!(said.code, 0, "{}", said.stderr);
        let text = std::fs::read_to_string(user.file("s")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mut found: Vec<&str> = stats
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut expected = keys;
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert!(stats["elapsed_ns"].as_u64().unwrap() > 0);
        assert!(stats["writeback_bytes"]["dontcache"].is_u64());
        let bytes = if line.starts_with("write") {
            10
        } else {
            5_000_000
        };
        assert_eq!(stats["bytes_read"], bytes, "{line}");
        assert_eq!(stats["bytes_written"], bytes, "{line}");
    }
    let said = user.does("cp --stats - a b");
    assert!(
        said.stderr.starts_with('{') && said.stderr.ends_with("}\n"),
        "{}",
        said.stderr
    );
}

#[test]
fn a_stats_file_that_cannot_be_written_stops_it_before_anything_changes() {
    let user = User::new();
    user.has("a", 10);
    user.runs("cp --stats no/where a b")
        .fails(1, "Create the directory no first.");
    assert!(!user.file("b").exists());
}

#[test]
fn progress_is_shown_when_asked_for() {
    let user = User::new();
    user.has("a", 1 << 20);
    let said = user.does("cp --progress always a b");
    assert!(said.stderr.contains("1.0 MiB in "), "{}", said.stderr);
    for line in ["cp a b", "cp --progress never a b"] {
        assert_eq!(user.does(line).stderr, "");
    }
}
