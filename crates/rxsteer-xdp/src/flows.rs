//! Flow statistics: the contents of the lines of `bpf/steer_flows.h`, and flows that have ended.

use crate::abi::{
    self, Array, OTHER_CPUS, Shared, SteerSkel, Variable, steer_ended, steer_flow, steer_slot,
};
use rxsteer_core::{CpuId, FlowKey};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most ended flows that are kept for the status.
const MAX_ENDED: usize = 1000;

/// How long they are kept.
const ENDED_KEPT: Duration = Duration::from_secs(300);

/// The number of ended flows that are at least kept for a recorder until it reads them. A recorder that waits for a slow
/// disk is some seconds late.
const MIN_TO_RECORD: usize = 1 << 16;

/// How often a line is read again while a program changes it. A change takes a dozen instructions, delayed at most by
/// interrupts of its CPU, so it ends long before the last attempt.
const MAX_READS: u32 = 100_000;

/// The packets and bytes that a flow sent to one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuShare {
    /// Packets sent to the CPU, including those that its full ring refused.
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

/// The counts of one direction of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveFlow {
    /// The flow's key.
    pub key: FlowKey,
    /// The CPUs that the flow was sent to, in the order in which it came to them, the present one last.
    pub cpus: Vec<(CpuId, CpuShare)>,
    /// What was sent to CPUs beyond the eight with separate counts.
    pub other_cpus: CpuShare,
    /// How often the flow moved to another CPU.
    pub moves: u32,
    /// Seconds since its last packet.
    pub idle_s: f64,
    /// The CPU that its last packet was sent to.
    pub last_cpu: CpuId,
    /// The TCP flags seen.
    pub tcp_flags: u8,
}

impl LiveFlow {
    /// The total of packets and bytes.
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
            last_cpu: CpuId::MAX,
            tcp_flags: 0,
        }
    }

    /// Adds the counts of one line to those of other lines.
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
        // A flow that arrived on several RX queues is counted in several lines.
        if idle_s < self.idle_s {
            self.idle_s = idle_s;
            self.last_cpu = CpuId::new(slot.cpu).unwrap_or(CpuId::MAX);
        }
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

/// The flows at one moment, and the packets that no longer belong to a flow. Once traffic has stopped, `packets` +
/// `cleared` + the counters of packets ended, cleared and refused is the number of packets that were ever counted.
#[derive(Clone, Debug, Default)]
pub struct FlowStatistics {
    /// How many flows have counts since the last clear.
    pub count: u64,
    /// Those with the most packets, as many as were requested, in no particular order.
    pub flows: Vec<LiveFlow>,
    /// The packets of all flows.
    pub packets: u64,
    /// Packets of flows that have sent nothing since the last clear.
    pub cleared: u64,
}

/// The contents of a line at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) slot: steer_slot,
    pub(crate) flow: steer_flow,
}

impl Line {
    /// All packets that the line counts.
    pub(crate) fn packets(&self) -> u64 {
        let used = self.flow.cpus.iter().zip(&self.flow.shares).take_while(|(cpu, _)| **cpu != 0);
        self.slot.packets + used.map(|(_, share)| share.packets).sum::<u64>()
    }

    /// The flow in this line.
    pub(crate) fn shown(&self, idle_s: f64) -> LiveFlow {
        let mut flow = LiveFlow::new(abi::key_of(&self.flow.key));
        flow.add(self, idle_s);
        flow
    }
}

/// The last counts of a flow in a line.
#[derive(Clone, Debug)]
pub(crate) struct EndedLine {
    pub(crate) line: Line,
    /// The number of the line.
    pub(crate) index: u32,
    pub(crate) ifindex: u32,
    /// The name of the interface, if the flow ended because its interface was detached.
    pub(crate) detached: Option<Arc<str>>,
}

impl From<steer_ended> for EndedLine {
    fn from(ended: steer_ended) -> EndedLine {
        let line = Line { slot: ended.slot, flow: ended.flow };
        EndedLine { line, index: ended.line, ifindex: ended.ifindex, detached: None }
    }
}

/// The lines of all tables.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) slots: Array<steer_slot>,
    flows: Array<steer_flow>,
    /// `steer_flow_epoch`.
    epoch: Variable,
    /// Whether flow statistics are kept. Otherwise there are only slots.
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

    /// Clears the statistics: a grace period later, all earlier counts are ignored.
    pub(crate) fn clear(&self) {
        self.epoch.set(self.epoch.get().wrapping_add(1));
    }

    /// Resets the line to one that never had a flow. No program may write it at the same time.
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
        // ORDER: Release: a reader that sees part of the writes below also sees that the version is odd.
        fence(Ordering::Release);
        self.slots.set(index, steer_slot { version, ..steer_slot::default() });
        self.flows.set(index, steer_flow::default());
        self.slots.set_number(index, offset, version.wrapping_add(1));
    }

    /// The line with the number `index`, if it ever had a flow.
    pub(crate) fn line(&self, index: u32) -> Option<Line> {
        if !self.are_kept {
            return None;
        }
        let version = || self.slots.get_number(index, offset_of!(steer_slot, version));
        for read in 0..MAX_READS {
            let before = version();
            let slot = self.slots.get(index);
            if slot.rest == 0 && before.is_multiple_of(2) {
                return None;
            }
            let flow = self.flows.get(index);
            // ORDER: Acquire: the reads above are complete before the version is read again. Pairs with the exchange in
            // steer_next_version.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && version() == before || read == MAX_READS - 1 {
                return Some(Line { slot, flow });
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Whether the line's counts are from after the last clear.
    pub(crate) fn is_current(&self, line: &Line) -> bool {
        line.slot.epoch == self.epoch.get()
    }

    /// The statistics in the lines with these numbers; `idle_s` converts jiffies to the seconds since then.
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
            // A flow that arrives on several queues has a line in the table of each queue.
            let key = abi::key_of(&line.flow.key);
            let at = *known.entry(key).or_insert(statistics.flows.len());
            if at == statistics.flows.len() {
                statistics.flows.push(LiveFlow::new(key));
            }
            statistics.flows[at].add(&line, idle_s(line.slot.last_seen));
        }
        statistics.count = statistics.flows.len() as u64;
        statistics
    }

    /// The `most` flows with the most packets, and sums over all flows, in the lines of these tables. Only the returned
    /// flows are read in full; for other lines this keeps only the number of packets.
    pub(crate) fn largest(
        &self,
        tables: impl Iterator<Item = Range<u32>>,
        most: usize,
        idle_s: impl Fn(u32) -> f64,
    ) -> FlowStatistics {
        let (mut packets, mut cleared) = (0, 0);
        let (mut counted, mut used) = (Vec::new(), 0);
        let secret = RandomState::new();
        for table in tables {
            let before = counted.len();
            for index in table {
                let Some(line) = self.line(index) else { continue };
                let of_line = line.packets();
                if !self.is_current(&line) {
                    cleared += of_line;
                    continue;
                }
                packets += of_line;
                let flow = secret.hash_one(abi::key_of(&line.flow.key));
                counted.push(Counted { flow, packets: of_line, line: index });
            }
            used += usize::from(counted.len() > before);
        }
        let (count, lines) = largest_of(counted, used > 1, most);
        let shown = self.statistics(lines.into_iter(), idle_s);
        FlowStatistics { count, flows: shown.flows, packets, cleared }
    }
}

/// What one line counts.
#[derive(Clone, Copy, Debug)]
struct Counted {
    /// The hash of the flow's key, with a secret: the same for all lines of a flow, and for no other line of a table.
    flow: u64,
    packets: u64,
    line: u32,
}

/// How many flows there are, and the lines of the `most` largest. `may_share`: a flow that arrives on several queues has a
/// line in each queue's table.
fn largest_of(mut counted: Vec<Counted>, may_share: bool, most: usize) -> (u64, Vec<u32>) {
    if may_share {
        counted.sort_unstable_by_key(|line| line.flow);
    }
    let is_same = |one: &Counted, next: &Counted| may_share && one.flow == next.flow;
    let sum = |lines: &[Counted]| lines.iter().map(|line| line.packets).sum::<u64>();
    let mut flows: Vec<(u64, &[Counted])> =
        counted.chunk_by(is_same).map(|lines| (sum(lines), lines)).collect();
    let count = flows.len() as u64;
    if most < flows.len() {
        flows.select_nth_unstable_by_key(most, |(packets, _)| Reverse(*packets));
        flows.truncate(most);
    }
    (count, flows.iter().flat_map(|(_, lines)| lines.iter().map(|line| line.line)).collect())
}

/// Flows that ended. The status gets the latest, at most [`MAX_ENDED`], none for longer than [`ENDED_KEPT`], however often it
/// reads them. The recorder, if there is one, gets all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndedFlows {
    queues: Arc<Mutex<Ended>>,
    /// Held by the thread that reads the ring buffer.
    pub(crate) reading: Arc<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Ended {
    /// The number of the flow that ended last, from 1, and the latest flows with the times at which their ends were noticed.
    last: u64,
    latest: VecDeque<(Instant, Line)>,
    to_record: Option<ToRecord>,
}

impl Ended {
    fn keep(&mut self, line: Line, now: Instant) {
        if self.latest.len() == MAX_ENDED {
            self.latest.pop_front();
        }
        self.latest.push_back((now, line));
        self.last += 1;
    }

    fn latest(&mut self, most: usize, now: Instant) -> Vec<(u64, Line)> {
        while self.latest.front().is_some_and(|(at, _)| now.duration_since(*at) > ENDED_KEPT) {
            self.latest.pop_front();
        }
        let count = most.min(self.latest.len());
        let lines = self.latest.range(self.latest.len() - count..).map(|(_, line)| *line);
        (self.last + 1 - count as u64..).zip(lines).collect()
    }
}

/// Counts of flows that did not become a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unrecorded {
    /// Records.
    pub records: u64,
    /// Their packets.
    pub packets: u64,
}

#[derive(Debug)]
struct ToRecord {
    lines: Vec<EndedLine>,
    most: usize,
    lost: Unrecorded,
}

impl EndedFlows {
    fn queues(&self) -> MutexGuard<'_, Ended> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, keeps ended flows for a recorder, too. `lines` is the number of all lines: all can end at once.
    pub(crate) fn begin_to_record(&self, lines: u32) {
        let most = (lines as usize).max(MIN_TO_RECORD);
        let none = ToRecord { lines: Vec::new(), most, lost: Unrecorded::default() };
        self.queues().to_record.get_or_insert(none);
    }

    pub(crate) fn push(&self, ended: EndedLine) {
        let queues = &mut *self.queues();
        queues.keep(ended.line, Instant::now());
        match &mut queues.to_record {
            Some(queue) if queue.lines.len() < queue.most => queue.lines.push(ended),
            Some(queue) => {
                queue.lost.records += 1;
                queue.lost.packets += ended.line.packets();
            }
            None => {}
        }
    }

    /// Returns the `most` flows that ended last and are kept, oldest first, with their numbers.
    pub(crate) fn latest(&self, most: usize) -> Vec<(u64, Line)> {
        self.queues().latest(most, Instant::now())
    }

    /// Returns all flows that the recorder has not had, oldest first.
    pub(crate) fn to_record(&self) -> Vec<EndedLine> {
        let mut queues = self.queues();
        queues.to_record.as_mut().map(|queue| std::mem::take(&mut queue.lines)).unwrap_or_default()
    }

    /// The flows that ended while too many waited for the recorder.
    pub(crate) fn unrecorded(&self) -> Unrecorded {
        self.queues().to_record.as_ref().map(|queue| queue.lost).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_flows_are_found_by_the_sum_of_their_lines() {
        let counted = |packets: &[(u64, u64)]| -> Vec<Counted> {
            let lines = (0..).zip(packets);
            lines
                .map(|(line, (flow, packets))| Counted { flow: *flow, packets: *packets, line })
                .collect()
        };
        let sorted = |(count, mut lines): (u64, Vec<u32>)| {
            lines.sort_unstable();
            (count, lines)
        };
        // Two tables: flow 7 is in both.
        let both = counted(&[(7, 5), (3, 8), (9, 1), (7, 6)]);
        assert_eq!(sorted(largest_of(both.clone(), true, 1)), (3, vec![0, 3]));
        assert_eq!(sorted(largest_of(both.clone(), true, 2)), (3, vec![0, 1, 3]));
        assert_eq!(sorted(largest_of(both, true, 100)), (3, vec![0, 1, 2, 3]));
        // One table: equal hashes are of two flows.
        let one = counted(&[(7, 5), (7, 8), (9, 6)]);
        assert_eq!(sorted(largest_of(one, false, 2)), (3, vec![1, 2]));
        assert_eq!(largest_of(Vec::new(), true, 5), (0, vec![]));
    }

    /// A line that can be recognised by the time of its last packet.
    fn line(seen: u32) -> Line {
        Line {
            slot: steer_slot { last_seen: seen, ..steer_slot::default() },
            flow: steer_flow::default(),
        }
    }

    fn seen(flows: &[(u64, Line)]) -> Vec<(u64, u32)> {
        flows.iter().map(|(number, line)| (*number, line.slot.last_seen)).collect()
    }

    #[test]
    fn all_viewers_get_the_same_ended_flows() {
        let (mut ended, now) = (Ended::default(), Instant::now());
        for flow in 1..=5 {
            ended.keep(line(flow), now);
        }
        for _ in 0..2 {
            assert_eq!(seen(&ended.latest(3, now)), [(3, 3), (4, 4), (5, 5)]);
        }
        assert_eq!(ended.latest(9, now).len(), 5);
    }

    #[test]
    fn ended_flows_are_kept_for_a_time_and_up_to_a_number() {
        let (mut ended, begin) = (Ended::default(), Instant::now());
        ended.keep(line(1), begin);
        ended.keep(line(2), begin + ENDED_KEPT);
        assert_eq!(ended.latest(9, begin + ENDED_KEPT).len(), 2);
        let later = begin + ENDED_KEPT + Duration::from_nanos(1);
        assert_eq!(seen(&ended.latest(9, later)), [(2, 2)]);
        for flow in 3..3 + MAX_ENDED as u32 {
            ended.keep(line(flow), later);
        }
        let latest = ended.latest(usize::MAX, later);
        assert_eq!(latest.len(), MAX_ENDED);
        assert_eq!(latest.first().map(|(number, _)| *number), Some(3));
        assert!(ended.latest(9, later + 2 * ENDED_KEPT).is_empty());
    }
}
