//! How many live frames per second a bridge passes on: rxsteer's bridge, and a simple loop over the same sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use rxsteer_core::{CpuId, CpuSet, Policy};
use rxsteer_io::xdp::{Port, XdpOptions, XdpPort, open, wait};
use rxsteer_lab::{End, LinkOptions, LiveFrames, Namespace, Testbed, Traffic, online_cpus, pin};
use rxsteer_user::forward::{Action, Bridge, Forwarder, Inspector};
use rxsteer_user::source::xdp::{XdpQueue, XdpSource};
use rxsteer_user::{Handler, Packet, PacketList, PipelineConfig, Speed};
use serde_json::Value;

use super::receive_cost::Receiving;
use super::rounds::{Plan, Variant, measure};

/// Sends live frames from CPU 0 through a bridge of two interfaces: rxsteer's bridge, and a simple AF_XDP forwarder on
/// one CPU, each with the same work for each packet.
///
/// rxsteer receives on CPU 1, and processes packets there and, if there are more CPUs, on CPUs that neither send nor
/// receive.
///
/// Prints the forwarded packets per second as quartiles, and their ratio within a round.
#[derive(Args)]
#[command(after_help = "Example:\n  rxsteer-lab bridge-cost --work-ns 200 --rounds 15")]
pub(crate) struct Options {
    #[command(flatten)]
    plan: Plan,
    /// Number of flows.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    flows: u32,
    /// Time to process a packet, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 0)]
    work_ns: u64,
    /// The policy of rxsteer.
    #[arg(long, default_value = "rps")]
    policy: Policy,
}

impl Options {
    /// The defaults, with this plan and this much work per packet.
    pub(crate) fn of(plan: Plan, work_ns: u64) -> Options {
        Options { plan, flows: 1000, work_ns, policy: Policy::Rps }
    }
}

fn spin(ns: u64) {
    let until = Instant::now() + Duration::from_nanos(ns);
    while ns > 0 && Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Two interfaces of the middle host, to be bridged.
fn ports(namespace: &Namespace, ends: [&End; 2]) -> Result<Vec<XdpPort>> {
    let ports =
        ends.map(|end| Port { name: end.name.clone(), ifindex: end.index, queues: 1, mtu: 1500 });
    let mut options = XdpOptions::default();
    options.forwards = true;
    Ok(namespace.inside(|| Ok(open(&ports, &options)))??)
}

/// The minimum that a forwarder does, in one direction.
fn bare(namespace: &Namespace, mut ports: Vec<XdpPort>, work_ns: u64) -> Result<Receiving> {
    let mut sender = namespace.inside(|| Ok(ports[1].sender(0)))??;
    Ok(Receiving::start(move |sent, stop| {
        pin(1)?;
        let mut receivers = std::mem::take(&mut ports[0].receivers);
        while !stop.load(Ordering::Relaxed) {
            let Some(frames) = receivers[0].receive(64) else {
                receivers[0].collect_sent();
                wait(&receivers, 10)?;
                continue;
            };
            let mut sending =
                sender.frames_of(&frames.lent).context("frames of the same memory")?;
            let mut pushed = 0;
            for (at, len) in frames.frames {
                spin(work_ns);
                pushed += u64::from(sending.push(*at, *len));
            }
            sent.fetch_add(pushed - u64::from(sender.flush().dropped), Ordering::Relaxed);
        }
        Ok(())
    }))
}

/// Works, and counts what a forwarder sent.
struct Counting<I> {
    forwarder: Forwarder<I>,
    sent: Arc<AtomicU64>,
    before: u64,
}

impl<I: Inspector> Handler for Counting<I> {
    fn handle(&mut self, list: &PacketList<'_>) {
        self.forwarder.handle(list);
        let sent = self.forwarder.counts().sent;
        self.sent.fetch_add(sent - self.before, Ordering::Relaxed);
        self.before = sent;
    }
}

/// A bridge, the CPUs of its workers if it is rxsteer's, and how many CPUs a host needs for it.
type Way = (&'static str, Option<&'static str>, usize);

/// The compared bridges and the bare forwarder. The sender has CPU 0, and each of them receives on CPU 1.
const WAYS: [Way; 7] = [
    ("bare AF_XDP, CPU 1", None, 2),
    ("rxsteer, CPU 1", Some("1-1"), 2),
    ("rxsteer, CPUs 0-1", Some("0-1"), 2),
    ("rxsteer, RX CPU 1, worker CPU 2", Some("2-2"), 3),
    ("rxsteer, RX CPU 1, worker CPUs 2-3", Some("2-3"), 4),
    ("rxsteer, RX CPU 1, worker CPUs 2-5", Some("2-5"), 6),
    ("rxsteer, RX CPU 1, worker CPUs 2-9", Some("2-9"), 10),
];

/// The bridge of rxsteer, which receives on CPU 1.
fn by_rxsteer(
    namespace: &Namespace,
    mut ports: Vec<XdpPort>,
    options: &Options,
    cpus: &str,
) -> Result<Receiving> {
    let cpus: CpuSet = cpus.parse()?;
    let (policy, work_ns) = (options.policy.clone(), options.work_ns);
    let mut handlers = Vec::new();
    let count = Arc::new(AtomicU64::new(0));
    let mut config = PipelineConfig::new(policy, cpus);
    config.rx_cpus = vec![CpuId::new(1).context("a CPU")?];
    config.rx_queues = 2;
    // Receiving on CPU 1 creates a worker there, too.
    let workers = config.workers();
    for _ in workers.iter() {
        let mut bridge = Bridge::between(&ports);
        let inspect = move |packet: &Packet<'_>| -> Action {
            spin(work_ns);
            bridge.inspect(packet)
        };
        let forwarder = namespace.inside(|| Ok(Forwarder::new(inspect, &ports)))??;
        handlers.push(Counting { forwarder, sent: count.clone(), before: 0 });
    }
    Ok(Receiving::start(move |sent, stop| {
        let queues = ports.iter_mut().zip(0..).map(|(port, rx_queue)| XdpQueue {
            receiver: port.receivers.remove(0),
            interface: port.name.clone(),
            rx_queue,
        });
        let mut sources = [XdpSource::new(queues.collect(), stop.clone())];
        let handler = |_| handlers.pop().unwrap_or_else(|| unreachable!("one for each worker"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    sent.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
                    sleep(Duration::from_millis(5));
                }
            });
            rxsteer_user::run(&config, &mut sources, Speed::Max, &stop, handler, |_, _| {})
        })?;
        Ok(())
    }))
}

pub(crate) fn run(options: &Options) -> Result<Value> {
    let ways = WAYS.iter().filter(|(.., cpus)| *cpus <= online_cpus());
    let ways: Vec<(Testbed, Way)> = ways
        .map(|way| Ok((Testbed::router(LinkOptions::default())?, *way)))
        .collect::<Result<_>>()?;
    let traffic = Traffic { flows: options.flows, length: 64, ..Traffic::default() };
    let mut receiving = Vec::new();
    for (bed, (name, cpus, _)) in &ways {
        bed.namespaces[2].run("ethtool -K in1 gro off rx-gro-list off")?;
        let middle = &bed.namespaces[1];
        let ports = ports(middle, [&bed.links[0].far, &bed.links[1].near])?;
        let receives = match cpus {
            Some(cpus) => by_rxsteer(middle, ports, options, cpus)?,
            None => bare(middle, ports, options.work_ns)?,
        };
        receiving.push((
            *name,
            receives,
            LiveFrames::new(&bed.links[0], &traffic)?,
            &bed.namespaces[0],
        ));
    }
    let frames = options.plan.frames;
    let mut variants: Vec<Variant<'_>> = receiving
        .iter()
        .map(|(name, receiving, source, sender)| Variant {
            name,
            turn: Box::new(move || receiving.turn(source, sender, frames)),
        })
        .collect();
    Ok(measure(&mut variants, &options.plan)?.report(WAYS[0].0))
}
