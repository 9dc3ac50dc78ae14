//! One clock from the times of packets.
//!
//! Policies that use times need one clock for all packets, like the kernel's jiffies. A packet has the time when
//! it was received. Lists of several queues arrive one after the other, so these times often step back a little.
//! RX threads are also at different points in time.
//!
//! ```text
//!   packets' times   10 11 12 │ 10 11 12 │ 13 …       used   10 11 12 │ 12 12 12 │ 13 …
//! ```

/// If a packet goes back in time by more than this, the clock was set back. Times further ahead than this belong
/// to another clock.
const SET_BACK_NS: u64 = 1_000_000_000;

/// The clock of one RX thread. It does not run back, unless its packets go back by more than a second. It follows
/// the clocks of other threads that are less than a second ahead.
#[derive(Clone, Debug, Default)]
pub struct PacketClock {
    now_ns: u64,
}

impl PacketClock {
    /// The time of a packet that was received at `time_ns`, when the clock of all threads is at `shared_ns`. All
    /// times are in nanoseconds.
    #[inline]
    pub fn advance(&mut self, time_ns: u64, shared_ns: u64) -> u64 {
        let was_set = time_ns.saturating_add(SET_BACK_NS) < self.now_ns;
        self.now_ns = if was_set { time_ns } else { self.now_ns.max(time_ns) };
        if is_near(self.now_ns, shared_ns) { self.now_ns.max(shared_ns) } else { self.now_ns }
    }

    /// Whether packets from `first_ns` to `last_ns`, in order, all come before this thread's time and do not
    /// change it.
    #[inline]
    pub(crate) fn stands_still(&self, first_ns: u64, last_ns: u64) -> bool {
        last_ns <= self.now_ns && first_ns.saturating_add(SET_BACK_NS) >= self.now_ns
    }

    /// This thread's time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// The new time of the clock of all threads, after this thread saw it at `shared_ns`.
    #[must_use]
    pub fn shared_after(&self, shared_ns: u64) -> u64 {
        if is_near(self.now_ns, shared_ns) { self.now_ns.max(shared_ns) } else { self.now_ns }
    }
}

fn is_near(this: u64, other: u64) -> bool {
    this.abs_diff(other) <= SET_BACK_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn lists_that_step_back_a_little_do_not() {
        let mut clock = PacketClock::default();
        let time_ns: Vec<u64> =
            [10, 11, 12, 10, 11, 13].iter().map(|time| clock.advance(*time, 0)).collect();
        assert_eq!(time_ns, [10, 11, 12, 12, 12, 13]);
    }

    #[test]
    fn it_stands_still_exactly_where_no_packet_moves_it() {
        let mut clock = PacketClock::default();
        clock.advance(5 * SECOND, 0);
        for (first, last) in [(4, 5), (5, 5), (3, 5), (5, 6), (3, 4)] {
            let mut asked = clock.clone();
            let time_ns = [first, last].map(|time| asked.advance(time * SECOND, 0));
            let still = clock.stands_still(first * SECOND, last * SECOND);
            assert_eq!(still, time_ns == [5 * SECOND; 2], "{first} to {last}");
        }
    }

    #[test]
    fn clock_that_was_set_back_is_believed() {
        let mut clock = PacketClock::default();
        clock.advance(5 * SECOND, 0);
        assert_eq!(clock.advance(3 * SECOND, 5 * SECOND), 3 * SECOND);
        assert_eq!(clock.shared_after(5 * SECOND), 3 * SECOND, "and others are published");
    }

    #[test]
    fn other_threads_are_followed_only_while_they_are_near() {
        let mut clock = PacketClock::default();
        assert_eq!(clock.advance(5 * SECOND, 5 * SECOND + 7), 5 * SECOND + 7);
        assert_eq!(clock.shared_after(5 * SECOND + 7), 5 * SECOND + 7);
        assert_eq!(clock.advance(5 * SECOND + 1, 90 * SECOND), 5 * SECOND + 1, "another day");
        assert_eq!(clock.advance(5 * SECOND + 2, SECOND), 5 * SECOND + 2);
    }
}
