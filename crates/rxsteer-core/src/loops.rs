//! The loops over a list of packets: which packets get room ([`EnqueuePolicy`]), where a flow without a desired
//! CPU is placed ([`Placing`]), and the work for each packet, with a flow table ([`Guarded::place`]) or without
//! ([`place`]).

use crate::backlogs::{Arrival, Backlogs, Refusal};
use crate::balance::CountPackets;
use crate::chooser::{InSlots, SlotSettings};
use crate::counters::SteerCounts;
use crate::cpu::CpuId;
use crate::flow_limit::FlowLimiter;
use crate::maps::{Map, Maps};
use crate::order::{FlowTables, UNSTEERED, allowed};
use crate::plan::Rules;
use crate::rfs::SockFlowTable;
use crate::sparse::SparseTable;
use crate::target::{Target, TargetRule};
use crate::verdict::{DropReason, Verdict};
use alloc::boxed::Box;

/// The number of packets whose slots are loaded before the first of them is decided on.
pub(crate) const LIST: usize = 64;

/// The table entries that were looked up for the current packets.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) slots: Box<[u32; LIST]>,
    /// The sock flow entries of the packets.
    pub(crate) desired: Box<[u32; LIST]>,
    /// Receives the values that were loaded ahead, so that the compiler keeps the loads.
    pub(crate) loaded: u32,
}

/// The counts of one list.
#[derive(Default)]
pub(crate) struct Tally {
    /// Indexed by the number of a [`TargetRule`]. The array is longer than the number of rules, so that no index
    /// needs a bounds check.
    pub(crate) by: [u32; 8],
    pub(crate) deferred: u32,
}

impl Tally {
    #[inline(always)]
    pub(crate) fn add(&mut self, target: Target, cpu: CpuId) {
        self.by[target.by as usize % 8] += 1;
        self.deferred += u32::from(target.cpu != cpu);
    }
}

/// Decides which packets get room.
pub(crate) trait EnqueuePolicy {
    type Backlogs: Backlogs;

    fn backlogs(&mut self) -> &mut Self::Backlogs;

    fn admit(&mut self, cpu: CpuId, packet: &Arrival) -> Result<u32, Refusal>;
}

/// Accepts every packet while there is room.
pub(crate) struct Unlimited<'a, B>(pub(crate) &'a mut B);

impl<B: Backlogs> EnqueuePolicy for Unlimited<'_, B> {
    type Backlogs = B;

    #[inline(always)]
    fn backlogs(&mut self) -> &mut B {
        self.0
    }

    #[inline(always)]
    fn admit(&mut self, cpu: CpuId, _packet: &Arrival) -> Result<u32, Refusal> {
        self.0.reserve(cpu)
    }
}

/// In a backlog that is half full, refuses the packets of the flows that fill it.
pub(crate) struct FlowLimited<'a, B> {
    pub(crate) backlogs: &'a mut B,
    pub(crate) limiter: &'a mut FlowLimiter,
}

impl<B: Backlogs> EnqueuePolicy for FlowLimited<'_, B> {
    type Backlogs = B;

    #[inline(always)]
    fn backlogs(&mut self) -> &mut B {
        self.backlogs
    }

    #[inline(always)]
    fn admit(&mut self, cpu: CpuId, packet: &Arrival) -> Result<u32, Refusal> {
        let (waiting, limit) = self.backlogs.waiting(cpu);
        // A full backlog refuses packets outside the history, so a packet that must wait is counted once.
        if waiting < limit && self.limiter.exceeds(packet.hash, waiting, limit) {
            return Err(Refusal::Drop(DropReason::FlowLimit));
        }
        self.backlogs.reserve(cpu)
    }
}

/// Chooses and reserves packet by packet, under rules whose decision for a flow never changes. What it steers counts
/// for `rule`.
#[inline(always)]
pub(crate) fn place<A: EnqueuePolicy>(
    arrivals: &[Arrival],
    enqueue: &mut A,
    verdicts: &mut [Verdict],
    (counts, rule): (&mut SteerCounts, TargetRule),
    choose: impl Fn(&Arrival) -> Target,
) -> usize {
    let verdicts = &mut verdicts[..arrivals.len()];
    let (mut decided, mut local) = (arrivals.len(), 0);
    for index in 0..arrivals.len() {
        let Target { cpu, by } = choose(&arrivals[index]);
        verdicts[index] = match enqueue.admit(cpu, &arrivals[index]) {
            Ok(_) => Verdict::deliver(cpu),
            Err(Refusal::Drop(reason)) => Verdict::drop(cpu, reason),
            Err(Refusal::Wait) => {
                decided = index;
                break;
            }
        };
        local += u32::from(by == TargetRule::Local);
    }
    let mut tally = Tally::default();
    tally.by[rule as usize] = decided as u32 - local;
    tally.by[TargetRule::Local as usize] += local;
    counts.add(&tally);
    decided
}

/// Places a steered flow that has no desired CPU. A trait rather than closures ensures that each implementation is
/// inlined into its loop.
pub(crate) trait Placing {
    fn place(&self, packet: &Arrival) -> Target;

    /// Notes that a desired CPU was used instead.
    #[inline(always)]
    fn note_desired(&self, _cpu: CpuId) {}
}

/// Places a flow in its sparse slot, or else by hash.
pub(crate) struct BySlot<'a, C> {
    rules: &'a Rules,
    slots: SlotSettings<'a>,
    /// The slots, and the producer that asks for one.
    table: (&'a SparseTable, u16),
    by_hash: ByHash<'a, C>,
}

impl<'a, C: CountPackets> BySlot<'a, C> {
    pub(crate) fn new(
        rules: &'a Rules,
        maps: &'a Maps,
        in_slots: &'a InSlots,
        table: (&'a SparseTable, u16),
        counts: C,
    ) -> BySlot<'a, C> {
        BySlot { rules, slots: in_slots.settings(), table, by_hash: ByHash::new(maps, counts) }
    }
}

impl<C: CountPackets> Placing for BySlot<'_, C> {
    #[inline(always)]
    fn place(&self, packet: &Arrival) -> Target {
        let ByHash { counts, .. } = self.by_hash;
        self.rules.in_slot(packet, self.by_hash.map(packet), self.slots, self.table, counts)
    }

    #[inline(always)]
    fn note_desired(&self, cpu: CpuId) {
        self.by_hash.note_desired(cpu);
    }
}

/// Keeps a flow on the CPU that receives it.
pub(crate) struct Stays<'a>(pub(crate) &'a Rules);

impl Placing for Stays<'_> {
    #[inline(always)]
    fn place(&self, packet: &Arrival) -> Target {
        self.0.local(packet)
    }
}

/// Places a flow by its hash.
pub(crate) struct ByHash<'a, C> {
    maps: &'a Maps,
    single: Option<&'a Map>,
    counts: C,
}

impl<'a, C: CountPackets> ByHash<'a, C> {
    pub(crate) fn new(maps: &'a Maps, counts: C) -> ByHash<'a, C> {
        ByHash { maps, single: maps.single(), counts }
    }

    #[inline(always)]
    fn map(&self, packet: &Arrival) -> &'a Map {
        self.single.unwrap_or_else(|| self.maps.of(packet))
    }
}

impl<C: CountPackets> Placing for ByHash<'_, C> {
    #[inline(always)]
    fn place(&self, packet: &Arrival) -> Target {
        self.map(packet).by_hash(packet, self.counts)
    }

    #[inline(always)]
    fn note_desired(&self, cpu: CpuId) {
        self.counts.elsewhere(cpu);
    }
}

/// The state of rules that remember flows.
pub(crate) struct Guarded<'a> {
    pub(crate) flows: &'a mut FlowTables,
    pub(crate) counts: &'a mut SteerCounts,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) rules: &'a Rules,
    pub(crate) socks: &'a SockFlowTable,
    /// Whether the policy follows desired CPUs, and the table has any. Otherwise it need not be searched.
    pub(crate) has_desired: bool,
}

impl Guarded<'_> {
    /// [`Guarded::place_in`] with or without desired CPUs, which is examined once per batch.
    #[inline(always)]
    pub(crate) fn place<A: EnqueuePolicy>(
        &mut self,
        arrivals: &[Arrival],
        enqueue: &mut A,
        verdicts: &mut [Verdict],
        placing: &impl Placing,
    ) -> usize {
        if self.has_desired {
            self.place_in::<_, _, true>(arrivals, enqueue, verdicts, placing)
        } else {
            self.place_in::<_, _, false>(arrivals, enqueue, verdicts, placing)
        }
    }

    /// Chooses a CPU, asks the order guard and reserves room, packet by packet. Table entries are loaded for a
    /// list of packets before the first packet is decided on, so that the memory accesses overlap.
    #[inline(always)]
    fn place_in<A: EnqueuePolicy, P: Placing, const RFS: bool>(
        &mut self,
        arrivals: &[Arrival],
        enqueue: &mut A,
        verdicts: &mut [Verdict],
        placing: &P,
    ) -> usize {
        let (rules, socks) = (self.rules, self.socks);
        let producer = enqueue.backlogs().producer();
        let mut done = 0;
        'lists: while done < arrivals.len() {
            let mut tally = Tally::default();
            let count = LIST.min(arrivals.len() - done);
            let packets = &arrivals[done..][..count];
            let verdicts = &mut verdicts[done..][..count];
            let slots = &mut self.scratch.slots[..count];
            let desired = &mut self.scratch.desired[..count];
            for index in 0..count {
                slots[index] = self.flows.find(&packets[index]);
            }
            // This loop has few instructions, so that as many loads as the CPU supports are in flight.
            let mut loaded = 0;
            for index in 0..count {
                loaded |= self.flows.get(slots[index] & !UNSTEERED).loaded();
                if RFS {
                    desired[index] = socks.raw(packets[index].hash);
                }
            }
            self.scratch.loaded = loaded;
            for index in 0..count {
                let packet = &packets[index];
                let slot = slots[index] & !UNSTEERED;
                let target = if slots[index] & UNSTEERED != 0 {
                    rules.local(packet)
                } else if RFS
                    && let desired_cpu = rules.usable_desired(socks, desired[index], packet.hash)
                    && let Some(target) = Target::rfs(desired_cpu)
                {
                    placing.note_desired(target.cpu);
                    target
                } else {
                    placing.place(packet)
                };
                let flow = self.flows.get(slot);
                let cpu = allowed(flow, target, rules, enqueue.backlogs());
                verdicts[index] = match enqueue.admit(cpu, packet) {
                    Ok(position) => {
                        self.flows.set(slot, flow.queued(cpu, target.cpu, producer, position));
                        Verdict::deliver(cpu)
                    }
                    Err(Refusal::Drop(reason)) => Verdict::drop(cpu, reason),
                    Err(Refusal::Wait) => {
                        rules.waits(packet, target, producer);
                        self.counts.add(&tally);
                        done += index;
                        break 'lists;
                    }
                };
                tally.add(target, cpu);
            }
            self.counts.add(&tally);
            done += count;
        }
        done
    }
}

impl SteerCounts {
    pub(crate) fn add(&mut self, tally: &Tally) {
        let by = |rule: TargetRule| u64::from(tally.by[rule as usize]);
        self.local += by(TargetRule::Local);
        self.bound += by(TargetRule::Bound);
        self.hashed += by(TargetRule::Hash);
        self.rfs += by(TargetRule::Rfs);
        self.in_slots += by(TargetRule::Slot);
        self.matched += by(TargetRule::Matched);
        self.deferred += u64::from(tally.deferred);
    }
}
