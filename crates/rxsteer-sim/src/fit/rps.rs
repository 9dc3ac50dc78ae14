//! The machines of rps-slides, fitted to their rows without RPS: one part for each NIC.

use super::{Compared, FitError, Part, Search};
use crate::published::fitted_rows::RPS_CARDS;
use crate::published::machine::server::{self, Values};
use crate::published::measured::{cpu_percent, tps};
use rxsteer_core::Policy;
use std::collections::BTreeMap;

pub(super) fn parts() -> Result<BTreeMap<String, Part>, FitError> {
    let cards = server::RPS_CARDS.iter().zip(RPS_CARDS);
    let parts = cards.map(|((name, server), row)| {
        let search = Search {
            objective: "squared differences of tps and CPU % without RPS",
            start: &[("request_ns", 9_000.0), ("service_ns", 9_000.0)],
            machine: &|values| {
                server.scenario(Values::netperf(values[0], values[1]), Policy::None, false)
            },
            compared: &|result| {
                vec![
                    Compared::mean(tps(result), row.tps),
                    Compared::mean(cpu_percent(result), row.cpu_percent),
                ]
            },
        };
        Ok(((*name).to_owned(), search.part()?))
    });
    parts.collect()
}
