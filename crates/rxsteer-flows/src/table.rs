//! The flow table: the flows, within limits, and their statistics.

use crate::grace::{GracePeriod, Reader};
use crate::index::Index;
use crate::mask::{FlowMask, WordMask};
use crate::record::{FlowEnd, FlowRecord};
use crate::slots::{FREE, FlowSlots, LIVE};
use crate::sync::{Mutex, lock};
use crate::table_state::{FlowCounts, TableState};
use rxsteer_core::{CpuId, FlowKey};
use std::collections::TryReserveError;
use std::sync::Arc;

/// The largest number of flows of a table.
pub const MAX_FLOWS: u32 = 1 << 24;

/// The largest number of blocks for further CPUs of a table.
pub const MAX_BLOCKS: u32 = 1 << 26;

/// The smallest number of flows that may have ended without being collected; the actual number is at least an
/// eighth of the limit of flows. Loom creates the words of each slot anew for each run, so it uses 1.
const MIN_SPARE: u32 = if cfg!(loom) { 1 } else { 1024 };

/// The size of a table, and the definition of a flow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlowTableConfig {
    /// The largest number of flows in the table, 1 to [`MAX_FLOWS`]. A new flow beyond this limit evicts an old
    /// one.
    pub max_flows: u32,
    /// The idle timeout: a flow without a packet for longer than this is over, and a later packet starts a new
    /// record. In nanoseconds of the packets' clock; `None` for no timeout.
    pub idle_timeout_ns: Option<u64>,
    /// The active timeout: [`FlowTable::expire`] ends the record of a flow whose first packet was longer ago than this,
    /// and its next packet begins another one. In nanoseconds of the packets' clock; `None` for no timeout.
    pub active_timeout_ns: Option<u64>,
    /// Blocks for the second and further CPUs of flows, up to [`MAX_BLOCKS`]. When they are used up, further CPUs
    /// count in the flow's shared block, where only the distinction between CPUs is lost. A writer keeps up to 15
    /// blocks in reserve. A flow on more than two CPUs takes one more block for every seven CPUs.
    pub max_blocks: u32,
    /// The fields that identify a flow.
    pub mask: FlowMask,
}

impl FlowTableConfig {
    /// A configuration without idle timeout, with as many blocks as flows, and with the whole 5-tuple.
    #[must_use]
    pub fn new(max_flows: u32) -> FlowTableConfig {
        FlowTableConfig {
            max_flows,
            idle_timeout_ns: None,
            active_timeout_ns: None,
            max_blocks: max_flows.min(MAX_BLOCKS),
            mask: FlowMask::ALL,
        }
    }

    /// Flows that fit beyond the limit, so that flows that ended need not be collected at once.
    fn spare(&self) -> u32 {
        (self.max_flows / 8).max(MIN_SPARE)
    }

    /// The largest amount of memory that the table can take, in bytes. Most of it is taken only as flows arrive.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let slots = u64::from(self.max_flows) + u64::from(self.spare());
        let buckets = (u64::from(self.max_flows) / 4).next_power_of_two().max(16);
        // The lines and places of each slot, and the numbers of slots and blocks that wait for their return.
        slots * (3 * 64 + 20 + 16) + u64::from(self.max_blocks) * (64 + 8) + buckets * 64
    }
}

/// Why a table or a writer could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlowTableError {
    /// The limit of flows is 0 or too high.
    #[error("a flow table holds 1 to {MAX_FLOWS} flows, not {0}")]
    MaxFlows(u32),
    /// There are too many blocks.
    #[error("a flow table has at most {MAX_BLOCKS} blocks for further CPUs, not {0}")]
    MaxBlocks(u32),
    /// The memory cannot be allocated.
    #[error(
        "a flow table of this size can take {0} bytes, which cannot be allocated; allow fewer flows"
    )]
    Memory(u64, #[source] TryReserveError),
    /// The CPU already has a writer.
    #[error("CPU {0} has a writer already; each CPU's counts are written by one thread alone")]
    HasWriter(CpuId),
}

/// Per-CPU statistics of flows.
///
/// One [`FlowWriter`](crate::FlowWriter) per CPU counts packets. Any thread may read at the same time. One thread
/// collects the final records of flows that ended, from time to time.
#[derive(Debug)]
pub struct FlowTable {
    pub(crate) slots: FlowSlots,
    pub(crate) index: Index,
    pub(crate) mask: WordMask,
    pub(crate) idle_timeout_ns: u64,
    pub(crate) active_timeout_ns: u64,
    pub(crate) state: Mutex<TableState>,
    pub(crate) registered: Mutex<Vec<RegisteredReader>>,
    pub(crate) collector: Mutex<Collector>,
    /// The reader of threads that read the table, one at a time.
    reader: Mutex<Arc<Reader>>,
}

/// A writer in the table's list of readers.
#[derive(Debug)]
pub(crate) struct RegisteredReader {
    pub(crate) cpu: CpuId,
    pub(crate) reader: Arc<Reader>,
}

/// The flows that ended and whose grace period is not over.
#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub(crate) grace: GracePeriod,
    pub(crate) waiting: Vec<u32>,
    /// Slots that are to be returned to the table state.
    pub(crate) freed: Vec<u32>,
    pub(crate) record: FlowRecord,
    pub(crate) lines: Vec<u32>,
}

/// Conversion between the end reason and the state of a slot.
impl FlowEnd {
    const ALL: [FlowEnd; 4] = [FlowEnd::Idle, FlowEnd::Evicted, FlowEnd::Finished, FlowEnd::Active];

    pub(crate) fn state(self) -> u32 {
        LIVE + 1 + self as u32
    }

    pub(crate) fn of_state(state: u32) -> Option<FlowEnd> {
        FlowEnd::ALL.into_iter().find(|end| end.state() == state)
    }
}

impl FlowTable {
    /// An empty table.
    ///
    /// # Errors
    /// [`FlowTableError`] when the configuration is out of range or the memory cannot be allocated.
    pub fn new(config: &FlowTableConfig) -> Result<Arc<FlowTable>, FlowTableError> {
        if config.max_flows == 0 || config.max_flows > MAX_FLOWS {
            return Err(FlowTableError::MaxFlows(config.max_flows));
        }
        if config.max_blocks > MAX_BLOCKS {
            return Err(FlowTableError::MaxBlocks(config.max_blocks));
        }
        FlowTable::with_memory(config)
            .map(Arc::new)
            .map_err(|why| FlowTableError::Memory(config.memory(), why))
    }

    fn with_memory(config: &FlowTableConfig) -> Result<FlowTable, TryReserveError> {
        let slots = config.max_flows + config.spare();
        let reader = Arc::new(Reader::new());
        let readers = RegisteredReader { cpu: CpuId::NONE, reader: reader.clone() };
        Ok(FlowTable {
            slots: FlowSlots::new(slots, config.max_blocks)?,
            index: Index::new(config.max_flows)?,
            mask: config.mask.into(),
            idle_timeout_ns: config.idle_timeout_ns.unwrap_or(u64::MAX),
            active_timeout_ns: config.active_timeout_ns.unwrap_or(u64::MAX),
            state: Mutex::new(TableState::new(slots, config.max_flows)?),
            registered: Mutex::new(vec![readers]),
            collector: Mutex::new(Collector::default()),
            reader: Mutex::new(reader),
        })
    }

    /// The numbers of flows that are in the table, were created, and were taken out.
    #[must_use]
    pub fn counts(&self) -> FlowCounts {
        lock(&self.state).counts()
    }

    /// The number of blocks for further CPUs that no flow uses.
    #[must_use]
    pub fn free_blocks(&self) -> usize {
        self.slots.free_blocks()
    }

    /// The present counts of a flow, if it is in the table.
    #[must_use]
    pub fn get(&self, key: &FlowKey) -> Option<FlowRecord> {
        self.with_flow(key, |slot| {
            let mut record = FlowRecord::default();
            self.record(slot, &mut record);
            record
        })
    }

    /// Sets the counts of a flow to 0 on every CPU. Returns whether the flow is in the table.
    pub fn clear(&self, key: &FlowKey) -> bool {
        self.with_flow(key, |slot| self.slots.clear(slot)).unwrap_or(false)
    }

    fn with_flow<T>(&self, key: &FlowKey, then: impl FnOnce(u32) -> T) -> Option<T> {
        let words = self.mask.apply(&(*key).into());
        self.reading(|| self.index.find(self.index.hash(&words), &words, &self.slots).map(then))
    }

    /// Sets the counts of all flows to 0.
    pub fn clear_all(&self) {
        for slot in 0..self.slots_used() {
            self.slots.clear(slot);
        }
    }

    /// Calls `f` with the present counts of each flow in the table. Flows that are added or taken out meanwhile
    /// may be missing.
    pub fn for_each(&self, mut f: impl FnMut(&FlowRecord)) {
        let mut record = FlowRecord::default();
        for slot in 0..self.slots_used() {
            // `f` is called outside of `reading`: it may take long, and flows that ended wait for readers.
            let is_live = self.reading(|| {
                let is_live = self.slots.state(slot).1 == LIVE;
                if is_live {
                    self.record(slot, &mut record);
                }
                is_live
            });
            if is_live {
                f(&record);
            }
        }
    }

    /// A bound above all slots that were ever used.
    pub(crate) fn slots_used(&self) -> u32 {
        lock(&self.state).free_slots.fresh()
    }

    /// Runs `read` in a read-side section: flows are not freed meanwhile.
    pub(crate) fn reading<T>(&self, read: impl FnOnce() -> T) -> T {
        let reader = lock(&self.reader);
        let _guard = reader.guard();
        read()
    }

    /// Reads the counts of the flow in a slot that is not freed meanwhile.
    pub(crate) fn record(&self, slot: u32, record: &mut FlowRecord) {
        let (_, state) = self.slots.state(slot);
        debug_assert_ne!(state, FREE);
        self.slots.read_into(slot, record);
        record.key = self.slots.key(slot).key();
        record.end = FlowEnd::of_state(state);
    }

    /// Takes a flow out of the table; `false` if another thread did so first. The caller must update the table
    /// state.
    pub(crate) fn end(&self, slot: u32, why: FlowEnd) -> bool {
        if !self.slots.end(slot, why.state()) {
            return false;
        }
        let hash = self.index.hash(&self.slots.key(slot));
        self.index.lock(hash).remove(slot);
        true
    }
}
