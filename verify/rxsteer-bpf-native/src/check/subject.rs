//! The implementation that is compared with the core.

use crate::policy::{Decision, LastPacket, LimitHistory, NativePolicy, Packet, Rules};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// An implementation of the policy in C: the native build, or the programs in the kernel.
pub trait Subject {
    /// Returns the hash, not 0, of a new flow that can have packets.
    fn new_flow(&mut self, rng: &mut ChaCha8Rng) -> u32;
    /// Makes `rules` decide from now on.
    fn configure(&mut self, rules: &Rules);
    /// Decides for one packet that belongs to flow table `table`.
    fn decide(&mut self, packet: &Packet, table: u32) -> Decision;
    /// Records that the application of the flow runs on `cpu`.
    fn record_desired(&mut self, hash: u32, cpu: u32);
    /// Records that the flow has ended.
    fn forget_desired(&mut self, hash: u32);
    /// Sets the numbers of the frames from an RX CPU to a ring: tail, dequeued, delivered.
    fn set_pair(&mut self, pair: (u32, u32), numbers: [u32; 3]);
    /// The number of the last frame from an RX CPU to a ring.
    fn tail(&self, pair: (u32, u32)) -> u32;
    /// The last packet that the flow's slot records; `None` when the slot is unset.
    fn last_packet(&self, table: u32, hash: u32) -> Option<LastPacket>;
    /// An entry of the sock flow table.
    fn sock_entry(&self, index: u32) -> u32;
    /// The sparse slot that a flow would use at time `now`, if the flow belongs to the queue with flow table `table`:
    /// CPU and loop.
    fn slot_held(&self, table: u32, device: u32, hash: u32, now: u64) -> Option<(u32, u32)>;
    /// What an RX CPU counted in a bucket: packets, flow and votes. The indexes after those of the buckets are for
    /// CPUs.
    fn bucket(&self, rx_cpu: u32, bucket: u32) -> [u32; 3];
    /// Whether every assigned sparse slot is in its flow's chain, and no other slot is.
    fn chains_are_sound(&mut self) -> bool;
    /// The buckets of the flow limit's last packets plus one, oldest first; 0: no packet yet.
    fn limit_history(&self, rx_cpu: u32) -> LimitHistory;
    /// How many packets of the history the flow limit counts in a bucket.
    fn limit_count(&self, rx_cpu: u32, bucket: u32) -> u32;
}

impl Subject for NativePolicy {
    fn new_flow(&mut self, rng: &mut ChaCha8Rng) -> u32 {
        rng.random_range(1..=u32::MAX)
    }

    fn configure(&mut self, rules: &Rules) {
        NativePolicy::configure(self, rules);
    }

    fn decide(&mut self, packet: &Packet, table: u32) -> Decision {
        NativePolicy::decide(self, packet, table)
    }

    fn record_desired(&mut self, hash: u32, cpu: u32) {
        NativePolicy::record_desired(self, hash, cpu);
    }

    fn forget_desired(&mut self, hash: u32) {
        NativePolicy::forget_desired(self, hash);
    }

    fn set_pair(&mut self, pair: (u32, u32), numbers: [u32; 3]) {
        NativePolicy::set_pair(self, pair, numbers);
    }

    fn tail(&self, (rx_cpu, ring): (u32, u32)) -> u32 {
        NativePolicy::tail(self, rx_cpu, ring)
    }

    fn last_packet(&self, table: u32, hash: u32) -> Option<LastPacket> {
        NativePolicy::last_packet(self, table, hash)
    }

    fn sock_entry(&self, index: u32) -> u32 {
        NativePolicy::sock_entry(self, index)
    }

    fn slot_held(&self, table: u32, device: u32, hash: u32, now: u64) -> Option<(u32, u32)> {
        NativePolicy::slot_held(self, table, device, hash, now)
    }

    fn bucket(&self, rx_cpu: u32, bucket: u32) -> [u32; 3] {
        NativePolicy::bucket(self, rx_cpu, bucket)
    }

    fn chains_are_sound(&mut self) -> bool {
        NativePolicy::chains_are_sound(self)
    }

    fn limit_history(&self, rx_cpu: u32) -> LimitHistory {
        NativePolicy::limit_history(self, rx_cpu)
    }

    fn limit_count(&self, rx_cpu: u32, bucket: u32) -> u32 {
        NativePolicy::limit_count(self, rx_cpu, bucket)
    }
}
