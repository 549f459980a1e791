//! Files that nobody had in the cache, read by many threads at once.

use crate::bed::Bed;
use crate::figures::Figures;
use crate::rounds::rounds;
use crate::shell::Running;
use dropbehind_testbed::{Fs, need};
use std::process::Command;

const MIB: u64 = 1 << 20;
const FILES: u64 = 400;

/// Eight threads take turns with the files of the working directory, which no argument
/// names.
const READERS: &str = r#"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char names[4096][64];
static int count, next;
static void *work(void *unused) {
    char *block = malloc(128 << 10);
    for (int mine; (mine = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < count;) {
        int file = open(names[mine], O_RDONLY);
        long got;
        while ((got = read(file, block, 128 << 10)) > 0) {}
        if (got < 0 || close(file)) _exit(1);
    }
    return unused;
}
int main(void) {
    DIR *folder = opendir(".");
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_type == DT_REG) strcpy(names[count++], entry->d_name);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    return count == 400 ? 0 : 2;
}
"#;

/// All of it goes, and all of it is told.
fn are_dropped(filesystem: Fs) {
    let bed = Bed::on(filesystem);
    bed.input(&format!(
        "head -c {FILES}M /dev/urandom | split -b 1M -d -a 3"
    ));
    std::fs::write(bed.file("readers.c"), READERS).unwrap();
    let compiled = bed.runs("", ".", "cc -O1 -pthread -o readers readers.c");
    assert_eq!(compiled.code, Some(0), "{compiled:?}");
    for round in 0..rounds() {
        bed.cools("input");
        let script = "exec $RUN ../readers";
        let (left, figures) = Figures::told(&bed, "--only 'input/*'", "input", script);
        assert_eq!(left.code, Some(0), "{left:?}");
        let cached = bed.cached("input");
        let pages: u64 = cached.iter().map(|(_, pages)| pages).sum();
        let of = format!(
            "{filesystem:?}, round {round}: {pages} pages of {} files stay, {figures:?}",
            cached.len()
        );
        assert_eq!(pages, 0, "{of}");
        assert_eq!(figures.bytes("bytes_read"), FILES * MIB, "{of}");
        assert_eq!(figures.bytes("left_bytes"), 0, "{of}");
        figures.add_up();
    }
}

#[test]
fn files_that_eight_threads_read() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["cc", "split"]));
        are_dropped(filesystem);
    }
}

/// An observer that gets little of the processors knows all the same.
#[test]
fn files_that_eight_threads_read_on_a_busy_machine() {
    need!(all Bed::needs(Fs::Ext4, &["cc", "split"]));
    let _busy = [(); 2].map(|()| {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Running::start(command)
    });
    are_dropped(Fs::Ext4);
}

/// Where the trace does not name failures of writeback, each file is asked about them, by a read.
const AT_RANDOM: &str = r#"
import mmap, os, random
chance = random.Random(1)
data = os.urandom(1 << 20)
for turn in range(300):
    file = os.open(f"x{chance.randrange(8):02}", os.O_RDWR)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    length = chance.choice([4096, 8192, 65536, 303104])
    offset = chance.randrange((4 << 20) - length) & ~4095
    way = turn % 3
    if way == 0: os.pread(file, length, offset)
    elif way == 1: os.pwrite(file, data[:length], offset)
    else:
        pages = mmap.mmap(file, 4 << 20)
        pages.madvise(mmap.MADV_RANDOM)
        for page in range(offset, offset + length, 4096): pages[page:page + 1] = b"z"
        pages.close()
    os.close(file)
"#;

#[test]
fn what_is_used_at_random_goes_without_the_trace() {
    for filesystem in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        need!(all Bed::needs(filesystem, &["python3", "split"]));
        let bed = Bed::on(filesystem);
        bed.input("head -c 32M /dev/urandom | split -b 4M -d -a 2");
        std::fs::write(bed.file("program.py"), AT_RANDOM).unwrap();
        bed.cools("input");
        let options = "--source seccomp --only 'input/*'";
        let figures = Figures::of(&bed, options, "input", "exec $RUN python3 ../program.py");
        assert_eq!(bed.cached("input"), [], "{filesystem:?}: {figures:?}");
        assert_eq!(
            figures.bytes("kept_bytes"),
            0,
            "{filesystem:?}: {figures:?}"
        );
    }
}
