//! The RX thread's queues to all CPUs: room, descriptors, lists, kicks.

use crate::backlog::{BacklogSender, Descriptor};
use crate::backlog_progress::BacklogReport;
use crate::block::Block;
use crate::config::OnFull;
use crate::worker_group::WorkerGroup;
use rxsteer_core::{Arrival, Backlogs, CpuId, DropReason, Refusal, Verdict};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A batch's frames in their block, and the time when they are queued.
pub(crate) struct FramesOfBlock<'a> {
    pub(crate) block: &'a Arc<Block>,
    /// The number of the block.
    pub(crate) number: u64,
    /// The index of the batch's first frame in the block.
    pub(crate) first: usize,
    /// In the ticks of [`crate::clock`].
    pub(crate) now: u32,
}

/// How long an RX thread sleeps at a time, and how often, while the worker on its CPU catches up. A longer sleep could
/// leave the workers of other CPUs without packets.
pub(crate) const MIN_PAUSE: Duration = Duration::from_micros(50);
const MAX_PAUSES: u32 = 2;

/// The longest such sleep while packets wait for all other CPUs. The RX ring of an AF_XDP socket (2048 frames) takes what
/// arrives meanwhile. Each sleep costs two switches between the threads, so fewer sleeps leave more time for packets.
const MAX_PAUSE: Duration = Duration::from_micros(400);

/// How long received packets wait for room after receiving was stopped. Workers that make progress take them sooner.
const ROOM_AFTER_STOP: Duration = Duration::from_millis(100);

/// The request to stop an RX thread, and when the thread first saw it.
pub(crate) struct Stop<'a> {
    flag: Option<&'a AtomicBool>,
    seen: Cell<Option<Instant>>,
}

impl<'a> Stop<'a> {
    /// A request that another thread makes by setting `flag`.
    pub(crate) fn on(flag: &'a AtomicBool) -> Stop<'a> {
        Stop { flag: Some(flag), seen: Cell::new(None) }
    }

    /// No request can be made.
    pub(crate) fn never() -> Stop<'static> {
        Stop { flag: None, seen: Cell::new(None) }
    }

    /// Whether the request was made.
    pub(crate) fn is_set(&self) -> bool {
        // ORDER: Relaxed; a stop is a request, and the flag carries no data.
        self.flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Whether waiting for room must end, too.
    fn is_over(&self) -> bool {
        if !self.is_set() {
            return false;
        }
        let now = Instant::now();
        let seen = self.seen.get().unwrap_or(now);
        self.seen.set(Some(seen));
        now.duration_since(seen) >= ROOM_AFTER_STOP
    }
}

/// How a wait for room in a backlog ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is room, or no worker is left. The packet is decided on again.
    There,
    /// Receiving was stopped, and there is still no room.
    Stopped,
}

/// The RX thread's queues to all CPUs.
pub(crate) struct BacklogSet {
    /// The number of this RX thread.
    pub(crate) producer: u16,
    pub(crate) backlogs: Vec<BacklogSender>,
    /// For each CPU id up to the highest, its index in `backlogs` and among the group's slots; `u16::MAX` for a
    /// CPU without a worker.
    pub(crate) backlog_of: Box<[u16]>,
    /// Batches published so far, wrapping.
    pub(crate) batch: u32,
    /// Backlogs that were written to and not published, by index.
    pub(crate) touched: Vec<u16>,
    /// The backlog of the CPU that this thread runs on, by index, and whether a list was published to it since
    /// that CPU's worker was kicked.
    pub(crate) own: u16,
    pub(crate) own_unkicked: bool,
    /// How long the next sleep is in which the worker on this CPU catches up.
    pub(crate) pause: Duration,
    /// The backlog that had no room for the last packet, if that packet must wait.
    pub(crate) full: usize,
    pub(crate) on_full: OnFull,
    pub(crate) group: Arc<WorkerGroup>,
}

impl Backlogs for BacklogSet {
    #[inline(always)]
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        let backlog = usize::from(self.backlog_of[cpu.index()]);
        match self.backlogs[backlog].reserve() {
            Some(position) => Ok(position),
            None => Err(self.refusal(backlog)),
        }
    }

    #[inline(always)]
    fn has_completed(&mut self, producer: u16, cpu: CpuId, position: u32) -> bool {
        // One thread receives each RX queue for the whole run.
        debug_assert_eq!(producer, self.producer, "a flow's packets come through one RX thread");
        let backlog = usize::from(self.backlog_of[cpu.index()]);
        self.backlogs[backlog].has_completed(position)
    }

    fn tail(&self, cpu: CpuId) -> u32 {
        self.backlogs[usize::from(self.backlog_of[cpu.index()])].tail()
    }

    #[inline]
    fn waiting(&mut self, cpu: CpuId) -> (u32, u32) {
        self.backlogs[usize::from(self.backlog_of[cpu.index()])].waiting(self.batch)
    }

    #[inline(always)]
    fn producer(&self) -> u16 {
        self.producer
    }
}

impl BacklogSet {
    #[cold]
    fn refusal(&mut self, backlog: usize) -> Refusal {
        self.full = backlog;
        if self.group.is_lost() {
            return Refusal::Drop(DropReason::WorkerLost);
        }
        match self.on_full {
            OnFull::Wait => Refusal::Wait,
            OnFull::Drop => Refusal::Drop(DropReason::BacklogFull),
        }
    }

    /// Sets the number of packets that may wait on each backlog.
    pub(crate) fn set_limit(&mut self, max_backlog: u32) {
        for backlog in &mut self.backlogs {
            backlog.set_limit(max_backlog);
        }
    }

    pub(crate) fn is_served(&self, cpu: CpuId) -> bool {
        let backlog = self.backlog_of.get(cpu.index()).copied().unwrap_or(u16::MAX);
        self.group.slots.get(usize::from(backlog)).is_some_and(|slot| !slot.has_left())
    }

    /// Whether the thread must wait for memory instead of dropping.
    pub(crate) fn must_wait(&self) -> bool {
        self.on_full == OnFull::Wait && !self.group.is_lost()
    }

    /// Executes the verdicts: writes a descriptor for each packet that has room.
    #[inline(never)]
    pub(crate) fn queue(
        &mut self,
        frames_of: &FramesOfBlock<'_>,
        arrivals: &[Arrival],
        verdicts: &[Verdict],
    ) {
        // The loop uses indices into slices that are known to have equal lengths, as in `Receiver::hash`.
        let frames = &frames_of.block.frames()[frames_of.first..][..verdicts.len()];
        let arrivals = &arrivals[..verdicts.len()];
        for index in 0..verdicts.len() {
            let verdict = verdicts[index];
            if verdict.is_drop() {
                self.drop_packet(verdict);
                continue;
            }
            let backlog_index = self.backlog_of[verdict.cpu().index()];
            let backlog = &mut self.backlogs[usize::from(backlog_index)];
            let hash = arrivals[index].hash;
            let descriptor = Descriptor::new(hash, frames[index].wire_len, frames_of.now);
            backlog.write(
                frames_of.block,
                frames_of.number,
                (frames_of.first + index) as u32,
                descriptor,
            );
            if !backlog.touched {
                backlog.touched = true;
                self.touched.push(backlog_index);
            }
        }
    }

    /// Counts `packets` that were received and found the backlog full.
    #[cold]
    pub(crate) fn give_up(&mut self, packets: usize) {
        self.backlogs[self.full].progress.drops.add(DropReason::BacklogFull, packets as u64);
    }

    #[cold]
    fn drop_packet(&mut self, verdict: Verdict) {
        if let Some(reason) = verdict.drop_reason() {
            let backlog = usize::from(self.backlog_of[verdict.cpu().index()]);
            self.backlogs[backlog].progress.drops.add(reason, 1);
        }
    }

    /// Publishes every written list, each with one store, and kicks the sleeping workers. The worker on this CPU is not
    /// kicked here, because it could only run instead of this thread. It is kicked at the end of the poll, as the kernel
    /// processes its own backlog after the poll.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.batch = self.batch.wrapping_add(1);
        for index in &self.touched {
            self.backlogs[usize::from(*index)].publish();
        }
        rxsteer_ring::published();
        for index in self.touched.drain(..) {
            if index == self.own {
                self.own_unkicked = true;
                continue;
            }
            let index = usize::from(index);
            let kicks = u64::from(self.group.slots[index].sleeper.kick());
            self.backlogs[index].progress.kicks.add(kicks);
        }
    }

    /// Sleeps for a short time while the backlog of this CPU is more than half full and its worker makes progress. Packets
    /// received in the meantime would only be dropped there.
    ///
    /// While no other CPU is about to run out of packets, a sleep becomes longer as long as the backlog stays half full,
    /// and shorter when the worker of this CPU is about to run out of packets.
    #[inline]
    pub(crate) fn let_own_worker_catch_up(&mut self) {
        let (mut waiting, mut completed) = self.own().waiting_and_completed();
        let half = self.own().limit() / 2;
        if waiting <= half {
            return;
        }
        let own = usize::from(self.own);
        let mut others = self.backlogs.iter_mut().enumerate().filter(|(index, _)| *index != own);
        let others_have_packets =
            others.all(|(_, other)| other.waiting_and_completed().0 > half / 2);
        let longest = if others_have_packets { MAX_PAUSE } else { MIN_PAUSE };
        for _ in 0..MAX_PAUSES {
            std::thread::sleep(self.pause.min(longest));
            let before = completed;
            (waiting, completed) = self.own().waiting_and_completed();
            if completed == before {
                self.pause = MIN_PAUSE;
                return;
            }
            if waiting <= half {
                if waiting < half / 4 {
                    self.pause = (self.pause / 2).max(MIN_PAUSE);
                }
                return;
            }
            self.pause = (self.pause * 2).min(longest);
        }
    }

    fn own(&mut self) -> &mut BacklogSender {
        &mut self.backlogs[usize::from(self.own)]
    }

    /// Kicks the worker on this CPU: at the end of a poll, or when the thread waits within one.
    pub(crate) fn kick_own(&mut self) {
        if std::mem::take(&mut self.own_unkicked) {
            let own = usize::from(self.own);
            let kicks = u64::from(self.group.slots[own].sleeper.kick());
            self.backlogs[own].progress.kicks.add(kicks);
        }
    }

    /// Waits until the backlog that was full has room, until no worker is left to make room, or until `stop` has
    /// been set for [`ROOM_AFTER_STOP`].
    #[cold]
    pub(crate) fn wait_for_room(&mut self, stop: &Stop<'_>) -> Room {
        self.kick_own();
        let mut polls = 0u32;
        while !self.backlogs[self.full].has_room() && !self.group.is_lost() {
            polls += 1;
            if !polls.is_multiple_of(64) {
                std::hint::spin_loop();
                continue;
            }
            if stop.is_over() {
                return Room::Stopped;
            }
            std::thread::yield_now();
        }
        Room::There
    }

    /// Waits until all packets queued by this thread are processed, no worker is left, or `stop` is set.
    pub(crate) fn wait_until_drained(&mut self, stop: &Stop<'_>) {
        self.kick_own();
        for backlog in &mut self.backlogs {
            while !backlog.is_drained() && !self.group.is_lost() && !stop.is_set() {
                std::thread::yield_now();
            }
        }
    }

    pub(crate) fn reports(&self) -> Vec<BacklogReport> {
        self.backlogs.iter().map(|backlog| backlog.progress.report()).collect()
    }
}

impl Drop for BacklogSet {
    fn drop(&mut self) {
        // Close first, then wake: a worker that checks after the wake-up finds the backlogs closed.
        self.backlogs.clear();
        self.group.wake_all();
    }
}
