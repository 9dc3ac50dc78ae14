//! The same frames into two threads of an application: rxsteer's userspace path, fanout of packet sockets, a channel
//! per worker, and DPDK.
//!
//! Each packet takes 1 µs. The sender makes frames on CPU 0 as fast as they are accepted. So on a machine with two CPUs
//! about one and a half are left for the two threads, and the sender may make fewer frames than the threads could
//! process. Therefore there are also loads that wait in the rings of the packet sockets before reading begins: the
//! sender uses no CPU then.

use super::{Description, Experiment, Load, Method, Metric, Sample, Scale, Skipped};
use crate::cpu_use::Snapshot;
use crate::dpdk;
use crate::error::{LabError, Result};
use crate::live::{LiveFrames, Pass, Traffic};
use crate::receiving::{Gate, IN_RING, Receiving, Seen};
use crate::testbed::{LinkOptions, Testbed};
use rxsteer_core::{Policy, Slots};
use rxsteer_io::packet::FanoutBy;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(super) struct Userspace;

/// Frames per measurement.
const FRAMES: u64 = 200_000;

const METRICS: &[Metric] =
    &[Metric::more("packets done", "1/s"), Metric::more("share of the lesser thread", "%")];

const HASH: &str = "AF_PACKET fanout hash";
const CPU: &str = "AF_PACKET fanout cpu";
const ROLLOVER: &str = "AF_PACKET fanout rollover";
const CHANNELS: &str = "a channel per worker";
const RPS: &str = "rxsteer rps";
const SPARSE: &str = "rxsteer sparse";
const DPDK_DISTRIBUTOR: &str = "DPDK distributor";
const DPDK_RING: &str = "DPDK ring per worker";
const MANY: &str = "1,000 flows, 1 µs";
const MANY_WAITING: &str = "1,000 flows that wait in the ring, 1 µs";
const TWO: &str = "2 flows that fanout hash puts on one thread, 1 µs";
const TWO_WAITING: &str = "2 flows that fanout hash puts on one thread, waiting in the ring, 1 µs";

fn waits(load: &Load) -> bool {
    [MANY_WAITING, TWO_WAITING].contains(&load.name)
}

impl Experiment for Userspace {
    fn description(&self) -> Description {
        Description {
            name: "userspace",
            about: "Small frames into two threads that work 1 µs for each packet: rxsteer's userspace path, AF_PACKET fanout, channels, DPDK",
            source: "packet(7), PACKET_FANOUT",
            metrics: METRICS,
        }
    }

    fn programs(&self) -> Option<&'static [&'static str]> {
        Some(&["ip", "ethtool", "sysctl"])
    }

    fn loads(&self, scale: Scale) -> Vec<Load> {
        let many = [Load::new(MANY, 1000), Load::new(MANY_WAITING, 1000)];
        let two = [Load::new(TWO, 2), Load::new(TWO_WAITING, 2)];
        scale.pick(many.to_vec(), [many, two].concat())
    }

    fn methods(&self, _scale: Scale) -> Vec<Method> {
        let own = [HASH, CPU, ROLLOVER, CHANNELS, RPS, SPARSE].map(Method::Own);
        let dpdk = [DPDK_DISTRIBUTOR, DPDK_RING].map(Method::Own);
        let dpdk = if dpdk::unavailable().is_none() { &dpdk[..] } else { &[] };
        [&own[..], dpdk, &[Method::OwnAgain(HASH)]].concat()
    }

    fn excluded(&self, method: &Method, load: &Load) -> Option<&'static str> {
        let is_dpdk = matches!(method, Method::Own(DPDK_DISTRIBUTOR | DPDK_RING));
        (is_dpdk && waits(load)).then_some("DPDK's ring has no room for so many frames")
    }

    fn not_measured(&self, _scale: Scale) -> Vec<Skipped> {
        let what = "DPDK's distributor and ring".to_owned();
        dpdk::unavailable().map(|needs| Skipped { what, needs }).into_iter().collect()
    }

    fn measure(&self, method: &Method, load: &Load, _scale: Scale) -> Result<Sample> {
        let testbed = Testbed::hosts(LinkOptions::default())?;
        let _pass = Pass::attach(testbed.receiver(), &testbed.link().far)?;
        let frames = if waits(load) { IN_RING } else { FRAMES };
        let gate = Gate::default();
        let work = Duration::from_micros(1);
        let of = Receiving { testbed: &testbed, frames, work, gate: &gate };
        let traffic = if load.flows == 2 {
            of.two_flows_on_one_thread()?
        } else {
            Traffic { flows: load.flows, length: 64, ..Traffic::default() }
        };
        let source = LiveFrames::new(testbed.link(), &traffic)?;
        let (Method::Own(name) | Method::OwnAgain(name)) = *method else {
            return Err(LabError::Load { why: "it has methods of its own".to_owned() });
        };
        let begin = Snapshot::now()?;
        let dpdk = match name {
            DPDK_DISTRIBUTOR => Some(of.dpdk(&source, "distributor")?),
            DPDK_RING => Some(of.dpdk(&source, "ring")?),
            _ => None,
        };
        let with_threads = || {
            let receive = |seen: &Arc<Seen>, end: &Arc<AtomicBool>| match name {
                CPU => of.fanout(FanoutBy::Cpu, seen, end),
                ROLLOVER => of.fanout(FanoutBy::Rollover, seen, end),
                CHANNELS => of.channels(seen, end),
                RPS => of.rxsteer(&Policy::Rps, "0-1", of.work, seen, end),
                SPARSE => of.rxsteer(&Policy::Sparse(Slots::default()), "0-1", of.work, seen, end),
                _ => of.fanout(FanoutBy::Hash, seen, end),
            };
            if waits(load) { of.drained(&source, receive) } else { of.working(&source, receive) }
        };
        let (rate, done) = dpdk.map_or_else(with_threads, Ok)?;
        let cpus = begin.until(&Snapshot::now()?);
        let all: u64 = done.iter().sum();
        let made: u64 = source.sent()?.iter().sum();
        LabError::check(made == frames, || format!("{made} frames were made of {frames}"))?;
        // Some frames of neighbour discovery may be among them.
        LabError::check(all > 0 && all <= made + 16, || {
            format!("{all} of {made} frames are done")
        })?;
        let lesser = done.iter().min().copied().unwrap_or(0);
        Ok(Sample {
            values: vec![
                ("packets done", rate),
                ("share of the lesser thread", 100.0 * lesser as f64 / all as f64),
            ],
            checks: vec![
                format!("{frames} frames of {} flows were made on CPU 0", traffic.flows),
                format!("{all} frames were done, no more than were made"),
            ],
            cpus,
        })
    }
}
