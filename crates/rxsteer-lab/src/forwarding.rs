//! Small packets through a router with one RX queue: one measurement, for the experiment `forward` and for calibration.
//!
//! ```text
//!   sender ──► in0 ─► [which CPU?] ─► (NAT,) route ─► out1 ──► in1, numbered frames are counted
//!   CPU 0      CPU 0                  CPU 0 or another
//! ```
//!
//! An XDP program on CPU 0 makes the frames. On a veth, that CPU also receives them, so CPU 0 is both the sender and the CPU that a
//! NIC would interrupt: making a frame is part of receiving it.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::busy::BusyProcesses;
use crate::cpu_use::{CpuUse, Snapshot};
use crate::cpus::online_cpus;
use crate::error::{LabError, Result, Tried};
use crate::live::{LiveFrames, Traffic};
use crate::method::Method;
use crate::namespace::Namespace;
use crate::order::OrderCheck;
use crate::testbed::{LinkOptions, Testbed};

/// A network after the last host, which has no route for it and drops packets to it.
const FAR_NETWORK: &str = "203.0.113.0/24";
const TARGET: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The CPU that sends and receives.
pub(crate) const SENDER: usize = 0;
/// Frames before the measurement, so that routes and translations exist.
const WARM_UP: u64 = 5_000;
/// How far the source may be behind its rate. A round of softirqs lasts at most 2 ms.
const CATCH_UP: Duration = Duration::from_millis(5);

/// Where the path of frames ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The next host gets them.
    NextHost,
    /// The router has a route that drops them.
    Route,
    /// The network stack drops them at its entry, on the CPU that was chosen.
    Entry,
}

/// Frames to a router, and how it steers them.
#[derive(Debug, Clone)]
pub(crate) struct Forwarding<'a> {
    pub(crate) method: Method,
    /// CPUs to which packets are steered.
    pub(crate) cpus: &'a [usize],
    pub(crate) flows: u32,
    /// Bytes of a frame.
    pub(crate) length: u32,
    /// Frames per second; 0: as fast as they are accepted.
    pub(crate) rate: f64,
    /// The number of frames.
    pub(crate) frames: u64,
    pub(crate) end: End,
    pub(crate) nat: bool,
    /// Rules of a firewall on the router that match nothing: each packet is compared with all of them.
    pub(crate) rules: u32,
    /// Other processes that are busy on each CPU all the time.
    pub(crate) busy: usize,
    pub(crate) queues: usize,
    /// A CPU that forwards other frames meanwhile, through its own router.
    pub(crate) beside: Option<usize>,
}

/// The result.
#[derive(Debug, Clone)]
pub(crate) struct Forwarded {
    /// Frames made per second.
    pub(crate) made: f64,
    /// Frames per second that reached the next host while they were made.
    pub(crate) forwarded: f64,
    /// Frames that arrived after a later one of their flow.
    pub(crate) late: u64,
    pub(crate) cpus: Vec<CpuUse>,
}

/// Makes a firewall for forwarded packets, with this many rules that match nothing.
fn firewall(router: &Namespace, rules: u32) -> Result<()> {
    let mut file = tempfile::NamedTempFile::new().tried(|| "make a file of rules".to_owned())?;
    let mut text =
        "table ip wall {\nchain through {\ntype filter hook forward priority 0; policy accept;\n"
            .to_owned();
    for rule in 0..rules {
        // 192.0.2.0/24 is reserved for documentation: no packet has an address of it.
        text += &format!("ip saddr 192.0.2.{} drop\n", rule % 256);
    }
    text += "}\n}\n";
    file.write_all(text.as_bytes()).tried(|| "write a file of rules".to_owned())?;
    router.run(&format!("nft -f {}", file.path().display())).map(drop)
}

impl Forwarding<'_> {
    /// Sets everything up, sends, and removes everything.
    ///
    /// # Errors
    ///
    /// A setup error, or [`LabError::Load`] if the load was not as specified.
    pub(crate) fn measure(&self) -> Result<Forwarded> {
        let Some(cpu) = self.beside else { return self.measure_alone() };
        let testbed = Testbed::router_with_tx_queues(LinkOptions::default())?;
        let last = testbed.links[1].far.ipv4;
        testbed.receiver().ip(&format!("route add {FAR_NETWORK} via {last}"))?;
        testbed.receiver().run("ethtool -K in0 gro on rx-gro-list off")?;
        testbed.namespaces[2].run("ethtool -K in1 rx-gro-list off")?;
        let traffic = Traffic {
            flows: self.flows,
            elsewhere: Some(IpAddr::V4(TARGET)),
            length: self.length,
            ..Traffic::default()
        };
        let source = LiveFrames::new(testbed.link(), &traffic)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| source.send_until(testbed.sender(), cpu, 100_000, &stop));
            let result = self.measure_alone();
            stop.store(true, Ordering::Relaxed);
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            result
        })
    }

    fn measure_alone(&self) -> Result<Forwarded> {
        let options = LinkOptions { queues: self.queues, ..LinkOptions::default() };
        let testbed = Testbed::router_with_tx_queues(options)?;
        let (router, last) = (testbed.receiver(), testbed.links[1].far.ipv4);
        match self.end {
            End::Route => router.ip(&format!("route add blackhole {FAR_NETWORK}"))?,
            End::NextHost | End::Entry => {
                router.ip(&format!("route add {FAR_NETWORK} via {last}"))?
            }
        };
        if self.nat {
            testbed.masquerade("out1")?;
        }
        if self.rules > 0 {
            firewall(router, self.rules)?;
        }
        let interfaces = &["in0", "out1"][..self.method.interfaces()];
        let applied = self.method.apply_over(&testbed, interfaces, self.cpus)?;
        if self.end == End::Entry {
            router.run("nft add table netdev early")?;
            router.run("nft add chain netdev early entry { type filter hook ingress device in0 priority 0 ; }")?;
            router.run("nft add rule netdev early entry drop")?;
        }
        // GRO stays on at the end of the path, which gives that veth its own queue; there is nothing to merge.
        testbed.namespaces[2].run("ethtool -K in1 rx-gro-list off")?;
        let pace = if self.rate > 0.0 { 1.0 / self.rate } else { 0.0 };
        let traffic = Traffic {
            flows: self.flows,
            elsewhere: Some(IpAddr::V4(TARGET)),
            length: self.length,
            pace: Duration::from_secs_f64(pace),
            catch_up: CATCH_UP,
            ..Traffic::default()
        };
        let source = LiveFrames::new(testbed.link(), &traffic)?;
        let arriving = OrderCheck::new(&testbed.namespaces[2], &testbed.links[1].far, self.flows)?;
        source.send(testbed.sender(), SENDER, WARM_UP)?;
        arriving.drained()?;
        let all: Vec<usize> = (0..online_cpus()).collect();
        let busy = (self.busy > 0).then(|| BusyProcesses::start(&all, self.busy)).transpose()?;
        let before = arriving.total()?;
        let begin = Snapshot::now()?;
        let took = source.send(testbed.sender(), SENDER, self.frames)?;
        let cpus = begin.until(&Snapshot::now()?);
        // Counts only frames forwarded by then: a longer queue is not a higher rate.
        let forwarded = arriving.total()?.frames - before.frames;
        drop(busy);
        let seen = arriving.drained()?;
        let made: u64 = source.sent()?.iter().sum();
        applied.end()?;
        LabError::check(seen.merged == 0, || format!("packets were merged: {seen:?}"))?;
        LabError::check(made == WARM_UP + self.frames, || {
            format!("{made} frames were made where {} were asked for", WARM_UP + self.frames)
        })?;
        let arrived = (self.end == End::NextHost) == (forwarded > 0) && seen.frames <= made;
        LabError::check(arrived, || {
            format!("{} of {made} frames arrived, {forwarded} while they were sent", seen.frames)
        })?;
        Ok(Forwarded {
            made: self.frames as f64 / took.as_secs_f64(),
            forwarded: forwarded as f64 / took.as_secs_f64(),
            late: seen.late - before.late,
            cpus,
        })
    }
}
