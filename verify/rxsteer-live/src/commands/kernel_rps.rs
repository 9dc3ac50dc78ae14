//! Properties of the kernel's own RPS, which `rxsteer host` sets: it reorders packets when masks change, and `--verify`
//! finds that a wrong mask is worse.
//!
//! ```text
//!   frames, numbered by flow          in0, RPS by rxsteer host apply
//!   CPU 0 ────────────────────► [CPU 0, or CPU 1's backlog] ──► order check at the stack's door
//! ```
//!
//! - Order: masks change while frames flow. A flow that moves from CPU 1 to CPU 0 overtakes its own packets that wait
//!   in CPU 1's backlog. How many wait there depends on its load, so frames are sent at two rates. The same frames
//!   without changes are the control.
//! - Verdict: with a long list of nft rules, one CPU cannot process what another one sends. If everything goes to that
//!   CPU, which is busy as well, packets are dropped; `--verify` must detect this and undo it.

use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use rxsteer_lab::{
    BusyProcesses, LinkOptions, LiveFrames, Namespace, OrderCheck, Pass, Testbed, Traffic, missing,
    rxsteer,
};
use serde_json::{Value, json};

/// The CPU that sends and receives, and the other one.
const SENDER: usize = 0;
const OTHER: usize = 1;
/// Frames per call, so that a call ends soon after it is stopped.
const BATCH: u64 = 50_000;
/// Rules that match nothing.
const RULES: usize = 200;

/// Counts what the kernel's RPS reorders while `rxsteer host apply` changes masks, and tests whether `--verify` undoes
/// a bad change.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab kernel-rps --changes 200")]
pub(crate) struct Options {
    /// Number of changes of the mask.
    #[arg(long, default_value_t = 200)]
    changes: u32,
    /// Number of flows.
    #[arg(long, default_value_t = 64)]
    flows: u32,
    /// Times between two frames, in ns: one that a CPU can keep up with, and one that it can't.
    #[arg(long, value_delimiter = ',', default_value = "8000,0")]
    pace_ns: Vec<u64>,
    /// How long --verify measures, in seconds.
    #[arg(long, default_value_t = 12)]
    verify_s: u32,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    if let Some(reason) = missing(&["nft", "chrt", "setpriv", "taskset"]) {
        anyhow::bail!("cannot run: {reason}");
    }
    let mut paced = Vec::new();
    for pace_ns in &options.pace_ns {
        paced.push(json!({
            "pace_ns": pace_ns,
            "unchanged": order(options, *pace_ns, 0)?,
            "changed": order(options, *pace_ns, options.changes)?,
        }));
    }
    Ok(json!({ "order": paced, "wrong_mask": wrong_mask(options)? }))
}

fn host(namespace: &Namespace, arguments: &[&str]) -> Result<Output> {
    // rxsteer does not run on the CPU that sends: the sender would have to stop meanwhile, which no NIC does, and the
    // other CPU would empty its backlog. rxsteer has priority over ordinary threads; otherwise it would run only when
    // that backlog is empty.
    let mut command = namespace.command("chrt");
    command.args(["-f", "1", "taskset", "-c", &OTHER.to_string()]);
    command.arg(rxsteer().map_err(anyhow::Error::msg)?);
    let output = command.arg("host").args(arguments).stdin(Stdio::null()).output();
    output.context("can't start rxsteer")
}

fn succeeds(namespace: &Namespace, arguments: &[&str]) -> Result<()> {
    let output = host(namespace, arguments)?;
    let output_text = [&output.stdout[..], &output.stderr[..]].concat();
    let output_text = String::from_utf8_lossy(&output_text).into_owned();
    ensure!(output.status.success(), "rxsteer host {}: {output_text}", arguments.join(" "));
    Ok(())
}

/// Sends frames while the mask changes this often; without changes, for some seconds.
fn order(options: &Options, pace_ns: u64, changes: u32) -> Result<Value> {
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let receiver = testbed.receiver();
    let _pass = Pass::attach(receiver, &testbed.link().far)?;
    slow_down(receiver)?;
    let pace = Duration::from_nanos(pace_ns);
    let traffic = Traffic { flows: options.flows, pace, ..Traffic::default() };
    let check = OrderCheck::new(receiver, &testbed.link().far, options.flows)?;
    let source = LiveFrames::new(testbed.link(), &traffic)?;
    succeeds(receiver, &["apply", "in0", "--cpus", "0-1", "--yes"])?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), SENDER, BATCH, &stop));
        let changed = (0..changes).try_for_each(|change| {
            let cpus = ["1-1", "0-0", "0-1"][change as usize % 3];
            succeeds(receiver, &["apply", "in0", "--cpus", cpus, "--yes"])
        });
        if changes == 0 {
            std::thread::sleep(Duration::from_secs(5));
        }
        stop.store(true, Ordering::Relaxed);
        sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        changed
    })?;
    let seen = check.drained()?;
    succeeds(receiver, &["restore", "--yes"])?;
    Ok(json!({
        "changes": changes,
        "frames": seen.frames,
        "reordered": seen.late,
        "reordered_per_change": if changes == 0 { Value::Null } else { json!(seen.late as f64 / f64::from(changes)) },
        "moves": seen.moves,
        "furthest": seen.furthest,
    }))
}

/// Steers everything to one busy CPU; `--verify` measures it.
fn wrong_mask(options: &Options) -> Result<Value> {
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let receiver = testbed.receiver();
    let _pass = Pass::attach(receiver, &testbed.link().far)?;
    slow_down(receiver)?;
    let traffic = Traffic { flows: options.flows, ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic)?;
    let _busy = BusyProcesses::start(&[OTHER], 1)?;
    let stop = AtomicBool::new(false);
    let time = format!("{}s", options.verify_s);
    let (output, mask) = std::thread::scope(|scope| -> Result<(Output, String)> {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), SENDER, BATCH, &stop));
        let output = host(receiver, &["apply", "in0", "--cpus", "1-1", "--yes", "--verify", &time]);
        let mask = receiver.run("cat /sys/class/net/in0/queues/rx-0/rps_cpus");
        stop.store(true, Ordering::Relaxed);
        sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok((output?, mask?))
    })?;
    succeeds(receiver, &["restore", "--yes"])?;
    let lines = |bytes: &[u8]| -> Vec<String> {
        String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
    };
    Ok(json!({
        "status": output.status.code(),
        "undone": output.status.code() == Some(1) && mask.trim() == "0",
        "measured": lines(&output.stdout),
        "said": lines(&output.stderr),
    }))
}

/// Adds rules that are compared with every packet.
fn slow_down(namespace: &Namespace) -> Result<()> {
    namespace.run("nft add table ip lab")?;
    namespace.run(
        "nft add chain ip lab walked { type filter hook prerouting priority 0 ; policy accept ; }",
    )?;
    for rule in 0..RULES {
        namespace
            .run(&format!("nft add rule ip lab walked ip saddr 192.0.2.{} drop", rule % 250))?;
    }
    Ok(())
}
