//! A 4 KiB write with plain `pwrite` and with the library.
//!
//! `cargo bench -p dropbehind`, in a folder on a disk (`DROPBEHIND_BENCH_DIR`, else the
//! system's temporary folder). It writes one megabyte over and over, so the pages are cached
//! and the kernel's part is as short as it gets. With `write-behind-any` the window never
//! fills, so the difference to plain is what the library adds to the writer's path. With
//! `dontcache` the disk is always busy and pages come and go, so this shows what a program
//! sees rather than the path.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dropbehind::{File, Mode};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const BLOCK_BYTES: usize = 4096;
const SPAN_BYTES: u64 = 1 << 20;

/// A file of this process, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder =
            std::env::var_os("DROPBEHIND_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = std::process::id();
        Self(folder.join(format!("dropbehind-bench-{number}-{name}")))
    }

    fn create(&self) -> std::fs::File {
        std::fs::File::create(&self.0).unwrap_or_else(|error| {
            panic!(
                "cannot create {}: {error}; set DROPBEHIND_BENCH_DIR",
                self.0.display()
            )
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn write_path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("4 KiB write");
    group.throughput(Throughput::Bytes(BLOCK_BYTES as u64));
    let block = [0x5a; BLOCK_BYTES];
    let mut offset = 0;
    let mut next = move || {
        offset = (offset + BLOCK_BYTES as u64) % SPAN_BYTES;
        offset
    };
    let scratch = Scratch::new("plain");
    let plain = scratch.create();
    group.bench_function("pwrite", |bencher| {
        bencher.iter(|| plain.write_at(&block, next()).expect("a write"));
    });
    for mode in [Mode::BUFFERED, Mode::WRITE_BEHIND_ANY, Mode::DONTCACHE] {
        let name = mode.name().expect("a named mode");
        let scratch = Scratch::new(name);
        let file = File::from_std(scratch.create(), mode).expect("a file");
        group.bench_function(name, |bencher| {
            bencher.iter(|| file.write_at(&block, next()).expect("a write"));
        });
    }
    group.finish();
}

criterion_group!(benches, write_path);
criterion_main!(benches);
