//! An instance under invented traffic, which is always the same.

use crate::testing::sample;
use crate::{CpuStatus, Delay, Event, FlowShown, FlowStatisticsShown, ShareShown, Status};
use rxsteer_core::counters::{LiveCounter, LiveCpuCounter};
use serde_json::json;

const SECOND_NS: u64 = 1_000_000_000;
/// Bytes of each packet.
const BYTES: u64 = 500;
/// How often the largest flow moves.
const MOVES_EVERY_NS: u64 = 4 * SECOND_NS;

/// Flows that send at constant rates, the first one most, to CPUs of one interface. CPU 0 receives. The largest flow
/// moves from time to time. If `drops` is set, the last CPU loses packets.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Whether the last CPU drops packets.
    pub drops: bool,
    status: Status,
    flows: Vec<Flow>,
}

#[derive(Clone, Debug)]
struct Flow {
    shown: FlowShown,
    per_second: u64,
    /// The index of its CPU among its shares.
    at: usize,
}

impl Traffic {
    /// An instance with this many CPUs and flows, which has run for a second without a packet.
    ///
    /// # Panics
    /// If there is no CPU.
    #[must_use]
    pub fn new(cpus: u16, flows: u32) -> Traffic {
        let mut status = sample();
        status.settings.cpus = format!("0-{}", cpus - 1);
        let cpu = |cpu| CpuStatus { cpu, ..status.cpus[0].clone() };
        status.cpus = (0..cpus).map(cpu).collect();
        status.events = vec![
            event(1, "interface_steered", "eth0 is steered: native mode, 1 RX queue"),
            event(2, "change_done", "the change of settings is done: policy rfs+sparse"),
        ];
        let flow = |index: u32| {
            let [_, high, middle, low] = index.to_be_bytes();
            let port = 1024 + index % 60_000;
            let cpu = (index % u32::from(cpus)) as u16;
            let shown = json!({
                "flow": format!("10.{high}.{middle}.{low}:{port}-192.0.2.7:443/tcp"), "packets": 0, "bytes": 0, "moves": 0,
                "idle_s": 0.0, "tcp_flags": 0x10, "cpus": [{ "cpu": cpu, "packets": 0, "bytes": 0 }],
            });
            let shown = serde_json::from_value(shown).expect("it is a flow");
            Flow { shown, per_second: 200_000 / u64::from(index + 1) + 1, at: 0 }
        };
        let flows = (0..flows).map(flow).collect();
        Traffic { drops: false, status, flows }
    }

    /// Continues for a time, then returns the status with at most this many flows, the largest first.
    pub fn advance(&mut self, after_ns: u64, most_flows: u32) -> Status {
        let status = &mut self.status;
        let moves =
            (status.running_ns + after_ns) / MOVES_EVERY_NS - status.running_ns / MOVES_EVERY_NS;
        status.running_ns += after_ns;
        let mut carried = vec![0; status.cpus.len()];
        if moves > 0
            && let Some(largest) = self.flows.first_mut()
        {
            largest.move_flow(carried.len());
        }
        for flow in &mut self.flows {
            let packets = flow.per_second * after_ns / SECOND_NS;
            let share = &mut flow.shown.cpus[flow.at];
            (share.packets, share.bytes) = (share.packets + packets, share.bytes + packets * BYTES);
            carried[usize::from(share.cpu)] += packets;
            let shown = &mut flow.shown;
            (shown.packets, shown.bytes) = (shown.packets + packets, shown.bytes + packets * BYTES);
        }
        let received: u64 = carried.iter().sum();
        let dropped = if self.drops { carried.last().map_or(0, |last| last / 10) } else { 0 };
        let moves = u64::from(moves > 0);
        let count = move |counter| match counter {
            LiveCounter::Received | LiveCounter::Redirected => received,
            LiveCounter::Bytes => received * BYTES,
            LiveCounter::Hashed => received / 2,
            LiveCounter::InSlots => received / 4,
            LiveCounter::Rfs => received - received / 2 - received / 4,
            LiveCounter::Moves => moves,
            LiveCounter::Deferred => moves * 3,
            _ => 0,
        };
        status.totals.rx.add(count);
        status.totals.delivered += received - dropped;
        status.totals.drops.ring_full += dropped;
        status.interfaces[0].counts.add(count);
        status.cpus[0].counts.rx.add(count);
        let last = status.cpus.len() - 1;
        for (index, (cpu, carried)) in status.cpus.iter_mut().zip(carried).enumerate() {
            let dropped = if index == last { dropped } else { 0 };
            cpu.counts.delivered += carried - dropped;
            cpu.counts.drops.ring_full += dropped;
            cpu.counts.waiting = if dropped > 0 { 2048 } else { index as u64 % 7 };
            let (class, ran) =
                (cpu.thread.class.clone(), cpu.thread.get(LiveCpuCounter::ThreadRan));
            let counter = |counter| match counter {
                LiveCpuCounter::ThreadRan => ran + carried * 500,
                _ => 0,
            };
            cpu.thread = crate::ThreadShown::new(class, counter);
            let mut sampled = vec![0; Delay::bucket_of(200_000) + 1];
            sampled[Delay::bucket_of(9_000)] = carried / 100 * 98;
            sampled[Delay::bucket_of(150_000 + 100 * index as u64)] = carried / 100 * 2;
            cpu.delay.get_or_insert_default().add(&Delay { buckets: sampled });
        }
        let mut shown = status.clone();
        if most_flows > 0 {
            let packets: u64 = self.flows.iter().map(|flow| flow.shown.packets).sum();
            let flows = self.flows.len() as u64;
            shown.flow_statistics = Some(FlowStatisticsShown {
                flows,
                packets,
                ended: 0,
                cleared: 0,
                refused: 0,
                records_lost: 0,
            });
            // The rates decrease, so the first flows are the largest.
            let largest = self.flows.iter().take(most_flows as usize);
            shown.largest_flows = largest.map(|flow| flow.shown.clone()).collect();
        }
        shown
    }
}

impl Flow {
    /// Moves the flow to the next CPU.
    fn move_flow(&mut self, cpus: usize) {
        let shown = &mut self.shown;
        let next = (shown.cpus[self.at].cpu + 1) % cpus as u16;
        self.at = shown.cpus.iter().position(|share| share.cpu == next).unwrap_or_else(|| {
            shown.cpus.push(ShareShown { cpu: next, packets: 0, bytes: 0 });
            shown.cpus.len() - 1
        });
        shown.moves += 1;
    }
}

fn event(number: u64, kind: &str, text: &str) -> Event {
    let time_ns = 1_700_000_000 * SECOND_NS + number * SECOND_NS;
    let event = json!({ "number": number, "time_ns": time_ns, "kind": kind, "text": text });
    serde_json::from_value(event).expect("it is an event")
}
