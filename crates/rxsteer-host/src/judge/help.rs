//! Whether steering can help at all, which is the first question.

use crate::host::Host;
use crate::interface::Interface;
use crate::load::{CpuLoad, Load};
use rxsteer_core::CpuSet;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Whether steering this interface's packets is likely to help, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", content = "why", rename_all = "snake_case")]
pub enum Help {
    /// A measurement showed that one CPU is short of time for what it receives, while others are not.
    Likely(String),
    /// Steering would not help.
    Dont(String),
    /// There is not enough information.
    Unknown(String),
}

impl Help {
    /// The reason.
    pub fn why(&self) -> &str {
        match self {
            Self::Likely(why) | Self::Dont(why) | Self::Unknown(why) => why,
        }
    }
}

impl fmt::Display for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Likely(why) => write!(f, "likely, because {why}"),
            Self::Dont(why) => write!(f, "don't, because {why}"),
            Self::Unknown(why) => write!(f, "unknown, because {why}"),
        }
    }
}

/// Below this many frames per second there is nothing to share.
pub(crate) const QUIET: f64 = 1000.0;
/// A CPU that spends this share of its time in softirqs is short of time for receiving.
pub(crate) const BUSY: f64 = 0.5;
/// CPUs share the work if the others do at least this fraction of what the busiest one does.
const SHARED: f64 = 0.6;

/// Whether steering can help, based on a measurement if there is one. The numbers of RX queues and CPUs alone are not
/// conclusive.
pub fn help(interface: &Interface, host: &Host, sample: Option<(&Load, Duration)>) -> Help {
    let Some(cpus) = host.cpus.usable(std::slice::from_ref(&interface.node_cpus)) else {
        return Help::Unknown("it is unknown which CPUs are online".to_owned());
    };
    if cpus.len() == 1 {
        return Help::Dont(
            "there is one CPU to process packets, so there is nothing to choose".to_owned(),
        );
    }
    if super::device::findings(interface).iter().any(|finding| finding.blocks) {
        return Help::Dont(if super::device::takes_kernel_steering(interface) {
            format!(
                "rxsteer run can't attach here; the kernel's own RPS works here: rxsteer host recommend {}",
                interface.link.name
            )
        } else {
            "it is not the interface to attach to".to_owned()
        });
    }
    if interface.link.is_wifi && !interface.xdp.is_some_and(|xdp| xdp.redirects()) {
        return Help::Dont(format!(
            "this Wi-Fi driver has no native XDP, and generic mode acts after the driver's own work on a frame; the kernel's own \
             RPS works here: rxsteer host recommend {}",
            interface.link.name
        ));
    }
    if interface.link.is("veth") {
        return Help::Dont(format!(
            "on veth pairs native XDP usually costs more than steering gains (measured): it copies every frame and splits \
             merged segments (TCP through a router: 0.73 to 1.01 of the throughput without it). Only small packets that are \
             forwarded were faster than with the kernel's own RPS. rxsteer host recommend {} measures whether that \
             helps here",
            interface.link.name
        ));
    }
    match sample {
        Some((load, time)) => match relief(&interface.link.name, &cpus, load, time) {
            Help::Likely(why) => Help::Likely(format!(
                "{why}; what to do, and what the kernel's own steering does for it: rxsteer host recommend {}",
                interface.link.name
            )),
            other => other,
        },
        None => by_queues(interface, cpus.len()),
    }
}

fn by_queues(interface: &Interface, cpus: usize) -> Help {
    let name = &interface.link.name;
    let of = match interface.rx_queues {
        None => "the number of RX queues is unknown".to_owned(),
        Some(1) => format!("there is one RX queue for {cpus} CPUs"),
        // They may receive nothing: PPPoE and tunnels are one flow to a NIC.
        Some(queues) if queues as usize >= cpus => format!(
            "with {queues} RX queues for {cpus} CPUs the NIC spreads the flows that it can distinguish (RSS), not those of PPPoE or tunnels"
        ),
        Some(queues) => format!("there are {queues} RX queues for {cpus} CPUs"),
    };
    Help::Unknown(format!(
        "{of}, but check did not measure whether a CPU is short of time for receiving; measure it under the usual load: \
         rxsteer host recommend {name}"
    ))
}

/// Whether a CPU is short of time for receiving while others of `cpus` are not, according to a measurement over `time`.
/// `name` is the interface. This does not depend on what steers.
pub fn relief(name: &str, cpus: &CpuSet, load: &Load, time: Duration) -> Help {
    let seconds = time.as_secs_f64().max(1e-9);
    let rate = load.received.get(name).map(|frames| *frames as f64 / seconds);
    if let Some(why) = rate.and_then(|rate| too_few(name, rate)) {
        return Help::Unknown(why);
    }
    let busiest = load.cpus.iter().max_by(|a, b| in_softirqs(a).total_cmp(&in_softirqs(b)));
    let Some(busiest) = busiest.filter(|cpu| cpu.ticks.all > 0) else {
        return Help::Unknown("the kernel does not report what its CPUs do".to_owned());
    };
    let dropped: u64 = load.cpus.iter().map(|cpu| u64::from(cpu.dropped)).sum();
    let does = format!(
        "CPU {} spends {:.0} % of its time in softirqs",
        busiest.cpu,
        100.0 * in_softirqs(busiest)
    );
    if in_softirqs(busiest) < BUSY && dropped == 0 {
        return Help::Dont(format!(
            "{does} and nothing is dropped, so there is nothing to relieve"
        ));
    }
    let is_other = |cpu: &&CpuLoad| {
        cpu.cpu != busiest.cpu && cpus.iter().any(|usable| u32::from(usable.get()) == cpu.cpu)
    };
    let others: Vec<&CpuLoad> = load.cpus.iter().filter(is_other).collect();
    let mean = |of: fn(&CpuLoad) -> f64| {
        others.iter().map(|cpu| of(cpu)).sum::<f64>() / others.len().max(1) as f64
    };
    let (theirs, idle) = (mean(in_softirqs), mean(is_idle));
    if theirs >= SHARED * in_softirqs(busiest) {
        return Help::Dont(format!(
            "{does}, the others {:.0} %: they share the work already; more or faster CPUs would help",
            100.0 * theirs
        ));
    }
    if idle < 1.0 - BUSY {
        return Help::Dont(format!(
            "{does}, but the others are idle for only {:.0} % of theirs: they do other work, which would be slowed",
            100.0 * idle
        ));
    }
    Help::Likely(format!(
        "{does}, {dropped} packets were dropped, and the other CPUs are {:.0} % idle",
        100.0 * idle
    ))
}

/// If an interface received too little in a second, the reason why nothing follows from it.
pub fn too_few(name: &str, rate: f64) -> Option<String> {
    (rate < QUIET).then(|| {
        format!("{name} received {rate:.0} frames/s while it was measured, too few to judge; measure under the usual load")
    })
}

/// The share of its time that a CPU spends in softirqs.
pub(crate) fn in_softirqs(cpu: &CpuLoad) -> f64 {
    cpu.ticks.softirq as f64 / cpu.ticks.all.max(1) as f64
}

fn is_idle(cpu: &CpuLoad) -> f64 {
    cpu.ticks.idle as f64 / cpu.ticks.all.max(1) as f64
}
