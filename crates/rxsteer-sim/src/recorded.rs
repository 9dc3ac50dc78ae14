//! Recordings: packets of a capture or of flow records, made into what a scenario can send.
//!
//! ```text
//!  capture ─► (time, key, hash, bytes) ────────┐
//!                                              ├─► Recording ─► Recorded: from time 0, in order,
//!  flow records ─► spread (packet by packet) ──┘                silences cut, at the speed asked for
//! ```
//!
//! What holds: packets come in the order of time, with times from 0; a flow is what order is
//! promised for, one steering key (both directions of a connection), and its hash never changes;
//! memory is bounded by the limit of packets, whatever the input claims.

mod spread;

use crate::check::MAX_FLOWS;
use crate::scenario::{EventKind, Load, Recorded, RecordedPacket, Scenario, Traffic};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_core::{FlowHash, FlowKey};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

pub use spread::{FlowSpan, Spread, spread};

/// Packets kept by default: 16 bytes each, and at worst 80 more for the flow that each is alone in.
pub const DEFAULT_PACKETS: u32 = 5_000_000;

/// Most packets that can be asked for.
pub const MAX_PACKETS: u32 = 100_000_000;

/// Longest silence that is simulated, in nanoseconds: longer than anything that steering remembers of
/// a quiet flow (1 s), so that a longer one would change nothing but the time a run takes.
pub const LONGEST_SILENCE_NS: u64 = 2_000_000_000;

/// Longest frame that is taken at its word, in bytes: libpcap's largest snapshot length. Damaged
/// captures claim gigabytes, which would keep a simulated wire busy for seconds.
pub const LONGEST_FRAME: u32 = 262_144;

/// Simulated after the last packet, in nanoseconds, so that what waits then can be processed.
pub const AFTERWARDS_NS: u64 = 10_000_000;

/// Most simulated time of a recording, in nanoseconds: an hour.
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

/// What there is to say about a recording, beside its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecordedFigures {
    /// Packets that are sent.
    pub packets: u64,
    /// Their flows: steering keys. All frames without an IP header are one more.
    pub flows: u64,
    /// The bytes of their frames.
    pub bytes: u64,
    /// From the first packet to the last, in nanoseconds as recorded.
    pub recorded_ns: u64,
    /// … and as simulated: at the speed asked for, and with silences cut.
    pub simulated_ns: u64,
    /// Packets whose time was before that of one that came before them; they are sent by their time.
    pub late: u64,
    /// Silences that were cut to [`LONGEST_SILENCE_NS`].
    pub silences: u64,
    /// Frames that claimed to be longer than [`LONGEST_FRAME`], and are sent with that length.
    pub too_long: u64,
    /// Packets of further flows than can be simulated ([`MAX_FLOWS`]); those are not sent.
    pub of_more_flows: u64,
    /// Whether there were more packets than the limit allows; those are not sent.
    pub more: bool,
}

/// Why a recording can't be simulated.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RecordedError {
    /// It has no packet.
    #[error("there is no packet in it, so there is nothing to simulate; name another file")]
    Empty,
    /// The speed is no number above 0.
    #[error("a speed of {0} can't be simulated; give a number above 0, such as 10")]
    Speed(f64),
    /// It lasts longer than is simulated; holds the time in seconds at the speed asked for.
    #[error(
        "it takes {0:.0} s of simulated time, silences cut, and {limit} s is the most; ask for more \
         speed or for fewer packets",
        limit = LONGEST_NS / 1_000_000_000
    )]
    TooLong(f64),
    /// The scenario has no traffic that says which way packets go.
    #[error("the scenario has no traffic whose way the recording could take; give it one")]
    NoWay,
}

impl Recording {
    /// An empty one that takes at most `limit` packets.
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

    /// Takes a packet, unless it is of one flow too many, which is counted: its time in nanoseconds of any clock, its steering key (the default one for
    /// frames without an IP header), the hash of that, its frame's length on the wire. Says `false`,
    /// and takes nothing, when there are as many as allowed.
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

    /// The packets in the order of time (those of one time as they came), `speed` times as fast as
    /// they were recorded.
    ///
    /// # Errors
    /// When there is nothing to send, or it would take too long.
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

/// Gives packets their simulated times, and returns the last one, unrounded.
fn retime(packets: &mut [RecordedPacket], speed: f64, figures: &mut RecordedFigures) -> f64 {
    let mut before_ns = packets.first().map_or(0, |first| first.at_ns);
    // Gaps are added up rather than times divided: recordings carry times since 1970, of which a
    // floating-point number can't distinguish single nanoseconds.
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

/// Gives the flows of recordings the hashes that they might have under another secret of the flow hash,
/// drawn by `seed`; flows that met in a hash still do, and those without one have none. A recording has
/// no other chance in it: without this, runs of other seeds would be one run, repeated.
pub fn rehash(scenario: &mut Scenario, seed: u64) {
    let secret = ChaCha8Rng::seed_from_u64(seed).next_u32();
    for traffic in &mut scenario.traffic {
        let Load::Recorded(recorded) = &mut traffic.load else { continue };
        for hash in recorded.hashes.iter_mut().filter(|hash| **hash != 0) {
            *hash = FlowHash::computed(mixed(*hash ^ secret)).get();
        }
    }
}

/// The finalizer of MurmurHash3: one to one, and every bit of the result depends on every bit.
fn mixed(mut hash: u32) -> u32 {
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// What [`replace_traffic`] left out of the scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Kinds of traffic beside the first.
    pub traffic: usize,
    /// Events that happen after the recording, or are bursts of traffic that is no longer there.
    pub events: usize,
}

/// `scenario` with `recorded` in place of all its traffic: it goes the way of the first traffic (cards,
/// translation, what the application does with each packet), from the beginning, once, and the run
/// ends shortly after it.
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
        // What passes through meets no application.
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
