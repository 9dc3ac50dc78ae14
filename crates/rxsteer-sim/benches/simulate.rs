//! Benchmarks of the simulator under criterion: `cargo bench -p rxsteer-sim`. On a noisy machine, `cargo xtask
//! bench --filter simulated` gives stable figures.
#![allow(missing_docs, unreachable_pub, reason = "a benchmark has no readers of its interface")]

mod kernels;

fn main() {
    rxsteer_bench::under_criterion(kernels::all());
}
