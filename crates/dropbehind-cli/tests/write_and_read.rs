//! `dropbehind write` and `dropbehind read`, from a user's chair.

mod user;

use dropbehind_testbed::{
    Fs, MountedFs, Need, SlowDisk, SlowDiskOptions, need, pattern, residency,
};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use user::{User, holds};

const BYTES: usize = 16 << 20;

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

/// ext4 with `inline_data` keeps the first bytes in the inode, where nothing can be asked about
/// their writeback.
#[test]
fn nothing_stays_of_a_file_that_was_tiny_at_first() {
    need!(all MountedFs::needs(Fs::Ext4InlineData));
    need!(Need::Cachestat, Need::Tool("fincore"));
    let disk = MountedFs::new(Fs::Ext4InlineData, 256 << 20).unwrap();
    let user = User::new();
    user.has("a", BYTES);
    let file = disk.file("file");
    let shown = file.display();
    for script in [
        format!("dropbehind cp a {shown}"),
        format!("(echo hello; sleep .3; cat a) | dropbehind write {shown}"),
        format!("(echo hello; sleep .3; cat a) | dropbehind write --append {shown}"),
    ] {
        std::fs::write(&file, "old").unwrap();
        std::fs::File::open(&file).unwrap().sync_all().unwrap();
        residency::evict(&file);
        let said = user.sh(&script);
        assert_eq!(said.code, 0, "{}", said.stderr);
        assert_eq!(residency::fincore(&file).unwrap(), 0, "{script}");
    }
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
fn a_file_is_not_read_into_itself_for_ever() {
    let user = User::new();
    user.has("file", 100_000);
    let said = user.sh("ulimit -f 1000; dropbehind read file >> file");
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(
        said.stderr.contains("never come to its end"),
        "{}",
        said.stderr
    );
    holds(&user.file("file"), 100_000);
    let said = user.sh("dropbehind read file 1<> file");
    assert_eq!(said.code, 0, "{}", said.stderr);
    holds(&user.file("file"), 100_000);
    let said = user.sh("dropbehind read --length 1000 file >> file; stat -c %s file");
    assert_eq!((said.code, said.stdout.as_slice()), (0, &b"101000\n"[..]));
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
fn who_reads_past_the_end_is_told() {
    let user = User::new();
    user.has("file", 5000);
    for (options, saying) in [
        ("--offset 1M", "file ends at 4.9 KiB, before 1.0 MiB"),
        (
            "--offset 4k --length 1k",
            "file ended after 904 B of 1.0 KiB",
        ),
    ] {
        let said = user.does(&format!("read {options} file"));
        assert!(said.stderr.contains(saying), "{}", said.stderr);
        let said = user.does(&format!("read --quiet {options} file"));
        assert_eq!(said.stderr, "");
    }
    assert_eq!(user.does("read --offset 5000 file").stderr, "");
}

#[test]
fn a_dash_is_standard_input() {
    let user = User::new();
    user.has("file", 5000);
    let said = user.sh(
        "dropbehind read - < file | cmp - file; cat file | dropbehind read --length 10 - | wc -c
         dropbehind stat - < file | wc -l; dropbehind drop - < file",
    );
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    assert!(said.text().starts_with("10\n2\n"), "{}", said.text());
    assert!(said.text().contains("dropped"), "{}", said.text());
}

#[test]
fn a_part_of_a_file_can_be_written() {
    let user = User::new();
    for (line, before, after) in [
        ("write --seek 3 file", "0123456789", "012abcdef9"),
        ("write --seek 8 file", "0123456789", "01234567abcdef"),
        ("write --seek 3 --count 2 file", "0123456789", "012ab56789"),
        ("write --count 2 file", "0123456789", "ab"),
        ("write --count 2x2 --append file", "01", "01abcd"),
        ("write --seek 2 file", "", "\0\0abcdef"),
    ] {
        std::fs::write(user.file("file"), before).unwrap();
        let said = user.pipes(b"abcdef", line);
        assert_eq!(said.code, 0, "{line}: {}", said.stderr);
        let found = std::fs::read(user.file("file")).unwrap();
        assert_eq!(String::from_utf8_lossy(&found), after, "{line}");
    }
    let said = user.pipes(b"abc", "write --seek 2 new");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(std::fs::read(user.file("new")).unwrap(), b"\0\0abc");
    user.pipes(b"abc", "write --seek 2 --append new")
        .fails(2, "cannot be used with");
}

#[test]
fn room_is_reserved_before_anything_is_written() {
    need!(all MountedFs::needs(Fs::Ext4));
    let user = User::new();
    let disk = MountedFs::new(Fs::Ext4, 24 << 20).unwrap();
    let file = disk.file("file");
    let path = file.display().to_string();
    let used = || file.metadata().unwrap().blocks() * 512;
    user.pipes(b"abc", &format!("write --size 1G {path}"))
        .fails(1, "No space left on device");
    assert!(!file.exists());
    std::fs::write(&file, "old").unwrap();
    user.pipes(b"abc", "write --seek 15E new")
        .fails(1, "Choose another --seek");
    assert!(!user.file("new").exists());
    assert_eq!(user.pipes(b"", "write --size 0 new").code, 0);
    holds(&user.file("new"), 0);
    user.pipes(b"abc", &format!("write --append --size 1M {path}"))
        .fails(2, "cannot be used with");
    for options in ["--seek 3 --size 1G", "--size 1G"] {
        user.pipes(b"abc", &format!("write {options} {path}"))
            .fails(1, "Nothing was written");
        assert!(std::fs::read(&file).unwrap() == b"old" && used() < 1 << 20);
    }
    // While it waits for input, it has the room; what it did not need is free again.
    let mut command = user.dropbehind(["write", "--size", "8M", "--count", "1M", &path]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    while used() < 8 << 20 {
        assert_eq!(child.try_wait().unwrap(), None);
    }
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&pattern::filled(1, 0, 1 << 20)).unwrap();
    assert!(child.wait().unwrap().success());
    holds(&file, 1 << 20);
    assert!(used() < 2 << 20, "{}", used());
    user.pipes(b"abc", "write --size 1M /dev/null")
        .fails(1, "no regular file");
}

#[test]
fn how_far_it_is_can_be_asked() {
    let user = User::new();
    for line in ["write out", "cp /dev/stdin out"] {
        let mut command = user.dropbehind(line.split(' '));
        let mut child = command
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&pattern::filled(1, 0, 3 << 20)).unwrap();
        while user.file("out").metadata().map_or(0, |found| found.len()) < 3 << 20 {
            assert_eq!(child.try_wait().unwrap(), None);
        }
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut answer = String::new();
        // The last block is in the file before it is counted.
        while !answer.starts_with("dropbehind: 3.0 MiB, ") {
            kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
            answer.clear();
            stderr.read_line(&mut answer).unwrap();
            assert!(answer.ends_with(" at the disk\n"), "{answer}");
        }
        drop(stdin);
        assert!(child.wait().unwrap().success());
        holds(&user.file("out"), 3 << 20);
        std::fs::remove_file(user.file("out")).unwrap();
    }
}

/// Small files are synced many at a time.
#[test]
fn nothing_is_said_to_be_at_the_disk_before_it_is() {
    need!(all SlowDisk::needs());
    let user = User::new();
    user.sh("mkdir tree; for i in $(seq 200); do head -c 9999 /dev/urandom > tree/$i; done");
    let disk = SlowDisk::new(SlowDiskOptions::default()).unwrap();
    let mounted = disk.mount(Fs::Ext4).unwrap();
    let copy = mounted.file("copy");
    disk.set_write_speed(Some(4096)).unwrap();
    let mut command = user.dropbehind([
        "cp",
        "-r",
        "--reflink=never",
        "tree",
        copy.to_str().unwrap(),
    ]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let copied = || std::fs::read_dir(&copy).map_or(0, Iterator::count);
    while copied() < 200 {
        assert_eq!(child.try_wait().unwrap(), None);
    }
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    let mut answer = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut answer).unwrap();
    disk.set_write_speed(None).unwrap();
    assert!(answer.contains(" 0 B at the disk"), "{answer}");
    assert!(child.wait().unwrap().success());
}

/// Nobody looks at a file that is closed.
#[test]
fn what_is_dirty_after_its_copy_is_not_said_to_be_at_the_disk() {
    need!(Need::Cachestat);
    let user = User::new();
    user.has("big", BYTES);
    user.sh("mkdir to");
    let line = "cp --no-sync -m buffered --reflink=never -v big /dev/stdin to";
    let mut command = user.dropbehind(line.split(' '));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The second file has begun.
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(told.any(|line| line.unwrap().contains("/dev/stdin")));
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    let mut answer = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut answer).unwrap();
    let found = residency::cached(&user.file("to/big")).unwrap();
    let unwritten_bytes = (found.dirty_pages + found.writeback_pages) * residency::page_bytes();
    // Others may sync the machine at any time.
    if unwritten_bytes == BYTES as u64 {
        assert!(answer.contains(" 0 B at the disk"), "{answer}");
    }
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_drop_that_waits_for_the_disk_says_how_far_it_is() {
    need!(all SlowDisk::needs());
    let user = User::new();
    user.has("quick", 5000);
    let disk = SlowDisk::new(SlowDiskOptions::default()).unwrap();
    let mounted = disk.mount(Fs::Ext4).unwrap();
    let slow = mounted.file("slow");
    disk.set_write_speed(Some(4096)).unwrap();
    std::fs::write(&slow, vec![1; 1 << 20]).unwrap();
    let mut command = user.dropbehind(["drop", "--sync", "quick", slow.to_str().unwrap()]);
    let piped = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let takes_signal = || {
        let text = std::fs::read_to_string(&status).unwrap();
        let blocked = text.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
        let blocked = u64::from_str_radix(blocked.unwrap(), 16).unwrap();
        blocked & 1 << (Signal::USR1.as_raw() - 1) != 0
    };
    while !takes_signal() {
        assert_eq!(child.try_wait().unwrap(), None);
    }
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut answer = String::new();
    while !answer.ends_with(" of 1 files so far\n") {
        kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
        answer.clear();
        stderr.read_line(&mut answer).unwrap();
        assert!(answer.starts_with("dropbehind: dropped "), "{answer}");
    }
    disk.set_write_speed(None).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_drop_that_waits_for_names_says_so() {
    let user = User::new();
    let mut command = user.dropbehind(["drop", "--files0-from", "-"]);
    let piped = command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut names = child.stdin.take().unwrap();
    names.write_all(b"missing").unwrap();
    while rustix::io::ioctl_fionread(&names).unwrap() > 0 {
        assert_eq!(child.try_wait().unwrap(), None);
    }
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut answer = String::new();
    stderr.read_line(&mut answer).unwrap();
    assert_eq!(answer, "dropbehind: dropped 0 B of 0 files so far\n");
    drop(names);
    assert_eq!(child.wait().unwrap().code(), Some(1));
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
    for line in ["cp --stats - a b", "cp --json a b", "read --json a"] {
        let said = user.does(line).stderr;
        assert!(said.starts_with('{') && said.ends_with("}\n"), "{said}");
    }
    user.runs("cp --json --stats s a b").fails(2, "--json");
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
fn a_report_waits_for_a_pipes_reader_though_not_for_ever() {
    let user = User::new();
    user.has("a", 10);
    // Nobody can interrupt what waits to open a pipe while it handles signals.
    let script = "mkfifo p; timeout -s KILL 60 dropbehind cp --stats p a b";
    user.sh(script).fails(1, "Start its reader first");
    assert!(!user.file("b").exists());
    let script = "dropbehind cp --stats p a b & sleep 0.2; cat p; wait $!";
    let said = user.sh(script);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let figures: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(figures["bytes_written"], 10);
    holds(&user.file("b"), 10);
}

#[test]
fn a_report_never_replaces_what_is_read_or_written() {
    let user = User::new();
    let has = |name: &str| user.sh(&format!("cat {name}")).text();
    for line in [
        "cp --OPT src src new",
        "cp --OPT hard src new",
        "cp --OPT soft src new",
        "cp --OPT new src new",
        "cp --OPT dangling src new",
        "cp --OPT old src old",
        "cp --OPT dir/src src dir",
        "cp --OPT dir/src -t dir src",
        "cp --OPT dir/tree/src --parents tree/src dir",
        "cp -r --OPT tree/src tree new",
        "cp -r --OPT tree/below/src tree dir",
        "cp -r --OPT dir/tree/src tree dir",
        "cp -r --OPT dir/src tree/. dir",
        "cp -rT --OPT dir/src tree dir",
        "cp -r --OPT new tree new",
        "read --OPT src src",
        "read --OPT out src > out",
        "read --OPT src - < src",
        "write --OPT src new < src",
        "write --OPT old old < src",
        "write --OPT new new < src",
        "read --OPT old --stats old src",
    ] {
        for option in ["trace", "stats"] {
            if option == "stats" && line.contains("--stats") {
                continue;
            }
            user.sh(
                "rm -rf *; mkdir -p tree/below dir/tree; echo old | tee old > dir/tree/other; \
                     echo data | tee src tree/src > tree/below/src; ln src hard; ln -s src soft; \
                     ln -s new dangling",
            );
            let line = line.replace("OPT", option);
            let said = user.sh(&format!("dropbehind {line}"));
            said.fails(2, "Nothing was changed; name another file with");
            for name in ["src", "tree/src", "tree/below/src"] {
                assert_eq!(has(name), "data\n", "{line}");
            }
            for name in ["old", "dir/tree/other"] {
                assert_eq!(has(name), "old\n", "{line}");
            }
            let left = user
                .sh("rm -f out; find . -name new; ls dir dir/tree")
                .text();
            assert_eq!(left, "dir:\ntree\n\ndir/tree:\nother\n", "{line}");
        }
    }
    user.sh("dropbehind run --stats new --trace new -- true")
        .fails(125, "Nothing was changed; name another file with --stats");
    for line in [
        "cp --OPT /dev/null src new",
        "cp --OPT /dev/stdout src new > figures",
        "cp --OPT dir/figures src dir",
        "cp -r --OPT tree/figures tree dir",
        "cp -r --OPT dir/tree/other tree dir",
        "read --OPT /dev/null src > /dev/null",
        "cat <(dropbehind read --OPT /dev/stderr src 2>&1)",
    ] {
        for option in ["trace", "stats"] {
            user.sh("rm -f new figures */figures");
            let line = line.replace("OPT", option);
            let said = match line.starts_with("cat") {
                true => user.sh(&line),
                false => user.sh(&format!("dropbehind {line}")),
            };
            assert_eq!(said.code, 0, "{line}: {}", said.stderr);
        }
    }
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
