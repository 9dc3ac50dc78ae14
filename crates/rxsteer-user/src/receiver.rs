//! The receiving side: the work of an RX thread from the arrival of frames until they wait in a backlog.
//!
//! ```text
//!  netif_rx(frame) ──┐                     per batch:
//!  netif_receive ────┼──► open block ──► hash ──► decide ──► write ──► publish each list, kick
//!  run(source) ──────┘                              │
//!                                                   └─ no room: wait, or drop and count
//! ```
//!
//! The kernel's two kinds of entry exist here, too: frames that enter one by one ([`Receiver::netif_rx`]) and polled
//! lists ([`Receiver::netif_receive`]). Both are steered in the same way.

mod from_source;
mod hashing;

use crate::backlog_progress::BacklogReport;
use crate::backlogs::{BacklogSet, FramesOfBlock, Room, Stop};
use crate::block::{Block, BlockPool, FrameInfo};
use crate::change::{Schedule, SeenSettings, Switch};
use crate::clock::Clock;
use crate::config::{DEFAULT_BATCH, MAX_BATCH};
use crate::order_tracker::OrderTracker;
use crate::packet_clock::PacketClock;
use crate::rebalance::Rebalancing;
use crate::rx_report::{RxProgress, RxReport, RxReports};
use rxsteer_core::{Arrival, Backlogs, CpuId, DropReason, Refusal, Steering, Verdict};
use rxsteer_packet::{DissectOptions, Hasher};
use std::sync::Arc;

/// The receiving end of the receive path, for one RX thread.
pub struct Receiver {
    pub(crate) queue_cpu: CpuId,
    pub(crate) steering: Steering,
    /// The settings in use, and where changed settings are published.
    pub(crate) settings: SeenSettings,
    pub(crate) switch: Arc<Switch>,
    /// Changes planned for the run.
    pub(crate) schedule: Option<Arc<Schedule>>,
    /// Moves of buckets, under policies that have them.
    pub(crate) rebalancing: Arc<Rebalancing>,
    /// The time of the last batch under such a policy.
    pub(crate) balanced_ns: u64,
    pub(crate) hasher: Hasher,
    pub(crate) dissect: DissectOptions,
    pub(crate) order_tracker: Option<OrderTracker>,
    pub(crate) batch: usize,
    pub(crate) pin: bool,
    /// Whether each batch waits until all packets before it are processed.
    pub(crate) drains: bool,
    pub(crate) clock: Clock,
    pub(crate) backlogs: BacklogSet,
    /// The number of RX queues; queue numbers are below this.
    pub(crate) rx_queues: u16,
    pub(crate) pool: BlockPool,
    /// The present batch. It is kept, so that its memory is not cleared for every batch.
    pub(crate) scratch: Box<Batch>,
    /// Frames that entered and are not yet steered.
    pub(crate) open: Option<Arc<Block>>,
    /// Frames that entered while all frame memory was in use.
    pub(crate) refused: Block,
    /// Blocks sealed so far.
    pub(crate) blocks_sealed: u64,
    /// The number of the block that is being steered, from 1. Each list of lent memory has a separate number.
    pub(crate) block_number: u64,
    /// The value of `blocks_sealed` when memory was last checked.
    pub(crate) blocks_at_check: u64,
    /// The time of its packets, for policies that use it.
    pub(crate) packet_clock: PacketClock,
    /// What it counts.
    pub(crate) progress: Arc<RxProgress>,
    /// Frames that the kernel dropped while this receiver ran.
    pub(crate) kernel_drops: u64,
    /// Whether receiving ended because memory ran out.
    pub(crate) out_of_memory: bool,
    /// Where the report is stored when this receiver ends.
    pub(crate) reports: Arc<RxReports>,
}

impl Receiver {
    /// Enters one frame, as through the kernel's `netif_rx`. It is steered together with the frames before it when a
    /// batch is complete, or at [`Receiver::flush`].
    ///
    /// # Panics
    /// If the frame is longer than [`crate::block::MAX_CAPTURED`]. The other entries panic in this case, too.
    pub fn netif_rx(&mut self, frame: &[u8], info: FrameInfo) {
        let batch = self.batch;
        let block = self.enter(frame, info);
        if block.len() >= batch || block.is_full() {
            self.flush();
        }
    }

    /// Enters a polled list of frames, as from a NAPI poll through `netif_receive_skb`. At its end all frames are
    /// steered.
    pub fn netif_receive<'a>(&mut self, list: impl IntoIterator<Item = (&'a [u8], FrameInfo)>) {
        for (frame, info) in list {
            if self.enter(frame, info).is_full() {
                self.flush();
            }
        }
        self.flush();
    }

    /// Steers the frames that have entered and are not yet steered. Call it when no frame follows immediately, like the
    /// end of a poll.
    pub fn flush(&mut self) {
        self.flush_until(&Stop::never());
    }

    fn flush_until(&mut self, stop: &Stop<'_>) {
        if let Some(block) = self.seal() {
            self.steer(&block, stop);
            self.pool.give_back(block);
        }
    }

    /// Hands a list over to `cpu` without using the policy: the primitive of the hand-off source (`raise_netif_irq`). An
    /// invalid CPU, a CPU without a worker, and this receiver's own CPU mean the local backlog. An empty list has no
    /// effect. The packets that fit are queued. The others wait, or are dropped and counted, as configured.
    ///
    /// Frames that entered before are steered first. Order is not guaranteed between packets of a flow that are handed
    /// over and packets of it that the policy steers: the caller must ensure it.
    pub fn hand_off<'a>(
        &mut self,
        cpu: CpuId,
        list: impl IntoIterator<Item = (&'a [u8], FrameInfo)>,
    ) {
        self.flush();
        let cpu = if self.backlogs.is_served(cpu) { cpu } else { self.queue_cpu };
        for (frame, info) in list {
            if self.enter(frame, info).is_full() {
                self.hand_off_open(cpu);
            }
        }
        self.hand_off_open(cpu);
    }

    /// Appends a frame to the open block. There is room: a full block is never left open.
    fn enter(&mut self, frame: &[u8], info: FrameInfo) -> &mut Block {
        let block = self.open_block(&Stop::never());
        let taken = block.push(frame, info);
        debug_assert!(taken, "an open block is not full");
        block
    }

    /// Publishes how the packets so far were decided on.
    #[inline]
    fn publish_decisions(&self) {
        self.progress.set_steering(self.steering.counts());
        self.progress.changing.set(u64::from(self.steering.is_in_transition()));
        if let Some(order_tracker) = &self.order_tracker {
            self.progress.moves.set(order_tracker.moves());
        }
    }

    /// The CPU of this RX thread.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.queue_cpu
    }

    /// The counts, which other threads can read while this receiver runs.
    #[must_use]
    pub fn progress(&self) -> Arc<RxProgress> {
        self.progress.clone()
    }

    /// What was queued to each CPU so far.
    #[must_use]
    pub fn backlog_reports(&self) -> Vec<BacklogReport> {
        self.backlogs.reports()
    }

    /// Steers the remaining frames and closes the queues. Dropping a receiver does the same; this call makes it visible
    /// in code.
    pub fn finish(self) {
        drop(self);
    }

    /// Counts the frames that entered and will not be steered, since this thread panics.
    #[cold]
    fn abandon(&mut self) {
        let open = self.open.take().map_or(0, |block| block.len()) + self.refused.len();
        self.progress.packets.add(open as u64);
        self.progress.drops.add(DropReason::WorkerLost, open as u64);
    }

    /// The block that frames enter into. If all frame memory is in use and packets must be dropped instead of waiting,
    /// this is a block that will not be queued.
    fn open_block(&mut self, stop: &Stop<'_>) -> &mut Block {
        // The pool is asked once per batch: a batch that began without memory ends without it.
        if self.open.is_none() && self.refused.is_empty() {
            self.open = self.pool.take();
        }
        // No list waits without a kick here: every block ends with a kick. Workers release blocks as they progress, and
        // the pool has room beyond those that idle workers keep.
        while self.open.is_none() && self.backlogs.must_wait() && !stop.is_set() {
            std::thread::yield_now();
            self.open = self.pool.take();
        }
        match &mut self.open {
            // No other thread has an open block, so this copies nothing.
            Some(block) => Arc::make_mut(block),
            None => &mut self.refused,
        }
    }

    /// Closes the open block, so that it can be shared.
    fn seal(&mut self) -> Option<Arc<Block>> {
        if !self.refused.is_empty() {
            self.refuse();
        }
        let mut block = self.open.take()?;
        if block.is_empty() {
            self.open = Some(block);
            return None;
        }
        if let Some(order_tracker) = &mut self.order_tracker
            && let Some(block) = Arc::get_mut(&mut block)
        {
            order_tracker.number(block);
        }
        self.blocks_sealed += 1;
        self.block_number += 1;
        Some(block)
    }

    /// Counts packets for which there was no memory: as received, by their kind, and as dropped.
    #[cold]
    fn refuse(&mut self) {
        let mut block = std::mem::take(&mut self.refused);
        if let Some(order_tracker) = &mut self.order_tracker {
            order_tracker.number(&mut block);
        }
        for batch in block.frames().chunks(MAX_BATCH) {
            self.hash(&block, batch);
        }
        self.progress.drops.add(DropReason::NoBuffer, block.len() as u64);
        block.clear();
        self.refused = block;
    }

    /// Hashes, decides and queues the frames of a sealed block, batch by batch.
    fn steer(&mut self, block: &Arc<Block>, stop: &Stop<'_>) {
        let mut next = 0;
        let most = if self.drains { self.batch.min(DEFAULT_BATCH) } else { self.batch };
        while next < block.len() {
            let count = most.min(block.len() - next);
            if self.steer_batch(block, next, count, stop) == Room::Stopped {
                break;
            }
            next += count;
            if self.drains {
                self.backlogs.wait_until_drained(stop);
            }
        }
        self.backlogs.kick_own();
    }

    /// Adopts a change of settings, between two batches.
    #[cold]
    fn change(&mut self) {
        let settings = self.switch.see();
        self.backlogs.set_limit(settings.value().max_backlog);
        self.steering.change(&settings.value().plan, &mut self.backlogs);
        self.settings = settings;
        self.publish_decisions();
        // This is set after `changing`: a thread that sees the change adopted also sees whether it is complete.
        self.progress.changes.set(self.settings.value().changes);
    }

    /// While the source has no frames: adopts a change, and notices when a transition has ended. Neither needs a packet.
    fn change_while_idle(&mut self) {
        if self.switch.has_changed(&self.settings) {
            self.change();
        }
        if self.steering.is_in_transition() && self.steering.is_drained(&mut self.backlogs) {
            self.publish_decisions();
        }
    }

    #[inline]
    fn steer_batch(
        &mut self,
        block: &Arc<Block>,
        first: usize,
        count: usize,
        stop: &Stop<'_>,
    ) -> Room {
        let frames = &block.frames()[first..first + count];
        if let Some(schedule) = &self.schedule {
            schedule.advance_to(frames[0].timestamp_ns, self.progress.packets.get(), &self.switch);
        }
        if let Some(balance) = self.steering.plan().config().policy.balance() {
            let time_ns = frames[0].timestamp_ns;
            self.rebalancing.advance_to(time_ns, &mut self.balanced_ns, balance, &self.switch);
        }
        if self.switch.has_changed(&self.settings) {
            self.change();
        }
        self.hash(block, frames);
        if self.steering.plan().matcher().is_some() {
            let plan = Arc::clone(self.steering.plan());
            self.match_rules(&plan, block, frames);
        }
        let now = self.clock.now();
        let mut done = 0;
        while done < count {
            let Batch { arrivals, verdicts } = &mut *self.scratch;
            let arrivals = &arrivals[done..count];
            let decided = self.steering.decide(arrivals, &mut self.backlogs, verdicts);
            // Each list of lent memory carries a separate reference, so it gets a separate block number.
            self.block_number += u64::from(block.is_lent());
            let frames_of =
                FramesOfBlock { block, number: self.block_number, first: first + done, now };
            self.backlogs.queue(&frames_of, &arrivals[..decided], &verdicts[..decided]);
            if let Some(order_tracker) = &mut self.order_tracker {
                order_tracker.decided(&block.numbers[first + done..], &verdicts[..decided]);
            }
            self.publish_decisions();
            self.backlogs.publish();
            done += decided;
            if done < count && self.backlogs.wait_for_room(stop) == Room::Stopped {
                self.backlogs.give_up(count - done);
                return Room::Stopped;
            }
        }
        Room::There
    }

    /// Queues the open block to `cpu` without using the policy.
    fn hand_off_open(&mut self, cpu: CpuId) {
        let Some(block) = self.seal() else { return };
        for (batch, first) in block.frames().chunks(MAX_BATCH).zip((0..).step_by(MAX_BATCH)) {
            self.hash(&block, batch);
            let now = self.clock.now();
            let mut next = 0;
            while next < batch.len() {
                let verdict = match self.backlogs.reserve(cpu) {
                    Ok(_) => Verdict::deliver(cpu),
                    Err(Refusal::Drop(reason)) => Verdict::drop(cpu, reason),
                    Err(Refusal::Wait) => {
                        self.backlogs.publish();
                        self.backlogs.wait_for_room(&Stop::never());
                        continue;
                    }
                };
                let number = self.block_number;
                let frames_of = FramesOfBlock { block: &block, number, first: first + next, now };
                self.backlogs.queue(&frames_of, &self.scratch.arrivals[next..=next], &[verdict]);
                if let Some(order_tracker) = &mut self.order_tracker {
                    order_tracker.decided(&block.numbers[first + next..], &[verdict]);
                }
                next += 1;
            }
            self.backlogs.publish();
        }
        self.backlogs.kick_own();
        self.pool.give_back(block);
    }
}

impl Drop for Receiver {
    /// Steers the remaining frames, closes the queues and stores the report for [`crate::Pipeline::finish`].
    fn drop(&mut self) {
        // If this thread panicked, its current work may be incomplete.
        if std::thread::panicking() {
            self.abandon();
        } else {
            self.flush();
        }
        self.publish_decisions();
        // Its packets can't move any more, so no transition is under way.
        self.progress.changing.set(0);
        self.progress.changes.set(u64::MAX);
        let report = RxReport {
            progress: self.progress.clone(),
            kernel_drops: self.kernel_drops,
            out_of_memory: self.out_of_memory,
            moves_by_load: self.rebalancing.moves(),
            order_tracker: self.order_tracker.take().map(OrderTracker::into_report),
        };
        // The report is stored before the queues close (the fields' drop): when a pipeline's workers have ended, it has
        // all reports.
        self.reports.add(report);
    }
}

/// The arrivals and verdicts of a batch.
pub(crate) struct Batch {
    pub(crate) arrivals: [Arrival; MAX_BATCH],
    pub(crate) verdicts: [Verdict; MAX_BATCH],
}

impl Batch {
    pub(crate) fn new() -> Box<Batch> {
        Box::new(Batch {
            arrivals: [Arrival::default(); MAX_BATCH],
            verdicts: [Verdict::default(); MAX_BATCH],
        })
    }
}
