//! `/metrics`: OpenMetrics 1.0, or Prometheus' text format 0.0.4.
//!
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>,
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

use crate::families::{ANSWERING, Family, INFO, Kind, SILENT, Value, families};
use crate::reading::{Reading, Seen};
use hyper::header::HeaderValue;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use rxsteer_status::{Delay, InterfaceStatus, Status};
use std::fmt;
use std::sync::Arc;

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4, which people and `promtool` can read too.
    Text,
}

impl Format {
    /// The format for a client: OpenMetrics if its `Accept` header names it.
    pub(crate) fn accepted(accept: Option<&HeaderValue>) -> Format {
        let accept = accept.and_then(|value| value.to_str().ok()).unwrap_or_default();
        match accept.to_ascii_lowercase().contains("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// Its type.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics of a reading. With `by_process`, each has the process id of its instance as a label.
pub(crate) fn text(reading: &Arc<Reading>, format: Format, by_process: bool) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics { reading: Arc::clone(reading), by_process }));
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = encode(&mut text, &registry);
    match format {
        Format::OpenMetrics => text,
        Format::Text => plain(&text),
    }
}

/// Converts OpenMetrics to Prometheus' text format. That format adds `_total` (counters) and `_info` to the names in
/// `# HELP` and `# TYPE` too. Other comments have no meaning there.
fn plain(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut lines = open.lines().peekable();
    while let Some(line) = lines.next() {
        let help = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        let kind = lines.peek().and_then(|next| next.strip_prefix("# TYPE ")?.split_once(' '));
        let (Some((name, help)), Some((_, kind))) = (help, kind) else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        let (suffix, kind) = match kind {
            "counter" => ("_total", kind),
            "info" => ("_info", "gauge"),
            _ => ("", kind),
        };
        text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
        lines.next();
    }
    text
}

#[derive(Debug)]
struct Metrics {
    reading: Arc<Reading>,
    by_process: bool,
}

type Labels = Vec<(&'static str, String)>;

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Reading { seen, silent, .. } = &*self.reading;
        if !seen.is_empty() {
            let (name, help) = INFO;
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Info)?;
            for Seen { status, .. } in seen {
                metric.encode_info(&self.info(status))?;
            }
        }
        for ((name, help), count) in [(ANSWERING, seen.len()), (SILENT, silent.len())] {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode_gauge(&(count as i64))?;
        }
        if seen.is_empty() {
            return Ok(());
        }
        for family in families() {
            self.family(&mut encoder, &family)?;
        }
        Ok(())
    }
}

impl Metrics {
    /// The label that identifies an instance.
    fn labels(&self, status: &Status) -> Labels {
        let pid = self.by_process.then(|| ("pid", status.pid.to_string()));
        pid.into_iter().collect()
    }

    fn info(&self, status: &Status) -> Labels {
        let mut labels = self.labels(status);
        let command = serde_json::to_value(status.command).unwrap_or_default();
        labels.extend([
            ("version", status.version.clone()),
            ("command", command.as_str().unwrap_or_default().to_owned()),
            ("policy", status.policy.clone()),
            ("mode", status.settings.mode.clone()),
        ]);
        labels
    }

    fn family(&self, encoder: &mut DescriptorEncoder<'_>, family: &Family) -> fmt::Result {
        let kind = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Delay => MetricType::Histogram,
        };
        let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
        let mut metric =
            encoder.encode_descriptor(&family.name, &family.help, unit.as_ref(), kind)?;
        for Seen { status, .. } in &self.reading.seen {
            let with = |more: Option<(&'static str, String)>| {
                self.labels(status).into_iter().chain(more).collect::<Labels>()
            };
            match &family.value {
                Value::Instance(value) => {
                    if let Some(value) = value(status) {
                        one(&mut metric, family.kind, &with(None), value)?;
                    }
                }
                Value::Interface(value) => {
                    for (name, value) in by_name(status, value) {
                        let labels = with(Some(("interface", name.to_owned())));
                        one(&mut metric, family.kind, &labels, value)?;
                    }
                }
                Value::Cpu(value) => {
                    for on in &status.cpus {
                        let labels = with(Some(("cpu", on.cpu.to_string())));
                        one(&mut metric, family.kind, &labels, value(on))?;
                    }
                }
                Value::Delay => delay(&mut metric, &with(None), status)?,
            }
        }
        Ok(())
    }
}

/// The values by interface name. A deleted interface and a refused one can have the same name. Their values are added,
/// because Prometheus refuses two series with the same labels.
fn by_name<'a>(status: &'a Status, value: &dyn Fn(&InterfaceStatus) -> f64) -> Vec<(&'a str, f64)> {
    let mut sums: Vec<(&str, f64)> = Vec::new();
    for known in &status.interfaces {
        match sums.iter_mut().find(|(name, _)| *name == known.name) {
            Some((_, sum)) => *sum += value(known),
            None => sums.push((&known.name, value(known))),
        }
    }
    sums
}

fn one(metric: &mut MetricEncoder<'_>, kind: Kind, labels: &Labels, value: f64) -> fmt::Result {
    labelled(metric, labels, |metric| match kind {
        Kind::Counter => metric.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        Kind::Gauge | Kind::Delay => metric.encode_gauge(&value),
    })
}

/// Encodes a series with these labels, or without labels if there are none.
fn labelled(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    match labels.is_empty() {
        true => encode(metric),
        false => encode(&mut metric.encode_family(labels)?),
    }
}

/// The upper ends of the histogram's buckets, as powers of two in nanoseconds: 1 µs, 4 µs, … 1 s.
const ENDS: [u32; 11] = [10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30];

/// The delays of all CPUs as a histogram, if they are sampled.
fn delay(metric: &mut MetricEncoder<'_>, labels: &Labels, status: &Status) -> fmt::Result {
    let mut all = Delay::default();
    for delay in status.cpus.iter().filter_map(|on| on.delay.as_ref()) {
        all.add(delay);
    }
    if status.cpus.iter().all(|on| on.delay.is_none()) {
        return Ok(());
    }
    let mut buckets: Vec<(f64, u64)> =
        ENDS.iter().map(|end| ((1u64 << end) as f64 * 1e-9, 0)).collect();
    buckets.push((f64::INFINITY, 0));
    let mut sum = 0.0;
    for (bucket, count) in all.buckets.iter().enumerate() {
        let (lower, upper) = (Delay::lower(bucket), Delay::lower(bucket + 1));
        let at = ENDS.iter().position(|end| upper <= 1 << end).unwrap_or(ENDS.len());
        buckets[at].1 += count;
        sum += (lower + upper) as f64 * 0.5e-9 * *count as f64;
    }
    labelled(metric, labels, |metric| {
        metric.encode_histogram::<NoLabelSet>(sum, all.count(), &buckets, None)
    })
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
