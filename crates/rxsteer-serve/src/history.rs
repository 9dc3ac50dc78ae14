//! Rates of the last 15 minutes, at one point per second. Readings add the points, so no points exist for times without
//! viewers.

use crate::reading::Reading;
use rxsteer_status::{CpuRates, Rates};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// How long a point is kept, in milliseconds.
const KEPT_MS: u64 = 15 * 60 * 1000;
/// The time between two points; viewers that query every second are not exact.
const STEP_MS: u64 = 900;
/// The number of CPUs of an instance that have a history, those with the lowest numbers.
const MAX_CPUS: usize = 64;

/// The history of all instances.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// By control socket and process.
    instances: BTreeMap<(String, u32), VecDeque<Point>>,
}

/// The rates at one time.
#[derive(Debug)]
struct Point {
    time_ms: u64,
    totals: CpuRates,
    /// Packets delivered per second, by CPU.
    delivered: Vec<(u16, f32)>,
}

impl Point {
    fn new(time_ms: u64, rates: &Rates) -> Point {
        let cpus = rates.cpus.iter().take(MAX_CPUS);
        let delivered = cpus.map(|on| (on.cpu, on.delivered as f32)).collect();
        Point { time_ms, totals: rates.totals, delivered }
    }
}

impl History {
    /// Adds the rates of a reading, and removes old points.
    pub(crate) fn add(&mut self, reading: &Reading) {
        for seen in &reading.seen {
            let Some(rates) = &seen.rates else { continue };
            let key = (seen.status.socket.clone(), seen.status.pid);
            let points = self.instances.entry(key).or_default();
            if points.back().is_none_or(|last| reading.time_ms >= last.time_ms + STEP_MS) {
                points.push_back(Point::new(reading.time_ms, rates));
            }
        }
        let oldest = reading.time_ms.saturating_sub(KEPT_MS);
        self.instances.retain(|_, points| {
            // If the clock was set back, this also removes points that appear to be in the future.
            points.retain(|point| (oldest..=reading.time_ms).contains(&point.time_ms));
            !points.is_empty()
        });
    }

    /// The answer at `/api/history`: a column for each rate, and one for each CPU.
    pub(crate) fn json(&self) -> String {
        let instances = self.instances.iter().map(|((socket, pid), points)| {
            let column =
                |value: &dyn Fn(&Point) -> Value| points.iter().map(value).collect::<Value>();
            let rate =
                |value: fn(&CpuRates) -> f64| column(&|point| json!(value(&point.totals).round()));
            let mut cpus: BTreeMap<u16, Vec<Value>> = BTreeMap::new();
            for (at, point) in points.iter().enumerate() {
                for (cpu, delivered) in &point.delivered {
                    let column = cpus.entry(*cpu).or_default();
                    column.resize(at, Value::Null);
                    column.push(json!(delivered.round()));
                }
            }
            let cpus: Vec<Value> = cpus
                .into_iter()
                .map(|(cpu, mut delivered)| {
                    delivered.resize(points.len(), Value::Null);
                    json!({ "cpu": cpu, "delivered": delivered })
                })
                .collect();
            json!({
                "socket": socket,
                "pid": pid,
                "time_ms": column(&|point| json!(point.time_ms)),
                "packets": rate(|totals| totals.received.packets),
                "bits": rate(|totals| totals.received.bits),
                "delivered": rate(|totals| totals.delivered),
                "dropped": rate(|totals| totals.dropped),
                "moves": rate(|totals| totals.moves),
                "deferred": rate(|totals| totals.deferred),
                "delay_p50_ns": column(&|point| json!(point.totals.delay_p50_ns)),
                "delay_p99_ns": column(&|point| json!(point.totals.delay_p99_ns)),
                "cpus": cpus,
            })
        });
        json!({ "instances": instances.collect::<Vec<Value>>() }).to_string()
    }
}
