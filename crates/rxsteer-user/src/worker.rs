//! A worker: the thread that processes one CPU's backlog.
//!
//! ```text
//!   own backlogs until empty ──► what waits in every other backlog ──► again
//!        nothing anywhere ──► poll a few times more ──► sleep until kicked
//! ```
//!
//! Invariant: a packet counts as completed only after its handler has returned.

use crate::backlog::{BacklogReceiver, Descriptor};
use crate::change::{FlowRecorder, Switch};
use crate::clock::{Clock, ns_between};
use crate::delay_counts::DelayCounts;
use crate::handler::{Handler, PacketList};
use crate::order_tracker::OrderCheck;
use crate::sys;
use crate::ticks::Ticks;
use crate::worker_group::{Abandoned, WorkerGroup, WorkerProgress, WorkerSlot};
use rxsteer_core::DropReason;
use rxsteer_packet::DissectOptions;
use rxsteer_ring::Sleeper;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Packets taken from a backlog at a time: the kernel's `dev_weight`.
const WEIGHT: u32 = 64;

/// How many packets of its own backlog a worker processes, while more arrive, before it looks at other backlogs: the
/// kernel's `netdev_budget` of polls times their weight.
const OWN_BUDGET: u32 = 300 * WEIGHT;

/// The largest number of pauses of an idle worker between two polls for work.
const IDLE_PAUSES: u32 = 32;

/// The results of a worker.
#[derive(Debug)]
pub(crate) struct WorkerReport<H> {
    /// What it counted.
    pub(crate) progress: Arc<WorkerProgress>,
    /// Distinct flows seen here if order is checked; else 0.
    pub(crate) flows: u64,
    /// Whether it was pinned to its CPU.
    pub(crate) pinned: bool,
    /// How it ended, if it did not finish normally.
    pub(crate) failure: Option<String>,
    /// The handler, unless it panicked.
    pub(crate) handler: Option<H>,
}

pub(crate) struct Worker<H> {
    pub(crate) slot: Arc<WorkerSlot>,
    pub(crate) group: Arc<WorkerGroup>,
    pub(crate) backlogs: Vec<BacklogReceiver>,
    pub(crate) handler: H,
    pub(crate) clock: Clock,
    pub(crate) check: Option<OrderCheck>,
    pub(crate) pin: bool,
    /// Records on which CPU the applications of the handler's flows run.
    pub(crate) recorder: FlowRecorder,
    pub(crate) switch: Arc<Switch>,
    /// How far the RX thread looked into the frames.
    pub(crate) options: DissectOptions,
    /// How often it polls for work before it sleeps.
    pub(crate) idle_polls: u32,
    /// Whether the handler's time is counted.
    pub(crate) measures: bool,
    /// When to call the handler's tick.
    pub(crate) ticks: Option<Ticks>,
}

/// Why a worker's loop ended.
enum End {
    Finished,
    Stopped,
}

/// The backlog and the number of packets that the handler is processing now.
type InProgress = Option<(usize, u32)>;

impl<H: Handler> Worker<H> {
    /// Serves the backlogs until no packet can follow, or until it is stopped or dies.
    pub(crate) fn run(mut self) -> WorkerReport<H> {
        let pinned = self.pin && sys::pin_to(self.slot.cpu);
        self.slot.sleeper.serve();
        let mut slots = vec![self.slot.clone()];
        let progress = self.slot.progress.clone();
        let mut in_progress = None;
        let end = catch_unwind(AssertUnwindSafe(|| self.serve(&mut slots, &mut in_progress)));
        let mut panicked = false;
        let failure = match end {
            Ok(End::Finished) => None,
            Ok(End::Stopped) => Some("it was stopped".to_owned()),
            Err(panic) => {
                panicked = true;
                Some(format!("its handler panicked: {}", panic_text(&*panic)))
            }
        };
        if let Some((backlog, packets)) = in_progress {
            self.backlogs[backlog].complete(packets);
            progress.drops.add(DropReason::WorkerLost, u64::from(packets));
        }
        if !panicked {
            self.count(0, 0);
        }
        if failure.is_some() {
            let backlogs = std::mem::take(&mut self.backlogs);
            self.group.leave(Abandoned { slots, backlogs });
            self.switch.goes_offline(self.slot.cpu);
        }
        WorkerReport {
            progress,
            flows: self.check.as_ref().map_or(0, OrderCheck::flows),
            pinned,
            failure,
            handler: (!panicked).then_some(self.handler),
        }
    }

    fn serve(&mut self, slots: &mut Vec<Arc<WorkerSlot>>, in_progress: &mut InProgress) -> End {
        let mut polls = 0;
        loop {
            if self.group.has_abandoned() {
                self.take_over(slots);
            }
            // ORDER: Relaxed; a stop is a request, and the flag carries no data.
            if self.slot.stop.load(Ordering::Relaxed) {
                return End::Stopped;
            }
            if self.ticks.as_mut().is_some_and(|ticks| ticks.is_due(self.clock)) {
                self.handler.tick(self.slot.cpu);
            }
            if self.poll(in_progress) {
                polls = 0;
                continue;
            }
            self.retire_finished_backlogs();
            if self.backlogs.is_empty() && self.group.is_done() {
                return End::Finished;
            }
            if polls < self.idle_polls {
                // Each poll fetches the cache line that the RX thread is about to write. A few hundred nanoseconds
                // between polls leave the line alone and let a list grow.
                let pauses = (polls + 1).min(IDLE_PAUSES);
                for _ in 0..pauses {
                    std::hint::spin_loop();
                }
                polls += pauses;
                continue;
            }
            polls = 0;
            // A sleeping worker must not keep a replaced table alive.
            self.recorder.table();
            let limit = self.ticks.as_ref().map(|ticks| ticks.left(self.clock));
            Sleeper::sleep(slots.iter().map(|slot| &slot.sleeper), limit, || {
                // ORDER: Relaxed, as above; `Sleeper::sleep` fences before this poll.
                self.slot.stop.load(Ordering::Relaxed)
                    || self
                        .backlogs
                        .iter()
                        .any(|backlog| !backlog.is_empty() || backlog.is_finished())
                    || self.group.has_abandoned()
                    || self.group.is_done()
                    || self.recorder.is_stale()
            });
        }
    }

    /// One round over all backlogs. Returns whether there were packets.
    fn poll(&mut self, in_progress: &mut InProgress) -> bool {
        let mut worked = false;
        for backlog in 0..self.backlogs.len() {
            // Its own backlog is emptied first, within its budget. From the others it takes the packets that wait now.
            let own = self.backlogs[backlog].own;
            let mut waiting = if own { OWN_BUDGET } else { self.backlogs[backlog].ready(u32::MAX) };
            while waiting != 0 {
                let done = self.process(backlog, waiting.min(WEIGHT), in_progress);
                if done == 0 {
                    break;
                }
                worked = true;
                waiting -= done;
            }
        }
        worked
    }

    /// Processes the next list of a backlog, up to `most` packets. Returns their number.
    #[inline]
    fn process(&mut self, backlog: usize, most: u32, in_progress: &mut InProgress) -> u32 {
        if self.group.any_removed() {
            return self.process_without_removed(backlog, most, in_progress);
        }
        let Some(list) = self.backlogs[backlog].next_list(most) else { return 0 };
        let begun_ns = self.clock.now_ns();
        record_delays(&self.slot.progress.delay, list.packets, Clock::tick(begun_ns));
        let packets = list.packets.len() as u32;
        let bytes = list.wire_bytes;
        let (cpu, block, packets_of) = (self.slot.cpu, list.block, list.packets);
        let socks = self.recorder.table();
        let list = PacketList { cpu, block, packets: packets_of, socks, options: self.options };
        *in_progress = Some((backlog, packets));
        if let Some(check) = &mut self.check {
            check.begin(&list);
            self.handler.handle(&list);
            check.complete(&list);
        } else {
            self.handler.handle(&list);
        }
        *in_progress = None;
        self.backlogs[backlog].complete(packets);
        if self.measures {
            self.slot.progress.busy_ns.add(self.clock.now_ns() - begun_ns);
        }
        self.count(packets, bytes);
        packets
    }

    /// Counts a list whose handler returned. What the handler could not send on counts as dropped.
    #[inline(always)]
    fn count(&mut self, packets: u32, bytes: u64) {
        let progress = &self.slot.progress;
        let unsent = self.handler.take_unsent();
        if unsent > 0 {
            progress.drops.add(DropReason::TxFull, unsent);
        }
        progress.packets.set(progress.packets.get() + u64::from(packets) - unsent);
        progress.bytes.add(bytes);
        if let Some(check) = &self.check {
            progress.reordered.set(check.reordered);
        }
    }

    /// Does the same as `process`, but one packet at a time, after an interface was removed: its waiting packets are
    /// dropped and counted, as the kernel's `flush_backlog` does.
    #[cold]
    fn process_without_removed(
        &mut self,
        backlog: usize,
        most: u32,
        in_progress: &mut InProgress,
    ) -> u32 {
        let mut done = 0;
        while done < most {
            let Some(list) = self.backlogs[backlog].next_list(1) else { break };
            record_delays(&self.slot.progress.delay, list.packets, self.clock.now());
            let bytes = list.wire_bytes;
            let socks = self.recorder.table();
            let (cpu, block, packets) = (self.slot.cpu, list.block, list.packets);
            let list = PacketList { cpu, block, packets, socks, options: self.options };
            let removed = list.iter().any(|packet| self.group.is_removed(packet.meta().rx_queue));
            if removed {
                self.slot.progress.drops.add(DropReason::InterfaceRemoved, 1);
            } else {
                *in_progress = Some((backlog, 1));
                if let Some(check) = &mut self.check {
                    check.begin(&list);
                }
                self.handler.handle(&list);
                if let Some(check) = &mut self.check {
                    check.complete(&list);
                }
                *in_progress = None;
                self.count(1, bytes);
            }
            self.backlogs[backlog].complete(1);
            done += 1;
        }
        done
    }

    fn retire_finished_backlogs(&mut self) {
        self.backlogs.retain(|backlog| {
            let finished = backlog.is_finished();
            if finished {
                self.group.backlog_finished();
            }
            !finished
        });
    }

    #[cold]
    fn take_over(&mut self, slots: &mut Vec<Arc<WorkerSlot>>) {
        for abandoned in self.group.take_over() {
            for slot in &abandoned.slots {
                slot.sleeper.serve();
            }
            slots.extend(abandoned.slots);
            // These are not its own queues: they are served after those.
            self.backlogs.extend(abandoned.backlogs.into_iter().map(|mut backlog| {
                backlog.own = false;
                backlog
            }));
        }
    }
}

/// Records the delay of every packet. Packets that were queued together share one record.
#[inline]
fn record_delays(delays: &DelayCounts, packets: &[Descriptor], now: u32) {
    let mut rest = packets;
    while let Some(first) = rest.first() {
        let run = rest
            .iter()
            .position(|packet| packet.queued_at != first.queued_at)
            .unwrap_or(rest.len());
        delays.record(ns_between(first.queued_at, now), run as u64);
        rest = &rest[run..];
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_core::FlowHash;

    #[test]
    fn delays_of_one_list_are_recorded_together() {
        let packets = [1, 1, 3].map(|queued_at| Descriptor::new(FlowHash::NONE, 0, queued_at));
        let delays = DelayCounts::default();
        record_delays(&delays, &packets, 4);
        assert_eq!(delays.buckets().collect::<Vec<_>>(), [(64, 1), (192, 2)]);
    }
}
