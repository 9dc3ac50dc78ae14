//! A report as a JSON object. The list of counters gives the names.

use crate::rebalance::{MovedByLoad, MovesByLoad};
use crate::report::{CpuReport, Report};
use hdrhistogram::Histogram;
use rxsteer_core::counters::{CpuCounter, RxCounter, SteerCounter};
use rxsteer_core::{Drops, Move, PacketRule};
use rxsteer_packet::Malformed;
use serde_json::{Map, Value, json};

impl<H> Report<H> {
    /// All figures of the run, and the array `cpus` with those of each CPU, without the handlers. `dropped` is by reason
    /// in both. Bytes are bytes on the wire and times are in nanoseconds. Quantiles are null if there is no packet.
    #[must_use]
    pub fn to_json(&self) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        for counter in RxCounter::ALL {
            put(counter.name(), json!(self.rx_counter(*counter)));
        }
        let reasons = Malformed::ALL.iter().zip(self.malformed);
        let reasons = reasons.map(|(reason, count)| (reason.name().to_owned(), json!(count)));
        put("malformed_by_reason", reasons.collect());
        put("flows_bidirectional", json!(self.distinct_flows.bidirectional()));
        put("flows_unidirectional", json!(self.distinct_flows.unidirectional()));
        put("flows_steered", json!(self.steered_flows));
        put("largest_flow_packets", json!(self.largest_flow));
        put("packets_untracked", json!(self.untracked_packets));
        put("reordered", json!(self.reordered));
        put("moves", json!(self.moves));
        for counter in SteerCounter::ALL {
            put(counter.name(), json!(self.steering.get(*counter)));
        }
        let rule = |(rule, packets): &(PacketRule, u64)| json!({ "rule": rule.to_string(), "packets": packets });
        put("rules", self.rules.iter().map(rule).collect());
        put("changes_made", json!(self.changes_made));
        put("moved_by_load", moved_by_load(&self.moves_by_load));
        put("dropped", drops_to_json(&self.drops));
        put("delivered", json!(self.delivered));
        put("imbalance", json!(self.imbalance()));
        let delay = self.delay_ns();
        put("delay_p50_ns", quantile(&delay, 0.5));
        put("delay_p99_ns", quantile(&delay, 0.99));
        put("cpus", self.per_cpu.iter().map(per_cpu).collect());
        // Until 0.4, for programs that read the names of 0.2.
        put("per_cpu", self.per_cpu.iter().map(per_cpu_as_in_0_2).collect());
        object
    }

    fn rx_counter(&self, counter: RxCounter) -> u64 {
        match counter {
            RxCounter::Received => self.packets,
            RxCounter::Bytes => self.bytes,
            RxCounter::NotIp => self.not_ip,
            RxCounter::Malformed => self.malformed.iter().sum(),
            RxCounter::TransportTruncated => self.transport_truncated,
            RxCounter::KernelDrops => self.kernel_drops,
            RxCounter::UnknownRxQueue => self.unknown_rx_queue,
        }
    }
}

/// Buckets that moved by load.
fn moved_by_load(moves: &MovesByLoad) -> Value {
    let one = |moved: &MovedByLoad| {
        let Move { bucket, from, to, from_percent, to_percent, large } = moved.bucket;
        json!({
            "after_ns": moved.after_ns,
            "bucket": bucket,
            "from": from.get(),
            "to": to.get(),
            "from_percent": from_percent,
            "to_percent": to_percent,
            "large_flow": (!large.is_none()).then(|| large.get()),
            "why": moved.bucket.to_string(),
        })
    };
    json!({
        "intervals": moves.intervals,
        "buckets": moves.moved,
        "moves": moves.first.iter().map(one).collect::<Vec<_>>(),
    })
}

/// Drops by reason.
#[must_use]
pub fn drops_to_json(drops: &Drops) -> Value {
    drops.iter().map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect()
}

/// A quantile in nanoseconds; null if there is no packet.
fn quantile(delays: &Histogram<u64>, quantile: f64) -> Value {
    if delays.is_empty() { Value::Null } else { json!(delays.value_at_quantile(quantile)) }
}

/// As [`per_cpu`], where `packets` were those delivered, and `dropped` a number.
fn per_cpu_as_in_0_2(cpu: &CpuReport) -> Value {
    let mut object = per_cpu(cpu);
    object["packets"] = object["delivered"].take();
    object["dropped"] = json!(cpu.drops.total());
    if let Some(object) = object.as_object_mut() {
        object.remove("delivered");
    }
    object
}

fn per_cpu(cpu: &CpuReport) -> Value {
    let mut object = Map::new();
    object.insert("cpu".to_owned(), json!(cpu.cpu.get()));
    for counter in CpuCounter::ALL {
        let value = match counter {
            CpuCounter::Delivered => json!(cpu.packets),
            CpuCounter::Bytes => json!(cpu.bytes),
            CpuCounter::Lists => json!(cpu.lists),
            CpuCounter::Kicks => json!(cpu.kicks),
            CpuCounter::Dropped => drops_to_json(&cpu.drops),
        };
        object.insert(counter.name().to_owned(), value);
    }
    object.insert("flows".to_owned(), json!(cpu.flows));
    object.insert("delay_p50_ns".to_owned(), quantile(&cpu.delay_ns, 0.5));
    object.insert("delay_p99_ns".to_owned(), quantile(&cpu.delay_ns, 0.99));
    object.insert("pinned".to_owned(), json!(cpu.pinned));
    object.insert("failure".to_owned(), json!(cpu.failure));
    Value::Object(object)
}
