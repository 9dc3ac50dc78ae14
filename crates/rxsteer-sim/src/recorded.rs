//! Recordings: the packets of a capture or of flow records, converted for a scenario.
//!
//! ```text
//!  capture ─► (time, key, hash, bytes) ────────┐
//!                                              ├─► Recording ─► Recorded: from time 0, in order,
//!  flow records ─► spread (packet by packet) ──┘                silences cut, at the requested speed
//! ```
//!
//! Guarantees: packets are in the order of time, with times from 0. A flow is the unit of the order guarantee, one
//! steering key (both directions of a connection), and its hash never changes. The limit of packets bounds the
//! memory, whatever the input claims.

mod spread;

use crate::check::MAX_FLOWS;
use crate::scenario::{EventKind, Load, Recorded, RecordedPacket, Scenario, Traffic};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_core::{FlowHash, FlowKey};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

pub use spread::{FlowSpan, Spread, spread};

/// The default number of packets kept: 16 bytes each, and at worst 80 more for a flow with a single packet.
pub const DEFAULT_PACKETS: u32 = 5_000_000;

/// The largest limit of packets.
pub const MAX_PACKETS: u32 = 100_000_000;

/// The longest silence that is simulated, in nanoseconds. It is longer than the time for which steering remembers
/// a quiet flow (1 s), so a longer silence would only make the run longer.
pub const LONGEST_SILENCE_NS: u64 = 2_000_000_000;

/// The longest frame whose length is accepted, in bytes: libpcap's largest snapshot length. Damaged captures claim
/// gigabytes, which would keep a simulated wire busy for seconds.
pub const LONGEST_FRAME: u32 = 262_144;

/// The time simulated after the last packet, in nanoseconds, so that packets that wait then can be processed.
pub const AFTERWARDS_NS: u64 = 10_000_000;

/// The largest simulated time of a recording, in nanoseconds: an hour.
pub const LONGEST_NS: u64 = 3600 * 1_000_000_000;

/// Collects packets in any order.
#[derive(Debug)]
pub struct Recording {
    packets: Vec<RecordedPacket>,
    hashes: Vec<u32>,
    flows: HashMap<FlowKey, u32>,
    limit: usize,
    figures: RecordedFigures,
}

/// The figures of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecordedFigures {
    /// The number of packets that are sent.
    pub packets: u64,
    /// The number of flows, that is of steering keys. All frames without an IP header count as one more flow.
    pub flows: u64,
    /// The bytes of the frames.
    pub bytes: u64,
    /// The recorded time from the first packet to the last, in nanoseconds.
    pub recorded_ns: u64,
    /// The simulated time of the same packets, in nanoseconds: at the requested speed, and with silences cut.
    pub simulated_ns: u64,
    /// Packets with a time before that of an earlier packet in the input; they are sent at their time.
    pub late: u64,
    /// The number of silences that were cut to [`LONGEST_SILENCE_NS`].
    pub silences: u64,
    /// Frames that claimed to be longer than [`LONGEST_FRAME`]; they are sent with that length.
    pub too_long: u64,
    /// Packets of flows beyond the limit [`MAX_FLOWS`]; they are not sent.
    pub of_more_flows: u64,
    /// Whether there were more packets than the limit allows; the others are not sent.
    pub more: bool,
}

/// Why a recording can't be simulated.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RecordedError {
    /// The recording has no packet.
    #[error("there is no packet in it, so there is nothing to simulate; name another file")]
    Empty,
    /// The speed is not a number above 0.
    #[error("a speed of {0} can't be simulated; give a number above 0, such as 10")]
    Speed(f64),
    /// The recording is longer than the limit; holds the time in seconds at the requested speed.
    #[error(
        "it requires {0:.0} s of simulated time (with long pauses cut), and the limit is {limit} s; use a higher \
         speed or fewer packets",
        limit = LONGEST_NS / 1_000_000_000
    )]
    TooLong(f64),
    /// The scenario has no traffic that defines the path of packets.
    #[error("the scenario has no traffic whose path the recording could take; add a [[traffic]]")]
    NoWay,
}

impl Recording {
    /// An empty recording that takes at most `limit` packets.
    ///
    /// # Panics
    /// When `limit` is above [`MAX_PACKETS`].
    #[must_use]
    pub fn new(limit: u32) -> Recording {
        assert!(limit <= MAX_PACKETS, "{limit} packets are more than {MAX_PACKETS}");
        Recording {
            packets: Vec::new(),
            hashes: Vec::new(),
            flows: HashMap::new(),
            limit: limit as usize,
            figures: RecordedFigures::default(),
        }
    }

    /// Accepts a packet: its time in nanoseconds of any clock, its steering key (the default key for frames without an
    /// IP header), the hash of the key, and the length of its frame on the wire. A packet of a flow beyond the limit of
    /// flows is only counted. Returns `false`, and accepts nothing, when the limit of packets is reached.
    pub fn push(&mut self, at_ns: u64, key: FlowKey, hash: FlowHash, bytes: u32) -> bool {
        if self.packets.len() >= self.limit {
            self.figures.more = true;
            return false;
        }
        let next = self.hashes.len() as u32;
        let flow = match self.flows.entry(key.canonical()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if u64::from(next) >= MAX_FLOWS => {
                self.figures.of_more_flows += 1;
                return true;
            }
            Entry::Vacant(new) => {
                self.hashes.push(hash.get());
                *new.insert(next)
            }
        };
        self.figures.late += u64::from(self.packets.last().is_some_and(|last| last.at_ns > at_ns));
        self.figures.too_long += u64::from(bytes > LONGEST_FRAME);
        let bytes = bytes.clamp(1, LONGEST_FRAME);
        self.figures.bytes += u64::from(bytes);
        self.packets.push(RecordedPacket { at_ns, flow, bytes });
        true
    }

    /// The packets in the order of time, `speed` times as fast as recorded. Packets with the same time stay in
    /// their order.
    ///
    /// # Errors
    /// When there is nothing to send, or the simulated time would be too long.
    pub fn finish(self, speed: f64) -> Result<(Recorded, RecordedFigures), RecordedError> {
        let Recording { mut packets, hashes, mut figures, .. } = self;
        if !speed.is_finite() || speed <= 0.0 {
            return Err(RecordedError::Speed(speed));
        }
        packets.sort_by_key(|packet| packet.at_ns);
        let (Some(first), Some(last)) = (packets.first(), packets.last()) else {
            return Err(RecordedError::Empty);
        };
        figures.recorded_ns = last.at_ns - first.at_ns;
        let seconds = retime(&mut packets, speed, &mut figures) / 1e9;
        if seconds > LONGEST_NS as f64 / 1e9 {
            return Err(RecordedError::TooLong(seconds));
        }
        figures.packets = packets.len() as u64;
        figures.flows = hashes.len() as u64;
        figures.simulated_ns = packets.last().map_or(0, |last| last.at_ns);
        Ok((Recorded { packets: packets.into(), hashes, application: 0.0 }, figures))
    }
}

/// Gives packets their simulated times. Returns the last one, not rounded.
fn retime(packets: &mut [RecordedPacket], speed: f64, figures: &mut RecordedFigures) -> f64 {
    let mut before_ns = packets.first().map_or(0, |first| first.at_ns);
    // Gaps are added up instead of dividing times. Recordings have times since 1970, and a floating-point number
    // cannot represent those to the nanosecond.
    let mut at = 0.0;
    for packet in packets {
        let gap = (packet.at_ns - before_ns) as f64 / speed;
        before_ns = packet.at_ns;
        if gap > LONGEST_SILENCE_NS as f64 {
            figures.silences += 1;
        }
        at += gap.min(LONGEST_SILENCE_NS as f64);
        packet.at_ns = at.round() as u64;
    }
    at
}

/// Gives the flows of recordings the hashes that they could have under another secret of the flow hash, drawn by
/// `seed`. Flows with equal hashes still have equal hashes, and flows without a hash have none. A recording has no
/// other randomness: without this, runs with different seeds would be the same run.
pub fn rehash(scenario: &mut Scenario, seed: u64) {
    let secret = ChaCha8Rng::seed_from_u64(seed).next_u32();
    for traffic in &mut scenario.traffic {
        let Load::Recorded(recorded) = &mut traffic.load else { continue };
        for hash in recorded.hashes.iter_mut().filter(|hash| **hash != 0) {
            *hash = FlowHash::computed(mixed(*hash ^ secret)).get();
        }
    }
}

/// The finalizer of MurmurHash3: it is one-to-one, and every bit of the result depends on every bit of the input.
fn mixed(mut hash: u32) -> u32 {
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// The parts of the scenario that [`replace_traffic`] left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The kinds of traffic other than the first.
    pub traffic: usize,
    /// The events after the recording, and bursts of traffic that no longer exists.
    pub events: usize,
}

/// `scenario` with `recorded` instead of all its traffic. The recording takes the path of the first traffic (NICs,
/// translation, the application's cost per packet), from the beginning, once. The run ends shortly after it.
///
/// # Errors
/// When the scenario has no traffic.
pub fn replace_traffic(
    scenario: &Scenario,
    mut recorded: Recorded,
    name: &str,
) -> Result<(Scenario, LeftOut), RecordedError> {
    let mut scenario = scenario.clone();
    let mut left_out = LeftOut::default();
    let way = scenario.traffic.first().ok_or(RecordedError::NoWay)?;
    recorded.application = match &way.load {
        // Forwarded packets reach no application.
        _ if way.out.is_some() => 0.0,
        Load::Stream(stream) => stream.application,
        Load::Constant(constant) => constant.application,
        Load::Requests(requests) => requests.service,
        Load::Recorded(recorded) => recorded.application,
    };
    let last_ns = recorded.packets.last().map_or(0, |last| last.at_ns);
    left_out.traffic = scenario.traffic.len() - 1;
    scenario.traffic = vec![Traffic {
        name: name.to_owned(),
        flows: recorded.hashes.len() as u32,
        start_ns: 0,
        ramp_ns: 0,
        load: Load::Recorded(recorded),
        ..way.clone()
    }];
    scenario.duration_ns = last_ns + AFTERWARDS_NS;
    scenario.warm_up_ns = 0;
    let events = scenario.events.len();
    scenario.events.retain(|event| {
        event.at_ns < scenario.duration_ns && !matches!(event.what, EventKind::Burst(..))
    });
    left_out.events = events - scenario.events.len();
    Ok((scenario, left_out))
}

#[cfg(test)]
mod tests;
