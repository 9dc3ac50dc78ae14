//! The expected content of a flow table, as plain maps of plain sums.

use rxsteer_core::{CpuId, FlowKey};
use rxsteer_flows::{CpuTotals, FlowEnd, FlowPacket, FlowRecord, FlowTotals};
use std::collections::BTreeMap;

/// Low CPU ids and the highest one, with gaps in between.
pub(crate) const CPUS: [u16; 4] = [0, 3, 4095, 8191];

pub(crate) fn key(flow: u8) -> FlowKey {
    FlowKey { ip_version: 4, protocol: 17, src_port: flow.into(), ..FlowKey::default() }
}

pub(crate) fn packet(flow: u8, time_ns: u64, bytes: u32, tcp_flags: u8) -> FlowPacket {
    FlowPacket { flow: key(flow).into(), time_ns, bytes, tcp_flags, ..FlowPacket::default() }
}

/// Adds sums, the union of the flags, the earliest and the latest time.
pub(crate) fn add(totals: &mut FlowTotals, other: &FlowTotals) {
    if other.packets == 0 {
        return;
    }
    let first = if totals.packets == 0 { u64::MAX } else { totals.first_ns };
    totals.first_ns = other.first_ns.min(first);
    totals.last_ns = totals.last_ns.max(other.last_ns);
    totals.packets += other.packets;
    totals.bytes += other.bytes;
    totals.tcp_flags |= other.tcp_flags;
}

/// One flow, with its CPUs in the order in which they first counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    cpus: Vec<(u16, FlowTotals)>,
    /// The latest time on each CPU; a clear does not make the flow idle.
    latest: BTreeMap<u16, u64>,
}

impl Flow {
    fn update(&mut self, cpu: u16, packet: &FlowPacket) {
        let totals = FlowTotals {
            packets: 1,
            bytes: packet.bytes.into(),
            tcp_flags: packet.tcp_flags,
            first_ns: packet.time_ns,
            last_ns: packet.time_ns,
            ..FlowTotals::default()
        };
        self.add(cpu, &totals);
        let latest = self.latest.entry(cpu).or_default();
        *latest = packet.time_ns.max(*latest);
    }

    fn add(&mut self, cpu: u16, totals: &FlowTotals) {
        if !self.cpus.iter().any(|of| of.0 == cpu) {
            self.cpus.push((cpu, FlowTotals::default()));
        }
        let of_cpu = self.cpus.iter_mut().find(|of| of.0 == cpu).expect("it is there now");
        add(&mut of_cpu.1, totals);
    }

    pub(crate) fn totals(&self) -> FlowTotals {
        let mut totals = FlowTotals::default();
        self.cpus.iter().for_each(|(_, of)| add(&mut totals, of));
        totals
    }

    pub(crate) fn per_cpu(&self) -> Vec<CpuTotals> {
        let counted = self.cpus.iter().filter(|(_, of)| of.packets != 0);
        let cpu = |id| CpuId::new(id).unwrap_or(CpuId::NONE);
        counted
            .map(|(id, of)| CpuTotals { cpu: cpu(*id), packets: of.packets, bytes: of.bytes })
            .collect()
    }

    pub(crate) fn clear(&mut self) {
        self.cpus.iter_mut().for_each(|(_, of)| *of = FlowTotals::default());
    }

    pub(crate) fn is_idle(&self, now: u64, timeout: Option<u64>) -> bool {
        timeout.is_some_and(|timeout| now.saturating_sub(self.latest()) > timeout)
    }

    /// The time of the latest packet; clears do not reset it.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.values().max().copied().unwrap_or(0)
    }
}

/// All flows, by number.
#[derive(Debug)]
pub(crate) struct Flows {
    pub(crate) live: BTreeMap<u8, Flow>,
    /// Flows that ended and are not collected, in the order in which they ended.
    pub(crate) ended: Vec<(u8, Flow, FlowEnd)>,
    pub(crate) created: u64,
    idle_timeout_ns: Option<u64>,
}

impl Flows {
    pub(crate) fn new(idle_timeout_ns: Option<u64>) -> Flows {
        Flows { live: BTreeMap::new(), ended: Vec::new(), created: 0, idle_timeout_ns }
    }

    pub(crate) fn update(&mut self, cpu: u16, packet: &FlowPacket) {
        let number = packet.flow.key().src_port as u8;
        let timeout = self.idle_timeout_ns;
        if self.live.get(&number).is_some_and(|flow| flow.is_idle(packet.time_ns, timeout)) {
            self.end(number, FlowEnd::Idle);
        }
        let created = &mut self.created;
        let new = || {
            *created += 1;
            Flow::default()
        };
        self.live.entry(number).or_insert_with(new).update(cpu, packet);
    }

    /// Adds a record of a flow that may have earlier records.
    pub(crate) fn add(&mut self, record: &FlowRecord) {
        let flow = self.live.entry(record.key.src_port as u8).or_default();
        // In a record, flags and times belong to no particular CPU.
        for of in &record.per_cpu {
            let part = FlowTotals { packets: of.packets, bytes: of.bytes, ..record.totals };
            flow.add(of.cpu.get(), &part);
        }
        let shared = record.shared;
        let part = FlowTotals { packets: shared.packets, bytes: shared.bytes, ..record.totals };
        flow.add(CpuId::NONE.get(), &part);
    }

    pub(crate) fn clear(&mut self, number: u8) -> bool {
        self.live.get_mut(&number).map(Flow::clear).is_some()
    }

    pub(crate) fn end(&mut self, number: u8, why: FlowEnd) {
        let flow = self.live.remove(&number).expect("a flow that is there");
        self.ended.push((number, flow, why));
    }

    pub(crate) fn end_where(&mut self, why: FlowEnd, is_over: impl Fn(&Flow) -> bool) {
        let over: Vec<u8> =
            self.live.iter().filter(|(_, flow)| is_over(flow)).map(|(number, _)| *number).collect();
        over.into_iter().for_each(|number| self.end(number, why));
    }
}
