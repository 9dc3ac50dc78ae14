//! Both ends of a stream: Reno's window over packet numbers that are never reused.
//!
//! As in QUIC, lost data is sent again under a new number, so there is no sequence to repair. The receiver only
//! reports how many packets it has and how many are missing. A packet is missing once three later ones have
//! arrived (RFC 5681 section 3.2, RFC 9002 section 6.1.1). Growth and halving are those of RFC 5681 section 3.1
//! with byte counting.

/// The number of later packets after which a packet is missing.
const REORDERING: u32 = 3;
/// The number of packets of the first window (RFC 6928).
const FIRST_WINDOW: f64 = 10.0;
/// The number of recent packet numbers whose arrival the receiver records individually.
const REMEMBERED: u32 = 64;

/// A stream's state.
#[derive(Clone, Debug)]
pub(crate) struct StreamState {
    pub(crate) traffic: u16,
    /// The flow of data, and that of acknowledgements if they pass this machine.
    pub(crate) data_flow: u32,
    pub(crate) ack_flow: u32,
    /// The last number that was sent.
    sent: u32,
    window: f64,
    threshold: f64,
    /// Losses among the numbers up to this one have already reduced the window.
    recovery: u32,
    acked: u32,
    missed: u32,
    /// Packets and acknowledgements of the stream that are on their way.
    pub(crate) alive: u32,
    pub(crate) receiver: Receiver,
}

/// The receiving end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    /// The highest number that arrived.
    largest: u32,
    /// Which of the numbers up to the highest arrived; the lowest bit is that of the highest number.
    came: u64,
    pub(crate) received: u32,
    pub(crate) missing: u32,
    /// Packets since the last acknowledgement.
    pub(crate) unacked: u32,
}

impl Receiver {
    /// Receives packet `number`. Returns whether a packet is now missing.
    pub(crate) fn receive(&mut self, number: u32) -> bool {
        self.received += 1;
        self.unacked += 1;
        if number <= self.largest {
            // The packet arrived late. If it counted as missing, it no longer does.
            let back = self.largest - number;
            if back < REMEMBERED {
                self.came |= 1 << back;
            }
            if back >= REORDERING {
                self.missing = self.missing.wrapping_sub(1);
            }
            return false;
        }
        let steps = number - self.largest;
        let before = self.missing;
        // This decides on as many numbers as the packet is ahead. They are the oldest of the last REORDERING
        // numbers that were not decided, and all numbers in between with three later ones, which did not arrive.
        let fresh = steps.min(REORDERING);
        let mask = ((1u64 << fresh) - 1) << (REORDERING - fresh);
        self.missing = self.missing.wrapping_add(steps - (self.came & mask).count_ones());
        self.came = if steps < REMEMBERED { self.came << steps | 1 } else { 1 };
        self.largest = number;
        self.missing != before
    }
}

impl StreamState {
    pub(crate) fn new(traffic: u16, data_flow: u32, ack_flow: u32) -> StreamState {
        StreamState {
            traffic,
            data_flow,
            ack_flow,
            sent: 0,
            window: FIRST_WINDOW,
            threshold: f64::MAX,
            recovery: 0,
            acked: 0,
            missed: 0,
            alive: 0,
            receiver: Receiver { largest: 0, came: u64::MAX, received: 0, missing: 0, unacked: 0 },
        }
    }

    /// The number of packets that have neither arrived nor count as missing.
    fn in_flight(&self) -> u32 {
        self.sent.wrapping_sub(self.acked.wrapping_add(self.missed))
    }

    /// The next number to send, if the window allows one; the window is at most `most`.
    pub(crate) fn next(&mut self, most: u32) -> Option<u32> {
        if f64::from(self.in_flight()) + 1.0 > self.window.min(f64::from(most)) {
            return None;
        }
        self.sent += 1;
        self.alive += 1;
        Some(self.sent)
    }

    /// Processes an acknowledgement, which reports how many packets the receiver has received and how many are
    /// missing.
    pub(crate) fn acknowledged(&mut self, received: u32, missing: u32, most: u32) {
        let Some(newly) = received.checked_sub(self.acked).filter(|newly| *newly > 0) else {
            return;
        };
        let is_missing_more = missing > self.missed;
        self.acked = received;
        self.missed = missing;
        let past_recovery = received.wrapping_add(missing) > self.recovery;
        if is_missing_more && past_recovery {
            self.halve();
        } else if past_recovery {
            let newly = f64::from(newly);
            let more = if self.window < self.threshold { newly } else { newly / self.window };
            self.window = (self.window + more).min(f64::from(most));
        }
    }

    fn halve(&mut self) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = self.threshold;
        self.recovery = self.sent;
    }

    /// Counts all packets in flight as lost after a long time without an arrival. The receiver's state is updated
    /// here; otherwise it would be updated by the next packets. No packet of the stream may be on its way.
    pub(crate) fn time_out(&mut self) {
        debug_assert_eq!(self.alive, 0, "nothing is under way");
        self.halve();
        self.window = 1.0;
        let receiver = &mut self.receiver;
        receiver.missing = self.sent - receiver.received;
        receiver.came = u64::MAX;
        receiver.largest = self.sent;
        receiver.unacked = 0;
        self.acked = receiver.received;
        self.missed = receiver.missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packet_is_missed_after_three_later_ones() {
        let mut receiver = StreamState::new(0, 0, 0).receiver;
        assert!(!receiver.receive(1));
        assert!(!receiver.receive(3));
        assert!(!receiver.receive(4));
        assert!(receiver.receive(5));
        assert_eq!((receiver.received, receiver.missing), (4, 1));
        // The packet was only late.
        assert!(!receiver.receive(2));
        assert_eq!((receiver.received, receiver.missing), (5, 0));
    }

    #[test]
    fn loss_halves_the_window_once_and_a_timeout_begins_anew() {
        let mut stream = StreamState::new(0, 0, 0);
        while stream.next(100).is_some() {}
        assert_eq!(stream.sent, 10);
        stream.acknowledged(8, 0, 100);
        while stream.next(100).is_some() {}
        assert_eq!(stream.sent, 26);
        stream.acknowledged(9, 1, 100);
        let window = stream.window;
        assert!((window - 9.0).abs() < 1e-9);
        stream.acknowledged(12, 3, 100);
        assert!((stream.window - window).abs() < 1e-9, "one reaction for one window");
        stream.alive = 0;
        stream.receiver.received = 12;
        stream.time_out();
        assert_eq!(stream.in_flight(), 0);
        assert_eq!(stream.next(100), Some(27));
        assert_eq!(stream.next(100), None);
    }

    proptest! {
        /// Whatever is lost, each number counts once as received or missing, except for the last two.
        #[test]
        fn each_number_is_counted_once(runs in proptest::collection::vec((any::<bool>(), 1usize..100), 1..20)) {
            let mut receiver = StreamState::new(0, 0, 0).receiver;
            let lost = runs.into_iter().flat_map(|(lost, run)| std::iter::repeat_n(lost, run));
            for (number, lost) in (1u32..).zip(lost) {
                if !lost {
                    receiver.receive(number);
                    let known = receiver.received + receiver.missing;
                    prop_assert!(known <= number && number - known < REORDERING);
                }
            }
        }
    }
}
