//! A router with address translation between two hosts: TCP in both directions over 1 to 32 connections.
//!
//! The published board had four slow cores and one RX queue per port. With few connections, several of them share a CPU
//! by chance; sparse slots give each one its own CPU.

use super::{Description, Experiment, Load, Method, Metric, Sample, Scale};
use crate::clients::{iperf3, iperf3_server};
use crate::cpu_use::Snapshot;
use crate::error::{LabError, Result};
use crate::testbed::{LinkOptions, Testbed};
use std::net::IpAddr;

pub(super) struct Sparse;

const METRICS: &[Metric] =
    &[Metric::more("throughput", "Mbit/s"), Metric::more("idle", "% of all CPUs")];

impl Experiment for Sparse {
    fn description(&self) -> Description {
        Description {
            name: "sparse",
            about: "A router with NAT between two hosts: TCP in both directions over few connections",
            source: "Deng-Cheng Zhu, RPS: Sparse connection optimizations - v2 (docs/references.md)",
            metrics: METRICS,
        }
    }

    fn programs(&self) -> Option<&'static [&'static str]> {
        Some(&["ip", "ethtool", "sysctl", "nft", "iperf3", "ss"])
    }

    fn loads(&self, scale: Scale) -> Vec<Load> {
        let all = [
            Load::new("x1", 1),
            Load::new("x4", 4),
            Load::new("x2", 2),
            Load::new("x8", 8),
            Load::new("x16", 16),
            Load::new("x32", 32),
        ];
        all[..scale.pick(1, all.len())].iter().map(|load| Load { nat: true, ..*load }).collect()
    }

    fn methods(&self, scale: Scale) -> Vec<Method> {
        let all = [
            Method::None,
            Method::KernelRps,
            Method::Kernel("sparse"),
            Method::Again,
            Method::KernelRfs,
            Method::ThreadedNapi,
            Method::Kernel("rps"),
        ];
        all[..scale.pick(4, all.len())].to_vec()
    }

    fn measure(&self, method: &Method, load: &Load, scale: Scale) -> Result<Sample> {
        let testbed = Testbed::router(LinkOptions::default())?;
        testbed.masquerade("out1")?;
        let applied = method.apply(&testbed, &["in0", "out1"])?;
        let server = iperf3_server(&testbed.namespaces[2], None)?;
        let to = IpAddr::V4(testbed.links[1].far.ipv4);
        let connections = load.flows.to_string();
        // In one second the slow start of TCP is a large part, so two series differed by more than a verdict allows.
        let seconds = scale.pick("1", "2");
        let begin = Snapshot::now()?;
        let report = iperf3(
            testbed.sender(),
            to,
            &["--bidir", "-P", &connections, "-t", seconds, "-i", "0"],
        )?;
        let cpus = begin.until(&Snapshot::now()?);
        drop(server);
        applied.end()?;
        LabError::check(report.streams == 2 * u64::from(load.flows), || {
            format!("{} streams where {} were asked for", report.streams, 2 * load.flows)
        })?;
        LabError::check(report.received > 0 && report.reverse > 0, || {
            format!("{} bytes there and {} back", report.received, report.reverse)
        })?;
        let idle = cpus.iter().map(|cpu| cpu.idle).sum::<f64>() / cpus.len().max(1) as f64;
        let bits = 8.0 * (report.received + report.reverse) as f64;
        Ok(Sample {
            values: vec![("throughput", bits / report.seconds / 1e6), ("idle", idle)],
            checks: vec![
                format!("{} connections there and as many back", load.flows),
                format!(
                    "{} bytes arrived there and {} back, through address translation",
                    report.received, report.reverse
                ),
            ],
            cpus,
        })
    }
}
