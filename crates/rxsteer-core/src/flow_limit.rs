//! Flow limit: when a backlog is half full, the flow that fills it is dropped first.
//!
//! Source: the kernel's `skb_flow_limit` (Linux 3.11). The limiter looks at the last 128 packets that met a
//! backlog at least half full, and counts the packets of each flow among them. A packet of a flow with more than
//! half of them is dropped, while others still get room. So one elephant flow, or an attack with one flow, can't
//! push all other flows out of the backlog.
//!
//! As in the kernel:
//! - flows are counted in buckets by hash (`hash_32`), so two flows can share a count;
//! - a dropped packet counts too, so a flow is accepted again only when its *share* falls;
//! - a full backlog refuses packets without touching the history.
//!
//! scaling-rst says 256 packets; the kernel's code and this code use 128. One thing differs from the kernel: the
//! kernel's history begins with 128 packets of bucket 0 that never existed, so a flow in that bucket is never
//! limited while it goes on.

use crate::flow::FlowHash;
use crate::slot::hash_32;
use alloc::boxed::Box;
use alloc::vec;

/// The number of packets in the history.
pub const FLOW_LIMIT_HISTORY: usize = 128;

/// The default number of buckets: the kernel's `net.core.flow_limit_table_len`.
pub const DEFAULT_FLOW_LIMIT_BUCKETS: u32 = 4096;

/// The largest number of buckets. The history distinguishes no more flows than [`FLOW_LIMIT_HISTORY`].
pub const MAX_FLOW_LIMIT_BUCKETS: u32 = 1 << 20;

/// An entry of the history without a packet.
const NO_FLOW: u32 = u32::MAX;

/// The history of one producer.
#[derive(Clone, Debug)]
pub struct FlowLimiter {
    /// How many packets of `history` belong to each bucket; at most 128, so a byte is enough.
    counts: Box<[u8]>,
    log: u32,
    /// The buckets of the last packets, oldest at `head`.
    history: [u32; FLOW_LIMIT_HISTORY],
    head: usize,
}

impl FlowLimiter {
    /// A limiter with `buckets` buckets, rounded up to a power of two.
    ///
    /// # Panics
    /// When `buckets` is 0 or above [`MAX_FLOW_LIMIT_BUCKETS`].
    #[must_use]
    pub fn new(buckets: u32) -> FlowLimiter {
        assert!((1..=MAX_FLOW_LIMIT_BUCKETS).contains(&buckets), "a flow limit has a limit");
        let buckets = buckets.next_power_of_two();
        FlowLimiter {
            counts: vec![0; buckets as usize].into(),
            log: buckets.trailing_zeros(),
            history: [NO_FLOW; FLOW_LIMIT_HISTORY],
            head: 0,
        }
    }

    /// Whether a packet must be dropped because its flow had more than half of the last 128 such packets. The
    /// packet meets a backlog that holds `waiting` of at most `limit` packets and has room.
    #[inline(always)]
    pub fn exceeds(&mut self, hash: FlowHash, waiting: u32, limit: u32) -> bool {
        waiting >= limit / 2 && self.count(hash)
    }

    fn count(&mut self, hash: FlowHash) -> bool {
        let new = hash_32(hash.get(), self.log);
        let old = core::mem::replace(&mut self.history[self.head], new);
        self.head = (self.head + 1) % FLOW_LIMIT_HISTORY;
        if old != NO_FLOW {
            self.counts[old as usize] -= 1;
        }
        let count = &mut self.counts[new as usize];
        *count += 1;
        usize::from(*count) > FLOW_LIMIT_HISTORY / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backlog_less_than_half_full_counts_nothing() {
        let mut limiter = FlowLimiter::new(16);
        let elephant = FlowHash::from_raw(77);
        for _ in 0..1000 {
            assert!(!limiter.exceeds(elephant, 499, 1000));
        }
        let dropped = (0..200).filter(|_| limiter.exceeds(elephant, 500, 1000)).count();
        assert_eq!(dropped, 200 - 64, "the 65th of 128 is the first too many");
    }
}
