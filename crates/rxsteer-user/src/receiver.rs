//! The receiving side: what an RX thread does with frames until they sit in a backlog.
//!
//! ```text
//!  netif_rx(frame) ──┐                     per batch:
//!  netif_receive ────┼──► open block ──► hash ──► decide ──► write ──► publish each list, kick
//!  run(source) ──────┘                              │
//!                                                   └─ no room: wait, or drop and count
//! ```
//!
//! Both entry kinds of the kernel are here: frames that enter one by one ([`Receiver::netif_rx`])
//! and polled lists ([`Receiver::netif_receive`]); both are steered alike.

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

/// One RX thread's end of the receive path.
pub struct Receiver {
    pub(crate) queue_cpu: CpuId,
    pub(crate) steering: Steering,
    /// What it goes by, and where that is published when it changes.
    pub(crate) settings: SeenSettings,
    pub(crate) switch: Arc<Switch>,
    /// Changes to be made on the way.
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
    /// RX queues that are configured; their numbers are below this.
    pub(crate) rx_queues: u16,
    pub(crate) pool: BlockPool,
    /// The batch in work; kept, so that its memory is not cleared for every batch.
    pub(crate) scratch: Box<Batch>,
    /// Frames that entered and are not steered yet.
    pub(crate) open: Option<Arc<Block>>,
    /// Frames that entered while all frame memory was in use.
    pub(crate) refused: Block,
    /// Blocks sealed so far.
    pub(crate) blocks_sealed: u64,
    /// Number of the block that is steered, from 1. Lists of lent memory have one each.
    pub(crate) block_number: u64,
    /// How many there were when memory was looked at last.
    pub(crate) blocks_at_look: u64,
    /// The time of its packets, for policies that go by it.
    pub(crate) packet_clock: PacketClock,
    /// What it counts.
    pub(crate) progress: Arc<RxProgress>,
    /// Frames that the kernel dropped while this received.
    pub(crate) kernel_drops: u64,
    /// Whether receiving ended because memory ran out.
    pub(crate) out_of_memory: bool,
    /// Where the report goes when this ends.
    pub(crate) reports: Arc<RxReports>,
}

impl Receiver {
    /// One frame enters, as through the kernel's `netif_rx`. It is steered with those before it
    /// when a batch is complete, or at [`Receiver::flush`].
    ///
    /// # Panics
    /// When the frame is longer than [`crate::block::MAX_CAPTURED`]; so do the other entries.
    pub fn netif_rx(&mut self, frame: &[u8], info: FrameInfo) {
        let batch = self.batch;
        let block = self.enter(frame, info);
        if block.len() >= batch || block.is_full() {
            self.flush();
        }
    }

    /// A polled list of frames enters, as from a NAPI poll through `netif_receive_skb`; at its end
    /// everything is steered.
    pub fn netif_receive<'a>(&mut self, list: impl IntoIterator<Item = (&'a [u8], FrameInfo)>) {
        for (frame, info) in list {
            if self.enter(frame, info).is_full() {
                self.flush();
            }
        }
        self.flush();
    }

    /// Steers what has entered and not been steered yet: to be called when no frame follows at
    /// once, like the end of a poll.
    pub fn flush(&mut self) {
        self.flush_until(&Stop::never());
    }

    fn flush_until(&mut self, stop: &Stop<'_>) {
        if let Some(block) = self.seal() {
            self.steer(&block, stop);
            self.pool.give_back(block);
        }
    }

    /// Hands a list over to `cpu` as it is, past the policy: the primitive of the hand-off source
    /// (`raise_netif_irq`). An invalid CPU, one without a worker, and the own CPU mean the local
    /// backlog; an empty list means nothing. The head that fits is taken; the rest waits or is
    /// dropped and counted, as configured.
    ///
    /// What entered before is steered first. Order between a flow's packets that are handed over
    /// and those the policy steers is the caller's affair.
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

    /// Appends a frame to the open block, which has room: a block that is full is never left open.
    fn enter(&mut self, frame: &[u8], info: FrameInfo) -> &mut Block {
        let block = self.open_block(&Stop::never());
        let taken = block.push(frame, info);
        debug_assert!(taken, "an open block is not full");
        block
    }

    /// Shows how the packets so far were decided on.
    #[inline]
    fn publish_decisions(&self) {
        self.progress.set_steering(self.steering.counts());
        self.progress.changing.set(u64::from(self.steering.is_in_transition()));
        if let Some(order_tracker) = &self.order_tracker {
            self.progress.moves.set(order_tracker.moves());
        }
    }

    /// The CPU that this receives on.
    #[must_use]
    pub fn cpu(&self) -> CpuId {
        self.queue_cpu
    }

    /// The counts that another thread may look at while this receiver runs.
    #[must_use]
    pub fn progress(&self) -> Arc<RxProgress> {
        self.progress.clone()
    }

    /// What was queued to each CPU so far.
    #[must_use]
    pub fn backlog_reports(&self) -> Vec<BacklogReport> {
        self.backlogs.reports()
    }

    /// Steers what is left and closes the queues. Dropping a receiver does the same; this is to be seen in code.
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

    /// The block that frames enter into. When all frame memory is in use and packets are to be
    /// dropped rather than wait, it is one that will not be queued.
    fn open_block(&mut self, stop: &Stop<'_>) -> &mut Block {
        // A batch that began without memory ends without: the pool is asked once for it.
        if self.open.is_none() && self.refused.is_empty() {
            self.open = self.pool.take();
        }
        // Nothing waits unkicked here: every block ends with a kick. Workers let go of blocks as
        // they go on, and the pool has room beside those that idle ones keep.
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

    /// Counts packets that found no memory: as received, as what they are, and as dropped.
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

    /// Takes what was changed, between two batches.
    #[cold]
    fn change(&mut self) {
        let settings = self.switch.see();
        self.backlogs.set_limit(settings.value().max_backlog);
        self.steering.change(&settings.value().plan, &mut self.backlogs);
        self.settings = settings;
        self.publish_decisions();
        // Behind `changing`: who finds the change taken also finds whether it is done.
        self.progress.changes.set(self.settings.value().changes);
    }

    /// Takes a change, and finds the end of one, while the source has nothing: neither waits for a packet.
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
            schedule.come_to(frames[0].timestamp_ns, self.progress.packets.get(), &self.switch);
        }
        if let Some(balance) = self.steering.plan().config().policy.balance() {
            let time_ns = frames[0].timestamp_ns;
            self.rebalancing.come_to(time_ns, &mut self.balanced_ns, balance, &self.switch);
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
            // Each list of lent memory carries a reference of its own: it seems to lie in another block.
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

    /// Queues the open block to `cpu` without asking the policy.
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
    /// Steers what is left, closes the queues and leaves the report for [`crate::Pipeline::finish`].
    fn drop(&mut self) {
        // What this thread was at when it panicked may be half done.
        if std::thread::panicking() {
            self.abandon();
        } else {
            self.flush();
        }
        self.publish_decisions();
        // What it sent goes nowhere else any more, whatever changes.
        self.progress.changing.set(0);
        self.progress.changes.set(u64::MAX);
        let report = RxReport {
            progress: self.progress.clone(),
            kernel_drops: self.kernel_drops,
            out_of_memory: self.out_of_memory,
            moves_by_load: self.rebalancing.moves(),
            order_tracker: self.order_tracker.take().map(OrderTracker::into_report),
        };
        // Before the queues close, which the fields' own drop does: a pipeline whose workers have ended has all reports.
        self.reports.add(report);
    }
}

/// What is known and decided of the packets of a batch.
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
