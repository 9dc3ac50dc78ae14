//! The only list of counters: every report, metric and table takes names, units and help texts from here.

/// The unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Bytes on the wire.
    Bytes,
    /// Events, such as wake-ups.
    Events,
    /// Flows.
    Flows,
    /// Time.
    Nanoseconds,
}

macro_rules! counters {
    ($(#[$doc:meta])* $list:ident { $($variant:ident, $name:literal, $unit:ident, $help:literal;)* }) => {
        $(#[$doc])*
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $list { $(#[doc = $help] $variant),* }

        impl $list {
            /// Every counter of this list, in the order of the discriminants.
            pub const ALL: &'static [$list] = &[$($list::$variant),*];

            /// The name of the counter in reports and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($list::$variant => $name),* }
            }

            /// The unit of the counter.
            #[must_use]
            pub const fn unit(self) -> Unit {
                match self { $($list::$variant => Unit::$unit),* }
            }

            /// The meaning of the counter, in one sentence.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self { $($list::$variant => $help),* }
            }
        }
    };
}

counters! {
    /// Counted once per CPU.
    CpuCounter {
        Delivered, "delivered", Packets, "Packets whose processing on this CPU is complete.";
        Bytes, "bytes", Bytes, "Original lengths of those packets, as on the wire.";
        Lists, "lists", Events, "Lists spliced onto this CPU's backlog.";
        Kicks, "kicks", Events, "Wake-ups of this CPU's worker, sent only when it slept on an empty backlog.";
        Dropped, "dropped", Packets, "Packets meant for this CPU that were dropped.";
    }
}

counters! {
    /// Counted once per RX thread.
    RxCounter {
        Received, "packets", Packets, "Packets received.";
        Bytes, "bytes", Bytes, "Original lengths of the packets received, as on the wire.";
        NotIp, "frames_not_ip", Packets, "Frames that carry no IP packet.";
        Malformed, "malformed", Packets, "Frames whose outermost IP header can't be read.";
        TransportTruncated, "transport_truncated", Packets, "IP packets whose transport header is damaged or cut off.";
        KernelDrops, "kernel_drops", Packets, "Frames of a live interface that the kernel dropped because the ring was full; they are not counted as received.";
        UnknownRxQueue, "unknown_rx_queue", Packets, "Packets of an RX queue that is not configured: processed on the CPU of queue 0, not steered.";
    }
}

counters! {
    /// Counted once per RX thread, by the mechanism that decided.
    SteerCounter {
        Local, "local", Packets, "Packets that no rule steers: they have no flow, or their queue is not steered.";
        Bound, "bound", Packets, "Packets whose target is the CPU that their RX queue is bound to.";
        Hashed, "hashed", Packets, "Packets whose target is the CPU that the flow hash selects.";
        Rfs, "rfs", Packets, "Packets steered to the CPU where their application runs (rfs).";
        InSlots, "in_slots", Packets, "Packets whose target is the CPU of their sparse slot.";
        Matched, "matched", Packets, "Packets whose target comes from a rule before the policy.";
        Deferred, "deferred", Packets, "Packets sent to the CPU in their flow table slot instead of their target: earlier ones were still under way there, or the slot's hysteresis was not used up.";
    }
}

counters! {
    /// Counted once per flow table.
    FlowCounter {
        Live, "flows_live", Flows, "Flows in the table now.";
        Created, "flows_created", Flows, "Flows put into the table.";
        Expired, "flows_expired", Flows, "Flows removed because no packet arrived for longer than the idle timeout.";
        Evicted, "flows_evicted", Flows, "Flows removed to make room for new ones.";
        Refused, "flow_packets_refused", Packets, "Packets without a record: their flow was new and the table had no room for it.";
    }
}

counters! {
    /// Counted by each receiving CPU for each interface, in the in-kernel path.
    LiveCounter {
        Received, "received", Packets, "Frames the interface received on this CPU.";
        Bytes, "bytes", Bytes, "Bytes of the frames the interface received on this CPU, Ethernet headers included.";
        Local, "local", Packets, "Frames that no rule steers: they have no flow, or their queue is not steered.";
        Bound, "bound", Packets, "Frames whose target is the CPU their RX queue is bound to.";
        Hashed, "hashed", Packets, "Frames whose target is the CPU that the flow hash selects.";
        InSlots, "in_slots", Packets, "Frames whose target is the CPU of their sparse slot.";
        Rfs, "rfs", Packets, "Frames steered to the CPU where their application runs (rfs).";
        Matched, "matched", Packets, "Frames whose target comes from a rule before the policy.";
        NotIp, "frames_not_ip", Packets, "Frames that carry no IP packet.";
        Malformed, "malformed", Packets, "Frames whose outermost IP header can't be read.";
        Passed, "passed", Packets, "Frames passed to the kernel's stack on this CPU.";
        Unnumbered, "unnumbered", Packets, "Passed frames that could not carry a sequence number, because the driver leaves too little headroom or supports no metadata.";
        PartialChecksums, "partial_checksums", Packets, "Passed frames whose sender left the checksum to a device: after a redirect, receivers would drop them.";
        Redirected, "redirected", Packets, "Frames sent to a CPU's ring.";
        RedirectErrors, "redirect_errors", Packets, "Frames dropped because the redirect failed.";
        FlowLimitDrops, "flow_limit_drops", Packets, "Frames that the flow limit dropped: the ring was at least half full, and more than half of the last 128 such frames were of their flow.";
        Moves, "moves", Packets, "Frames whose flow moved to another CPU.";
        Deferred, "deferred", Packets, "Frames sent to the CPU of their flow's earlier frames instead of their target: those were still under way, or the slot's hysteresis was not used up.";
        Batches, "batches", Events, "Lists of frames handed to a ring.";
        Flows, "flows", Flows, "Flows that got a slot in the flow statistics.";
        FlowsEnded, "flows_ended", Flows, "Flows that ended: a new flow took their slot after a long silence, or their interface was detached; at the end of a run all flows end.";
        FlowPacketsRefused, "flow_packets_refused", Packets, "Frames not counted in the statistics of any flow, because the table had no room.";
        FlowPacketsEnded, "flow_packets_ended", Packets, "Frames that flows had counted when they ended.";
        FlowPacketsCleared, "flow_packets_cleared", Packets, "Frames that flows had counted before a reset (status --reset); they are added here when the flow's next frame arrives, or when the flow ends.";
        FlowRecordsLost, "flow_records_lost", Flows, "Flows that ended and whose last counts could not be reported individually.";
        FlowPacketsUnrecorded, "flow_packets_unrecorded", Packets, "Frames of the flows in flow_records_lost; flow_packets_ended includes them.";
    }
}

counters! {
    /// Counted once per processing CPU, in the in-kernel path.
    LiveCpuCounter {
        Delivered, "delivered", Packets, "Frames handed to the kernel's stack on this CPU.";
        AllocDrops, "alloc_drops", Packets, "Frames dropped because the kernel had no socket buffer for them.";
        Lost, "lost", Packets, "Frames sent to this CPU that never arrived: its ring was full, or the redirect failed (redirect_errors).";
        Waiting, "waiting", Packets, "Frames under way to this CPU now.";
        LostWaiting, "lost_while_waiting", Packets, "Frames lost while the thread of this CPU's ring was ready to run and waited for the CPU.";
        LostBusy, "lost_while_busy", Packets, "Frames lost while the thread of this CPU's ring ran more than half of the time.";
        LostBurst, "lost_in_bursts", Packets, "Frames lost while the thread of this CPU's ring neither waited for the CPU nor ran for long: more arrived at once than the ring holds.";
        ThreadRan, "ran_ns", Nanoseconds, "CPU time of the thread of this CPU's ring.";
        ThreadWaited, "waited_ns", Nanoseconds, "Time in which the thread of this CPU's ring was ready to run and waited for the CPU.";
        LongestWait, "longest_wait_ns", Nanoseconds, "Longest wait of the thread of this CPU's ring between two readings, about 100 ms apart; longer if the thread did not run from one reading to the next.";
        Rate, "per_second", Packets, "Frames that left this CPU's ring in the last second.";
    }
}

/// How many packets each mechanism decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteerCounts {
    /// Packets that no rule steers: they stay on the CPU that receives them.
    pub local: u64,
    /// Packets whose target is the CPU that their RX queue is bound to.
    pub bound: u64,
    /// Packets whose target is the CPU that the flow hash selects.
    pub hashed: u64,
    /// Packets whose target is the CPU where their application runs (`rfs`).
    pub rfs: u64,
    /// Packets whose target is the CPU of their sparse slot.
    pub in_slots: u64,
    /// Packets that a rule before the policy matches ([`crate::matching`]).
    pub matched: u64,
    /// Packets sent to the CPU in their flow table slot instead of their target: earlier packets were still under
    /// way there, or the slot's hysteresis was not used up ([`crate::order::HYSTERESIS`]).
    pub deferred: u64,
}

impl SteerCounts {
    /// The count of `counter`.
    #[must_use]
    pub fn get(&self, counter: SteerCounter) -> u64 {
        let mut counts = *self;
        *counts.of(counter)
    }

    /// The count of `counter`, to be changed.
    pub fn of(&mut self, counter: SteerCounter) -> &mut u64 {
        match counter {
            SteerCounter::Local => &mut self.local,
            SteerCounter::Bound => &mut self.bound,
            SteerCounter::Hashed => &mut self.hashed,
            SteerCounter::Rfs => &mut self.rfs,
            SteerCounter::InSlots => &mut self.in_slots,
            SteerCounter::Matched => &mut self.matched,
            SteerCounter::Deferred => &mut self.deferred,
        }
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &SteerCounts) {
        self.local += other.local;
        self.bound += other.bound;
        self.hashed += other.hashed;
        self.rfs += other.rfs;
        self.in_slots += other.in_slots;
        self.matched += other.matched;
        self.deferred += other.deferred;
    }
}
