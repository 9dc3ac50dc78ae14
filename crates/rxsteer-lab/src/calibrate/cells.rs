//! What is measured.

use super::scenario::METHODS;
use crate::error::Result;
use crate::experiment::Method;
use crate::forwarding::{End, Forwarding};

/// The number of flows of a measurement, unless it says otherwise.
pub const INLINE_FLOWS: u32 = 64;
/// The bytes of a frame, unless a measurement says otherwise.
pub const INLINE_LENGTH: u32 = 64;
/// A long frame.
pub(super) const LONG: u32 = 1514;
/// Many flows.
pub(super) const MANY: u32 = 8192;
/// The CPU to which packets are handed.
const TARGET: usize = 1;

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// No steering; the next host gets the frames.
    Inline { flows: u32, length: u32 },
    /// No steering, and frames end earlier.
    Ends(End),
    /// All packets are steered to the CPU that receives them.
    Local(Method),
    /// All packets are handed to another CPU, which drops them at once: the receiving CPU's time.
    Handed(Method),
    /// All packets are handed to another CPU, which forwards them: that CPU's time.
    Remote(Method),
}

/// Everything that a calibration measures.
pub(super) fn all() -> Vec<Cell> {
    let mut cells = vec![
        Cell::Inline { flows: INLINE_FLOWS, length: INLINE_LENGTH },
        Cell::Inline { flows: INLINE_FLOWS, length: LONG },
        Cell::Inline { flows: MANY, length: INLINE_LENGTH },
        Cell::Ends(End::Entry),
        Cell::Ends(End::Route),
    ];
    for method in METHODS {
        cells.extend([Cell::Local(method), Cell::Handed(method), Cell::Remote(method)]);
    }
    cells
}

impl Cell {
    /// What its time contains.
    pub(super) fn name(&self) -> String {
        match self {
            Cell::Inline { flows: MANY, .. } => format!("no steering, {MANY} flows: forwarded"),
            Cell::Inline { length: LONG, .. } => format!("no steering, {LONG} bytes: forwarded"),
            Cell::Inline { .. } => "no steering: forwarded".to_owned(),
            Cell::Ends(End::Route) => "no steering: dropped by the route".to_owned(),
            Cell::Ends(_) => "no steering: dropped at the entry of the stack".to_owned(),
            Cell::Local(method) => {
                format!("{}, steered to its own CPU: forwarded", method.simulated().0)
            }
            Cell::Handed(method) => {
                format!("{}, handed to another CPU: the CPU that receives", method.simulated().0)
            }
            Cell::Remote(method) => {
                format!("{}, handed to another CPU: the CPU that forwards", method.simulated().0)
            }
        }
    }

    /// Measures it once: nanoseconds a frame.
    pub(super) fn measure(&self, quick: bool) -> Result<f64> {
        let plain = Forwarding {
            method: Method::None,
            cpus: &[TARGET],
            flows: INLINE_FLOWS,
            length: INLINE_LENGTH,
            rate: 0.0,
            frames: if quick { 100_000 } else { 500_000 },
            end: End::NextHost,
            nat: false,
            busy: 0,
            queues: 1,
        };
        let second = 1e9;
        Ok(match *self {
            Cell::Inline { flows, length } => {
                second / Forwarding { flows, length, ..plain }.measure()?.forwarded
            }
            Cell::Ends(end) => second / Forwarding { end, ..plain }.measure()?.made,
            Cell::Local(method) => {
                second / Forwarding { method, cpus: &[0], ..plain }.measure()?.forwarded
            }
            Cell::Handed(method) => {
                second / Forwarding { method, end: End::Entry, ..plain }.measure()?.made
            }
            Cell::Remote(method) => {
                let result = Forwarding { method, ..plain }.measure()?;
                // If the sender is slower, the CPU is not busy all the time.
                let busy = result.cpus.iter().find(|cpu| cpu.cpu == TARGET);
                let share = busy.map_or(1.0, |cpu| 1.0 - cpu.idle / 100.0);
                second * share / result.forwarded
            }
        })
    }
}
