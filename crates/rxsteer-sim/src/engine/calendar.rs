//! The calendar of future events. Events with the same time occur in the order in which they were noted, so a run
//! depends only on its seed.
//!
//! ```text
//!   slots   one per CPU: its next step │ one per RX queue: its next interrupt │ the soonest of `rest`
//!   above   the soonest of each eight slots; above that the soonest of each eight of those; …
//! ```
//!
//! Nearly all events are steps and interrupts, and each CPU and queue has at most one of them. Noting such an
//! event is a store into its slot. Finding the next event takes the least of eight keys once per level. All other
//! events are in a heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An RX queue interrupts.
    Interrupt { queue: u32 },
    /// A CPU has finished its present work, or is woken.
    Step { cpu: u16 },
    /// Any other event.
    Other(Other),
}

/// An event other than a step or an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// A traffic with a schedule of its own sends its next packets.
    Emit { traffic: u16 },
    /// A client sends its request (again).
    Request { connection: u32 },
    /// A stream begins.
    Begin { connection: u32 },
    /// All packets of a stream in flight count as lost, if none has arrived since.
    Timeout { connection: u32 },
    /// An event of the scenario.
    Event { index: u32 },
    /// A pause of this kind begins on the CPU.
    Pause { cpu: u16, kind: u16 },
    /// The scheduler balances waiting threads.
    Balance,
    /// An interval of the policy's buckets ends.
    MoveBuckets,
}

/// The number of keys that are compared at a time.
const EIGHT: usize = 8;

/// The key of an empty slot.
const NEVER: u128 = u128::MAX;

/// The bits of a key below its time: the number of the note, and below that [`SLOT_BITS`] bits of the slot.
const TIME_SHIFT: u32 = 64;
const SLOT_BITS: u32 = 16;

/// The future events in the order of time.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// The keys of the slots, then the least key of each eight, and so on, for levels with more than eight keys.
    below: Vec<Vec<[u128; EIGHT]>>,
    /// The last eight keys; the slots themselves if there are at most eight.
    top: [u128; EIGHT],
    /// The number of CPU slots. Slots of queues follow, then the slot of `rest`.
    cpus: usize,
    rest_slot: usize,
    rest: BinaryHeap<Reverse<Entry>>,
    noted: u64,
}

/// An event with its key; all keys differ.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u128,
    what: Other,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    #[inline]
    fn cmp(&self, other: &Entry) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl Calendar {
    /// A calendar for `cpus` CPUs and `queues` RX queues.
    ///
    /// # Panics
    /// When there are more than 65,535 of them together.
    pub(crate) fn new(cpus: usize, queues: usize) -> Calendar {
        let slots = cpus + queues + 1;
        assert!(slots <= 1 << SLOT_BITS, "a slot's number has {SLOT_BITS} bits");
        let mut below = Vec::new();
        let mut keys = slots;
        while keys > EIGHT {
            keys = keys.div_ceil(EIGHT);
            below.push(vec![[NEVER; EIGHT]; keys]);
        }
        Calendar {
            below,
            top: [NEVER; EIGHT],
            cpus,
            rest_slot: cpus + queues,
            rest: BinaryHeap::new(),
            noted: 0,
        }
    }

    /// Notes the next step of `cpu`, and replaces the step noted before.
    #[inline]
    pub(crate) fn note_step(&mut self, cpu: u16, at_ns: u64) {
        self.note_in(usize::from(cpu), at_ns);
    }

    /// Cancels the next step of `cpu`.
    #[inline]
    pub(crate) fn cancel_step(&mut self, cpu: u16) {
        self.put(usize::from(cpu), NEVER);
    }

    /// Notes the next interrupt of `queue`, and replaces the one noted before.
    #[inline]
    pub(crate) fn note_interrupt(&mut self, queue: u32, at_ns: u64) {
        self.note_in(self.cpus + queue as usize, at_ns);
    }

    /// Notes an event at `at_ns`.
    pub(crate) fn note(&mut self, at_ns: u64, what: Other) {
        let key = self.next_key(self.rest_slot, at_ns);
        self.rest.push(Reverse(Entry { key, what }));
        self.show_rest();
    }

    /// Takes the next event. A step stays noted until the next step of its CPU is noted or cancelled. Every step
    /// does one of these.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(u64, Kind)> {
        let key = least(&self.top);
        if key == NEVER {
            return None;
        }
        let (at_ns, slot) = ((key >> TIME_SHIFT) as u64, usize::from(key as u16));
        if slot < self.cpus {
            Some((at_ns, Kind::Step { cpu: slot as u16 }))
        } else if slot < self.rest_slot {
            self.put(slot, NEVER);
            Some((at_ns, Kind::Interrupt { queue: (slot - self.cpus) as u32 }))
        } else {
            let Reverse(entry) = self.rest.pop()?;
            self.show_rest();
            Some((at_ns, Kind::Other(entry.what)))
        }
    }

    #[inline]
    fn next_key(&mut self, slot: usize, at_ns: u64) -> u128 {
        self.noted += 1;
        u128::from(at_ns) << TIME_SHIFT | u128::from(self.noted << SLOT_BITS | slot as u64)
    }

    #[inline]
    fn note_in(&mut self, slot: usize, at_ns: u64) {
        let key = self.next_key(slot, at_ns);
        self.put(slot, key);
    }

    /// Copies the key of the heap's soonest event into its slot.
    fn show_rest(&mut self) {
        let key = self.rest.peek().map_or(NEVER, |Reverse(entry)| entry.key);
        self.put(self.rest_slot, key);
    }

    /// Writes `key` into the slot, and the resulting keys into the levels above.
    #[inline]
    fn put(&mut self, slot: usize, key: u128) {
        let (mut index, mut key) = (slot, key);
        for level in &mut self.below {
            let group = &mut level[index / EIGHT];
            group[index % EIGHT] = key;
            key = least(group);
            index /= EIGHT;
        }
        self.top[index % EIGHT] = key;
    }
}

/// The least of eight keys, without a branch: a branch on it could not be predicted.
#[inline]
fn least(keys: &[u128; EIGHT]) -> u128 {
    let pairs: [u128; EIGHT / 2] = std::array::from_fn(|at| keys[at].min(keys[at + EIGHT / 2]));
    pairs[0].min(pairs[2]).min(pairs[1].min(pairs[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(mut calendar: Calendar) -> Vec<(u64, Kind)> {
        std::iter::from_fn(|| {
            let next = calendar.next();
            if let Some((_, Kind::Step { cpu })) = next {
                calendar.cancel_step(cpu);
            }
            next
        })
        .collect()
    }

    #[test]
    fn events_come_by_time_and_then_as_noted() {
        let mut calendar = Calendar::new(2, 1);
        calendar.note(5, Other::Balance);
        calendar.note(3, Other::Event { index: 2 });
        calendar.note_step(1, 3);
        calendar.note_interrupt(0, 3);
        calendar.note_step(0, 3);
        calendar.note(3, Other::Event { index: 1 });
        let event = |index| (3, Kind::Other(Other::Event { index }));
        let step = |cpu| (3, Kind::Step { cpu });
        let interrupt = (3, Kind::Interrupt { queue: 0 });
        let last = (5, Kind::Other(Other::Balance));
        assert_eq!(all(calendar), [event(2), step(1), interrupt, step(0), event(1), last]);
    }

    #[test]
    fn step_that_is_noted_anew_or_cancelled_does_not_come() {
        for cpus in [6, 100] {
            let mut calendar = Calendar::new(cpus, 0);
            calendar.note_step(5, 7);
            calendar.note_step(5, 4);
            calendar.note_step(3, 5);
            calendar.cancel_step(3);
            assert_eq!(all(calendar), [(4, Kind::Step { cpu: 5 })]);
        }
    }

    proptest! {
        /// Whatever the number of levels and the events taken in between, the result is a stable sort of all
        /// notes.
        #[test]
        fn it_is_a_stable_sort(
            cpus in 1usize..600,
            notes in proptest::collection::vec((0u64..50, 0usize..1300), 0..200),
        ) {
            let mut calendar = Calendar::new(cpus, 3);
            let mut expected: Vec<(u64, Kind)> = Vec::new();
            for (index, (at_ns, which)) in (0..).zip(notes) {
                if which >= 1200 {
                    let cpu = (which % cpus) as u16;
                    calendar.cancel_step(cpu);
                    expected.retain(|(_, noted)| *noted != Kind::Step { cpu });
                    continue;
                }
                if which >= 1000 {
                    expected.sort_by_key(|(at_ns, _)| *at_ns);
                    let next = calendar.next();
                    prop_assert_eq!(next, expected.first().copied());
                    // A step stays noted until the next one replaces it.
                    if let Some((_, Kind::Step { cpu })) = next {
                        calendar.note_step(cpu, at_ns);
                        expected.push((at_ns, Kind::Step { cpu }));
                    }
                    if next.is_some() {
                        expected.remove(0);
                    }
                    continue;
                }
                let what = if which < 500 {
                    let cpu = (which % cpus) as u16;
                    calendar.note_step(cpu, at_ns);
                    Kind::Step { cpu }
                } else if which < 700 {
                    let queue = which as u32 % 3;
                    calendar.note_interrupt(queue, at_ns);
                    Kind::Interrupt { queue }
                } else {
                    let other = Other::Event { index };
                    calendar.note(at_ns, other);
                    Kind::Other(other)
                };
                expected.retain(|(_, noted)| *noted != what);
                expected.push((at_ns, what));
            }
            expected.sort_by_key(|(at_ns, _)| *at_ns);
            prop_assert_eq!(all(calendar), expected);
        }
    }
}
