//! `rxsteer-order`: runs many seeds, and prints the first one that finds packets out of order.
//!
//! Exit status: 0 nothing was found, 1 a violation, 2 it could not run.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "talks to whoever typed it")]

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use rxsteer_order::{Guard, Options, Progress, Summary, Violation, search};
use serde_json::{Map, Value, json};
use std::io::IsTerminal;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Events of the flow that are printed for a violation.
const TRACE: usize = 40;

/// Tries to reorder the packets of a flow: random traffic, workers, applications and changes around the real policy,
/// all from one seed per run.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:
  rxsteer-order --seeds 10000 --packets 10000
  rxsteer-order --seed 17 --packets 2000 --guard head-at-dequeue

Exit status: 0 nothing was found, 1 a violation (its seed is printed), 2 it could not run."
)]
struct Cli {
    /// How many seeds to run, from 0.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Packets received in each run.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    packets: u64,
    /// Runs this seed alone.
    #[arg(long, value_name = "SEED", conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Whether packets count as completed when they are (on), always (off), or when they are taken
    /// off the queue (head-at-dequeue). All but `on` show that the checks find something.
    #[arg(long, value_name = "HOW", default_value = "on")]
    guard: GuardName,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum GuardName {
    On,
    Off,
    HeadAtDequeue,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let guard = match cli.guard {
        GuardName::On => Guard::On,
        GuardName::Off => Guard::Off,
        GuardName::HeadAtDequeue => Guard::HeadAtDequeue,
    };
    let options = Options { packets: cli.packets, guard, trace: TRACE };
    let seeds = match cli.seed {
        None => 0..cli.seeds,
        Some(u64::MAX) => {
            eprintln!("rxsteer-order: --seed is too high; the highest is {}", u64::MAX - 1);
            return ExitCode::from(2);
        }
        Some(seed) => seed..seed + 1,
    };
    let started = Instant::now();
    let found = search_shown(seeds, &options);
    let seconds = started.elapsed().as_secs_f64();
    if cli.json {
        println!("{}", as_json(&found, &options, seconds));
    } else {
        match &found {
            Ok(summary) => print(summary, seconds),
            Err(violation) => println!("{violation}"),
        }
    }
    ExitCode::from(u8::from(found.is_err()))
}

/// Searches on all CPUs, with a progress bar if standard error is a terminal.
fn search_shown(seeds: Range<u64>, options: &Options) -> Result<Summary, Violation> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let progress = Progress::default();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bar = std::io::stderr().is_terminal().then(|| {
            let length = seeds.end - seeds.start;
            let (progress, done) = (&progress, &done);
            scope.spawn(move || show(length, progress, done))
        });
        let found = search(seeds.clone(), options, threads, &progress);
        // ORDER: Relaxed; a request without data.
        done.store(true, Ordering::Relaxed);
        if let Some(bar) = bar {
            bar.thread().unpark();
        }
        found
    })
}

fn show(length: u64, progress: &Progress, done: &AtomicBool) {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} seeds, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // ORDER: Relaxed; a request without data.
    while !done.load(Ordering::Relaxed) {
        bar.set_position(progress.done());
        std::thread::park_timeout(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}

fn print(summary: &Summary, seconds: f64) {
    println!("0 reordered, 0 lost uncounted, every transition ended: nothing was found");
    for (name, count) in summary.counts() {
        println!("  {name:<16}{count:>14}");
    }
    for (reason, count) in summary.drops.iter().filter(|(_, count)| *count > 0) {
        println!("  dropped {:<16}{count:>6}", reason.name());
    }
    let nanoseconds = seconds * 1e9 / summary.received.max(1) as f64;
    println!("in {seconds:.1} s, {nanoseconds:.0} ns per packet");
}

fn as_json(found: &Result<Summary, Violation>, options: &Options, seconds: f64) -> Value {
    let mut object = Map::new();
    object.insert("packets_per_seed".into(), options.packets.into());
    object.insert("guard".into(), options.guard.name().into());
    object.insert("seconds".into(), json!(seconds));
    match found {
        Ok(summary) => {
            let counts = summary.counts().into_iter().map(|(name, n)| (name.to_owned(), n.into()));
            let drops = summary.drops.iter().map(|(why, n)| (why.name().to_owned(), n.into()));
            object.insert("summary".into(), counts.collect::<Map<_, _>>().into());
            object.insert("drops".into(), drops.collect::<Map<_, _>>().into());
            object.insert("violation".into(), Value::Null);
        }
        Err(violation) => {
            let what = violation.fault.to_string();
            let trace = &violation.trace;
            let violation = json!({ "seed": violation.seed, "what": what, "trace": trace });
            object.insert("violation".into(), violation);
        }
    }
    object.into()
}
