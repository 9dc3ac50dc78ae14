//! The simulator under criterion: `cargo bench -p rxsteer-sim`. For figures that hold on a noisy
//! machine use `cargo xtask bench --filter simulated`.
#![allow(missing_docs, unreachable_pub, reason = "a benchmark has no readers of its interface")]

mod kernels;

fn main() {
    rxsteer_bench::under_criterion(kernels::all());
}
