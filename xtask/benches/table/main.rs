//! The table of ratios: `cargo xtask bench` builds and runs it.
//!
//! The cases are in the crates that they measure, in `benches/kernels.rs`, where criterion runs the same cases. Here
//! the cases of all crates run in one process. Without `--bench`, as in `cargo test --benches`, each case runs once,
//! and nothing is measured.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "prints the table")]

#[path = "../../src/bench_options.rs"]
mod bench_options;
mod kernels;
mod show;
mod targets;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Parser;
use rxsteer_bench::{Case, Gate, NoGate, Plan, measure};

use bench_options::Options;

#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    let options = Cli::parse().options;
    let mut cases = kernels::all();
    for case in &mut cases {
        case.baseline |= targets::divide_by(case);
    }
    let unmatched = targets::unmatched(&cases);
    for target in &unmatched {
        eprintln!(
            "bench: there is no case for the target {target}; correct xtask/benches/table/targets.rs or the case's name"
        );
    }
    if !options.bench {
        run_each_once(&mut cases);
        return if unmatched.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }

    if let Some(text) = &options.filter {
        let names = names(&cases);
        cases = filtered(cases, text);
        if cases.is_empty() {
            eprintln!("bench: no case has {text:?} in its name. The cases are:\n{names}");
            return ExitCode::from(2);
        }
    }
    let plan = plan(&options);
    let report = measure(&mut cases, &plan, &mut progress());
    clear_progress();
    let text = if options.json { show::json(&report, &plan) } else { show::table(&report, &plan) };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // The reader of the output closed it early.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: cannot write the table: {error}");
            ExitCode::from(2)
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}

fn plan(options: &Options) -> Plan {
    let gate = match options.gate_ns {
        0 => Err(NoGate::TurnedOff),
        limit => Gate::find(f64::from(limit)),
    };
    let clock =
        || SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64 % 1_000_000);
    Plan {
        rounds: options.rounds as usize,
        slice: Duration::from_millis(u64::from(options.slice_ms)),
        gate,
        seed: options.seed.unwrap_or_else(clock),
    }
}

fn run_each_once(cases: &mut [Case]) {
    for case in cases.iter_mut() {
        std::hint::black_box((case.run)());
    }
    let count = cases.len();
    println!("{count} cases ran once each; nothing was measured (`cargo xtask bench` measures)");
}

/// The cases with `text` in the name of their group or in their own name, and the baselines that they need.
fn filtered(mut cases: Vec<Case>, text: &str) -> Vec<Case> {
    let wanted = |case: &Case| case.group.contains(text) || case.name.contains(text);
    let groups: Vec<&str> =
        cases.iter().filter(|case| wanted(case)).map(|case| case.group).collect();
    cases.retain(|case| wanted(case) || case.baseline && groups.contains(&case.group));
    cases
}

fn names(cases: &[Case]) -> String {
    let lines: Vec<String> =
        cases.iter().map(|case| format!("  {}: {}", case.group, case.name)).collect();
    lines.join("\n")
}

/// Shows on a terminal what is being measured.
fn progress() -> impl FnMut(&str) {
    let terminal = io::stderr().is_terminal();
    move |what| {
        if terminal {
            eprint!("\r\x1b[K{what}");
        }
    }
}

fn clear_progress() {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}
