//! The dashboard for Grafana.

use serde_json::Value;

/// The dashboard; `None` in packages of this crate, which do not contain it.
pub(crate) fn read() -> Option<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/rxsteer.json");
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).expect("it is JSON"))
}

/// The queries of its panels.
pub(crate) fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets =
        panels.iter().flat_map(|panel| panel["targets"].as_array().expect("a panel has targets"));
    targets
        .map(|target| target["expr"].as_str().expect("a target has a query").to_owned())
        .collect()
}
