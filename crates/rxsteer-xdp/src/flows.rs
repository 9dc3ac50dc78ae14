//! Flow statistics: what the lines of `bpf/steer_flows.h` say of each flow, and flows that have ended.

use crate::abi::{
    self, Array, OTHER_CPUS, Shared, SteerSkel, Variable, steer_ended, steer_flow, steer_slot,
};
use rxsteer_core::{CpuId, FlowKey};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Ended flows that are kept until they are read.
const MAX_ENDED: usize = 1000;

/// A line that is being changed is read again so many times. A change takes a dozen instructions with interrupts of its
/// CPU at most between them, so it is over long before.
const MOST_READS: u32 = 100_000;

/// A flow's packets and bytes on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuShare {
    /// Packets sent to the CPU; those that its full ring refused are among them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl CpuShare {
    fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}

/// One direction of a flow, as it is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveFlow {
    /// Which.
    pub key: FlowKey,
    /// CPUs it was sent to, in the order it came to them, the present one last.
    pub cpus: Vec<(CpuId, CpuShare)>,
    /// What it sent to CPUs beyond the eight that are counted apart.
    pub other_cpus: CpuShare,
    /// How often it went to another CPU.
    pub moves: u32,
    /// Seconds since its last packet.
    pub idle_s: f64,
    /// The TCP flags seen.
    pub tcp_flags: u8,
}

impl LiveFlow {
    /// All its packets and bytes.
    #[must_use]
    pub fn total(&self) -> CpuShare {
        self.cpus.iter().fold(self.other_cpus, |mut sum, (_, share)| {
            sum.add(share.packets, share.bytes);
            sum
        })
    }

    fn new(key: FlowKey) -> LiveFlow {
        LiveFlow {
            key,
            cpus: Vec::new(),
            other_cpus: CpuShare::default(),
            moves: 0,
            idle_s: f64::INFINITY,
            tcp_flags: 0,
        }
    }

    /// What a line says of it, beside what others say.
    fn add(&mut self, line: &Line, idle_s: f64) {
        let Line { slot, flow } = line;
        let used = flow.cpus.iter().zip(&flow.shares).take_while(|(cpu, _)| **cpu != 0);
        for (cpu, share) in used {
            match *cpu {
                OTHER_CPUS => self.other_cpus.add(share.packets, share.bytes),
                cpu => self.share_on(cpu - 1).add(share.packets, share.bytes),
            }
        }
        self.share_on(slot.cpu).add(slot.packets, slot.bytes);
        self.moves = self.moves.saturating_add(slot.moves);
        self.tcp_flags |= slot.tcp_flags;
        self.idle_s = self.idle_s.min(idle_s);
    }

    fn share_on(&mut self, cpu: u16) -> &mut CpuShare {
        let cpu = CpuId::new(cpu).unwrap_or(CpuId::MAX);
        let at = self.cpus.iter().position(|(on, _)| *on == cpu).unwrap_or_else(|| {
            self.cpus.push((cpu, CpuShare::default()));
            self.cpus.len() - 1
        });
        &mut self.cpus[at].1
    }
}

/// All flows of a moment, and the packets that are in no flow's counts any more. Once traffic has stopped,
/// `packets` + `cleared` + the counters of packets ended, cleared and refused are all that were ever counted.
#[derive(Clone, Debug, Default)]
pub struct FlowStatistics {
    /// Every flow that has counts since the last clear.
    pub flows: Vec<LiveFlow>,
    /// Their packets.
    pub packets: u64,
    /// Packets of flows that sent nothing since the last clear.
    pub cleared: u64,
}

/// What a line holds, as it was at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) slot: steer_slot,
    pub(crate) flow: steer_flow,
}

impl Line {
    /// All that it counts.
    pub(crate) fn packets(&self) -> u64 {
        let used = self.flow.cpus.iter().zip(&self.flow.shares).take_while(|(cpu, _)| **cpu != 0);
        self.slot.packets + used.map(|(_, share)| share.packets).sum::<u64>()
    }

    /// The flow in it.
    pub(crate) fn shown(&self, idle_s: f64) -> LiveFlow {
        let mut flow = LiveFlow::new(abi::key_of(&self.flow.key));
        flow.add(self, idle_s);
        flow
    }
}

impl From<steer_ended> for Line {
    fn from(ended: steer_ended) -> Line {
        Line { slot: ended.slot, flow: ended.flow }
    }
}

/// The lines of all tables.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) slots: Array<steer_slot>,
    flows: Array<steer_flow>,
    /// `steer_flow_epoch`.
    epoch: Variable,
    /// Else there are slots alone.
    are_kept: bool,
}

impl Lines {
    pub(crate) fn of(skel: &SteerSkel<'_>) -> io::Result<Lines> {
        let maps = &skel.maps;
        Ok(Lines {
            slots: Array::new(&maps.steer_slots)?,
            flows: Array::new(&maps.steer_flows)?,
            epoch: Variable::new(&maps.bss, offset_of!(Shared, steer_flow_epoch))?,
            are_kept: maps.rodata_data.is_some_and(|data| data.steer_flow_stats != 0),
        })
    }

    /// From a grace period after this on, all that was counted before counts nothing.
    pub(crate) fn clear(&self) {
        self.epoch.set(self.epoch.get().wrapping_add(1));
    }

    /// Makes the line as one that never had a flow. No program may write it meanwhile.
    pub(crate) fn empty(&mut self, index: u32) {
        let offset = offset_of!(steer_slot, version);
        let slot = self.slots.get(index);
        if slot.packed == 0 && slot.rest == 0 {
            return;
        }
        if !self.are_kept {
            self.slots.set(index, steer_slot::default());
            return;
        }
        let version = slot.version.wrapping_add(1);
        self.slots.set_number(index, offset, version);
        // ORDER: Release: who sees a part of what follows sees that the version is odd.
        fence(Ordering::Release);
        self.slots.set(index, steer_slot { version, ..steer_slot::default() });
        self.flows.set(index, steer_flow::default());
        self.slots.set_number(index, offset, version.wrapping_add(1));
    }

    /// The line of that number, if it ever had a flow.
    pub(crate) fn line(&self, index: u32) -> Option<Line> {
        if !self.are_kept {
            return None;
        }
        let version = || self.slots.get_number(index, offset_of!(steer_slot, version));
        for read in 0..MOST_READS {
            let before = version();
            let slot = self.slots.get(index);
            if slot.rest == 0 && before.is_multiple_of(2) {
                return None;
            }
            let flow = self.flows.get(index);
            // ORDER: Acquire: what was read above was read before the version is read again. Pairs with the exchange in
            // steer_next_version.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && version() == before || read == MOST_READS - 1 {
                return Some(Line { slot, flow });
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Whether the line's counts hold: they are of no time before the last clear.
    pub(crate) fn is_current(&self, line: &Line) -> bool {
        line.slot.epoch == self.epoch.get()
    }

    /// What the lines of these numbers say; `idle_s` makes seconds since then of jiffies.
    pub(crate) fn statistics(
        &self,
        lines: impl Iterator<Item = u32>,
        idle_s: impl Fn(u32) -> f64,
    ) -> FlowStatistics {
        let mut statistics = FlowStatistics::default();
        let mut known: HashMap<FlowKey, usize> = HashMap::new();
        for line in lines.filter_map(|index| self.line(index)) {
            let packets = line.packets();
            if !self.is_current(&line) {
                statistics.cleared += packets;
                continue;
            }
            statistics.packets += packets;
            // A flow that arrives on several queues has a line in the table of each.
            let key = abi::key_of(&line.flow.key);
            let at = *known.entry(key).or_insert(statistics.flows.len());
            if at == statistics.flows.len() {
                statistics.flows.push(LiveFlow::new(key));
            }
            statistics.flows[at].add(&line, idle_s(line.slot.last_seen));
        }
        statistics
    }
}

/// Flows that ended and were not looked at yet: at most [`MAX_ENDED`], the latest.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedFlows(Arc<Mutex<Ended>>);

#[derive(Debug, Default)]
struct Ended {
    lines: VecDeque<Line>,
    /// Those that were let go before they were read.
    not_kept: u64,
}

impl EndedFlows {
    pub(crate) fn push(&self, line: Line) {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.lines.len() == MAX_ENDED {
            ended.lines.pop_front();
            ended.not_kept += 1;
        }
        ended.lines.push_back(line);
    }

    /// Up to `most` of them, those first that ended first; they are not returned again.
    pub(crate) fn take(&self, most: usize) -> Vec<Line> {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = most.min(ended.lines.len());
        ended.lines.drain(..count).collect()
    }

    /// How many were let go before they were read.
    pub(crate) fn not_kept(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).not_kept
    }
}
