//! Small packets through a router with one RX queue: how much one core forwards, and how much a second one adds.
//!
//! `forwarding.rs` measures. With two CPUs, each frame that is processed on CPU 0 takes time from the sender. The
//! report shows the use of each CPU.

use super::{Description, Experiment, Load, Method, Metric, Sample, Scale};
use crate::cpus::online_cpus;
use crate::error::Result;
use crate::forwarding::{End, Forwarded, Forwarding, SENDER};

pub(super) struct Forward;

/// Frames per measurement.
const FRAMES: u64 = 300_000;

pub(super) const METRICS: &[Metric] = &[
    Metric::more("forwarded", "packets/s"),
    Metric::more("receiving CPU idle", "%"),
    Metric::fewer("reordered", "packets"),
];

impl Experiment for Forward {
    fn description(&self) -> Description {
        Description {
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
            Method::Again,
            Method::Kernel("sparse"),
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

    fn measure(&self, method: &Method, load: &Load, _scale: Scale) -> Result<Sample> {
        let cpus: Vec<usize> = (0..online_cpus()).collect();
        let forwarding = Forwarding {
            method: *method,
            cpus: &cpus,
            flows: load.flows,
            length: 64,
            rate: 0.0,
            frames: FRAMES,
            end: End::NextHost,
            nat: load.nat,
            rules: 0,
            busy: load.busy,
            queues: load.queues,
            beside: None,
        };
        Ok(sample(forwarding.measure()?, FRAMES, load))
    }
}

/// The result of a measurement of a router, by [`METRICS`].
pub(super) fn sample(result: Forwarded, frames: u64, load: &Load) -> Sample {
    Sample {
        values: vec![
            ("forwarded", result.forwarded),
            ("receiving CPU idle", result.cpus.first().map_or(0.0, |cpu| cpu.idle)),
            ("reordered", result.late as f64),
        ],
        checks: vec![
            format!("{frames} frames of {} flows were made on CPU {SENDER}", load.flows),
            "no packet was merged".to_owned(),
        ],
        cpus: result.cpus,
    }
}
