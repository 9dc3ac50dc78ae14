//! Joins the two directions of a connection, whose records arrive one after the other.

use super::fields::{Half, Records};
use rxsteer_core::FlowKey;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a direction waits for the other one. The same or consecutive sweeps over all flows find flows that end
/// together, and there is one sweep per second.
const WAIT: Duration = Duration::from_secs(2);

/// The most records that wait, about 20 MB. At the end of a capture, the records of all flows arrive at once.
const MAX: usize = 1 << 16;

/// Directions that wait for the other one.
#[derive(Default)]
pub(super) struct Pairs {
    waiting: HashMap<FlowKey, Waiting>,
    /// Every record of the last [`WAIT`], in order of arrival. Some are no longer waiting.
    order: VecDeque<(Instant, FlowKey, u64)>,
    /// The records so far.
    count: u64,
}

struct Waiting {
    number: u64,
    half: Half,
}

impl Pairs {
    /// Accepts a record of a flow with this key, to which no anonymization was applied. Returns what to send now.
    pub(super) fn take(&mut self, key: FlowKey, half: Half) -> Option<Records> {
        let reversed = key.reversed();
        // A host that communicates with itself on one port, or without ports, has only one direction.
        if reversed == key {
            return Some(Records::One(half));
        }
        if let Some(other) = self.waiting.remove(&reversed) {
            return Some(Records::both(other.half, half));
        }
        self.count += 1;
        let number = self.count;
        self.order.push_back((Instant::now(), key, number));
        let before = self.waiting.insert(key, Waiting { number, half })?;
        Some(Records::One(before.half))
    }

    /// The next record that has waited long enough, or must make room for others.
    pub(super) fn take_old(&mut self) -> Option<Half> {
        self.take_while(|started, length| length >= MAX || started.elapsed() >= WAIT)
    }

    /// The next record.
    pub(super) fn take_any(&mut self) -> Option<Half> {
        self.take_while(|_, _| true)
    }

    fn take_while(&mut self, is_over: impl Fn(Instant, usize) -> bool) -> Option<Half> {
        loop {
            let &(started, key, number) = self.order.front()?;
            if !is_over(started, self.order.len()) {
                return None;
            }
            self.order.pop_front();
            if let Entry::Occupied(entry) = self.waiting.entry(key)
                && entry.get().number == number
            {
                return Some(entry.remove().half);
            }
        }
    }
}
