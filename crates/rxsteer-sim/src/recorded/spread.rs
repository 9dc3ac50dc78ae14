//! The packets of flow records. A record has the number of packets between its first and its last time, but not
//! the time of each packet, so the packets are spread over that time.
//!
//! A heap of each record's next packet merges the records. So packets are produced in the order of time without
//! all being in memory. If there are more than a [`Recording`] takes, it gets the earliest ones, whatever the
//! order of the records.

use super::Recording;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_core::{FlowHash, FlowKey};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How packets are spread over the time between a record's first and last time. There is always a packet at both
/// of these times, as the record states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Evenly: all gaps of a record are equal. This is smoother than real traffic, so queues look shorter.
    #[default]
    Even,
    /// Randomly, by a seed: each time in between is equally likely.
    Random(u64),
}

/// The part of a flow record that describes its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowSpan {
    /// The key of the flow.
    pub key: FlowKey,
    /// The hash of the flow.
    pub hash: FlowHash,
    /// The number of packets.
    pub packets: u64,
    /// The bytes of the frames, which are divided evenly.
    pub bytes: u64,
    /// The time of the first packet, in nanoseconds.
    pub first_ns: u64,
    /// The time of the last packet. A time before the first one counts as the first one.
    pub last_ns: u64,
}

/// Adds the packets of `spans` to `recording`, until it takes no more. The order of the spans does not matter:
/// rxsteer writes the records of one capture in a different order each time.
pub fn spread(mut spans: Vec<FlowSpan>, how: Spread, recording: &mut Recording) {
    spans.sort_unstable_by_key(|of| (of.first_ns, of.last_ns, of.key, of.packets, of.bytes));
    let mut rng = match how {
        Spread::Even => None,
        Spread::Random(seed) => Some(ChaCha8Rng::seed_from_u64(seed)),
    };
    let started = spans.iter().enumerate().filter(|(_, span)| span.packets > 0);
    let mut next: BinaryHeap<Reverse<Next>> = started
        .map(|(span, of)| Reverse(Next { at_ns: of.first_ns, span, number: 0, share: 0 }))
        .collect();
    while let Some(Reverse(packet)) = next.pop() {
        let span = &spans[packet.span];
        if !recording.push(packet.at_ns, span.key, span.hash, span.bytes_of(packet.number)) {
            return;
        }
        if let Some(after) = packet.after(span, rng.as_mut()) {
            next.push(Reverse(after));
        }
    }
}

/// The next packet of a record. The order is by time, then by record, so that a run can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Next {
    at_ns: u64,
    span: usize,
    /// The number of the packet in its record, from 0.
    number: u64,
    /// The part of the record's time that has passed, in units of 2⁻⁵³, when times are drawn.
    share: u64,
}

/// The unit of a [`Next::share`].
const WHOLE: f64 = (1u64 << 53) as f64;

impl Next {
    fn after(self, span: &FlowSpan, rng: Option<&mut ChaCha8Rng>) -> Option<Next> {
        let number = self.number + 1;
        if number >= span.packets {
            return None;
        }
        let last_ns = span.last_ns.max(span.first_ns);
        let time = last_ns - span.first_ns;
        if number + 1 == span.packets {
            return Some(Next { at_ns: last_ns, number, ..self });
        }
        let Some(rng) = rng else {
            let gone = u128::from(time) * u128::from(number) / u128::from(span.packets - 1);
            return Some(Next { at_ns: span.first_ns + gone as u64, number, ..self });
        };
        // The least of the times that are still to be drawn between here and the end.
        let left = (span.packets - 1 - number) as f64;
        let drawn = ((rng.next_u64() >> 11) as f64 + 0.5) / WHOLE;
        let before = self.share as f64 / WHOLE;
        let gone = before + (1.0 - before) * (1.0 - drawn.powf(1.0 / left));
        let at_ns = span.first_ns.saturating_add((gone * time as f64) as u64);
        let share = (gone * WHOLE) as u64;
        Some(Next { at_ns: at_ns.clamp(self.at_ns, last_ns), number, share, ..self })
    }
}

impl FlowSpan {
    /// The bytes of a packet; the sum over all packets is that of the record.
    fn bytes_of(&self, number: u64) -> u32 {
        let until =
            |packets: u64| u128::from(self.bytes) * u128::from(packets) / u128::from(self.packets);
        u32::try_from(until(number + 1) - until(number)).unwrap_or(u32::MAX)
    }
}
