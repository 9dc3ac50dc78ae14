//! Requests and replies of one byte over many TCP connections: `rr` with a server that has one thread per CPU, `rpc`
//! with 100 threads that work, and `rps` with one RX queue and with one per CPU.

use super::{Description, Experiment, Load, Method, Metric, Sample, Scale, Skipped};
use crate::clients::{SOCKPERF_BYTES, sockperf};
use crate::cpu_use::Snapshot;
use crate::cpus::online_cpus;
use crate::error::{LabError, Result};
use crate::rr_load::{RrLoad, request_response};
use crate::testbed::{LinkOptions, Testbed};
use std::time::Duration;

const P90: Metric = Metric::less("p90", "µs");
const METRICS: &[Metric] = &[
    Metric::more("transactions", "1/s"),
    Metric::less("CPUs busy", "%"),
    Metric::less("p50", "µs"),
    P90,
    Metric::less("p99", "µs"),
    Metric::less("max", "µs"),
    Metric::less("standard deviation", "µs"),
];

/// The three experiments, which differ in their loads and servers.
pub(super) enum Rr {
    Echo,
    Rpc,
    Queues,
}

/// The time of a measurement. Many short ones in turn are better than a few long ones, since the speed of the machine
/// varies.
const TIME: Duration = Duration::from_millis(700);
/// The same for an open loop, whose headline is a percentile: one pause of a CPU, of some milliseconds, must not affect
/// a large part of the requests.
const OPEN_LOOP: Duration = Duration::from_millis(2800);

/// Threads of the server of `rpc`, and the work for each request there.
const RPC_THREADS: usize = 100;
const RPC_WORK: Duration = Duration::from_micros(10);

/// Bytes of a packet with a request: IPv4, TCP without options, and the byte. A veth does not always count the Ethernet
/// header.
const SHORTEST: u64 = 20 + 20 + 1;

/// An independent client that measures the transactions of one connection without steering, as separate methods.
const SECOND_CLIENT: &[&str] = &["sockperf", "taskset"];
/// It runs on the CPU on which this load generator has both threads of one connection.
const ON_SAME_CPU: &str = "none, sockperf on the same CPU";
/// It runs where the scheduler puts it: mostly on two CPUs, where each wakes the other for each message.
const FREE: &str = "none, sockperf anywhere";

/// A measurement by the independent client.
fn by_second_client(testbed: &Testbed, name: &str) -> Result<Sample> {
    let to = (testbed.receiver(), testbed.link().far.ipv4);
    let begin = Snapshot::now()?;
    let report = sockperf(testbed.sender(), to, 1, (name == ON_SAME_CPU).then_some(0))?;
    let cpus = begin.until(&Snapshot::now()?);
    LabError::check(report.replies > 0, || "sockperf had no reply".to_owned())?;
    Ok(Sample {
        values: vec![("transactions", report.replies as f64 / report.seconds)],
        checks: vec![format!("sockperf had replies, with messages of {SOCKPERF_BYTES} bytes")],
        cpus,
    })
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
    fn description(&self) -> Description {
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
                "Requests of one byte over TCP, with one RX queue, and with one RX queue per CPU",
                "Tom Herbert, rps: Receive Packet Steering, one and several queues (docs/references.md)",
            ),
        };
        Description { name, about, source, metrics: METRICS }
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
        let second = matches!(self, Rr::Echo) && crate::missing(SECOND_CLIENT).is_none();
        let second = if second { &[Method::Own(ON_SAME_CPU), Method::Own(FREE)][..] } else { &[] };
        scale.pick(all[..4].to_vec(), [&all[..], second].concat())
    }

    fn excluded(&self, method: &Method, load: &Load) -> Option<&'static str> {
        let is_second = matches!(method, Method::Own(_));
        (is_second && load.flows != 1).then_some("one connection: sockperf has one here")
    }

    /// In an open loop the schedule fixes the transactions, so methods are compared by a latency. In a virtual machine,
    /// p99 mostly shows the pauses of the host.
    fn headline(&self, load: &Load) -> Metric {
        if load.rate > 0 { P90 } else { METRICS[0] }
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
        if let Method::Own(name) = method {
            return by_second_client(&testbed, name);
        }
        let (work, server_threads) = match self {
            Rr::Rpc => (RPC_WORK, RPC_THREADS),
            Rr::Echo | Rr::Queues => (Duration::ZERO, 0),
        };
        let asked = RrLoad {
            connections: load.flows as usize,
            rate: load.rate,
            work,
            server_threads,
            time: if load.rate > 0 { OPEN_LOOP } else { TIME },
        };
        let before = received(&testbed)?;
        let to = (testbed.receiver(), testbed.link().far.ipv4);
        let report = request_response(Some(testbed.sender()), Some(to), &asked)?;
        let bytes = received(&testbed)? - before;
        let transactions = report.replies as f64 / report.took.as_secs_f64();
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
            checks: vec![
                format!("{} connections had replies", report.answered),
                format!(
                    "{} requests sent, {} served, {} replies",
                    report.requests, report.served, report.replies
                ),
                format!("{bytes} bytes arrived at the server's interface"),
                format!("the client's threads ended on CPUs {:?}", report.client_cpus),
            ],
            cpus,
        })
    }
}
