//! The checks and benchmarks that take too long for every build, or need more than a stable compiler.
//!
//! If this machine cannot run a check, the check prints SKIPPED with the reason, and exits with 0. Exit 1: a check
//! failed. Exit 2: a check could not be run.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "talks to whoever typed it")]

mod balance;
mod bench;
mod bpf_cost;
mod dist;
mod fuzz;
mod lab;
mod live;
mod loom;
mod order;
mod package;
mod rustup;
mod shell;
mod sim_fits;
mod sim_soak;
mod tsan;
mod vm;
mod words;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Long checks and benchmarks of rxsteer.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
#[command(after_help = "Example:\n  cargo xtask bench --filter toeplitz --rounds 9")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Balance(balance::Options),
    Bench(bench::Options),
    /// Measures how many packets a second one CPU hands to another, compared with a fixed redirect.
    HandOff(lab::Options),
    /// Counts what the kernel's RPS reorders while rxsteer host apply changes masks, and tests whether --verify
    /// undoes a bad change.
    KernelRps(lab::Options),
    /// Measures packets a second from a live interface into an application: packet sockets with and without steering, fanout.
    LiveSources(lab::Options),
    BpfCost(bpf_cost::Options),
    /// Measures loss and delay while processes keep the CPUs busy: with the kernel's RPS, with steering, and without.
    Busy(lab::Options),
    Dist(dist::Options),
    Live(live::Options),
    Loom(loom::Options),
    Order(order::Options),
    Package(package::Options),
    /// Measures how long status and explain take, and the event thread's longest round meanwhile.
    StatusCost(lab::Options),
    /// Measures two flows through a router: with the kernel's RPS, with sparse steering, and without steering.
    Router(lab::Options),
    /// Measures the cost of viewers of the metrics and the page: without viewers, with one each second, and with a
    /// thousand slow clients.
    WatchCost(lab::Options),
    SimFits(sim_fits::Options),
    SimSoak(sim_soak::Options),
    Tsan(tsan::Options),
    Fuzz(fuzz::Options),
    Vm(vm::Options),
    Words(words::Options),
    /// Runs the checks that must pass before a change is merged: formatting, clippy, cargo deny, ./test.
    #[command(after_help = "Example:\n  cargo xtask ci")]
    Ci,
}

/// The result of a task that could be started.
enum Outcome {
    Passed,
    Failed,
    /// This machine cannot run the task; holds the reason and the remedy.
    Skipped(String),
}

fn main() -> ExitCode {
    match run(&Cli::parse().task) {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Ok(Outcome::Skipped(why)) => {
            println!("SKIPPED {why}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xtask: {why:#}");
            ExitCode::from(2)
        }
    }
}

fn run(task: &Task) -> Result<Outcome> {
    match task {
        Task::Balance(options) => balance::run(options),
        Task::Bench(_) => bench::run(),
        Task::HandOff(options) => lab::run("hand-off", options),
        Task::KernelRps(options) => lab::run("kernel-rps", options),
        Task::LiveSources(options) => lab::run("live-sources", options),
        Task::Router(options) => lab::run("router", options),
        Task::Busy(options) => lab::run("busy", options),
        Task::StatusCost(options) => lab::run("status-cost", options),
        Task::WatchCost(options) => lab::run("watch-cost", options),
        Task::BpfCost(options) => bpf_cost::run(options),
        Task::Live(options) => live::run(options),
        Task::Loom(options) => loom::run(options),
        Task::Order(options) => order::run(options),
        Task::Dist(options) => dist::run(options),
        Task::Package(options) => package::run(options),
        Task::SimFits(options) => sim_fits::run(options),
        Task::SimSoak(options) => sim_soak::run(options),
        Task::Tsan(options) => tsan::run(options),
        Task::Fuzz(options) => fuzz::run(options),
        Task::Vm(options) => vm::run(options),
        Task::Words(options) => words::run(options),
        Task::Ci => shell::outcome(shell::command("bash").arg(".ci/run")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Without automatic tests, a file that neither `it.rs` nor the manifest names is never compiled.
    #[test]
    fn every_file_of_tests_is_listed() {
        let folders =
            ["crates", "verify"].map(|name| fs::read_dir(shell::root().join(name)).unwrap());
        let mut listed = 0;
        for folder in folders.into_iter().flatten() {
            let folder = folder.unwrap().path();
            let Ok(list) = fs::read_to_string(folder.join("tests/it.rs")) else { continue };
            let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            for file in fs::read_dir(folder.join("tests")).unwrap() {
                let file = file.unwrap().path();
                let name = file.file_stem().unwrap().to_str().unwrap();
                if file.extension().is_some_and(|extension| extension == "rs") {
                    let is_module = list.contains(&format!("\nmod {name};\n"));
                    let is_target = manifest.contains(&format!("[[test]]\nname = \"{name}\"\n"));
                    assert!(is_module || is_target, "{}: nothing names it", file.display());
                    listed += 1;
                }
            }
        }
        assert!(listed > 40, "{listed} files");
    }
}
