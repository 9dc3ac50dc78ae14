//! From the frames of a batch to arrivals: flow hashes, times, and the rules that precede the policy.

use super::Receiver;
use crate::block::{Block, FrameMeta};
use rxsteer_core::matching::Facts;
use rxsteer_core::{Arrival, FlowHash, Plan};
use rxsteer_packet::{FrameClass, facts};
use std::sync::atomic::Ordering;

impl Receiver {
    /// Sets the times of a batch's packets, by one clock for all RX threads.
    fn publish_time(&mut self, count: usize, in_order: bool) {
        let shared = &self.backlogs.group.time_ns;
        let arrivals = &mut self.scratch.arrivals[..count];
        let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else { return };
        // ORDER: Relaxed, here and below; the time carries all of the information.
        let seen = shared.load(Ordering::Relaxed);
        if in_order && first.time_ns >= seen.max(self.packet_clock.now_ns()) {
            // No thread is ahead of the first packet, so each packet keeps its time.
            self.packet_clock.advance(last.time_ns, 0);
        } else if in_order && self.packet_clock.stands_still(first.time_ns, last.time_ns) {
            // The input started again, or a list was received after a later one.
            let time_ns = self.packet_clock.advance(last.time_ns, seen);
            for arrival in arrivals {
                arrival.time_ns = time_ns;
            }
        } else {
            for arrival in arrivals {
                arrival.time_ns = self.packet_clock.advance(arrival.time_ns, seen);
            }
        }
        let after = self.packet_clock.shared_after(seen);
        if after > seen {
            shared.fetch_max(after, Ordering::Relaxed);
        } else if after < seen {
            shared.store(after, Ordering::Relaxed);
        }
    }

    /// The flow hash of every frame: the NIC's, or computed from the headers. Fills the arrivals.
    #[inline(never)]
    pub(super) fn hash(&mut self, block: &Block, frames: &[FrameMeta]) {
        let (mut bytes, mut odd) = (0, false);
        let (mut last_time_ns, mut in_order) = (0, true);
        // The loop uses indices into slices that are known to have equal lengths: zipped iterators compile to many more
        // instructions here.
        let arrivals = &mut self.scratch.arrivals[..frames.len()];
        let (hasher, options, queues) = (&self.hasher, self.dissect, self.rx_queues);
        for index in 0..frames.len() {
            let frame = &frames[index];
            bytes += u64::from(frame.wire_len);
            let hash = if frame.has_nic_hash {
                FlowHash::from_raw(frame.hash)
            } else {
                let hashed = hasher.flow_hash(frame.link, block.bytes_of(frame), options);
                odd |= hashed.class != FrameClass::Ip || hashed.transport_truncated;
                hashed.hash
            };
            let (time_ns, rx_queue) = (frame.timestamp_ns, frame.rx_queue);
            odd |= rx_queue >= queues;
            in_order &= time_ns >= last_time_ns;
            last_time_ns = time_ns;
            arrivals[index] = Arrival { time_ns, hash, rx_queue, rule: 0 };
        }
        if self.steering.goes_by_time() {
            self.publish_time(frames.len(), in_order);
        }
        self.progress.packets.add(frames.len() as u64);
        self.progress.bytes.add(bytes);
        if odd {
            self.count_odd(block, frames);
        }
    }

    /// Finds the rule that matches each frame, among those before the policy. The arrivals must be hashed already.
    #[inline(never)]
    pub(super) fn match_rules(&mut self, plan: &Plan, block: &Block, frames: &[FrameMeta]) {
        let Some(matcher) = plan.matcher() else { return };
        let producer = self.backlogs.producer;
        let with_tunnel = matcher.reads_tunnels();
        for (arrival, frame) in self.scratch.arrivals.iter_mut().zip(frames) {
            let facts = facts(frame.link, block.bytes_of(frame), self.dissect, with_tunnel);
            let interface = plan.config().interface_of(frame.rx_queue);
            if let Some(rule) = facts.and_then(|of| matcher.find(&Facts { interface, ..of })) {
                matcher.count(producer, rule);
                arrival.rule = rule + 1;
            }
        }
    }

    /// Counts the frames of a batch that are not plain IP packets or belong to no known RX queue. It reads the headers
    /// again, since few batches have such frames.
    #[cold]
    fn count_odd(&mut self, block: &Block, frames: &[FrameMeta]) {
        let unknown = frames.iter().filter(|frame| frame.rx_queue >= self.rx_queues);
        self.progress.unknown_rx_queue.add(unknown.count() as u64);
        for frame in frames.iter().filter(|frame| !frame.has_nic_hash) {
            let hashed = self.hasher.flow_hash(frame.link, block.bytes_of(frame), self.dissect);
            match hashed.class {
                FrameClass::Ip => {}
                FrameClass::NotIp => self.progress.not_ip.add(1),
                FrameClass::Malformed(reason) => self.progress.malformed[reason as usize].add(1),
            }
            self.progress.transport_truncated.add(u64::from(hashed.transport_truncated));
        }
    }
}
