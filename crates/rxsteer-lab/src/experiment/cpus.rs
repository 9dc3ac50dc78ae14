//! How the in-kernel path scales with the CPUs that packets are steered to: a router with one RX queue on CPU 0, and
//! packets that cost several microseconds.
//!
//! `forwarding.rs` measures. CPU 0 also makes the frames, so its share of each packet, to make it and to hand it over,
//! limits all methods that steer.

use super::forward::{METRICS, sample};
use super::{Description, Experiment, Load, Method, Sample, Scale};
use crate::cpus::online_cpus;
use crate::error::{LabError, Result};
use crate::forwarding::{End, Forwarding};

pub(super) struct Cpus;

/// Rules of the router's firewall; each packet is compared with all of them.
const RULES: u32 = 400;

/// The name, and the number of CPUs that packets are steered to: those after CPU 0.
const LOADS: [(&str, usize); 5] = [
    ("1 other CPU", 1),
    ("2 other CPUs", 2),
    ("4 other CPUs", 4),
    ("8 other CPUs", 8),
    ("15 other CPUs", 15),
];

impl Experiment for Cpus {
    fn description(&self) -> Description {
        Description {
            name: "cpus",
            about: "A router with one RX queue and a firewall of 400 rules, steered to 1 to 15 other CPUs: kernel RPS, and hand-off by rxsteer",
            source: "none; a scaling curve of the in-kernel path",
            metrics: METRICS,
        }
    }

    fn programs(&self) -> Option<&'static [&'static str]> {
        Some(&["ip", "ethtool", "sysctl", "nft"])
    }

    fn unavailable(&self) -> Option<String> {
        let missing = self.programs().and_then(crate::missing);
        missing.or_else(|| (online_cpus() < 2).then(|| "a second CPU".to_owned()))
    }

    fn loads(&self, _scale: Scale) -> Vec<Load> {
        let fits = LOADS.iter().filter(|(_, cpus)| *cpus < online_cpus());
        fits.map(|(name, _)| Load::new(name, 256)).collect()
    }

    fn methods(&self, _scale: Scale) -> Vec<Method> {
        let steered = [Method::KernelRps, Method::Kernel("rps"), Method::Kernel("sparse")];
        [&[Method::None], &steered[..], &[Method::Again]].concat()
    }

    fn measure(&self, method: &Method, load: &Load, scale: Scale) -> Result<Sample> {
        let found = LOADS.iter().find(|(name, _)| *name == load.name);
        let Some((_, count)) = found else {
            return Err(LabError::Load { why: format!("there is no load {}", load.name) });
        };
        let cpus: Vec<usize> = (1..=*count).collect();
        let frames = scale.pick(20_000, 100_000);
        let forwarding = Forwarding {
            method: *method,
            cpus: &cpus,
            flows: load.flows,
            length: 64,
            rate: 0.0,
            frames,
            end: End::NextHost,
            nat: false,
            rules: RULES,
            busy: 0,
            queues: load.queues,
            beside: None,
        };
        Ok(sample(forwarding.measure()?, frames, load))
    }
}
