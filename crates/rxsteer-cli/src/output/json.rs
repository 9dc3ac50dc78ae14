//! The machine-readable report.

use super::error_text;
use crate::finished::Run;
use crate::out;
use crate::work::at_home;
use rxsteer_records::recording::Recorded;
use rxsteer_user::PipelineConfig;
use rxsteer_user::core::counters::FlowCounter;
use rxsteer_user::flows::FlowCounts;
use rxsteer_user::source::SourceIssue;
use serde_json::{Map, Value, json};

/// One run as one object.
pub(crate) fn run(run: &Run) -> Value {
    let report = &run.report;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("policy", json!(run.policy));
    put("version", json!(env!("CARGO_PKG_VERSION")));
    put("hash", json!(run.hash));
    put("hash_seed", json!(run.hash_seed.map(|seed| format!("{:032x}", seed.0))));
    put("records_skipped", json!(run.skipped));
    let at_home = at_home(report);
    put("app_packets", json!(at_home.map(|(_, data)| data)));
    put("app_packets_at_home", json!(at_home.map(|(home, _)| home)));
    object.extend(report.to_json());
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("errors", issues(&run.issues));
    put("flow_statistics", run.recorded.as_ref().map_or(Value::Null, recorded));
    put("out", run.out.as_deref().map_or(Value::Null, out::json));
    put("settings", run.settings.clone());
    put("interrupted", json!(run.interrupted));
    put("elapsed_ns", json!(run.elapsed.as_nanos() as u64));
    Value::Object(object)
}

/// The settings that decisions depend on, except the policy and the hash.
pub(crate) fn decisive(config: &PipelineConfig) -> Map<String, Value> {
    let rx_cpus: Vec<u16> = config.rx_cpus.iter().map(|cpu| cpu.get()).collect();
    let maps = config.rps_maps.iter().map(|(name, cpus)| format!("{name}={cpus}"));
    let settings = json!({
        "cpus": config.cpus.to_string(),
        "rules": config.packet_rules.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "rps_maps": maps.collect::<Vec<_>>(),
        "else": config.fallback.to_string(),
        "rfs_cpus": config.rfs_cpus.as_ref().map(ToString::to_string),
        "rx_queues": config.rx_queues,
        "rx_cpus": rx_cpus,
        "rx_devices": config.rx_devices.iter().max().map_or(1, |last| last + 1),
        "sock_flow_entries": config.sock_flow_entries.next_power_of_two(),
        "flow_cnt": config.flow_cnt.map(u32::next_power_of_two),
        "flow_limit": config.flow_limit,
        "inner": config.dissect.inner,
        "key_tunnels": config.dissect.key_tunnels.to_string(),
    });
    object(settings)
}

/// The fields of an object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The results for flow records.
fn recorded(recorded: &Recorded) -> Value {
    let mut object = Map::new();
    object.insert("file".to_owned(), json!(recorded.file));
    object.insert("error".to_owned(), json!(recorded.failure.as_deref().map(error_text)));
    object.insert("records".to_owned(), json!(recorded.records));
    object.insert("records_lost".to_owned(), json!(recorded.lost.records));
    object.insert("packets_lost".to_owned(), json!(recorded.lost.packets));
    let ipfix = recorded.ipfix.as_ref().map(|(collector, [records, refused])| {
        json!({ "collector": collector.to_string(), "records": records, "records_lost": refused })
    });
    object.insert("ipfix".to_owned(), json!(ipfix));
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

/// The problems with the input.
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
