//! The flow statistics under criterion: `cargo bench -p rxsteer-flows`. For ratios that hold on a noisy
//! machine use `cargo xtask bench --filter flow`.
#![allow(missing_docs, unreachable_pub, reason = "a benchmark has no readers of its interface")]

mod kernels;

fn main() {
    rxsteer_bench::under_criterion(kernels::all());
}
