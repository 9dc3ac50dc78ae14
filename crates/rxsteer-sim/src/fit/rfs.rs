//! The machine of rfs-commit, fitted to its rows without RPS and RFS.
//!
//! The 90 % and 99 % of the RPC test's latency are left out: once the median and the deviation are fitted, the
//! model has no other parameter that could change them.

use super::{Compared, FitError, Part, Search};
use crate::published::fitted_rows::{RFS_NETPERF, RFS_RPC, RFS_RPC_LATENCY};
use crate::published::machine::server::{self, Values};
use crate::published::measured::{cpu_percent, tps};
use rxsteer_core::Policy;
use std::collections::BTreeMap;

pub(super) fn parts() -> Result<BTreeMap<String, Part>, FitError> {
    let netperf = Search {
        objective: "squared differences of tps and CPU % of netperf without RPS and RFS",
        start: &[("request_ns", 9_000.0), ("service_ns", 9_000.0)],
        machine: &|values| {
            let values = Values::netperf(values[0], values[1]);
            server::RFS_NETPERF.scenario(values, Policy::None, false)
        },
        compared: &|result| {
            vec![
                Compared::mean(tps(result), RFS_NETPERF.tps),
                Compared::mean(cpu_percent(result), RFS_NETPERF.cpu_percent),
            ]
        },
    };
    let rpc = Search {
        objective: "squared differences of tps, CPU %, median and deviation of the latency of \
                    the RPC test without RPS and RFS",
        start: &[
            ("request_ns", 9_000.0),
            ("service_ns", 20_000.0),
            ("pause_ns", 100_000.0),
            ("frames", 3.0),
        ],
        machine: &|values| {
            let &[request_ns, service_ns, pause_ns, frames] = values else {
                unreachable!("the search has the start's four values")
            };
            let values = Values { request_ns, service_ns, pause_ns, frames };
            server::RFS_RPC.scenario(values, Policy::None, false)
        },
        compared: &|result| {
            let latency = &result.traffic[0].latency;
            vec![
                Compared::mean(tps(result), RFS_RPC.tps),
                Compared::mean(cpu_percent(result), RFS_RPC.cpu_percent),
                Compared::mean(latency.p50 as f64 / 1e3, RFS_RPC_LATENCY.p50),
                Compared {
                    simulated: latency.std_dev / 1e3,
                    published: RFS_RPC_LATENCY.std_dev,
                    // About fifty losses determine it.
                    tolerance: 0.1,
                },
            ]
        },
    };
    Ok(BTreeMap::from([("netperf".to_owned(), netperf.part()?), ("rpc".to_owned(), rpc.part()?)]))
}
