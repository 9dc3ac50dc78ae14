//! How flows go: ended, waited for, read for the last time, freed.

use crate::grace::GracePeriod;
use crate::record::{FlowEnd, FlowRecord};
use crate::slots::LIVE;
use crate::sync::lock;
use crate::table::FlowTable;

/// Flows that are ended between two looks at the lock.
const AT_ONCE: u32 = 256;

/// The flows that ended and are being waited for.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    grace: GracePeriod,
    waiting: Vec<u32>,
    /// Slots to be noted in the table state.
    freed: Vec<u32>,
    record: FlowRecord,
    lines: Vec<u32>,
}

impl FlowTable {
    /// Hands out the final records of flows that ended and that no writer can be counting in any
    /// more, and frees their slots. Returns how many ended flows are left: those that ended
    /// meanwhile, or all, because writers leave a flow only with the list of packets they have in
    /// hand.
    ///
    /// It has to be called now and then, since a table whose ended flows are not collected has no
    /// room for new ones at last. One call at a time; a second one waits.
    pub fn collect(&self, mut f: impl FnMut(&FlowRecord)) -> usize {
        let collector = &mut *lock(&self.collector);
        // What is left of the last call, should `f` have panicked.
        self.hand_back(collector);
        // Those that waited, and those that ended since; not those that end meanwhile, for ever.
        for _ in 0..2 {
            if collector.waiting.is_empty() {
                // Under its lock is known who ended these flows, and that they are out of the index.
                std::mem::swap(&mut collector.waiting, &mut lock(&self.state).ended);
                if collector.waiting.is_empty() {
                    break;
                }
                // They are taken from the end, in the order in which they ended.
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
            // Freed first, so that a flow is not freed again should `f` panic.
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

    /// Gives back the lines and slots of flows that were freed.
    fn hand_back(&self, collector: &mut Collector) {
        self.slots.give_back(&mut collector.lines);
        if !collector.freed.is_empty() {
            lock(&self.state).collected(collector.freed.drain(..));
        }
    }

    /// Takes all flows out that had no packet for longer than the idle timeout before `now_ns`, a
    /// time of the packets' clock; [`FlowTable::collect`] hands out their records. For live
    /// traffic, where flows end that never have another packet. One that has is found to have
    /// been idle in any case.
    pub fn expire(&self, now_ns: u64) {
        if self.idle_timeout_ns == u64::MAX {
            return;
        }
        self.end_where(FlowEnd::Idle, |slot| {
            now_ns.saturating_sub(self.slots.last_ns(slot)) > self.idle_timeout_ns
        });
    }

    /// Takes all flows out, as at the end of a run; [`FlowTable::collect`] hands out their records.
    /// Flows that were idle for longer than the timeout when the latest packet came end for that.
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
        self.expire(latest_ns);
        self.end_where(FlowEnd::Finished, |_| true);
    }

    /// Slots that were ever used are below this.
    pub(crate) fn slots_used(&self) -> u32 {
        lock(&self.state).free_slots.fresh()
    }

    fn end_where(&self, why: FlowEnd, is_over: impl Fn(u32) -> bool) {
        let slots = self.slots_used();
        let mut ended = Vec::with_capacity(AT_ONCE as usize);
        for first in (0..slots).step_by(AT_ONCE as usize) {
            self.reading(|| {
                for slot in first..slots.min(first + AT_ONCE) {
                    if self.slots.state(slot).1 == LIVE && is_over(slot) && self.end(slot, why) {
                        ended.push(slot);
                    }
                }
                // Before leaving: until then no other flow can be in these slots.
                self.note_ended(&mut ended, why);
            });
        }
    }

    /// Notes flows that ended in the table state.
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
