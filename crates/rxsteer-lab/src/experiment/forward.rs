//! Small packets through a router, one RX queue: what one core forwards, and what a second one adds.
//!
//! ```text
//!   sender ──► in0 ─► [which CPU?] ─► (NAT,) route ─► out1 ──► in1, numbered frames are counted
//!   CPU 0      CPU 0                  CPU 0 or another
//! ```
//!
//! An XDP program on CPU 0 makes the frames as fast as they are taken. On a veth, that CPU also receives them, so CPU 0 is both
//! the sender and the CPU that a NIC would interrupt. With two CPUs, each frame that is processed on CPU 0 costs time of the
//! sender. The use of each CPU is in the report.

use super::cpus::Snapshot;
use super::{About, Experiment, Load, Method, Metric, Sample, Scale};
use crate::busy::BusyProcesses;
use crate::cpus::online_cpus;
use crate::error::{LabError, Result};
use crate::live::{LiveFrames, Traffic};
use crate::order::OrderCheck;
use crate::testbed::{LinkOptions, Testbed};
use std::net::{IpAddr, Ipv4Addr};

pub(super) struct Forward;

const METRICS: &[Metric] = &[
    Metric::more("forwarded", "packets/s"),
    Metric::more("receiving CPU idle", "%"),
    Metric::fewer("reordered", "packets"),
];

/// A network behind the last host, which has no route for it and drops what arrives.
const BEHIND: &str = "203.0.113.0/24";
const TARGET: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The CPU that sends and receives.
const SENDER: usize = 0;
/// Frames before the measurement, so that routes and translations exist.
const WARM_UP: u64 = 5_000;

impl Experiment for Forward {
    fn about(&self) -> About {
        About {
            name: "forward",
            about: "Small packets through a router with one RX queue: inline, kernel RPS, and hand-off by rxsteer, in the kernel \
                    and in user space",
            source: "CPU-based hand-off for forwarding (docs/references.md: batched backlog hand-off)",
            metrics: METRICS,
        }
    }

    fn programs(&self) -> Option<&'static [&'static str]> {
        Some(&["ip", "ethtool", "sysctl", "nft"])
    }

    fn loads(&self, scale: Scale) -> Vec<Load> {
        let plain = Load::new("64 flows", 64);
        let nat = Load { name: "64 flows, NAT", nat: true, ..plain };
        let busy = Load { name: "64 flows, 1 busy process per CPU", busy: 1, ..plain };
        let both =
            Load { name: "64 flows, NAT, 1 busy process per CPU", nat: true, busy: 1, ..plain };
        scale.pick(vec![nat], vec![plain, nat, busy, both])
    }

    fn methods(&self, scale: Scale) -> Vec<Method> {
        let all = [
            Method::None,
            Method::KernelRps,
            Method::Kernel("rps"),
            Method::Kernel("sparse"),
            Method::Again,
            Method::ThreadedNapi,
            Method::Kernel("bound:0=1"),
            Method::KernelUncounted("rps"),
            Method::Userspace("rps"),
        ];
        all[..scale.pick(4, all.len())].to_vec()
    }

    fn excluded(&self, method: &Method, load: &Load) -> Option<&'static str> {
        (matches!(method, Method::Userspace(_)) && load.nat)
            .then_some("a bridge in user space translates no addresses")
    }

    fn measure(&self, method: &Method, load: &Load, scale: Scale) -> Result<Sample> {
        let testbed =
            Testbed::router(LinkOptions { queues: load.queues, ..LinkOptions::default() })?;
        let (router, last) = (testbed.receiver(), testbed.links[1].far.ipv4);
        router.ip(&format!("route add {BEHIND} via {last}"))?;
        if load.nat {
            testbed.masquerade("out1")?;
        }
        let applied = method.apply(&testbed, &["in0", "out1"][..method.interfaces()])?;
        // GRO stays on where frames end, which gives that veth a queue of its own; there is nothing to merge.
        testbed.namespaces[2].run("ethtool -K in1 rx-gro-list off")?;
        let elsewhere = Some(IpAddr::V4(TARGET));
        let traffic = Traffic { flows: load.flows, elsewhere, length: 64, ..Traffic::default() };
        let source = LiveFrames::new(testbed.link(), &traffic)?;
        let arriving = OrderCheck::new(&testbed.namespaces[2], &testbed.links[1].far, load.flows)?;
        source.send(testbed.sender(), SENDER, WARM_UP)?;
        arriving.drained()?;
        let cpus: Vec<usize> = (0..online_cpus()).collect();
        let busy = (load.busy > 0).then(|| BusyProcesses::start(&cpus, load.busy)).transpose()?;
        let frames = scale.pick(200_000, 1_000_000);
        let before = arriving.total()?;
        let begin = Snapshot::now()?;
        let took = source.send(testbed.sender(), SENDER, frames)?;
        let cpus = begin.until(&Snapshot::now()?);
        // Only what was forwarded by then: a longer queue is not a higher rate.
        let forwarded = arriving.total()?.frames - before.frames;
        drop(busy);
        let seen = arriving.drained()?;
        let made: u64 = source.sent()?.iter().sum();
        applied.end()?;
        LabError::check(seen.merged == 0, || format!("packets were merged: {seen:?}"))?;
        LabError::check(made == WARM_UP + frames, || {
            format!("{made} frames were made where {} were asked for", WARM_UP + frames)
        })?;
        LabError::check(forwarded > 0 && seen.frames <= made, || {
            format!("{} of {made} frames arrived, {forwarded} while they were sent", seen.frames)
        })?;
        let idle = cpus.first().map_or(0.0, |cpu| cpu.idle);
        Ok(Sample {
            values: vec![
                ("forwarded", forwarded as f64 / took.as_secs_f64()),
                ("receiving CPU idle", idle),
                ("reordered", (seen.late - before.late) as f64),
            ],
            checks: vec![
                format!("{frames} frames of {} flows were made on CPU {SENDER}", load.flows),
                "no packet was merged".to_owned(),
            ],
            cpus,
        })
    }
}
