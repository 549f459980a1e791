//! Files whose names come late, change, or go early.

use crate::bed::Bed;
use crate::shell::RUN;
use dropbehind_testbed::residency::{cached, page_bytes};
use dropbehind_testbed::{Fs, need};

const BLOCK: &str = "import os, sys; block = bytes(range(256)) * 4096\n";

fn python(bed: &Bed, program: &str) {
    std::fs::write(bed.file("program.py"), format!("{BLOCK}{program}")).unwrap();
}

#[test]
fn a_name_after_the_data() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        python(
            &bed,
            "f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o644)\n\
             for i in range(30): os.write(f, block)\n\
             os.link(f'/proc/self/fd/{f}', 'named', src_dir_fd=os.open('.', 0), follow_symlinks=True)\n\
             for i in range(10): os.write(f, block)\n\
             print(os.stat('named').st_nlink)\n",
        );
        let left = bed.both("$RUN python3 ../program.py");
        assert_eq!(left.stdout, "1\n");
    }
}

#[test]
fn a_new_file_in_the_place_of_an_old_one() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::on(filesystem);
        python(
            &bed,
            "for name in ('a', 'b', 'b'):\n\
             \x20   with open('new', 'wb') as f:\n\
             \x20       for i in range(12): f.write(block)\n\
             \x20       f.write(name.encode()); f.flush(); os.fsync(f.fileno())\n\
             \x20       if name == 'a': os.rename('new', name)\n\
             \x20       for i in range(12): f.write(block)\n\
             \x20   if name != 'a': os.rename('new', name)\n\
             with open('x', 'wb') as f, open('y', 'wb') as g:\n\
             \x20   for i in range(12): f.write(block); g.write(block[::-1])\n\
             os.replace('x', 'y'); os.mkdir('d'); os.rename('y', 'd/z')\n",
        );
        bed.both("$RUN python3 ../program.py");
    }
}

/// Nobody else may hold a file that its programs have deleted: its blocks are
/// wanted. Several times what the disk can hold is written.
#[test]
fn the_blocks_of_deleted_files_are_free() {
    for (filesystem, mib) in [(Fs::Ext4, 128), (Fs::Xfs, 300)] {
        need!(all Bed::needs(filesystem, &["python3"]));
        let bed = Bed::sized(filesystem, mib << 20);
        let part = mib * 3 / 10;
        python(
            &bed,
            &format!(
                "free = lambda: os.statvfs('.').f_bavail * os.statvfs('.').f_frsize\n\
                 before = free()\n\
                 for i in range(6):\n\
                 \x20   with open('temporary', 'w+b') as f:\n\
                 \x20       os.unlink('temporary')\n\
                 \x20       for i in range({part}): f.write(block)\n\
                 \x20       f.flush(); f.seek(-len(block), 2)\n\
                 \x20       assert f.read() == block\n\
                 for i in range(6):\n\
                 \x20   with open('closed', 'wb') as f:\n\
                 \x20       for i in range({part}): f.write(block)\n\
                 \x20   os.unlink('closed')\n\
                 print('freed')\n"
            ),
        );
        let plain = bed.runs("", "plain", "$RUN python3 ../program.py");
        assert_eq!(plain.stdout, "freed\n");
        let observed = bed.runs(RUN, "observed", "$RUN python3 ../program.py");
        assert_eq!(plain, observed);
    }
}

/// What was written before its last name went, and while a process had it open.
#[test]
fn a_file_without_a_name_is_dropped_too() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    let bed = Bed::on(Fs::Ext4);
    python(
        &bed,
        "f = open('nameless', 'w+b')\n\
         for i in range(20): f.write(block)\n\
         os.unlink('nameless')\n\
         for i in range(40): f.write(block)\n\
         f.flush(); f.truncate(59 << 20); f.seek(30 << 20)\n\
         assert f.read() == block * 29\n\
         f.seek(0, 2); print(f.tell(), flush=True)\n\
         sys.stdin.read()\n",
    );
    // The test has the other end of its input, and with that its end.
    let mut command = bed.bash(RUN, "observed", "exec $RUN python3 ../program.py");
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped());
    let mut running = command.spawn().expect("the command");
    let mut said = String::new();
    let output = running.stdout.as_mut().expect("its output");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut said).unwrap();
    assert_eq!(said.trim(), (59 << 20).to_string());
    let python = crate::shell::children(running.id()).into_iter();
    let mut python = python.filter(|&child| crate::shell::command_line(child).contains("python3"));
    let python = python.next().expect("the program");
    let link = format!("/proc/{python}/fd");
    let nameless = std::fs::read_dir(link).unwrap().flatten();
    let nameless = nameless.map(|entry| entry.path()).find(|path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.to_string_lossy().ends_with("nameless (deleted)")
    });
    let nameless = nameless.expect("the file");
    // A window of a nameless file's dirty pages need not be written.
    let small = 20 << 20;
    crate::shell::wait_for("most of it is dropped", || {
        cached(&nameless).unwrap().cached_pages * page_bytes() <= small
    });
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());
}
