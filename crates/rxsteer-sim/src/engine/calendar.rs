//! The calendar: what is to happen when. Events of one time happen in the order they were noted in,
//! so that a run never depends on how the heap breaks ties.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    heap: BinaryHeap<Reverse<(u64, u64, What)>>,
    noted: u64,
}

impl Calendar {
    /// Notes that `what` is to happen at `at_ns`.
    pub(crate) fn note(&mut self, at_ns: u64, what: What) {
        self.noted += 1;
        self.heap.push(Reverse((at_ns, self.noted, what)));
    }

    /// Takes the next event.
    pub(crate) fn next(&mut self) -> Option<(u64, What)> {
        self.heap.pop().map(|Reverse((at_ns, _, what))| (at_ns, what))
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
