//! The rows of flows, from the largest flows of two readings: rates, moves, and where each flow is.

use crate::text::clean;
use rxsteer_status::{FlowShown, Rates, Status};
use std::cmp::Ordering;
use std::collections::HashMap;

/// How flows are sorted, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Packets a second between the last two readings.
    #[default]
    Rate,
    /// Packets.
    Packets,
    /// Bytes.
    Bytes,
    /// Moves.
    Moves,
}

impl Sort {
    /// All, in the order in which the key `s` selects them.
    pub const ALL: [Sort; 4] = [Sort::Rate, Sort::Packets, Sort::Bytes, Sort::Moves];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Packets => "packets",
            Sort::Bytes => "bytes",
            Sort::Moves => "moves",
        }
    }

    /// The next one.
    #[must_use]
    pub fn next(self) -> Sort {
        let at = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(at + 1) % Sort::ALL.len()]
    }

    pub(crate) fn compare(self, one: &FlowRow, other: &FlowRow) -> Ordering {
        let by = |row: &FlowRow| match self {
            Sort::Rate => row.rate.unwrap_or(0.0),
            Sort::Packets => row.packets as f64,
            Sort::Bytes => row.bytes as f64,
            Sort::Moves => row.moves as f64,
        };
        // Equal flows keep their places from reading to reading.
        by(other)
            .total_cmp(&by(one))
            .then(other.packets.cmp(&one.packets))
            .then_with(|| one.flow.cmp(&other.flow))
    }
}

/// A move that happened between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// From and to which CPU, if there was only one move between the readings and both are known.
    pub cpus: Option<(u16, u16)>,
    /// How many there were.
    pub count: u32,
    /// When the second reading was: the instance's running time in nanoseconds.
    pub at_ns: u64,
}

/// One direction of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    /// The flow, escaped.
    pub flow: String,
    /// Its packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often it moved to another CPU.
    pub moves: u32,
    /// Packets a second between the readings; unknown in the first reading that lists the flow.
    pub rate: Option<f64>,
    /// Its last moves that readings have shown.
    pub moved: Option<Move>,
    /// The CPU that got most of its packets between the readings, or before if there were none.
    pub cpu: Option<u16>,
    /// CPUs with their shares of all its packets, the largest first.
    pub shares: Vec<(u16, f64)>,
    /// Nanoseconds since its last packet.
    pub idle_ns: u64,
    /// When the reading was: the instance's running time in nanoseconds.
    pub seen_ns: u64,
}

/// What is remembered about a flow from reading to reading.
#[derive(Clone, Debug)]
struct Known {
    packets: u64,
    moves: u32,
    cpus: Vec<(u16, u64)>,
    cpu: Option<u16>,
    moved: Option<Move>,
}

/// The flows of the last reading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tracker {
    known: HashMap<String, Known>,
}

impl Tracker {
    /// The rows of a reading; remembers the flows. `rates` covers the time since the previous reading.
    pub(crate) fn rows(&mut self, now: &Status, rates: Option<&Rates>) -> Vec<FlowRow> {
        if rates.is_none() {
            self.known.clear();
        }
        let mut known = HashMap::with_capacity(now.largest_flows.len());
        let rows = now.largest_flows.iter().map(|flow| {
            // Counts that decreased belong to a new flow with the same addresses and ports.
            let then = self.known.remove(&flow.flow);
            let then = then.filter(|then| then.packets <= flow.packets && then.moves <= flow.moves);
            let cpu = current(flow, then.as_ref());
            let moved = moved(flow, then.as_ref(), cpu, now.running_ns);
            let rate =
                rates.zip(then).map(|(rates, then)| rates.per_second(then.packets, flow.packets));
            let cpus = flow.cpus.iter().map(|on| (on.cpu, on.packets)).collect();
            let (packets, moves) = (flow.packets, flow.moves);
            known.insert(flow.flow.clone(), Known { packets, moves, cpus, cpu, moved });
            let mut shares: Vec<(u16, f64)> = flow
                .cpus
                .iter()
                .map(|on| (on.cpu, on.packets as f64 / flow.packets.max(1) as f64))
                .collect();
            shares.sort_by(|one, other| other.1.total_cmp(&one.1));
            FlowRow {
                flow: clean(&flow.flow),
                packets,
                bytes: flow.bytes,
                moves,
                rate,
                moved,
                cpu,
                shares,
                idle_ns: (flow.idle_s.max(0.0) * 1e9) as u64,
                seen_ns: now.running_ns,
            }
        });
        let rows = rows.collect();
        self.known = known;
        rows
    }
}

/// The CPU that got most packets since the previous reading; otherwise its former CPU, or the one with most packets of
/// all.
fn current(flow: &FlowShown, then: Option<&Known>) -> Option<u16> {
    let before = |cpu: u16| {
        let found = then.and_then(|then| then.cpus.iter().find(|(known, _)| *known == cpu));
        found.map_or(0, |(_, packets)| *packets)
    };
    let more = flow.cpus.iter().map(|on| (on.packets.saturating_sub(before(on.cpu)), on.cpu));
    let most = more.filter(|(packets, _)| *packets > 0).max_by_key(|(packets, _)| *packets);
    most.map(|(_, cpu)| cpu).or_else(|| then.and_then(|then| then.cpu))
}

fn moved(flow: &FlowShown, then: Option<&Known>, cpu: Option<u16>, at_ns: u64) -> Option<Move> {
    let then = then?;
    let cpus = then.cpu.zip(cpu).filter(|(from, to)| from != to);
    // The userspace path does not count moves for each flow.
    let count = flow.moves.saturating_sub(then.moves).max(cpus.is_some().into());
    match count {
        0 => then.moved,
        _ => Some(Move { cpus: cpus.filter(|_| count == 1), count, at_ns }),
    }
}

#[cfg(test)]
#[path = "flows_tests.rs"]
mod tests;
