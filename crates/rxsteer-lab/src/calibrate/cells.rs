//! The measurements of a calibration.

use crate::cpus::online_cpus;
use crate::error::Result;
use crate::forwarding::{End, Forwarding, SENDER};
use crate::method::{METHOD_RULES, Method};
use crate::requests::{Answered, Requests};
use std::time::Duration;

/// The number of flows of a measurement, unless it says otherwise.
pub const INLINE_FLOWS: u32 = 64;
/// The bytes of a frame, unless a measurement says otherwise.
pub const INLINE_LENGTH: u32 = 64;
/// A long frame.
pub(super) const LONG: u32 = 1514;
/// Larger numbers of flows.
pub(super) const MORE: u32 = 1024;
pub(super) const MANY: u32 = 4096;
/// Rules of a firewall.
pub const RULES: u32 = 200;
/// Connections with requests.
pub const CONNECTIONS: u32 = 50;
/// Requests per second for each CPU while the CPUs have little to do. With ten times fewer, the CPUs sleep so long
/// between requests that waking up takes most of the time, which does not happen on a loaded machine.
pub(crate) const LIGHT: u32 = 10_000;
/// The CPU to which packets are handed.
const TARGET: usize = 1;

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// No steering; the frames go to the next host.
    Inline { flows: u32, length: u32 },
    /// No steering, while the other CPU forwards other frames.
    Beside,
    /// No steering, and frames are dropped earlier.
    Ends(End),
    /// All packets are steered to the CPU that receives them, and forwarded.
    Local(Method),
    /// The same, but the stack drops them at its entry.
    Dropped(Method),
    /// All packets are handed to the other CPU, which drops them at once: the receiving CPU's time.
    Handed(Method),
    /// The same with every second packet; the receiving CPU drops the others.
    Half(Method),
    /// All packets are handed to the other CPU, which forwards them: the time of that CPU.
    Remote(Method),
    /// No steering, through a firewall.
    Rules,
    /// `rxsteer run rps` to its own CPU, with rules before the policy; the stack drops packets at its entry.
    Matched,
    /// Requests and replies as fast as both hosts can exchange them: the time of all CPUs.
    Requests(Method),
    /// The same under a light load: the median time from request to reply.
    Light(Method),
}

/// The methods of steering that are calibrated.
pub const METHODS: [Method; 3] =
    [Method::KernelRps, Method::Kernel("rps"), Method::Kernel("sparse")];

/// The methods under which requests are measured.
pub(super) const OF_REQUESTS: [Method; 3] =
    [Method::None, Method::KernelRps, Method::Kernel("rps")];

/// All measurements of a calibration.
pub(super) fn all() -> Vec<Cell> {
    let mut cells = vec![
        Cell::Inline { flows: INLINE_FLOWS, length: INLINE_LENGTH },
        Cell::Inline { flows: INLINE_FLOWS, length: LONG },
        Cell::Inline { flows: MORE, length: INLINE_LENGTH },
        Cell::Inline { flows: MANY, length: INLINE_LENGTH },
        Cell::Beside,
        Cell::Ends(End::Entry),
        Cell::Ends(End::Route),
    ];
    for method in METHODS {
        let of = [Cell::Local, Cell::Dropped, Cell::Handed, Cell::Half, Cell::Remote];
        cells.extend(of.map(|cell| cell(method)));
    }
    cells.extend([Cell::Rules, Cell::Matched]);
    for method in OF_REQUESTS {
        cells.extend([Cell::Requests(method), Cell::Light(method)]);
    }
    cells
}

impl Cell {
    /// A description of what its time contains.
    pub(super) fn name(&self) -> String {
        let name = |method: &Method| method.simulated().0;
        match self {
            Cell::Inline { flows: flows @ (MORE | MANY), .. } => {
                format!("no steering, {flows} flows: forwarded")
            }
            Cell::Inline { length: LONG, .. } => format!("no steering, {LONG} bytes: forwarded"),
            Cell::Inline { .. } => "no steering: forwarded".to_owned(),
            Cell::Beside => "no steering, while another CPU forwards too: forwarded".to_owned(),
            Cell::Ends(End::Route) => "no steering: dropped by the route".to_owned(),
            Cell::Ends(_) => "no steering: dropped at the entry of the stack".to_owned(),
            Cell::Local(method) => format!("{}, to its own CPU: forwarded", name(method)),
            Cell::Dropped(method) => {
                format!("{}, to its own CPU: dropped at the entry", name(method))
            }
            Cell::Handed(method) => {
                format!("{}, to another CPU: the CPU that receives", name(method))
            }
            Cell::Half(method) => {
                format!("{}, half to another CPU: the CPU that receives", name(method))
            }
            Cell::Remote(method) => {
                format!("{}, to another CPU: the CPU that forwards", name(method))
            }
            Cell::Rules => format!("no steering, {RULES} rules of a firewall: forwarded"),
            Cell::Matched => {
                format!("rps with {METHOD_RULES} rules, to its own CPU: dropped at the entry")
            }
            Cell::Requests(method) => {
                format!("{}, a request and its reply: all CPUs", name(method))
            }
            Cell::Light(method) => {
                format!(
                    "{}, from a request to its reply, {LIGHT} a second for each CPU: median",
                    name(method)
                )
            }
        }
    }

    /// Measures it once.
    pub(super) fn measure(&self, quick: bool) -> Result<Once> {
        let plain = Forwarding {
            method: Method::None,
            cpus: &[TARGET],
            flows: INLINE_FLOWS,
            length: INLINE_LENGTH,
            rate: 0.0,
            frames: if quick { 100_000 } else { 400_000 },
            end: End::NextHost,
            nat: false,
            rules: 0,
            busy: 0,
            queues: 1,
            beside: None,
        };
        let requests = |method, rate| -> Result<Answered> {
            let time = Duration::from_millis(if quick { 200 } else { 400 });
            let load =
                Requests { method, connections: CONNECTIONS, rate, work: Duration::ZERO, time };
            load.measure()
        };
        let forwarding = match *self {
            Cell::Requests(method) => {
                let Answered { cpu_ns, p99, .. } = requests(method, 0)?;
                return Ok(Once { ns: cpu_ns, other_busy: 1.0, p99_ns: Some(p99) });
            }
            Cell::Light(method) => {
                let Answered { p50, p99, .. } = requests(method, LIGHT * online_cpus() as u32)?;
                return Ok(Once { ns: p50, other_busy: 0.0, p99_ns: Some(p99) });
            }
            Cell::Rules => Forwarding { rules: RULES, ..plain },
            Cell::Inline { flows, length } => Forwarding { flows, length, ..plain },
            Cell::Beside => Forwarding { beside: Some(TARGET), ..plain },
            Cell::Ends(end) => Forwarding { end, ..plain },
            Cell::Local(method) => Forwarding { method, cpus: &[SENDER], ..plain },
            Cell::Dropped(method) => {
                Forwarding { method, cpus: &[SENDER], end: End::Entry, ..plain }
            }
            Cell::Matched => Forwarding {
                method: Method::KernelRuled("rps"),
                cpus: &[SENDER],
                end: End::Entry,
                ..plain
            },
            Cell::Handed(method) => Forwarding { method, end: End::Entry, ..plain },
            // Enough flows for a hash to divide them evenly.
            Cell::Half(method) => {
                let cpus = &[SENDER, TARGET];
                Forwarding { method, cpus, flows: MORE, end: End::Entry, ..plain }
            }
            Cell::Remote(method) => Forwarding { method, ..plain },
        };
        let result = forwarding.measure()?;
        let busy = |cpu| {
            let found = result.cpus.iter().find(|of| of.cpu == cpu);
            found.map_or(1.0, |of| 1.0 - of.idle / 100.0)
        };
        // The sender is busy from the first frame to the last; the counters also cover the time before.
        let share = |cpu| (busy(cpu) / busy(SENDER).max(0.01)).min(1.0);
        let second = 1e9;
        let (ns, other_busy) = match self {
            Cell::Inline { .. } | Cell::Beside | Cell::Local(_) | Cell::Rules => {
                (second / result.forwarded, share(TARGET))
            }
            Cell::Ends(_) | Cell::Dropped(_) | Cell::Matched | Cell::Handed(_) | Cell::Half(_) => {
                (second / result.made, share(TARGET))
            }
            // If the sender is slower, the CPU is not busy all the time. Requests were handled above.
            Cell::Remote(_) | Cell::Requests(_) | Cell::Light(_) => {
                (second * share(TARGET) / result.forwarded, 1.0)
            }
        };
        Ok(Once { ns, other_busy, p99_ns: None })
    }
}

/// A figure of one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Once {
    /// The time of one CPU for one frame, in nanoseconds.
    pub(super) ns: f64,
    /// The share of the time in which the other CPU was busy.
    pub(super) other_busy: f64,
    /// The 99th percentile of the time from request to reply, in nanoseconds; frames have none.
    pub(super) p99_ns: Option<f64>,
}
