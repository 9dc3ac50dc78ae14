//! The cost of the BPF programs as one table: runs the measurements of the lab, and prints them.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::{Outcome, shell};

/// Shows what the BPF programs cost a frame, compared with a fixed redirect; requires root, clang and two CPUs.
///
/// Prints nanoseconds as counted by the kernel: medians and quartiles of the differences within rounds, for 1000
/// flows; 10,000 flows in trains of 8 frames; and 10,000 flows of single frames in random order. For context
/// switches, and for each send and receive of a socket (rfs), it prints the difference to a program that does
/// nothing. It also prints how many instructions the verifier processed, and the stack of each program.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bpf-cost\n  cargo xtask bpf-cost --cpus 1 --policies rps,rfs+sparse --rounds 15"
)]
pub(crate) struct Options {
    /// Measures only these policies
    #[arg(long, value_name = "POLICIES")]
    policies: Option<String>,
    /// CPUs that frames are steered to [default: 0-1]; with 1, all frames go to the CPU of the fixed program
    #[arg(long, value_name = "CPUS")]
    cpus: Option<String>,
    /// How often each policy is measured
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Frames sent in one turn
    #[arg(long, value_name = "N")]
    frames: Option<u64>,
}

/// The loads to measure, with the options of the lab.
const LOADS: [(&str, &[&str]); 3] = [
    ("1000 flows, one frame of each in turn", &["--flows", "1000"]),
    ("10,000 flows, trains of 8 frames", &["--flows", "10000", "--train", "8"]),
    ("10,000 flows, single frames in random order", &["--flows", "10000", "--random"]),
];

pub(crate) fn run(options: &Options) -> Result<Outcome> {
    let build = shell::cargo()
        .args(["build", "--release", "--quiet", "--package", "rxsteer-live"])
        .status()?;
    if !build.success() {
        bail!("rxsteer-live does not build; it requires clang, libelf and zlib");
    }
    let mut verifier = Value::Null;
    for (name, load) in LOADS {
        let mut lab = lab();
        lab.arg("bpf-cost").args(load);
        for (option, value) in [
            ("--policies", options.policies.clone()),
            ("--cpus", options.cpus.clone()),
            ("--rounds", options.rounds.map(|rounds| rounds.to_string())),
            ("--frames", options.frames.map(|frames| frames.to_string())),
        ] {
            lab.args(value.map(|value| [option.to_owned(), value]).into_iter().flatten());
        }
        let mut report = match report(&mut lab)? {
            Ok(report) => report,
            Err(why) => return Ok(Outcome::Skipped(format!("bpf-cost: {why}"))),
        };
        costs(name, &report);
        verifier = report["verifier"].take();
    }
    let mut lab = lab();
    lab.arg("socket-cost");
    lab.args(options.rounds.map(|rounds| format!("--rounds={rounds}")));
    if let Ok(report) = report(&mut lab)? {
        sockets(&report);
    }
    verified(&verifier);
    Ok(Outcome::Passed)
}

fn lab() -> std::process::Command {
    shell::command(&shell::target_dir("release").join("rxsteer-lab").to_string_lossy())
}

/// The lab's report, or why the lab cannot run here.
fn report(lab: &mut std::process::Command) -> Result<std::result::Result<Value, String>> {
    match shell::output(lab)? {
        Ok(stderr) => {
            Ok(Ok(serde_json::from_str(&stderr).context("the lab's report is not JSON")?))
        }
        Err(why) => match why.split_once("cannot run: ") {
            Some((_, why)) => Ok(Err(why.to_owned())),
            None => bail!("{why}"),
        },
    }
}

/// The cost that rfs adds to each send and receive.
fn sockets(report: &Value) {
    println!(
        "64-byte messages over loopback; {} a turn, {} rounds",
        report["messages_a_turn"], report["rounds"]
    );
    println!("  {:34}{:>24}{:>24}", "ns over an empty program, rfs", "each send", "each receive");
    for row in report["sockets"].as_array().into_iter().flatten() {
        let name = row["socket"].as_str().unwrap_or_default();
        let (send, receive) =
            (spread(&row["send_over_empty_ns"]), spread(&row["receive_over_empty_ns"]));
        println!("  {name:34}{send:>24}{receive:>24}");
    }
    for row in report["sockets"].as_array().into_iter().flatten().take(1) {
        println!("  {:34}{:>24}", "(the empty program itself)", spread(&row["empty_ns"]));
    }
    println!();
}

/// The rows of one load.
fn costs(name: &str, report: &Value) {
    println!(
        "{name}; steered to CPUs {}; {} frames a turn, {} rounds",
        report["cpus"].as_str().unwrap_or_default(),
        report["frames_a_turn"],
        report["rounds"]
    );
    let columns = ["interface program", "arrival program", "sched_switch program"];
    println!(
        "  {:34}{:>24}{:>24}{:>24}",
        "ns over a fixed redirect", columns[0], columns[1], columns[2]
    );
    for row in report["figures"].as_array().into_iter().flatten() {
        let entry = spread(&row["entry_over_fixed_ns"]);
        let arrival = spread(&row["arrival_over_fixed_ns"]);
        let switch = spread(&row["switch_over_empty_ns"]);
        // The fixed redirect has no baseline: its own time is shown.
        if row["policy"] == "fixed" {
            let (entry, arrival) = (spread(&row["entry_ns"]), spread(&row["arrival_ns"]));
            println!("  {:34}{entry:>24}{arrival:>24}", "(the fixed redirect itself)");
        } else {
            let policy = row["policy"].as_str().unwrap_or_default();
            println!("  {policy:34}{entry:>24}{arrival:>24}{switch:>24}");
        }
    }
    println!();
}

/// A median with its quartiles.
fn spread(quartiles: &Value) -> String {
    match quartiles.as_array().map(Vec::as_slice) {
        Some([q1, median, q3]) => format!("{median} ({q1} to {q3})"),
        _ => "did not run".to_owned(),
    }
}

/// How much the verifier examined.
fn verified(programs: &Value) {
    println!(
        "  {:34}{:>24}   stack: bytes of the program + of each of its functions",
        "program", "verified instructions"
    );
    for row in programs.as_array().into_iter().flatten() {
        let stack: Vec<String> =
            row["stack"].as_array().into_iter().flatten().map(Value::to_string).collect();
        let name = row["program"].as_str().unwrap_or_default();
        println!("  {name:34}{:>24}   {}", row["instructions"].to_string(), stack.join(" + "));
    }
}
