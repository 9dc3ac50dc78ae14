//! The end of flows. A flow is ended (also to make room for another), its readers are waited for, it is read for the last
//! time, and its slot is freed.

use crate::record::{FlowEnd, FlowRecord};
use crate::slots::LIVE;
use crate::sync::lock;
use crate::table::{Collector, FlowTable};
use crate::table_state::TableState;

/// Flows that are ended at a time, before the lock of the table state is taken.
const BATCH: u32 = 256;

/// How many candidates in a row may turn out to have ended already during one eviction.
const MAX_DEFERRED: u32 = 64;

impl FlowTable {
    /// Passes to `f` the final records of flows that ended and in which no writer can still be counting, and frees
    /// their slots. Returns how many ended flows are left. These are flows that ended meanwhile; or all ended
    /// flows, while a writer that may know them has not finished its list of packets.
    ///
    /// Call this from time to time: a table whose ended flows are not collected eventually has no room for new
    /// ones. Only one call runs at a time; a second call waits.
    pub fn collect(&self, mut f: impl FnMut(&FlowRecord)) -> usize {
        let collector = &mut *lock(&self.collector);
        // Slots and lines that remain from the last call if `f` panicked.
        self.hand_back(collector);
        // One round for the flows that waited, and one for those that ended since. Flows that end meanwhile are
        // left, so the loop ends.
        for _ in 0..2 {
            if collector.waiting.is_empty() {
                // This lock ensures that all ends of these flows are visible and that the flows are out of the
                // index.
                std::mem::swap(&mut collector.waiting, &mut lock(&self.state).ended);
                if collector.waiting.is_empty() {
                    break;
                }
                // Flows are popped from the end, so this keeps the order in which they ended.
                collector.waiting.reverse();
                let readers: Vec<_> = lock(&self.registered)
                    .iter()
                    .map(|registered_reader| registered_reader.reader.clone())
                    .collect();
                collector.grace.begin(&readers);
            }
            if !collector.grace.is_over() {
                break;
            }
            // The slot is freed first, so that it is not freed again if `f` panics.
            while let Some(slot) = collector.waiting.pop() {
                self.record(slot, &mut collector.record);
                self.slots.free_with(slot, |line| collector.lines.push(line));
                collector.freed.push(slot);
                f(&collector.record);
            }
            self.hand_back(collector);
        }
        collector.waiting.len() + lock(&self.state).ended.len()
    }

    /// Returns the lines and slots of flows that were freed.
    fn hand_back(&self, collector: &mut Collector) {
        self.slots.give_back(&mut collector.lines);
        if !collector.freed.is_empty() {
            lock(&self.state).collected(collector.freed.drain(..));
        }
    }

    /// Takes flows out of the table that had no packet for longer than the idle timeout before `now_ns`, a time of the
    /// packets' clock, and those whose first packet came longer than the active timeout before. [`FlowTable::collect`]
    /// returns their records. Use it for live traffic, where a flow may end without another packet. If a flow has a later
    /// packet, that packet detects the timeout in any case.
    pub fn expire(&self, now_ns: u64) {
        self.expire_idle(now_ns);
        if self.active_timeout_ns != u64::MAX {
            self.end_where(FlowEnd::Active, |slot| {
                now_ns.saturating_sub(self.slots.first_ns(slot)) > self.active_timeout_ns
            });
        }
    }

    fn expire_idle(&self, now_ns: u64) {
        if self.idle_timeout_ns == u64::MAX {
            return;
        }
        self.end_where(FlowEnd::Idle, |slot| {
            now_ns.saturating_sub(self.slots.last_ns(slot)) > self.idle_timeout_ns
        });
    }

    /// Takes all flows out, as at the end of a run. [`FlowTable::collect`] returns their records. Flows that were
    /// idle for longer than the timeout at the time of the latest packet get the end reason `Idle`.
    pub fn finish(&self) {
        let mut latest_ns = 0;
        if self.idle_timeout_ns != u64::MAX {
            for slot in 0..self.slots_used() {
                let last_ns = self.reading(|| {
                    let is_live = self.slots.state(slot).1 == LIVE;
                    if is_live { self.slots.last_ns(slot) } else { 0 }
                });
                latest_ns = latest_ns.max(last_ns);
            }
        }
        self.expire_idle(latest_ns);
        self.end_where(FlowEnd::Finished, |_| true);
    }

    fn end_where(&self, why: FlowEnd, is_over: impl Fn(u32) -> bool) {
        let slots = self.slots_used();
        let mut ended = Vec::with_capacity(BATCH as usize);
        for first in (0..slots).step_by(BATCH as usize) {
            self.reading(|| {
                for slot in first..slots.min(first + BATCH) {
                    if self.slots.state(slot).1 == LIVE && is_over(slot) && self.end(slot, why) {
                        ended.push(slot);
                    }
                }
                // This runs before the reader leaves: until then these slots hold no other flow.
                self.note_ended(&mut ended, why);
            });
        }
    }

    /// Records flows that ended in the table state.
    pub(crate) fn note_ended(&self, ended: &mut Vec<u32>, why: FlowEnd) {
        if ended.is_empty() {
            return;
        }
        let state = &mut *lock(&self.state);
        if why == FlowEnd::Idle {
            state.counts.expired += ended.len() as u64;
        }
        for slot in ended.drain(..) {
            state.ended(slot);
        }
    }
}

impl TableState {
    /// Evicts a flow for one that is new at `now_ns`; `false` when no flow can be evicted.
    pub(crate) fn evict_one(&mut self, table: &FlowTable, now_ns: u64) -> bool {
        let activity = |slot| table.slots.activity(slot);
        for _ in 0..MAX_DEFERRED {
            let Some(slot) = self.aging.eviction_candidate(activity) else { break };
            let idle = now_ns.saturating_sub(table.slots.last_ns(slot)) > table.idle_timeout_ns;
            let why = if idle { FlowEnd::Idle } else { FlowEnd::Evicted };
            if table.end(slot, why) {
                match why {
                    FlowEnd::Idle => self.counts.expired += 1,
                    _ => self.counts.evicted += 1,
                }
                self.ended(slot);
                return true;
            }
            // The flow has already ended, and the thread that ended it is about to record that.
            self.aging.defer(slot);
        }
        false
    }
}
