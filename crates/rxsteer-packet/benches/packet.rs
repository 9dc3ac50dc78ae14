//! Criterion over the kernels of `kernels.rs`, one group per comparison.

#[allow(unreachable_pub)]
mod kernels;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn packet(criterion: &mut Criterion) {
    for mut case in kernels::all() {
        let mut group = criterion.benchmark_group(case.group);
        group.throughput(Throughput::Elements(case.per_iter));
        let name =
            if case.baseline { format!("{} (baseline)", case.name) } else { case.name.into() };
        group.bench_function(name, |bencher| bencher.iter(&mut case.run));
        group.finish();
    }
}

criterion_group!(benches, packet);
criterion_main!(benches);
