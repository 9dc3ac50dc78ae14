//! The calendar: what is to happen when. Events of one time happen in the order they were noted in,
//! so that a run never depends on how the heap breaks ties.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// An RX queue interrupts.
    Interrupt { queue: u32 },
    /// A CPU has done what it had in hand, or is woken. Void unless it still has this turn.
    Step { cpu: u16, turn: u32 },
    /// A traffic that goes by the clock sends on.
    Emit { traffic: u16 },
    /// A client sends its request (again).
    Ask { connection: u32 },
    /// A stream begins.
    Begin { connection: u32 },
    /// All that a stream has in flight counts as lost, if nothing came since.
    Timeout { connection: u32 },
    /// An event of the scenario.
    Event { index: u32 },
    /// Waiting threads are shared out again.
    Balance,
}

/// Events in the order of time.
#[derive(Debug, Default)]
pub(crate) struct Calendar {
    heap: BinaryHeap<Entry>,
    noted: u64,
}

/// An event with its time and, below that, its number: no two have the same.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: u128,
    what: What,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.key == other.key
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The soonest is the greatest: the heap's top.
    #[inline]
    fn cmp(&self, other: &Entry) -> Ordering {
        other.key.cmp(&self.key)
    }
}

impl Calendar {
    /// Notes that `what` is to happen at `at_ns`.
    pub(crate) fn note(&mut self, at_ns: u64, what: What) {
        self.noted += 1;
        let key = u128::from(at_ns) << 64 | u128::from(self.noted);
        self.heap.push(Entry { key, what });
    }

    /// Takes the next event.
    pub(crate) fn next(&mut self) -> Option<(u64, What)> {
        self.heap.pop().map(|entry| ((entry.key >> 64) as u64, entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_noted() {
        let mut calendar = Calendar::default();
        calendar.note(5, What::Balance);
        calendar.note(3, What::Event { index: 2 });
        calendar.note(3, What::Event { index: 1 });
        let order: Vec<_> = std::iter::from_fn(|| calendar.next()).collect();
        let event = |index| (3, What::Event { index });
        assert_eq!(order, [event(2), event(1), (5, What::Balance)]);
    }
}
