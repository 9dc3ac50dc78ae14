//! The JSON that the page reads.

use crate::reading::{Host, Reading, Silent};
use bytes::Bytes;
use rxsteer_status::{Rates, Status};
use serde::Serialize;

/// The answer at `/api/status`.
#[derive(Serialize)]
struct Shown<'a> {
    /// The version of the server.
    version: &'static str,
    /// When the server queried the instances, in milliseconds of Unix time.
    time_ms: u64,
    instances: Vec<Instance<'a>>,
    /// Instances that did not answer.
    silent: &'a [Silent],
    host: Option<&'a Host>,
}

/// The output of `rxsteer status --json`, and the rates.
#[derive(Serialize)]
struct Instance<'a> {
    #[serde(flatten)]
    status: &'a Status,
    rates: Option<&'a Rates>,
}

/// The answer at `/api/status`, computed once per reading.
pub(crate) fn status(reading: &Reading) -> Bytes {
    reading.json.get_or_init(|| json(reading).into()).clone()
}

fn json(reading: &Reading) -> String {
    let instances = reading.seen.iter();
    let shown = Shown {
        version: env!("CARGO_PKG_VERSION"),
        time_ms: reading.time_ms,
        instances: instances
            .map(|seen| Instance { status: &seen.status, rates: seen.rates.as_ref() })
            .collect(),
        silent: &reading.silent,
        host: reading.host.as_ref(),
    };
    // The value contains no map with keys other than text.
    serde_json::to_string(&shown).unwrap_or_default()
}
