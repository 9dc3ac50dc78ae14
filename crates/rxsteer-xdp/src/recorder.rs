//! Flow records of everything that the programs count: each packet of a flow is in exactly one record.
//!
//! ```text
//!  the programs ── a flow's line goes to another flow ──► ring buffer ─┐
//!  the owner ───── an interface is detached ──────────► queue ─────────┼─► FlowRecorder ─► records
//!  the lines ───── idle, or long since the last record (a sweep each second) ┘
//! ```
//!
//! The programs end a flow only when another flow needs its line. So the recorder also sweeps all lines, and reports the
//! counts of flows that are idle or that last long. The programs continue to count in such a line. The recorder remembers
//! what it has reported ([`Part`]), and later reports only the difference. [`FlowId`] identifies a flow in a line: a line
//! gets another flow only after an idle second, so no two flows of a line begin in the same jiffy.

use crate::abi::TAGGED;
use crate::flows::{CpuShare, EndedLine, Line, LiveFlow, Unrecorded};
use crate::view::{KnownDevice, View};
use rxsteer_core::{CpuId, FlowKey};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the recorder sweeps all lines.
const SWEEP: Duration = Duration::from_secs(1);

/// If a partly reported flow has not been seen for this many sweeps, it has ended and its last record was lost: no record
/// is under way this long.
const FORGOTTEN_AFTER: u64 = 3;

/// When the recorder makes records of flows that have not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A flow gets a record after this long without a packet.
    pub idle: Duration,
    /// A flow that continues gets a record when this long has passed since it began or since its last record.
    pub active: Duration,
}

/// Why a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnd {
    /// The flow had no packet for the idle timeout.
    Idle,
    /// The active timeout passed; the flow continues.
    Active,
    /// The flow's line was needed for another flow.
    Evicted,
    /// The interface was detached.
    Finished,
}

/// The counts of one direction of a flow since its last record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordedFlow {
    /// The flow's key.
    pub key: FlowKey,
    /// The index of the interface that received it.
    pub ifindex: u32,
    /// The name of the interface at that time; empty if the interface existed only for a moment.
    pub interface: Arc<str>,
    /// The VLAN of its first packet.
    pub vlan: Option<u16>,
    /// The CPUs that its packets were sent to, in the order in which the flow came to them.
    pub cpus: Vec<(CpuId, CpuShare)>,
    /// What was sent to CPUs beyond those with separate counts.
    pub other_cpus: CpuShare,
    /// How often it moved to another CPU.
    pub moves: u32,
    /// The TCP flags seen, including those of earlier records of the same flow.
    pub tcp_flags: u8,
    /// The time of its first packet, in nanoseconds since 1970, exact to a jiffy. For a flow that continues after a record:
    /// the time of the last sweep that found nothing new, at most a second before.
    pub first_ns: u64,
    /// The time of its last packet, in nanoseconds since 1970, exact to a jiffy.
    pub last_ns: u64,
    /// Why the record was made.
    pub end: RecordEnd,
}

/// A flow in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FlowId {
    line: u32,
    first_seen: u32,
    epoch: u32,
}

impl FlowId {
    fn of(index: u32, line: &Line) -> FlowId {
        FlowId { line: index, first_seen: line.slot.first_seen, epoch: line.slot.epoch }
    }
}

/// What was reported of a flow that continues in its line.
#[derive(Debug)]
struct Part {
    reported: Line,
    /// The start of the next record, in jiffies: the time of the last sweep that found nothing new.
    since: u32,
    /// The sweep that last saw the flow in its line.
    seen: u64,
}

/// One moment in both clocks.
#[derive(Clone, Copy, Debug)]
struct Moment {
    jiffies: u32,
    unix_ns: u64,
    hz: u32,
}

impl Moment {
    /// The time of jiffies (lower half) that are less than half their range away.
    fn unix_ns(&self, jiffies: u32) -> u64 {
        let ago = i64::from(self.jiffies.wrapping_sub(jiffies) as i32);
        let ago_ns = ago * 1_000_000_000 / i64::from(self.hz);
        self.unix_ns.saturating_add_signed(-ago_ns)
    }

    fn since(&self, jiffies: u32) -> Duration {
        let jiffies = self.jiffies.wrapping_sub(jiffies) as i32;
        Duration::from_secs(u64::from(jiffies.max(0) as u32)) / self.hz
    }
}

/// Makes flow records of a path. One thread calls [`FlowRecorder::take`] some ten times a second or more.
#[derive(Debug)]
pub struct FlowRecorder {
    view: View,
    timeouts: Timeouts,
    parts: HashMap<FlowId, Part>,
    /// Flows that ended recently: since the last sweep, and between the two sweeps before. A line may still show its flow
    /// for a moment after the flow's last record was read.
    ended: [HashSet<FlowId>; 2],
    /// The names of interfaces by index, and the sweep that last saw each.
    names: HashMap<u32, (Arc<str>, u64)>,
    sweeps: u64,
    swept: Instant,
    /// Packets that were reported of flows whose last record was lost later.
    reported_of_lost: u64,
}

impl FlowRecorder {
    pub(crate) fn new(view: View, timeouts: Timeouts) -> FlowRecorder {
        FlowRecorder {
            view,
            timeouts,
            parts: HashMap::new(),
            ended: Default::default(),
            names: HashMap::new(),
            sweeps: 0,
            swept: Instant::now(),
            reported_of_lost: 0,
        }
    }

    /// Passes every new record to `f`. Returns how many there were.
    pub fn take(&mut self, mut f: impl FnMut(&RecordedFlow)) -> usize {
        let mut count = 0;
        let mut f = |flow: &RecordedFlow| {
            count += 1;
            f(flow);
        };
        self.learn_names();
        self.take_ended(&mut f);
        if self.swept.elapsed() >= SWEEP {
            self.sweep(&mut f);
            self.swept = Instant::now();
        }
        count
    }

    /// What the recorder itself lost, because more flows ended at a time than it keeps. And the packets that the programs
    /// count as unrecorded although they are in earlier records of their flows.
    #[must_use]
    pub fn lost(&self) -> (Unrecorded, u64) {
        (self.view.ended.unrecorded(), self.reported_of_lost)
    }

    fn now(&self) -> Moment {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let jiffies = self.view.jiffies() as u32;
        Moment { jiffies, unix_ns: unix.as_nanos() as u64, hz: self.view.hz }
    }

    fn learn_names(&mut self) {
        for KnownDevice { name, ifindex, .. } in &self.view.known.get().devices {
            self.name(*ifindex, name);
        }
    }

    fn name(&mut self, ifindex: u32, name: &str) {
        let (known, seen) = self.names.entry(ifindex).or_insert_with(|| (name.into(), 0));
        if **known != *name {
            *known = name.into();
        }
        *seen = self.sweeps;
    }

    /// The flows that ended.
    fn take_ended(&mut self, f: &mut impl FnMut(&RecordedFlow)) {
        self.view.take_records();
        let ended = self.view.ended.to_record();
        if ended.is_empty() {
            return;
        }
        let now = self.now();
        for EndedLine { line, index, ifindex, detached } in ended {
            if let Some(name) = &detached {
                self.name(ifindex, name);
            }
            let id = FlowId::of(index, &line);
            let part = self.parts.remove(&id);
            self.ended[0].insert(id);
            let end = match detached {
                Some(_) => RecordEnd::Finished,
                None if now.since(line.slot.last_seen) >= self.timeouts.idle => RecordEnd::Idle,
                None => RecordEnd::Evicted,
            };
            if let Some(flow) = self.record(&line, part.as_ref(), ifindex, end, now) {
                f(&flow);
            }
        }
    }

    /// The record of what was added to a line; `None` if nothing was.
    fn record(
        &self,
        line: &Line,
        part: Option<&Part>,
        ifindex: u32,
        end: RecordEnd,
        now: Moment,
    ) -> Option<RecordedFlow> {
        let LiveFlow { key, mut cpus, mut other_cpus, mut moves, tcp_flags, .. } = line.shown(0.0);
        if let Some(part) = part {
            let before = part.reported.shown(0.0);
            for (cpu, share) in &mut cpus {
                let reported = before.cpus.iter().find(|(of, _)| of == cpu);
                share.subtract(reported.map(|(_, share)| *share).unwrap_or_default());
            }
            other_cpus.subtract(before.other_cpus);
            cpus.retain(|(_, share)| share.packets > 0);
            moves = moves.saturating_sub(before.moves);
        }
        if cpus.iter().all(|(_, share)| share.packets == 0) && other_cpus.packets == 0 {
            return None;
        }
        let last_ns = now.unix_ns(line.slot.last_seen);
        let first = part.map_or(line.slot.first_seen, |part| part.since);
        let interface = self.names.get(&ifindex).map(|(name, _)| name.clone());
        Some(RecordedFlow {
            key,
            ifindex,
            interface: interface.unwrap_or_else(|| "".into()),
            vlan: (line.flow.vlan & TAGGED != 0).then_some(line.flow.vlan & (TAGGED - 1)),
            cpus,
            other_cpus,
            moves,
            tcp_flags,
            first_ns: now.unix_ns(first).min(last_ns),
            last_ns,
            end,
        })
    }

    /// Reads all lines.
    fn sweep(&mut self, f: &mut impl FnMut(&RecordedFlow)) {
        self.sweeps += 1;
        let known = self.view.known.get();
        for device in &known.devices {
            self.sweep_device(device, f);
        }
        let (sweeps, lost) = (self.sweeps, &mut self.reported_of_lost);
        self.parts.retain(|_, part| {
            let is_there = part.seen + FORGOTTEN_AFTER > sweeps;
            *lost += if is_there { 0 } else { part.reported.packets() };
            is_there
        });
        self.names.retain(|_, (_, seen)| *seen + FORGOTTEN_AFTER > sweeps);
        self.ended.swap(0, 1);
        self.ended[0].clear();
    }

    fn sweep_device(&mut self, device: &KnownDevice, f: &mut impl FnMut(&RecordedFlow)) {
        let (log, now) = (self.view.sizes.flow_log, self.now());
        let lines = device.first_table << log..(device.first_table + device.queues) << log;
        let mut due = Vec::new();
        for index in lines {
            let Some(line) = self.view.lines.line(index) else { continue };
            let id = FlowId::of(index, &line);
            let part = self.parts.get_mut(&id);
            let is_new = match part {
                Some(part) => {
                    part.seen = self.sweeps;
                    let is_new = line.packets() > part.reported.packets();
                    if !is_new {
                        part.since = now.jiffies;
                    }
                    is_new
                }
                None => line.packets() > 0,
            };
            let is_over = || self.ended.iter().any(|ended| ended.contains(&id));
            if !is_new || !self.view.lines.is_current(&line) || is_over() {
                continue;
            }
            let since = self.parts.get(&id).map_or(line.slot.first_seen, |part| part.since);
            if now.since(line.slot.last_seen) >= self.timeouts.idle {
                due.push((id, line, RecordEnd::Idle));
            } else if now.since(since) >= self.timeouts.active {
                due.push((id, line, RecordEnd::Active));
            }
        }
        // If the interface was detached meanwhile, some lines may belong to another interface; its flows have ended.
        if !self.view.known.get().devices.contains(device) {
            return;
        }
        for (id, line, end) in due {
            let flow = self.record(&line, self.parts.get(&id), device.ifindex, end, now);
            let part = Part { reported: line, since: now.jiffies, seen: self.sweeps };
            self.parts.insert(id, part);
            flow.iter().for_each(&mut *f);
        }
    }
}

impl CpuShare {
    fn subtract(&mut self, reported: CpuShare) {
        self.packets = self.packets.saturating_sub(reported.packets);
        self.bytes = self.bytes.saturating_sub(reported.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jiffies_become_times_also_where_they_wrap() {
        let now = Moment { jiffies: 10, unix_ns: 1_700_000_000_000_000_000, hz: 250 };
        assert_eq!(now.unix_ns(10), now.unix_ns);
        assert_eq!(now.unix_ns(u32::MAX - 239), now.unix_ns - 1_000_000_000, "before the wrap");
        assert_eq!(now.unix_ns(35), now.unix_ns + 100_000_000, "counted since this moment");
        assert_eq!(now.since(u32::MAX - 239), Duration::from_secs(1));
        assert_eq!(now.since(35), Duration::ZERO);
    }
}
