//! Numbered packets to an application that moves, while settings change: how many arrive out of order.
//!
//! Each flow's frames are numbered when they are made, and checked at the entry of the network stack. The application
//! reads two of the flows and moves to the next CPU after every 64 datagrams, which moves the flows under RFS.
//! Meanwhile settings change: the mask of the kernel's RPS, or the CPUs of rxsteer. Without steering nothing can
//! change.

use super::{Description, Experiment, Load, Method, Metric, Sample, Scale};
use crate::application::MovingApplication;
use crate::cpu_use::Snapshot;
use crate::cpus::online_cpus;
use crate::error::{LabError, Result};
use crate::live::{LiveFrames, Traffic};
use crate::order::OrderCheck;
use crate::process::output;
use crate::steering::rxsteer;
use crate::testbed::{LinkOptions, Testbed};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(super) struct Order;

const METRICS: &[Metric] = &[
    Metric::fewer("reordered", "packets"),
    Metric::more("moves", "moves"),
    Metric::more("arrived", "packets/s"),
];

/// Flows that the application reads.
const LISTENERS: u16 = 2;
/// The number of datagrams that it reads before it moves.
const DATAGRAMS_PER_MOVE: u64 = 64;
/// The time of a measurement.
const TIME: Duration = Duration::from_millis(1500);
/// Frames per call: few, so that the sender ends soon after it is stopped.
const BATCH: u64 = 20_000;

impl Experiment for Order {
    fn description(&self) -> Description {
        Description {
            name: "order",
            about: "Numbered packets under moving applications and changing settings: how many arrive out of order",
            source: "The condition of the RFS message: a flow moves only when no packet of it waits (docs/references.md)",
            metrics: METRICS,
        }
    }

    fn programs(&self) -> Option<&'static [&'static str]> {
        Some(&["ip", "ethtool", "sysctl"])
    }

    fn loads(&self, scale: Scale) -> Vec<Load> {
        let paced = Load::new("64 flows, 500,000 packets/s", 64);
        let full = Load::new("64 flows, as fast as they are taken", 64);
        scale.pick(vec![full], vec![paced, full])
    }

    fn methods(&self, scale: Scale) -> Vec<Method> {
        let all = [
            Method::None,
            Method::KernelRps,
            Method::KernelRfs,
            Method::Kernel("rfs"),
            Method::Again,
            Method::Kernel("rps"),
            Method::Kernel("sparse"),
            Method::Kernel("rfs+sparse"),
            Method::Kernel("rps+balance"),
        ];
        all[..scale.pick(5, all.len())].to_vec()
    }

    fn measure(&self, method: &Method, load: &Load, _scale: Scale) -> Result<Sample> {
        let testbed = Testbed::hosts(LinkOptions::default())?;
        let (link, receiver) = (testbed.link(), testbed.receiver());
        let pace = if load.name.contains("/s") { Duration::from_micros(2) } else { Duration::ZERO };
        let listeners = LISTENERS.into();
        let traffic =
            Traffic { flows: load.flows, listeners, train: 4, pace, ..Traffic::default() };
        let applied = method.apply(&testbed, &["in0"])?;
        let pair = |flow: u16| {
            let (to, from) = (traffic.destination_port + flow, traffic.source_port + flow);
            ((link.far.ipv4, to).into(), (link.near.ipv4, from).into())
        };
        let pairs: Vec<_> = (0..LISTENERS).map(pair).collect();
        let cpus: Vec<usize> = (0..online_cpus()).collect();
        let application = MovingApplication::start(receiver, &pairs, &cpus, DATAGRAMS_PER_MOVE)?;
        let check = OrderCheck::new(receiver, &link.far, load.flows)?;
        let source = LiveFrames::new(link, &traffic)?;
        let stop = AtomicBool::new(false);
        let begin = Snapshot::now()?;
        let started = std::time::Instant::now();
        let changes = std::thread::scope(|scope| -> Result<u32> {
            let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, BATCH, &stop));
            let mut changes = 0;
            let mut changed = Ok(());
            while started.elapsed() < TIME && changed.is_ok() {
                changed = change(method, &testbed, changes);
                changes += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            stop.store(true, Ordering::Relaxed);
            sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            changed.map(|()| changes)
        })?;
        let took = started.elapsed();
        let cpus = begin.until(&Snapshot::now()?);
        let seen = check.drained()?;
        let counts = application.finish()?;
        let made: u64 = source.sent()?.iter().sum();
        applied.end()?;
        LabError::check(seen.frames > 0 && seen.frames <= made, || {
            format!("{} of {made} frames arrived", seen.frames)
        })?;
        LabError::check(counts.moves > 1, || format!("the application did not move: {counts:?}"))?;
        Ok(Sample {
            values: vec![
                ("reordered", seen.late as f64),
                ("moves", seen.moves as f64),
                ("arrived", seen.frames as f64 / took.as_secs_f64()),
            ],
            checks: vec![
                format!("frames of {} flows were numbered and made on CPU 0", load.flows),
                "the application changed its CPU".to_owned(),
                format!("settings changed at least {} times", changes.min(5)),
            ],
            cpus,
        })
    }
}

/// Changes the settings of a method: in turn to only the last CPU, only CPU 0, and all CPUs.
fn change(method: &Method, testbed: &Testbed, number: u32) -> Result<()> {
    let last = online_cpus() - 1;
    let turn = number as usize % 3;
    match method {
        Method::KernelRps | Method::KernelRfs => {
            let cpus = [vec![last], vec![0], (0..=last).collect()];
            crate::method::set_rps_cpus(testbed.receiver(), "in0", &cpus[turn])
        }
        Method::Kernel(_) => {
            let cpus = [format!("{last}-{last}"), "0-0".to_owned(), format!("0-{last}")];
            let binary = rxsteer().map_err(|why| LabError::Load { why })?;
            let mut set = testbed.receiver().command(binary);
            output(set.args(["set", "in0", &format!("cpus={}", cpus[turn])])).map(drop)
        }
        _ => Ok(()),
    }
}
