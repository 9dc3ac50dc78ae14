//! Runs the built-in scenarios, shortened, with random faults, seed by seed. Checks that no flow is overtaken and
//! no packet is lost uncounted. `cargo xtask sim-soak` runs this program.
//!
//! Only sums are kept, so memory does not grow with the number of runs.
//!
//! Exit status: 0 success, 1 findings, 2 could not run.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "talks to whoever typed it")]

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rxsteer_sim::Scenario;
use rxsteer_sim::file::builtin::builtin;
use rxsteer_sim::soak::{Covered, Violation, one, shorten};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Runs the built-in scenarios with random faults, and stops at the first run in which a flow was
/// overtaken or packets do not add up.
#[derive(Parser)]
#[command(after_help = "Examples:\n  cargo xtask sim-soak --seeds 10000\n  \
                  cargo xtask sim-soak --scenario rpc-8 --seed 17")]
struct Cli {
    /// How many seeds each scenario is run with, from 0
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Runs this seed alone, as a failure says
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Runs this built-in scenario alone
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Faults of each run
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=1000))]
    faults: u32,
    /// About how many packets a run is to have without faults
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    packets: u64,
}

/// A shortened scenario, and its name.
struct Subject {
    name: &'static str,
    scenario: Scenario,
}

/// A finding: the error, and the run where it occurred.
struct Found {
    name: &'static str,
    seed: u64,
    what: Violation,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let subjects = match subjects(&cli) {
        Ok(subjects) => subjects,
        Err(why) => {
            eprintln!("sim-soak: {why}");
            return ExitCode::from(2);
        }
    };
    let (covered, found) = soak(&cli, &subjects);
    match found {
        None => {
            println!("{}", covered_text(&covered));
            ExitCode::SUCCESS
        }
        Some(Found { name, seed, what }) => {
            println!("{name}, seed {seed}: {what}");
            println!(
                "again: cargo xtask sim-soak --scenario {name} --seed {seed} --faults {} --packets {}",
                cli.faults, cli.packets
            );
            ExitCode::from(1)
        }
    }
}

/// The scenarios to run.
fn subjects(cli: &Cli) -> Result<Vec<Subject>, String> {
    let wanted = |name: &str| cli.scenario.as_deref().is_none_or(|only| only == name);
    let subjects = builtin().iter().filter(|builtin| wanted(builtin.name)).map(|builtin| {
        let name = builtin.name;
        let scenario = builtin.scenario(&[]).map_err(|why| why.to_string())?;
        let scenario = shorten(&scenario, cli.packets).map_err(|why| format!("{name}: {why}"))?;
        Ok(Subject { name, scenario })
    });
    let subjects = subjects.collect::<Result<Vec<_>, String>>()?;
    if subjects.is_empty() {
        let names: Vec<_> = builtin().iter().map(|builtin| builtin.name).collect();
        let only = cli.scenario.as_deref().unwrap_or_default();
        return Err(format!("there is no scenario '{only}'; there are {}", names.join(", ")));
    }
    Ok(subjects)
}

/// Does all runs on all CPUs; the first failure ends them.
fn soak(cli: &Cli, subjects: &[Subject]) -> (Covered, Option<Found>) {
    let seeds = cli.seed.map_or(0..cli.seeds, |seed| seed..seed.saturating_add(1));
    let runs = (seeds.end - seeds.start) * subjects.len() as u64;
    let bar = if std::io::stderr().is_terminal() { bar(runs) } else { ProgressBar::hidden() };
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new((Covered::default(), None));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let mut mine = Covered::default();
                // ORDER: Relaxed, here and below; a number and a request to stop, each complete in itself.
                while !stop.load(Ordering::Relaxed) {
                    let run = next.fetch_add(1, Ordering::Relaxed);
                    if run >= runs {
                        break;
                    }
                    let subject = &subjects[(run % subjects.len() as u64) as usize];
                    let seed = seeds.start + run / subjects.len() as u64;
                    match one(&subject.scenario, seed, cli.faults) {
                        Ok(covered) => mine.add(covered),
                        Err(what) => {
                            stop.store(true, Ordering::Relaxed);
                            let found = Found { name: subject.name, seed, what };
                            if let Ok(mut sum) = sum.lock() {
                                sum.1.get_or_insert(found);
                            }
                        }
                    }
                    bar.inc(1);
                }
                if let Ok(mut sum) = sum.lock() {
                    sum.0.add(mine);
                }
            });
        }
    });
    bar.finish_and_clear();
    sum.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn bar(runs: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs, {eta} left");
    ProgressBar::new(runs).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn covered_text(covered: &Covered) -> String {
    format!(
        "{} runs with {} events: {} frames arrived, {} packets were processed, {} refused, {} moves; \
         none out of order but {} where interrupts are spread, and every packet is accounted for",
        covered.runs,
        covered.events,
        covered.arrived,
        covered.processed,
        covered.refused,
        covered.moves,
        covered.reordered_by_spread
    )
}
