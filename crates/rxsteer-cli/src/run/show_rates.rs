//! The rates between two readings, and the last events, as text.

use crate::output::lines::{field, fitted};
use crate::output::table::new;
use rxsteer_status::figures::{grouped, nanoseconds};
use rxsteer_status::{CpuRates, Event, Rates};
use std::time::{Duration, SystemTime};

/// The most events that are shown.
const EVENTS: usize = 5;
/// If there are more CPUs than this, those with nothing to show are left out.
const MAX_ROWS: usize = 16;

/// The columns of an interface: packets and bits per second.
pub(super) fn interface(rates: &Rates, name: &str) -> [String; 2] {
    let of = rates.interfaces.iter().find(|rates| rates.name == name);
    of.map_or(["-", "-"].map(str::to_owned), |of| {
        [whole(of.received.packets), bits(of.received.bits)]
    })
}

/// A row for each CPU, and one for all.
pub(super) fn cpus(rates: &Rates) -> String {
    let header = [
        "per second",
        "received",
        "bits",
        "delivered",
        "dropped",
        "moves",
        "deferred",
        "delay p50",
        "p99",
    ];
    let mut table = new(&header, &[0]);
    let row = |name: String, rates: &CpuRates| {
        vec![
            name,
            whole(rates.received.packets),
            bits(rates.received.bits),
            whole(rates.delivered),
            whole(rates.dropped),
            whole(rates.moves),
            whole(rates.deferred),
            time(rates.delay_p50_ns),
            time(rates.delay_p99_ns),
        ]
    };
    let is_idle =
        |rates: &CpuRates| rates.received.packets + rates.delivered + rates.dropped == 0.0;
    let all = &rates.cpus;
    for cpu in all.iter().filter(|cpu| all.len() <= MAX_ROWS || !is_idle(cpu)) {
        table.add_row(row(format!("CPU {}", cpu.cpu), cpu));
    }
    table.add_row(row("all".to_owned(), &rates.totals));
    format!("{}\n", fitted(table, &[vec![6], vec![5]]))
}

/// The last events, the latest last.
pub(super) fn events(events: &[Event]) -> String {
    let mut text = "\nlast events\n".to_owned();
    for event in &events[events.len().saturating_sub(EVENTS)..] {
        let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(event.time_ns);
        let at = format!(" {}", humantime::format_rfc3339_seconds(at));
        field(&mut text, &at, 4, &event.text);
    }
    text
}

fn whole(rate: f64) -> String {
    grouped(rate.round() as u64)
}

/// "1.25 G"
fn bits(rate: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(of, _)| rate >= *of) {
        Some((of, unit)) => format!("{:.2} {unit}", rate / of),
        None => format!("{rate:.0}"),
    }
}

/// "12 us"
fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        assert_eq!([0.4, 999.0, 12_345.0, 1.25e9].map(bits), ["0", "999", "12.35 k", "1.25 G"]);
        assert_eq!(whole(1_234.5), "1 235");
        assert_eq!(time(None), "-");
    }
}
