//! How many packets a second an application receives from a live interface.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use rxsteer_core::Policy;
use rxsteer_io::packet::FanoutBy;
use rxsteer_lab::{LinkOptions, LiveFrames, Pass, Receiving, Testbed, Traffic};
use serde_json::{Value, json};

use super::rounds::{Plan, Variant, measure};

/// Live frames from CPU 0 into an application: rxsteer beside loops without steering, and beside fanout.
///
/// "empty": the handler does nothing. A bare loop over the ring's blocks, rxsteer with one worker, recvmmsg; all on CPU 1.
/// "many_flows" and "two_flows": two threads that work for each packet; fanout by hash, CPU and rollover, and rxsteer. The two
/// flows are two that fanout by hash puts on the thread of CPU 1. The sender takes as much of CPU 0 as it gets, so what is
/// left for two threads is about one and a half CPUs. Packets a second as quartiles, and their ratio within a round.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab live-sources --rounds 5")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// The policy of rxsteer where handlers work.
    #[arg(long, default_value = "sparse")]
    policy: Policy,
    /// What each packet takes there, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 1000)]
    work_ns: u64,
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let _pass = Pass::attach(testbed.receiver(), &testbed.link().far)?;
    let work = Duration::from_nanos(options.work_ns);
    let bench = Receiving { testbed: &testbed, frames: options.plan.frames, work };
    let many = Traffic { flows: 1000, length: 64, ..Traffic::default() };
    let two = bench.two_flows_on_one_thread()?;
    let compare = |traffic: &Traffic| -> Result<Value> {
        let source = &LiveFrames::new(testbed.link(), traffic)?;
        let fanout = |name, by| Variant {
            name,
            turn: Box::new(move || {
                Ok(bench.working(source, |seen, end| bench.fanout(by, seen, end))?.0)
            }),
        };
        let rxsteer = || {
            bench
                .working(source, |seen, end| bench.rxsteer(&options.policy, "0-1", work, seen, end))
        };
        let mut variants = [
            fanout("fanout_hash", FanoutBy::Hash),
            fanout("fanout_cpu", FanoutBy::Cpu),
            fanout("fanout_rollover", FanoutBy::Rollover),
            Variant { name: "rxsteer", turn: Box::new(move || Ok(rxsteer()?.0)) },
        ];
        Ok(measure(&mut variants, &options.plan)?.report("fanout_hash"))
    };
    let source = &LiveFrames::new(testbed.link(), &many)?;
    let mut empty = [
        Variant {
            name: "bare",
            turn: Box::new(|| Ok(bench.empty(source, |seen, end| bench.bare(seen, end))?)),
        },
        Variant {
            name: "rxsteer",
            turn: Box::new(|| {
                Ok(bench.empty(source, |seen, end| {
                    bench.rxsteer(&Policy::Rps, "1-1", Duration::ZERO, seen, end)
                })?)
            }),
        },
        Variant {
            name: "recvmmsg",
            turn: Box::new(|| Ok(bench.empty(source, |seen, end| bench.recvmmsg(seen, end))?)),
        },
    ];
    Ok(json!({
        "empty": measure(&mut empty, &options.plan)?.report("bare"),
        "many_flows": compare(&many)?,
        "two_flows": compare(&two)?,
    }))
}
