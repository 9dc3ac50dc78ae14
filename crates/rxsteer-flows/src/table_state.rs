//! The state that all flows share: free slots, the eviction order, and the flows that ended. One lock protects it.
//! A writer takes the lock once for a list of packets, and only if the list has new flows.

use crate::aging::Aging;
use crate::pool::FreeNumbers;
use rxsteer_core::counters::FlowCounter;
use std::collections::TryReserveError;

/// How many flows were created, how they ended, and how many packets were refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// The number of flows in the table now.
    pub live: u64,
    /// The number of flows that were put into the table.
    pub created: u64,
    /// Flows taken out because no packet came for longer than the idle timeout.
    pub expired: u64,
    /// Flows taken out to make room for new ones.
    pub evicted: u64,
    /// Packets in no record: their flow was new and there was no room for it.
    pub refused: u64,
}

impl FlowCounts {
    /// The value of `counter`.
    #[must_use]
    pub fn get(&self, counter: FlowCounter) -> u64 {
        match counter {
            FlowCounter::Live => self.live,
            FlowCounter::Created => self.created,
            FlowCounter::Expired => self.expired,
            FlowCounter::Evicted => self.evicted,
            FlowCounter::Refused => self.refused,
        }
    }
}

#[derive(Debug)]
pub(crate) struct TableState {
    pub(crate) free_slots: FreeNumbers,
    pub(crate) aging: Aging,
    /// Flows in the table, plus slots reserved by writers.
    pub(crate) places: u32,
    max_flows: u32,
    /// Flows that ended and are not collected yet.
    pub(crate) ended: Vec<u32>,
    pub(crate) counts: FlowCounts,
    gone: u64,
}

impl TableState {
    pub(crate) fn new(slots: u32, max_flows: u32) -> Result<TableState, TryReserveError> {
        Ok(TableState {
            free_slots: FreeNumbers::below(slots),
            aging: Aging::new(slots, max_flows)?,
            places: 0,
            max_flows,
            ended: Vec::new(),
            counts: FlowCounts::default(),
            gone: 0,
        })
    }

    /// A slot for a new flow if the table is below its limit. `None` when a flow must be evicted first, or when
    /// too many flows that ended are not collected yet.
    pub(crate) fn slot_if_below_limit(&mut self) -> Option<u32> {
        if self.places == self.max_flows {
            return None;
        }
        let slot = self.free_slots.take()?;
        self.places += 1;
        Some(slot)
    }

    /// Records that a flow is in the table now, unless it has already ended.
    pub(crate) fn created(&mut self, slot: u32, is_live: bool) {
        self.counts.created += 1;
        if is_live {
            self.aging.add(slot);
        }
    }

    /// Records that a flow is out of the table.
    pub(crate) fn ended(&mut self, slot: u32) {
        self.aging.remove(slot);
        self.ended.push(slot);
        self.places -= 1;
        self.gone += 1;
    }

    /// The numbers of flows that are in the table, were created, and were taken out.
    pub(crate) fn counts(&self) -> FlowCounts {
        // A flow can be gone before its creation was recorded.
        FlowCounts { live: self.counts.created.saturating_sub(self.gone), ..self.counts }
    }

    /// Takes back slots that were reserved and not used.
    pub(crate) fn unused(&mut self, slots: impl ExactSizeIterator<Item = u32>) {
        self.places -= slots.len() as u32;
        self.free_slots.give_back(slots);
    }

    /// Takes back slots of flows that were collected.
    pub(crate) fn collected(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.free_slots.give_back(slots);
    }
}
