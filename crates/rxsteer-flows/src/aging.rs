//! Chooses the flow that makes room for a new one.
//!
//! ```text
//!  created ─► young: oldest first ──4 packets?──► established: by turns
//!                │ no: it goes                       │ nothing since its last turn: it goes
//! ```
//!
//! A flood creates new flows of few packets. So new flows are in a queue apart from flows with more packets
//! ([`ESTABLISHED`]), and the oldest young flow is evicted first. Established flows are considered only when there
//! are almost no young ones. Then a flow that had packets since it was last considered stays (a second chance, as
//! in CLOCK). The idea is that of S3-FIFO (Yang, Zhang, Qiu, Yue, Vigfusson, "FIFO queues are all you need for
//! cache eviction", SOSP '23, section 4): there are two queues, and packets do not move flows in them, so the
//! counts of a flow are read only when its turn comes.
//!
//! Both queues are linked lists through one array, so a flow that ends in any other way leaves its queue at once.
//! The array is allocated as zeroes, and its memory is used as flows arrive.

use std::collections::TryReserveError;

/// The number of packets that makes a flow established: more than the handshake of a connection that was never
/// completed.
pub(crate) const ESTABLISHED: u64 = 4;

/// One of this many flows is reserved for young flows, however many flows are established.
const YOUNG_SHARE: u32 = 64;

/// The number of established flows that get a second chance for one new flow.
const CHANCES: u32 = 32;

/// The largest number of flows examined for one eviction.
const MAX_PROBES: u32 = 256;

/// The place of a flow: its neighbours plus 1, where 0 is none, and its queue.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    before: u32,
    after: u32,
    queue: u32,
}

const NOWHERE: u32 = 0;
const YOUNG: u32 = 1;
const OLD: u32 = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// The first and the last slot, plus 1.
    first: u32,
    last: u32,
    len: u32,
}

/// The activity of a flow so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Activity {
    /// The number of packets; clears do not reset it.
    pub(crate) packets: u64,
    /// The time of the latest packet.
    pub(crate) last_ns: u64,
}

impl Activity {
    /// A number that changes with the next packet, even if that packet has the same time.
    fn token(self) -> u64 {
        self.packets ^ self.last_ns.rotate_left(32)
    }
}

/// The order in which flows are evicted.
#[derive(Debug)]
pub(crate) struct Aging {
    /// For each slot, `before, after, queue` as words, since the system supplies an array of numbers zeroed.
    places: Vec<[u32; 3]>,
    /// For each slot, the activity token of an established flow at its last turn.
    seen: Vec<u64>,
    queues: [Queue; 2],
    max_flows: u32,
}

impl Aging {
    /// The order for `slots` slots that hold up to `max_flows` flows.
    pub(crate) fn new(slots: u32, max_flows: u32) -> Result<Aging, TryReserveError> {
        let slots = slots as usize;
        Vec::<[u32; 3]>::new().try_reserve_exact(slots)?;
        Vec::<u64>::new().try_reserve_exact(slots)?;
        Ok(Aging {
            places: vec![[0; 3]; slots],
            seen: vec![0; slots],
            queues: [Queue::default(); 2],
            max_flows,
        })
    }

    fn place(&self, slot: u32) -> Place {
        let [before, after, queue] = self.places[slot as usize];
        Place { before, after, queue }
    }

    fn set(&mut self, slot: u32, place: Place) {
        self.places[slot as usize] = [place.before, place.after, place.queue];
    }

    /// Adds a new flow.
    pub(crate) fn add(&mut self, slot: u32) {
        self.append(slot, YOUNG);
    }

    fn append(&mut self, slot: u32, queue: u32) {
        let line = &mut self.queues[queue as usize - 1];
        let before = line.last;
        line.last = slot + 1;
        line.len += 1;
        if before == 0 {
            line.first = slot + 1;
        } else {
            self.places[before as usize - 1][1] = slot + 1;
        }
        self.set(slot, Place { before, after: 0, queue });
    }

    /// Removes a flow that ended; the flow may be in no queue.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Place { before, after, queue } = self.place(slot);
        if queue == NOWHERE {
            return;
        }
        let line = &mut self.queues[queue as usize - 1];
        line.len -= 1;
        match before {
            0 => line.first = after,
            _ => self.places[before as usize - 1][1] = after,
        }
        match after {
            0 => line.last = before,
            _ => self.places[after as usize - 1][0] = before,
        }
        self.set(slot, Place::default());
    }

    fn first(&self, queue: u32) -> Option<u32> {
        self.queues[queue as usize - 1].first.checked_sub(1)
    }

    fn move_to_end(&mut self, slot: u32, queue: u32) {
        self.remove(slot);
        self.append(slot, queue);
    }

    /// The flow to evict, if any; `activity` returns the activity of a flow. At most [`MAX_PROBES`] flows are examined.
    /// If all of them have just become established, the flow with the oldest last packet is the candidate.
    ///
    /// The candidate is not removed yet: it may already have ended, and another thread is about to record that.
    pub(crate) fn eviction_candidate(&mut self, activity: impl Fn(u32) -> Activity) -> Option<u32> {
        let mut chances = CHANCES;
        let mut idlest: Option<(u64, u32)> = None;
        for _ in 0..MAX_PROBES {
            let young = self.queues[YOUNG as usize - 1].len;
            let few = young <= self.max_flows / YOUNG_SHARE;
            if let Some(slot) = self.first(OLD).filter(|_| young == 0 || few && chances > 0) {
                let token = activity(slot).token();
                if token == self.seen[slot as usize] || chances == 0 {
                    return Some(slot);
                }
                chances -= 1;
                self.seen[slot as usize] = token;
                self.move_to_end(slot, OLD);
                continue;
            }
            let slot = self.first(YOUNG)?;
            let done = activity(slot);
            if done.packets < ESTABLISHED {
                return Some(slot);
            }
            self.seen[slot as usize] = done.token();
            self.move_to_end(slot, OLD);
            idlest =
                Some(idlest.map_or((done.last_ns, slot), |other| other.min((done.last_ns, slot))));
        }
        idlest.map(|(_, slot)| slot)
    }

    /// Defers a candidate that had already ended.
    pub(crate) fn defer(&mut self, slot: u32) {
        let queue = self.place(slot).queue;
        if queue != NOWHERE {
            self.move_to_end(slot, queue);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn aging(max_flows: u32) -> Aging {
        Aging::new(max_flows * 2, max_flows).unwrap()
    }

    fn packets(packets: u64) -> Activity {
        Activity { packets, last_ns: 0 }
    }

    /// The order in which flows are evicted when flow `slot` had `counts[slot]` packets.
    fn order(aging: &mut Aging, counts: &[u64], count: usize) -> Vec<u32> {
        let mut gone = Vec::new();
        for _ in 0..count {
            let next = aging.eviction_candidate(|slot| packets(counts[slot as usize]));
            gone.extend(next);
            next.into_iter().for_each(|slot| aging.remove(slot));
        }
        gone
    }

    #[test]
    fn young_go_first_and_the_oldest_of_them() {
        let mut aging = aging(6);
        (0..6).for_each(|slot| aging.add(slot));
        assert_eq!(order(&mut aging, &[9, 1, 9, 1, 3, 9], 3), [1, 3, 4]);
        // No young flow is left: the established flows take turns. They had no packets since.
        assert_eq!(order(&mut aging, &[9, 1, 9, 1, 3, 9], 9), [0, 2, 5]);
    }

    #[test]
    fn established_flow_with_new_packets_stays_longer() {
        let mut aging = aging(3);
        (0..3).for_each(|slot| aging.add(slot));
        // All flows are established by now; the first one moves to the end once and is then examined first.
        let mut counts = vec![[5, 5, 5].to_vec(), [6, 5, 6].to_vec()];
        let first = aging.eviction_candidate(|slot| packets(counts[0][slot as usize]));
        assert_eq!(first, Some(0), "nothing since it became one");
        let now = counts.remove(1);
        assert_eq!(order(&mut aging, &now, 1), [1], "0 and 2 had packets since");
    }

    #[test]
    fn flow_that_ended_otherwise_is_in_no_queue() {
        let mut aging = aging(4);
        (0..4).for_each(|slot| aging.add(slot));
        for slot in [0, 3, 1] {
            aging.remove(slot);
            aging.remove(slot);
        }
        aging.add(0);
        assert_eq!(order(&mut aging, &[0; 4], 4), [2, 0]);
    }

    /// Packets with the same time count as activity, too.
    #[test]
    fn one_more_packet_is_activity_whatever_its_time() {
        let mut aging = aging(2);
        (0..2).for_each(|slot| aging.add(slot));
        let mut probe =
            |counts: [u64; 2]| aging.eviction_candidate(|slot| packets(counts[slot as usize]));
        assert_eq!(probe([5, 5]), Some(0), "nothing since it became established");
        assert_eq!(probe([6, 5]), Some(1), "0 had its second chance");
    }

    #[test]
    fn search_for_a_candidate_is_bounded() {
        let count = 2 * MAX_PROBES;
        let mut aging = aging(count);
        (0..count).for_each(|slot| aging.add(slot));
        // All flows have just become established: the longest idle of those examined is evicted.
        let probes = std::cell::Cell::new(0);
        let gone = aging.eviction_candidate(|slot| {
            probes.set(probes.get() + 1);
            Activity { packets: 9, last_ns: u64::from((slot + 100) % 200) }
        });
        assert_eq!((gone, probes.get()), (Some(100), MAX_PROBES));
        // All flows are active: after some second chances one is evicted nevertheless.
        let gone = aging.eviction_candidate(|_| {
            probes.set(probes.get() + 1);
            packets(u64::from(9 + probes.get()))
        });
        assert!(gone.is_some() && probes.get() <= 2 * MAX_PROBES);
    }
}
