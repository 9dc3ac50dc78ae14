//! Admission to sparse slots: a flow gets no slot before its N-th packet within a second (`sparse:after=N`). So a scan,
//! whose flows have one packet each, gets no slots and leaves them to other flows.
//!
//! ```text
//!   flow without a slot ──► a set by hash  │ flow, packets, began │ flow, packets, began │   two entries, one set of
//!                                            packets < N: the hash decides, and marks nothing  sets per producer
//!                                            packets ≥ N: asks for a slot, as without `after`
//! ```
//!
//! The second begins with the first counted packet, and counting starts again after it. So a flow that sends N packets in
//! every second is admitted within two seconds. An admitted flow that gets no slot, because all are taken, marks hashing
//! as active, as without `after`. A flow that is not admitted does not.
//!
//! Invariants:
//! - **No flow is admitted too early.** An entry holds the whole identity of its flow (device and hash), so no packet
//!   of another flow is counted. Collisions err in the other direction. A flow that finds both entries of its set taken
//!   replaces the flow with fewer packets in its second (of equal ones, the flow that began earlier), and the replaced
//!   flow counts from the beginning again. So flows of one packet do not replace a flow with two packets while the
//!   other entry has a flow of one packet.
//! - Memory is constant: [`SETS`] sets for each producer, 32 KiB, and none under policies without `after`.
//! - Only its producer writes a row. A flow that arrives at several producers is counted by each of them.
//!
//! The replacement is that of a set-associative cache that evicts the least frequently used line. The identity in each
//! entry makes the counts exact. The counts of a count-min sketch would err towards early admission.

use crate::last_seen::LastSeen;
use crate::slot::hash_32;
use crate::slot_request::{SlotRequest, flow_of, mixed};
use crate::sync::{AtomicU64, Ordering};
use alloc::boxed::Box;
use core::fmt;

/// The largest number of loops: slots per CPU.
pub const MAX_LOOPS: u8 = 5;

/// The default number of loops (`CONFIG_NR_RPS_MAP_LOOPS`).
pub const DEFAULT_LOOPS: u8 = 4;

/// The logarithm of the number of sets of one producer.
pub const SETS_LOG: u32 = 10;

/// The number of sets of one producer.
pub const SETS: usize = 1 << SETS_LOG;

/// The position of the packets in an entry's word, above the flow.
pub const PACKETS_SHIFT: u32 = 56;

/// The set of a flow, in every producer's row. `flow` is its [identity](crate::sparse::identity).
#[inline(always)]
#[must_use]
pub fn set_of(flow: u64) -> u32 {
    hash_32(mixed(flow), SETS_LOG)
}

/// The identity of the flow in the word of an entry.
#[inline(always)]
#[must_use]
pub fn flow_in(word: u64) -> u64 {
    word & ((1 << PACKETS_SHIFT) - 1)
}

/// The settings of sparse slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The slots of each CPU: 1 to [`MAX_LOOPS`].
    pub loops: u8,
    /// From which packet of a flow, counted within a second, the flow may get a slot: at least 1, the first packet.
    pub after: u8,
}

impl Default for Slots {
    fn default() -> Slots {
        Slots { loops: DEFAULT_LOOPS, after: 1 }
    }
}

impl Slots {
    /// The setting that admits every flow from its first packet.
    #[must_use]
    pub const fn of(loops: u8) -> Slots {
        Slots { loops, after: 1 }
    }

    /// Parses one setting, `name=value`. `None` if this policy has no setting of this name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Option<Result<(), &'static str>> {
        let (setting, most, why) = match name {
            "loops" => (&mut self.loops, MAX_LOOPS, "loops must be 1 to 5"),
            "after" => (&mut self.after, u8::MAX, "after must be 1 to 255 packets"),
            _ => return None,
        };
        let read = value.parse::<u8>().ok().filter(|number| (1..=most).contains(number));
        Some(read.map(|read| *setting = read).ok_or(why))
    }
}

/// Writes the settings that differ from the defaults, each after a comma: `,after=8,loops=2`.
impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Slots::default();
        if self.after != default.after {
            write!(f, ",after={}", self.after)?;
        }
        if self.loops != default.loops {
            write!(f, ",loops={}", self.loops)?;
        }
        Ok(())
    }
}

/// The counts of a flow that has no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its packets within its second, the last one counted; at most 255.
    pub packets: u8,
    /// When its second began.
    pub began_ns: u64,
}

/// A flow that may be admitted. 16 bytes.
#[derive(Debug, Default)]
#[repr(C)]
struct Entry {
    /// The flow as in a sparse slot, and the number of its packets from [`PACKETS_SHIFT`] on.
    word: AtomicU64,
    began: LastSeen,
}

impl Entry {
    /// Returns the flow, and its number of packets within the second up to `now_ns`.
    #[inline(always)]
    fn read(&self, now_ns: u64) -> (u64, u8) {
        // ORDER: Relaxed, here and below: one thread writes an entry. A reader for display may see it half written.
        let word = self.word.load(Ordering::Relaxed);
        let packets = if self.began.is_active(now_ns) { word >> PACKETS_SHIFT } else { 0 };
        (flow_in(word), packets as u8)
    }

    #[inline(always)]
    fn write(&self, flow: u64, packets: u8) {
        self.word.store(u64::from(packets) << PACKETS_SHIFT | flow, Ordering::Relaxed);
    }
}

const _: () = assert!(size_of::<Entry>() == 16);

/// The flows that may be admitted, in rows of [`SETS`] sets for each producer.
#[derive(Debug)]
pub(crate) struct Candidates {
    sets: Box<[[Entry; 2]]>,
}

/// Candidates are equal only to themselves.
impl PartialEq for Candidates {
    fn eq(&self, other: &Candidates) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for Candidates {}

impl Candidates {
    /// The memory of one producer, in bytes.
    pub(crate) const MEMORY: u64 = (SETS * size_of::<[Entry; 2]>()) as u64;

    pub(crate) fn new(producers: u16) -> Candidates {
        let sets = SETS * usize::from(producers.max(1));
        Candidates { sets: (0..sets).map(|_| Default::default()).collect() }
    }

    #[inline(always)]
    fn set(&self, request: &SlotRequest) -> &[Entry; 2] {
        let set = set_of(flow_of(request)) as usize;
        let own = usize::from(request.producer) * SETS + set;
        self.sets.get(own).unwrap_or(&self.sets[set])
    }

    /// Counts a packet of a flow without a slot. Returns its number among the flow's packets within a second: from 1
    /// on, at most 255.
    #[inline(always)]
    pub(crate) fn count(&self, request: &SlotRequest) -> u8 {
        let (flow, now_ns) = (flow_of(request), request.now_ns);
        let [first, second] = self.set(request);
        let ((flow_1, packets_1), (flow_2, packets_2)) = (first.read(now_ns), second.read(now_ns));
        let (entry, packets) = if flow_1 == flow {
            (first, packets_1)
        } else if flow_2 == flow {
            (second, packets_2)
        } else if (packets_2, second.began.raw()) < (packets_1, first.began.raw()) {
            (second, 0)
        } else {
            (first, 0)
        };
        if packets == 0 {
            entry.began.touch(now_ns);
        }
        let packets = packets.saturating_add(1);
        entry.write(flow, packets);
        packets
    }

    /// Removes a packet from the count. The packet must wait, and will be decided on again.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_back(&self, request: &SlotRequest) {
        let flow = flow_of(request);
        for entry in self.set(request) {
            let (of, packets) = entry.read(request.now_ns);
            if of == flow {
                entry.write(flow, packets.saturating_sub(1));
            }
        }
    }

    /// Returns the counts of the flow at the packet's time, without changing them.
    pub(crate) fn peek(&self, request: &SlotRequest) -> Option<Candidate> {
        let entries = self.set(request).iter();
        let mut known = entries.map(|entry| (entry.read(request.now_ns), entry.began.raw()));
        let ((_, packets), began) = known.find(|((flow, _), _)| *flow == flow_of(request))?;
        Some(Candidate { packets, began_ns: began.checked_sub(1)? }).filter(|of| of.packets != 0)
    }

    /// Sets the counts of the flow to those in another table.
    pub(crate) fn restore(&self, request: &SlotRequest, known: Candidate) {
        let [entry, _] = self.set(request);
        entry.began.touch(known.began_ns);
        entry.write(flow_of(request), known.packets);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::flow::FlowHash;
    use crate::last_seen::INACTIVE_AFTER_NS;
    use alloc::vec::Vec;

    const SECOND: u64 = INACTIVE_AFTER_NS;

    fn slot_request(hash: u32, now_ns: u64) -> SlotRequest {
        SlotRequest { device: 0, hash: FlowHash::from_raw(hash), now_ns, producer: 0 }
    }

    /// Flows of one set.
    fn together(count: usize) -> Vec<u32> {
        let set = |hash| set_of(flow_of(&slot_request(hash, 0)));
        (1..).filter(|hash| set(*hash) == set(1)).take(count).collect()
    }

    #[test]
    fn packets_are_counted_within_a_second_from_the_first() {
        let known = Candidates::new(1);
        let times = [5, 6, SECOND, SECOND + 5, SECOND + 6, SECOND + 7, 3 * SECOND];
        let counted = times.map(|now| known.count(&slot_request(9, now)));
        assert_eq!(counted, [1, 2, 3, 4, 1, 2, 1], "a second old is active, more is not");
        assert_eq!(known.count(&slot_request(9, SECOND)), 1, "time that runs back begins again");
        for packet in 2..=600u32 {
            assert_eq!(u32::from(known.count(&slot_request(9, SECOND))), packet.min(255));
        }
        assert_eq!(
            known.count(&SlotRequest { device: 1, ..slot_request(9, SECOND) }),
            1,
            "another device"
        );
    }

    #[test]
    fn collisions_never_add_packets_and_spare_the_flow_with_more() {
        let known = Candidates::new(1);
        let flows = together(200);
        assert_eq!([1, 2].map(|_| known.count(&slot_request(flows[0], 0))), [1, 2]);
        for flow in &flows[1..] {
            assert_eq!(known.count(&slot_request(*flow, 0)), 1, "all are single packets");
        }
        assert_eq!(known.count(&slot_request(flows[0], 0)), 3, "single packets do not replace it");
        for (packet, flow) in (0..).zip(&flows[1..]) {
            assert_eq!(known.count(&slot_request(*flow, SECOND + 1 + packet)), 1);
        }
        assert_eq!(
            known.count(&slot_request(flows[0], SECOND + 300)),
            1,
            "after its second they do"
        );
    }

    #[test]
    fn of_equal_flows_the_older_gives_way() {
        let known = Candidates::new(1);
        let [a, b, c] = together(3).try_into().unwrap();
        for (flow, now) in [(a, 1), (b, 2), (c, 3)] {
            assert_eq!(known.count(&slot_request(flow, now)), 1);
        }
        assert_eq!(known.count(&slot_request(b, 4)), 2);
        assert_eq!(known.count(&slot_request(a, 5)), 1, "the third flow replaced it");
    }

    #[test]
    fn packet_that_waits_is_counted_once() {
        let known = Candidates::new(2);
        for _ in 0..100 {
            assert_eq!(known.count(&slot_request(7, 1)), 1);
            known.take_back(&slot_request(7, 1));
        }
        assert_eq!(known.peek(&slot_request(7, 1)), None);
        known.count(&slot_request(7, 1));
        assert_eq!(
            known.count(&SlotRequest { producer: 1, ..slot_request(7, 1) }),
            1,
            "a row of its own"
        );
        let state = Candidate { packets: 1, began_ns: 1 };
        assert_eq!(known.peek(&slot_request(7, 9)), Some(state));
        let other = Candidates::new(1);
        other.restore(&slot_request(7, 9), state);
        assert_eq!(other.peek(&slot_request(7, 9)), Some(state));
        assert_eq!(other.count(&slot_request(7, 9)), 2);
    }
}
