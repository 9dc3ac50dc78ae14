//! The JSON that the page reads.

use crate::look::{Host, Look, Silent};
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

/// The answer at `/api/status`, computed once per look.
pub(crate) fn status(look: &Look) -> Bytes {
    look.json.get_or_init(|| json(look).into()).clone()
}

fn json(look: &Look) -> String {
    let instances = look.seen.iter();
    let shown = Shown {
        version: env!("CARGO_PKG_VERSION"),
        time_ms: look.time_ms,
        instances: instances
            .map(|seen| Instance { status: &seen.status, rates: seen.rates.as_ref() })
            .collect(),
        silent: &look.silent,
        host: look.host.as_ref(),
    };
    // The value contains no map with keys other than text.
    serde_json::to_string(&shown).unwrap_or_default()
}
