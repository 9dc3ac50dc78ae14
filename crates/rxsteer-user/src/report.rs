//! The report of a run, combined from its RX threads and workers.

use crate::delay_counts::delay_histogram;
use crate::order_tracker::DistinctFlows;
use crate::rebalance::MovesByLoad;
use crate::rx_report::RxReport;
use crate::worker::WorkerReport;
use crate::worker_group::WorkerProgress;
use hdrhistogram::Histogram;
use rxsteer_core::{CpuId, CpuSet, Drops, PacketRule, SteerCounts};
use rxsteer_packet::Malformed;

/// The part of one CPU in a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CpuReport {
    /// The CPU.
    pub cpu: CpuId,
    /// Whether packets are steered to the CPU. If not, it only receives, and processes packets without a flow.
    pub steered_to: bool,
    /// Packets processed by its worker, without those that it could not send on (`tx_full` in `drops`).
    pub packets: u64,
    /// The bytes on the wire of all packets that its worker processed, including those that it could not send on.
    pub bytes: u64,
    /// Distinct flows that its worker saw, if order is checked.
    pub flows: u64,
    /// Packets dropped on the way to the CPU or on it.
    pub drops: Drops,
    /// Lists spliced onto its backlogs.
    pub lists: u64,
    /// Packets in those lists.
    pub queued: u64,
    /// How often its worker was woken.
    pub kicks: u64,
    /// The time from queueing to the start of processing, in nanoseconds.
    pub delay_ns: Histogram<u64>,
    /// Whether its worker was pinned.
    pub pinned: bool,
    /// How its worker ended, if it did not finish normally.
    pub failure: Option<String>,
}

impl CpuReport {
    /// Packets steered to this CPU, whether processed or dropped.
    #[must_use]
    pub fn steered(&self) -> u64 {
        self.packets + self.drops.total()
    }
}

/// A whole run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<H> {
    /// Packets received: always `delivered` plus all of `drops`.
    pub packets: u64,
    /// The bytes of these packets on the wire.
    pub bytes: u64,
    /// Packets whose handler returned and that, if the handler sends them on, found room in the TX ring.
    pub delivered: u64,
    /// Packets dropped.
    pub drops: Drops,
    /// Frames without an IP packet.
    pub not_ip: u64,
    /// Frames whose outermost IP header can't be read, by reason.
    pub malformed: [u64; Malformed::ALL.len()],
    /// IP packets whose transport header is damaged or cut off.
    pub transport_truncated: u64,
    /// Frames that the kernel dropped before they were received, because the ring of a live source had no room. They are
    /// not included in `packets`.
    pub kernel_drops: u64,
    /// Packets of an RX queue that the configuration does not have. They are not steered, and the CPU of queue 0
    /// processes them.
    pub unknown_rx_queue: u64,
    /// How many packets each mechanism decided on.
    pub steering: SteerCounts,
    /// The last rules before the policy, and how many packets each matched since it was set.
    pub rules: Vec<(PacketRule, u64)>,
    /// Whether receiving ended early because memory ran out.
    pub out_of_memory: bool,
    /// The number of changes of settings: planned ones ([`crate::PipelineConfig::changes`]) and those by
    /// [`crate::Control::change`].
    pub changes_made: usize,
    /// Buckets that moved by load, under policies with `balance`.
    pub moves_by_load: MovesByLoad,
    /// Packets processed before or at the same time as an earlier packet of their flow; only if order is checked.
    pub reordered: u64,
    /// How often a flow moved to another CPU; only if order is checked.
    pub moves: u64,
    /// Distinct transport flows; only if order is checked.
    pub distinct_flows: DistinctFlows,
    /// Distinct steering keys per RX queue; only if order is checked.
    pub steered_flows: u64,
    /// Packets of the largest of these flows; only if order is checked.
    pub largest_flow: u64,
    /// Packets beyond the limit of tracked flows; only if order is checked.
    pub untracked_packets: u64,
    /// Whether order was checked.
    pub order_checked: bool,
    /// Every CPU that had a worker, ascending.
    pub per_cpu: Vec<CpuReport>,
    /// The remaining handlers, by CPU.
    pub handlers: Vec<(CpuId, H)>,
}

impl<H> Report<H> {
    pub(crate) fn new(
        rx: Vec<RxReport>,
        workers: Vec<WorkerReport<H>>,
        steered_to: &CpuSet,
    ) -> Report<H> {
        let mut report = Report {
            packets: 0,
            bytes: 0,
            delivered: 0,
            drops: Drops::default(),
            not_ip: 0,
            malformed: [0; Malformed::ALL.len()],
            transport_truncated: 0,
            kernel_drops: 0,
            unknown_rx_queue: 0,
            steering: SteerCounts::default(),
            rules: Vec::new(),
            out_of_memory: false,
            changes_made: 0,
            moves_by_load: MovesByLoad::default(),
            reordered: 0,
            moves: 0,
            distinct_flows: DistinctFlows::default(),
            steered_flows: 0,
            largest_flow: 0,
            untracked_packets: 0,
            order_checked: false,
            per_cpu: Vec::new(),
            handlers: Vec::new(),
        };
        for worker in workers {
            report.add_worker(worker, steered_to);
        }
        for receiver in rx {
            report.add_receiver(receiver);
        }
        report
    }

    fn add_worker(&mut self, worker: WorkerReport<H>, steered_to: &CpuSet) {
        let WorkerProgress { cpu, packets, bytes, reordered, drops, delay, busy_ns: _ } =
            &*worker.progress;
        let (packets, drops) = (packets.get(), drops.get());
        self.delivered += packets;
        self.reordered += reordered.get();
        self.drops.merge(&drops);
        self.per_cpu.push(CpuReport {
            cpu: *cpu,
            steered_to: steered_to.contains(*cpu),
            packets,
            bytes: bytes.get(),
            flows: worker.flows,
            drops,
            lists: 0,
            queued: 0,
            kicks: 0,
            delay_ns: delay.histogram(),
            pinned: worker.pinned,
            failure: worker.failure,
        });
        self.handlers.extend(worker.handler.map(|handler| (*cpu, handler)));
    }

    fn add_receiver(&mut self, rx: RxReport) {
        // All threads share one list; the one that ended last has all of it.
        if rx.moves_by_load.intervals > self.moves_by_load.intervals {
            self.moves_by_load = rx.moves_by_load;
        }
        let progress = &rx.progress;
        self.packets += progress.packets.get();
        self.bytes += progress.bytes.get();
        self.not_ip += progress.not_ip.get();
        self.transport_truncated += progress.transport_truncated.get();
        self.unknown_rx_queue += progress.unknown_rx_queue.get();
        self.steering.merge(&progress.steering());
        self.drops.merge(&progress.dropped());
        for (mine, theirs) in self.malformed.iter_mut().zip(&progress.malformed) {
            *mine += theirs.get();
        }
        // Backlogs are in the order of the workers: both are sorted by CPU.
        for (cpu, backlog) in self.per_cpu.iter_mut().zip(&progress.backlogs) {
            let backlog = backlog.report();
            debug_assert_eq!(cpu.cpu, backlog.cpu);
            cpu.lists += backlog.lists;
            cpu.queued += backlog.queued;
            cpu.kicks += backlog.kicks;
            cpu.drops.merge(&backlog.drops);
        }
        self.kernel_drops += rx.kernel_drops;
        self.out_of_memory |= rx.out_of_memory;
        if let Some(order_tracker) = rx.order_tracker {
            self.order_checked = true;
            self.moves += order_tracker.moves;
            self.steered_flows += order_tracker.steered_flows;
            self.largest_flow = self.largest_flow.max(order_tracker.largest_flow);
            self.untracked_packets += order_tracker.untracked_packets;
            self.distinct_flows.merge(order_tracker.distinct_flows);
        }
    }

    /// The load of the busiest CPU divided by the average: 1.0 is perfectly even; `None` without a packet. A
    /// dropped packet counts for the CPU that it was meant for, since packets that a CPU cannot process are load
    /// as well. CPUs that packets are not steered to count only if packets were meant for them.
    #[must_use]
    pub fn imbalance(&self) -> Option<f64> {
        let steered = self.per_cpu.iter().map(CpuReport::steered);
        let (most, all) = (steered.clone().max()?, steered.sum::<u64>());
        (all > 0).then(|| most as f64 * self.cpus_in_use() as f64 / all as f64)
    }

    /// The number of CPUs that packets are steered to, or that any packet was meant for.
    #[must_use]
    pub fn cpus_in_use(&self) -> usize {
        self.per_cpu.iter().filter(|cpu| cpu.steered_to || cpu.steered() > 0).count()
    }

    /// The queueing delays of all CPUs together, in nanoseconds.
    #[must_use]
    pub fn delay_ns(&self) -> Histogram<u64> {
        let mut all = delay_histogram();
        for cpu in &self.per_cpu {
            // All histograms have the same bounds, so no value can be out of range.
            let _ = all.add(&cpu.delay_ns);
        }
        all
    }
}
