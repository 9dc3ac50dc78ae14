//! Requests and replies of one byte over many TCP connections: `rr` with a server of a thread per CPU, `rpc` with 100 threads that
//! work, and `rps` with one RX queue and with one per CPU.

use super::{About, Experiment, Load, Method, Metric, Sample, Scale, Skipped};
use crate::clients::{SOCKPERF_BYTES, sockperf};
use crate::cpus::online_cpus;
use crate::error::{LabError, Result};
use crate::rr_load::{RrLoad, request_response};
use crate::testbed::{LinkOptions, Testbed};
use std::time::Duration;

const P99: Metric = Metric::less("p99", "µs");
const METRICS: &[Metric] = &[
    Metric::more("transactions", "1/s"),
    Metric::less("CPUs busy", "%"),
    Metric::less("p50", "µs"),
    Metric::less("p90", "µs"),
    P99,
    Metric::less("max", "µs"),
    Metric::less("standard deviation", "µs"),
];

/// The three experiments, which differ in their loads and servers.
pub(super) enum Rr {
    Echo,
    Rpc,
    Queues,
}

/// The time of a measurement. Many short ones in turn say more than a few long ones, since the machine is not equally fast all the time.
const TIME: Duration = Duration::from_millis(700);

/// Threads of the server of `rpc`, and what each request takes there.
const RPC_THREADS: usize = 100;
const RPC_WORK: Duration = Duration::from_micros(10);

/// Bytes of a packet with a request: IPv4, TCP without options, and the byte. A veth does not always count the Ethernet header.
const SHORTEST: u64 = 20 + 20 + 1;

/// The independent client that checks the transactions of one connection.
const SECOND_CLIENT: &[&str] = &["sockperf"];

/// Its transactions a second over the same link, beside ours.
fn by_second_client(testbed: &Testbed, ours: f64) -> Result<String> {
    let to = (testbed.receiver(), testbed.link().far.ipv4);
    let report = sockperf(testbed.sender(), to, 2)?;
    let theirs = report.replies as f64 / report.seconds;
    Ok(format!(
        "sockperf, {SOCKPERF_BYTES} bytes: {theirs:.0} transactions/s; this load generator: {ours:.0}, {:.2} of that",
        ours / theirs
    ))
}

/// Bytes that arrived at the server's interface.
fn received(testbed: &Testbed) -> Result<u64> {
    let file = "/sys/class/net/in0/statistics/rx_bytes";
    let text = testbed.receiver().run(&format!("cat {file}"))?;
    text.trim().parse().map_err(|_| LabError::Unreadable {
        who: file.to_owned(),
        why: format!("no number in {text:?}"),
    })
}

impl Experiment for Rr {
    fn about(&self) -> About {
        let (name, about, source) = match self {
            Rr::Echo => (
                "rr",
                "N TCP connections of 1-byte requests and replies: transactions a second and latency",
                "Tom Herbert, rps: Receive Packet Steering, and rfs: Receive Flow Steering, netperf TCP_RR (docs/references.md)",
            ),
            Rr::Rpc => (
                "rpc",
                "The same with 100 threads that work 10 µs for each request",
                "Tom Herbert, rfs: Receive Flow Steering, the RPC test (docs/references.md)",
            ),
            Rr::Queues => (
                "rps",
                "The same with one RX queue, and with one RX queue per CPU",
                "Tom Herbert, rps: Receive Packet Steering, one and several queues (docs/references.md)",
            ),
        };
        About { name, about, source, metrics: METRICS }
    }

    fn programs(&self) -> Option<&'static [&'static str]> {
        Some(&["ip", "ethtool", "sysctl"])
    }

    fn loads(&self, scale: Scale) -> Vec<Load> {
        let one = Load::new("1 connection", 1);
        let fifty = Load::new("50 connections", 50);
        let open = Load { rate: 10_000, ..Load::new("200 connections, open loop, 10,000/s", 200) };
        match self {
            Rr::Echo => scale.pick(
                vec![fifty],
                vec![
                    one,
                    fifty,
                    Load::new("200 connections", 200),
                    Load::new("500 connections", 500),
                    open,
                ],
            ),
            Rr::Rpc => {
                let all = [
                    Load::new("100 connections", 100),
                    Load { rate: 5_000, ..Load::new("100 connections, open loop, 5,000/s", 100) },
                ];
                all[..scale.pick(1, 2)].to_vec()
            }
            Rr::Queues => vec![
                Load::new("50 connections, 1 RX queue", 50),
                Load {
                    queues: online_cpus(),
                    ..Load::new("50 connections, 1 RX queue per CPU", 50)
                },
            ],
        }
    }

    fn methods(&self, scale: Scale) -> Vec<Method> {
        let all = [
            Method::None,
            Method::KernelRps,
            Method::Kernel("rfs"),
            Method::Again,
            Method::KernelRfs,
            Method::ThreadedNapi,
            Method::Kernel("rps"),
            Method::Kernel("rfs+sparse"),
        ];
        all[..scale.pick(4, all.len())].to_vec()
    }

    /// In an open loop the schedule fixes the transactions, so methods are compared by a latency.
    fn headline(&self, load: &Load) -> Metric {
        if load.rate > 0 { P99 } else { METRICS[0] }
    }

    fn not_measured(&self, scale: Scale) -> Vec<Skipped> {
        let needs = match self {
            Rr::Echo if scale.quick => {
                Some("a run without --quick: it has one connection".to_owned())
            }
            Rr::Echo => crate::missing(SECOND_CLIENT),
            Rr::Rpc | Rr::Queues => None,
        };
        let what = "sockperf, a second client".to_owned();
        needs.map(|needs| Skipped { what, needs }).into_iter().collect()
    }

    fn measure(&self, method: &Method, load: &Load, _scale: Scale) -> Result<Sample> {
        let testbed =
            Testbed::hosts(LinkOptions { queues: load.queues, ..LinkOptions::default() })?;
        let applied = method.apply(&testbed, &["in0"])?;
        let (work, server_threads) = match self {
            Rr::Rpc => (RPC_WORK, RPC_THREADS),
            Rr::Echo | Rr::Queues => (Duration::ZERO, 0),
        };
        let asked = RrLoad {
            connections: load.flows as usize,
            rate: load.rate,
            work,
            server_threads,
            time: TIME,
        };
        let before = received(&testbed)?;
        let to = (testbed.receiver(), testbed.link().far.ipv4);
        let report = request_response(Some(testbed.sender()), Some(to), &asked)?;
        let bytes = received(&testbed)? - before;
        let transactions = report.replies as f64 / report.took.as_secs_f64();
        let second = match (self, method, load.flows) {
            (Rr::Echo, Method::None, 1) if crate::missing(SECOND_CLIENT).is_none() => {
                Some(by_second_client(&testbed, transactions)?)
            }
            _ => None,
        };
        applied.end()?;
        LabError::check(bytes >= SHORTEST * report.requests, || {
            format!("{bytes} bytes arrived, too few for {} requests", report.requests)
        })?;
        let cpus = report.cpus;
        let micros = |quantile| report.latency.value_at_quantile(quantile) as f64 / 1000.0;
        let busy = cpus.iter().map(|cpu| 100.0 - cpu.idle).sum::<f64>() / cpus.len().max(1) as f64;
        Ok(Sample {
            values: vec![
                ("transactions", transactions),
                ("CPUs busy", busy),
                ("p50", micros(0.5)),
                ("p90", micros(0.9)),
                ("p99", micros(0.99)),
                ("max", report.latency.max() as f64 / 1000.0),
                ("standard deviation", report.latency.stdev() / 1000.0),
            ],
            checks: [
                format!("{} connections had replies", report.answered),
                format!(
                    "{} requests sent, {} served, {} replies",
                    report.requests, report.served, report.replies
                ),
                format!("{bytes} bytes arrived at the server's interface"),
                format!("the client's threads ended on CPUs {:?}", report.client_cpus),
            ]
            .into_iter()
            .chain(second)
            .collect(),
            cpus,
        })
    }
}
