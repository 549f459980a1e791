//! Programs in languages that write in their own ways.

use crate::bed::Bed;
use dropbehind_testbed::{Fs, need, skip};
use std::process::Command;

const PYTHON: &str = r#"
import hashlib, mmap, os, shutil, sys
block = hashlib.sha256(b"seed").digest() * 4096
with open("buffered", "wb") as f:
    for i in range(200):
        f.write(i.to_bytes(8, "big")); f.write(block)
    f.seek(5_000_000); f.write(b"overwritten"); f.flush(); os.fsync(f.fileno())
with open("buffered", "r+b") as f:
    f.truncate(20_000_001); f.seek(0, 2); f.write(b"end")
fd = os.open("vectors", os.O_CREAT | os.O_WRONLY, 0o640)
for i in range(60):
    os.pwritev(fd, [block, block[:1000]], (59 - i) * 200_000)
os.close(fd)
with open("mapped", "w+b") as f:
    f.truncate(16 << 20)
    with mmap.mmap(f.fileno(), 16 << 20) as m:
        for at in range(0, 16 << 20, 65536):
            m[at:at + 30000] = block[:30000]
        if len(sys.argv) > 1:
            m.flush()
shutil.copyfile("../input/data", "copied")
with open("text", "w", encoding="utf-8") as f:
    for i in range(300_000):
        print("line", i, "\N{SNOWMAN}", file=f)
for name in sorted(os.listdir(".")):
    with open(name, "rb") as f:
        print(name, hashlib.file_digest(f, "md5").hexdigest())
sys.exit(3)
"#;

#[test]
fn python() {
    need!(all Bed::needs(Fs::Ext4, &["python3"]));
    let bed = Bed::on(Fs::Ext4);
    bed.input("head -c 20000000 /dev/urandom >data");
    std::fs::write(bed.file("script.py"), PYTHON).unwrap();
    for arguments in ["", "sync"] {
        let left = bed.both_leave(&format!("exec $RUN python3 ../script.py {arguments}"));
        assert_eq!(left.code, Some(3), "{left:?}");
        assert_eq!(left.stdout.lines().count(), 5, "{left:?}");
    }
}

/// Writes four files at once and reads them again, with no C library.
const GO: &str = r#"
package main

import (
	"bufio"
	"hash/crc32"
	"io"
	"os"
	"strconv"
	"sync"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func work(number int, sums []uint32) {
	f, err := os.Create("part" + strconv.Itoa(number))
	check(err)
	w := bufio.NewWriterSize(f, 64<<10)
	for i := 0; i < 1000000; i++ {
		_, err = w.WriteString(strconv.Itoa(i*number) + " something\n")
		check(err)
	}
	check(w.Flush())
	_, err = f.WriteAt([]byte("over"), 100000)
	check(err)
	_, err = f.Seek(0, io.SeekStart)
	check(err)
	sum := crc32.NewIEEE()
	_, err = io.Copy(sum, f)
	check(err)
	sums[number] = sum.Sum32()
	check(f.Close())
}

func main() {
	sums := make([]uint32, 4)
	var all sync.WaitGroup
	for i := range sums {
		all.Add(1)
		go func(i int) { work(i, sums); all.Done() }(i)
	}
	all.Wait()
	for _, sum := range sums {
		println(sum)
	}
	os.Exit(5)
}
"#;

#[test]
fn go() {
    need!(all Bed::needs(Fs::Xfs, &["go"]));
    let bed = Bed::on(Fs::Xfs);
    std::fs::write(bed.file("program.go"), GO).unwrap();
    let compiled = Command::new("go")
        .args(["build", "-o", "program", "program.go"])
        .current_dir(bed.file(""))
        // Kept from run to run: the first compiles Go's own library.
        .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go"))
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOTOOLCHAIN", "local"),
            ("GO111MODULE", "off"),
        ])
        .output()
        .expect("go");
    assert!(compiled.status.success(), "{compiled:?}");
    let left = bed.both("exec $RUN ../program");
    assert_eq!(left.code, Some(5), "{left:?}");
    assert_eq!(left.stderr.lines().count(), 4, "{left:?}");
}

/// A header that is filled in at the end, small writes, reads in between.
const STDIO: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    FILE *f = fopen("records", "w+"), *copy = fopen("copy", "w");
    unsigned sum = 0;
    char header[512] = {0};
    fwrite(header, 1, sizeof header, f);
    for (int i = 0; i < 1500000; i++)
        if (fprintf(f, "%08d record\n", i) < 0) return 1;
    fseek(f, 100, SEEK_SET);
    fprintf(f, "header");
    rewind(f);
    for (int c; (c = getc(f)) != EOF; sum = sum * 31 + c)
        putc(c, copy);
    printf("%u\n", sum);
    if (freopen("other", "a", copy) == NULL) return 1;
    fputs("few", copy);
    return ferror(f) || fclose(f) || fclose(copy) ? 1 : 7;
}
"#;

#[test]
fn c_with_stdio() {
    need!(all Bed::needs(Fs::Btrfs, &["cc"]));
    for option in ["-O1", "-static"] {
        let bed = Bed::on(Fs::Btrfs);
        std::fs::write(bed.file("program.c"), STDIO).unwrap();
        let compiler = Command::new("cc")
            .args([option, "-o", "program", "program.c"])
            .current_dir(bed.file(""))
            .output()
            .expect("cc");
        if !compiler.status.success() {
            skip!("cc {option} does not work here");
        }
        let left = bed.both("exec $RUN ../program");
        assert_eq!(left.code, Some(7), "{left:?}");
    }
}
