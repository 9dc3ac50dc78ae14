//! Runs the cases of one crate under criterion, one after the other.

use crate::Case;
use crate::left_out::measured;
use criterion::{Criterion, Throughput};
use std::hint::black_box;

/// Runs `cases` as the arguments of `cargo bench` request: the `main` of a criterion benchmark. For ratios that are
/// valid on a noisy machine, use [`measure`](crate::measure).
pub fn under_criterion(cases: Vec<Case>) {
    let mut criterion = Criterion::default().configure_from_args();
    for mut case in cases {
        let mut group = criterion.benchmark_group(case.group);
        group.throughput(Throughput::Elements(case.per_iter));
        let role = if case.baseline { " (baseline)" } else { "" };
        group.bench_function(format!("{}{role}", case.name), |bencher| {
            bencher.iter_custom(|calls| {
                measured(|| {
                    for _ in 0..calls {
                        black_box((case.run)());
                    }
                })
            });
        });
        group.finish();
    }
    criterion.final_summary();
}
