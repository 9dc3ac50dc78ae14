//! The loops over a list of packets: which packets get room ([`EnqueuePolicy`]), where a flow
//! without a desired CPU is placed ([`Placing`]), and what is done for each packet, with a flow
//! table ([`Guarded::place`]) or without ([`place`]).

use crate::backlogs::{Arrival, Backlogs, Refusal};
use crate::counters::SteerCounts;
use crate::cpu::CpuId;
use crate::flow_limit::FlowLimiter;
use crate::order::{FlowTables, UNSTEERED, allowed};
use crate::plan::{Map, Maps, Rules, Target, TargetRule, by_hash};
use crate::rfs::SockFlowTable;
use crate::sparse::SparseTable;
use crate::verdict::{DropReason, Verdict};
use alloc::boxed::Box;

/// Packets whose slots are loaded before the first of them is decided on.
pub(crate) const LIST: usize = 64;

/// What was looked up for the packets in work.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) slots: Box<[u32; LIST]>,
    /// Their sock flow entries.
    pub(crate) desired: Box<[u32; LIST]>,
    /// Where what was loaded ahead ends, so that it is loaded.
    pub(crate) loaded: u32,
}

/// The counts of one list.
#[derive(Default)]
pub(crate) struct Tally {
    /// By the number of a [`TargetRule`]; longer than there are, so that no index needs a check.
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

/// Which packets get room.
pub(crate) trait EnqueuePolicy {
    type Backlogs: Backlogs;

    fn backlogs(&mut self) -> &mut Self::Backlogs;

    fn admit(&mut self, cpu: CpuId, packet: &Arrival) -> Result<u32, Refusal>;
}

/// Every packet, while there is room.
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

/// In a backlog that is half full, every packet but those of the flows that fill it.
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
        // A full backlog refuses, and is no part of the history: so a packet that must wait is
        // counted once.
        if waiting < limit && self.limiter.exceeds(packet.hash, waiting, limit) {
            return Err(Refusal::Drop(DropReason::FlowLimit));
        }
        self.backlogs.reserve(cpu)
    }
}

/// Chooses and reserves, packet by packet, under rules whose decisions for a flow never change.
#[inline(always)]
pub(crate) fn place<A: EnqueuePolicy>(
    arrivals: &[Arrival],
    enqueue: &mut A,
    verdicts: &mut [Verdict],
    choose: impl Fn(&Arrival) -> Target,
) -> usize {
    let verdicts = &mut verdicts[..arrivals.len()];
    for index in 0..arrivals.len() {
        let cpu = choose(&arrivals[index]).cpu;
        verdicts[index] = match enqueue.admit(cpu, &arrivals[index]) {
            Ok(_) => Verdict::deliver(cpu),
            Err(Refusal::Drop(reason)) => Verdict::drop(cpu, reason),
            Err(Refusal::Wait) => return index,
        };
    }
    arrivals.len()
}

/// Where a steered flow without a desired CPU is placed. A trait rather than closures, so that
/// each is surely part of its loop.
pub(crate) trait Placing {
    fn place(&self, packet: &Arrival) -> Target;
}

/// In its sparse slot, else by hash.
pub(crate) struct InSlots<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) maps: &'a Maps,
    pub(crate) single: Option<&'a Map>,
    pub(crate) loops: u8,
    pub(crate) sparse: &'a SparseTable,
    pub(crate) producer: u16,
}

impl Placing for InSlots<'_> {
    #[inline(always)]
    fn place(&self, packet: &Arrival) -> Target {
        let map = self.single.unwrap_or_else(|| self.maps.of(packet));
        self.rules.in_slot(packet, map, self.loops, self.sparse, self.producer)
    }
}

/// Where it is received.
pub(crate) struct Stays<'a>(pub(crate) &'a Rules);

impl Placing for Stays<'_> {
    #[inline(always)]
    fn place(&self, packet: &Arrival) -> Target {
        self.0.local(packet)
    }
}

/// By hash.
pub(crate) struct ByHash<'a> {
    pub(crate) maps: &'a Maps,
    pub(crate) single: Option<&'a Map>,
}

impl Placing for ByHash<'_> {
    #[inline(always)]
    fn place(&self, packet: &Arrival) -> Target {
        by_hash(packet)(self.single.unwrap_or_else(|| self.maps.of(packet)))
    }
}

/// What rules that remember flows work with.
pub(crate) struct Guarded<'a> {
    pub(crate) flows: &'a mut FlowTables,
    pub(crate) counts: &'a mut SteerCounts,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) rules: &'a Rules,
    pub(crate) socks: &'a SockFlowTable,
}

impl Guarded<'_> {
    /// Chooses, asks the order guard, and reserves, packet by packet. Table entries are loaded for a
    /// list of packets before the first is decided on, so that the loads wait for memory together.
    #[inline(always)]
    pub(crate) fn place<A: EnqueuePolicy, P: Placing, const RFS: bool>(
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
            // A loop of few instructions, so that as many loads as the CPU can take are under way.
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
        self.rfs += u64::from(tally.by[TargetRule::Rfs as usize]);
        self.in_slots += u64::from(tally.by[TargetRule::Slot as usize]);
        self.deferred += u64::from(tally.deferred);
    }
}
