//! Scheduled traffic: packets at a constant rate, recorded packets, bursts.

use super::World;
use super::calendar::Other;
use super::packet::BURST;
use crate::scenario::Load;
use rand_distr::weighted::WeightedAliasIndex;
use rand_distr::{Distribution, Exp1};

/// How far ahead packets are put on the wire: other frames that need the wire earlier wait no longer than this.
const AHEAD_NS: f64 = 20_000.0;

/// The state of a traffic's schedule.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// When the next packet is sent.
    next_ns: f64,
    /// Packets sent so far.
    sent: u64,
    /// The shares of the flows, if they differ.
    shares: Option<WeightedAliasIndex<f64>>,
    /// The first flow, and the number of flows.
    pub(crate) first_flow: u32,
    pub(crate) flows: u32,
}

impl Source {
    pub(crate) fn new(first_flow: u32, flows: u32, start_ns: u64, zipf: Option<f64>) -> Source {
        let shares = zipf.map(|exponent| {
            (1..=flows).map(|rank| f64::from(rank).powf(-exponent)).collect::<Vec<f64>>()
        });
        Source {
            next_ns: start_ns as f64,
            sent: 0,
            shares: shares.and_then(|shares| WeightedAliasIndex::new(shares).ok()),
            first_flow,
            flows,
        }
    }
}

impl World<'_> {
    /// Puts the packets of the next moments on the wire, and notes when to continue.
    pub(crate) fn emit_by_clock(&mut self, traffic: u16) {
        let entry = &self.scenario.traffic[usize::from(traffic)];
        let until = self.now as f64 + AHEAD_NS;
        let end = self.scenario.duration_ns as f64;
        match &entry.load {
            Load::Constant(constant) => {
                let gap = 1e9 / constant.rate;
                loop {
                    let source = &mut self.sources[usize::from(traffic)];
                    if source.next_ns >= until {
                        break;
                    }
                    let flow = match &source.shares {
                        Some(shares) => shares.sample(&mut self.rng) as u32,
                        None => (source.sent % u64::from(source.flows)) as u32,
                    };
                    let (flow, at_ns) = (source.first_flow + flow, source.next_ns as u64);
                    source.sent += 1;
                    let pause: f64 =
                        if constant.poisson { Exp1.sample(&mut self.rng) } else { 1.0 };
                    source.next_ns += gap * pause;
                    self.emit_if_room(flow, at_ns, constant.frame_bytes);
                }
            }
            Load::Recorded(recorded) => loop {
                let source = &mut self.sources[usize::from(traffic)];
                let Some(packet) = recorded.packets.get(source.sent as usize) else { return };
                source.next_ns = (entry.start_ns + packet.at_ns) as f64;
                if source.next_ns >= until {
                    break;
                }
                source.sent += 1;
                let at_ns = source.next_ns as u64;
                let flow = source.first_flow + packet.flow;
                // All of these packets were on a wire once, so the recording limits how many wait for the
                // simulated wire.
                self.emit(flow, at_ns, packet.bytes, 0, 0);
            },
            Load::Stream(_) | Load::Requests(_) => return,
        }
        let next_ns = self.sources[usize::from(traffic)].next_ns;
        if next_ns < end {
            self.calendar.note((next_ns as u64).max(self.now + 1), Other::Emit { traffic });
        }
    }

    /// Puts a frame on the wire, unless the queue of the far host's NIC is full.
    fn emit_if_room(&mut self, flow: u32, at_ns: u64, bytes: u32) {
        let entry = &self.flows[flow as usize];
        if self.links[usize::from(entry.nic)].takes(at_ns, bytes) {
            self.emit(flow, at_ns, bytes, 0, 0);
        } else if self.now >= self.from_ns {
            self.results[usize::from(entry.traffic)].lost += 1;
        }
    }

    /// Sends `packets` additional packets of the traffic at once, evenly over its flows.
    pub(crate) fn burst(&mut self, traffic: usize, packets: u32) {
        let bytes = match &self.scenario.traffic[traffic].load {
            Load::Stream(stream) => stream.frame_bytes,
            Load::Constant(constant) => constant.frame_bytes,
            Load::Requests(requests) => requests.request_bytes,
            Load::Recorded(recorded) => recorded.packets.first().map_or(60, |packet| packet.bytes),
        };
        let Some((first, count)) = self.sources.get(traffic).map(|s| (s.first_flow, s.flows))
        else {
            return;
        };
        let data = match &self.scenario.traffic[traffic].load {
            Load::Constant(_) | Load::Recorded(_) => 0,
            // Nothing waits for these packets: they belong to no window and no request.
            Load::Stream(_) | Load::Requests(_) => BURST,
        };
        for packet in 0..packets {
            self.emit(first + packet % count.max(1), self.now, bytes, data, 0);
        }
    }
}
