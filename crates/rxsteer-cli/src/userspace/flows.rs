//! The largest flows whose records are kept.

use crate::explain::flow::shown;
use rxsteer_records::recording::LiveFlows;
use rxsteer_status::{Command, FlowShown, ShareShown};
use rxsteer_user::core::FlowKey;
use rxsteer_user::flows::FlowRecord;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The `count` flows with the most packets, the largest first.
pub(super) fn largest(flows: &LiveFlows, count: usize, command: Command) -> Vec<FlowShown> {
    // By number of packets, fewest last.
    let mut largest: BTreeMap<(Reverse<u64>, FlowKey), FlowRecord> = BTreeMap::new();
    let mut last_ns = 0;
    flows.table.for_each(|record| {
        last_ns = last_ns.max(record.totals.last_ns);
        let packets = record.totals.packets;
        let least = largest.last_key_value().map_or(0, |((Reverse(packets), _), _)| *packets);
        if largest.len() == count && packets <= least {
            return;
        }
        largest.insert((Reverse(packets), record.key), record.clone());
        if largest.len() > count {
            largest.pop_last();
        }
    });
    // A replay has the time of its packets.
    let now_ns = match command {
        Command::Replay => last_ns,
        _ => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            now.map_or(last_ns, |now| now.as_nanos() as u64)
        }
    };
    largest.values().map(|record| flow_shown(flows, record, now_ns)).collect()
}

fn flow_shown(flows: &LiveFlows, record: &FlowRecord, now_ns: u64) -> FlowShown {
    let totals = &record.totals;
    let cpus = record.per_cpu.iter().map(|on| ShareShown {
        cpu: on.cpu.get(),
        packets: on.packets,
        bytes: on.bytes,
    });
    FlowShown {
        flow: shown(&flows.view.row(record).key()),
        packets: totals.packets,
        bytes: totals.bytes,
        moves: 0,
        idle_s: now_ns.saturating_sub(totals.last_ns) as f64 / 1e9,
        last_cpu: match (record.per_cpu.as_slice(), record.shared.packets) {
            ([only], 0) => Some(only.cpu.get()),
            _ => None,
        },
        tcp_flags: totals.tcp_flags,
        cpus: cpus.collect(),
        other_cpus: record.shared.packets,
        ended: None,
    }
}
