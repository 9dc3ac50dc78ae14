//! The policy under criterion: `cargo bench -p rxsteer-core`. For ratios that hold on a noisy machine
//! use `cargo xtask bench --filter decide`.
#![allow(missing_docs, unreachable_pub, reason = "a benchmark has no readers of its interface")]

mod kernels;

use criterion::{Criterion, Throughput};

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for mut case in kernels::all() {
        let mut group = criterion.benchmark_group(case.group);
        group.throughput(Throughput::Elements(case.per_iter));
        group.bench_function(case.name, |bencher| bencher.iter(&mut case.run));
        group.finish();
    }
    criterion.final_summary();
}
