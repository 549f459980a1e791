//! What an event costs the policy, by the number of streams of the disk.
//!
//! `cargo bench -p dropbehind-policy`. The instruction counts of the same
//! events are guarded by `.ci/instruction-counts`.

mod load;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use load::Load;
use std::hint::black_box;

const STREAMS: [u64; 4] = [1, 100, 10_000, 100_000];

type Event = (&'static str, fn(&mut Load));

const EVENTS: [Event; 5] = [
    ("a page is told, each in turn", Load::page_told),
    ("next, nothing due", |load| {
        black_box(load.nothing_due());
    }),
    ("a batch from write to drop, each in turn", Load::batch_done),
    (
        "a batch from write to drop, one stream",
        Load::batch_done_alone,
    ),
    ("a small file, opened to closed", Load::small_file_done),
];

fn policy(criterion: &mut Criterion) {
    for (name, event) in EVENTS {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        for streams in STREAMS {
            group.bench_function(BenchmarkId::from_parameter(streams), |bencher| {
                let mut load = Load::new(streams);
                load.settle();
                bencher.iter(|| event(&mut load));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, policy);
criterion_main!(benches);
