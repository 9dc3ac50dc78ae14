//! Benchmarks of the receive path under criterion: `cargo bench -p rxsteer-user`. On a noisy machine, `cargo xtask
//! bench --filter path` gives stable ratios.
#![allow(missing_docs, unreachable_pub, reason = "a benchmark has no readers of its interface")]

mod kernels;

fn main() {
    rxsteer_bench::under_criterion(kernels::all());
}
