//! The machine-readable report.

use super::error_text;
use crate::out;
use crate::replay::Run;
use crate::work::at_home;
use hdrhistogram::Histogram;
use rxsteer_records::recording::Recorded;
use rxsteer_user::core::Drops;
use rxsteer_user::core::counters::{CpuCounter, FlowCounter, RxCounter, SteerCounter};
use rxsteer_user::flows::FlowCounts;
use rxsteer_user::packet::Malformed;
use rxsteer_user::source::SourceIssue;
use rxsteer_user::{CpuReport, Report};
use serde_json::{Map, Value, json};

/// One run as one object.
pub(crate) fn run(run: &Run) -> Value {
    let report = &run.report;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("policy", json!(run.policy));
    put("cpus", json!(run.cpus.to_string()));
    put("version", json!(env!("CARGO_PKG_VERSION")));
    put("hash", json!(run.hash));
    put("hash_seed", json!(run.hash_seed.map(|seed| format!("{:032x}", seed.0))));
    for counter in RxCounter::ALL {
        put(counter.name(), json!(rx_counter(report, *counter)));
    }
    put("malformed_by_reason", malformed(report));
    put("flows_bidirectional", json!(report.distinct_flows.bidirectional()));
    put("flows_unidirectional", json!(report.distinct_flows.unidirectional()));
    put("flows_steered", json!(report.steered_flows));
    put("largest_flow_packets", json!(report.largest_flow));
    put("records_skipped", json!(run.skipped));
    put("packets_untracked", json!(report.untracked_packets));
    put("reordered", json!(report.reordered));
    put("moves", json!(report.moves));
    for counter in SteerCounter::ALL {
        put(counter.name(), json!(report.steering.get(*counter)));
    }
    let at_home = at_home(report);
    put("app_packets", json!(at_home.map(|(_, data)| data)));
    put("app_packets_at_home", json!(at_home.map(|(home, _)| home)));
    put("changes_made", json!(report.changes_made));
    put("dropped", drops(&report.drops));
    put("delivered", json!(report.delivered));
    put("imbalance", json!(report.imbalance()));
    let delay = report.delay_ns();
    put("delay_p50_ns", quantile(&delay, 0.5));
    put("delay_p99_ns", quantile(&delay, 0.99));
    put("per_cpu", report.per_cpu.iter().map(per_cpu).collect());
    put("errors", issues(&run.issues));
    put("flow_statistics", run.recorded.as_ref().map_or(Value::Null, recorded));
    put("out", run.out.as_deref().map_or(Value::Null, out::json));
    put("settings", run.settings.clone());
    put("interrupted", json!(run.interrupted));
    put("elapsed_ns", json!(run.elapsed.as_nanos() as u64));
    Value::Object(object)
}

/// A quantile in nanoseconds; null without a packet.
fn quantile(delays: &Histogram<u64>, quantile: f64) -> Value {
    if delays.is_empty() { Value::Null } else { json!(delays.value_at_quantile(quantile)) }
}

fn rx_counter<H>(report: &Report<H>, counter: RxCounter) -> u64 {
    match counter {
        RxCounter::Received => report.packets,
        RxCounter::Bytes => report.bytes,
        RxCounter::NotIp => report.not_ip,
        RxCounter::Malformed => report.malformed.iter().sum(),
        RxCounter::TransportTruncated => report.transport_truncated,
        RxCounter::KernelDrops => report.kernel_drops,
        RxCounter::UnknownRxQueue => report.unknown_rx_queue,
    }
}

fn malformed<H>(report: &Report<H>) -> Value {
    let reasons = Malformed::ALL.iter().zip(report.malformed);
    reasons.map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect()
}

pub(crate) fn drops(drops: &Drops) -> Value {
    drops.iter().map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect()
}

/// What became of flow records.
fn recorded(recorded: &Recorded) -> Value {
    let mut object = Map::new();
    object.insert("file".to_owned(), json!(recorded.file));
    object.insert("error".to_owned(), json!(recorded.failure.as_deref().map(error_text)));
    object.insert("records".to_owned(), json!(recorded.records));
    object.insert("packets_without_flow".to_owned(), json!(recorded.without_flow));
    flow_counts(&mut object, &recorded.counts);
    Value::Object(object)
}

/// The counts of a flow table at the end of a run, when no flow is left in it.
pub(crate) fn flow_counts(object: &mut Map<String, Value>, counts: &FlowCounts) {
    for counter in FlowCounter::ALL {
        if *counter != FlowCounter::Live {
            object.insert(counter.name().to_owned(), json!(counts.get(*counter)));
        }
    }
}

/// What was wrong with the input.
pub(crate) fn issues(issues: &[SourceIssue]) -> Value {
    let issue = |issue: &SourceIssue| {
        json!({
            "file": issue.file.to_string_lossy(),
            "offset": issue.offset,
            "message": issue.message,
        })
    };
    issues.iter().map(issue).collect()
}

fn per_cpu(cpu: &CpuReport) -> Value {
    let mut object = Map::new();
    object.insert("cpu".to_owned(), json!(cpu.cpu.get()));
    for counter in CpuCounter::ALL {
        let value = match counter {
            CpuCounter::Packets => cpu.packets,
            CpuCounter::Bytes => cpu.bytes,
            CpuCounter::Lists => cpu.lists,
            CpuCounter::Kicks => cpu.kicks,
            CpuCounter::Dropped => cpu.drops.total(),
        };
        object.insert(counter.name().to_owned(), json!(value));
    }
    object.insert("flows".to_owned(), json!(cpu.flows));
    object.insert("delay_p50_ns".to_owned(), quantile(&cpu.delay_ns, 0.5));
    object.insert("delay_p99_ns".to_owned(), quantile(&cpu.delay_ns, 0.99));
    object.insert("pinned".to_owned(), json!(cpu.pinned));
    object.insert("failure".to_owned(), json!(cpu.failure));
    Value::Object(object)
}
