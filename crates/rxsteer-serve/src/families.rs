//! The metrics. Names, help and units come from the list of counters; this file sets which are per CPU or per interface.
//!
//! There are at most 50 series per instance, 20 per CPU and 20 per interface, and none per flow.

use rxsteer_core::counters::{LiveCounter, LiveCpuCounter, RxCounter, Unit};
use rxsteer_status::{Counts, CpuStatus, InterfaceStatus, State, Status};
use std::fmt::Write;

/// The type of a metric in Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    /// The histogram of delays.
    Delay,
}

/// Reads a value.
type Of<T, R> = Box<dyn Fn(&T) -> R>;

/// How a metric gets its values: one for the instance, or one for each interface or CPU.
pub(crate) enum Value {
    Instance(Of<Status, Option<f64>>),
    Interface(Of<InterfaceStatus, f64>),
    Cpu(Of<CpuStatus, f64>),
    /// The histogram of all CPUs' delays.
    Delay,
}

/// A metric.
pub(crate) struct Family {
    /// Its name, without unit and suffix.
    pub(crate) name: String,
    pub(crate) unit: Option<&'static str>,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    pub(crate) value: Value,
}

/// Counters with a series for each interface.
const BY_INTERFACE: [LiveCounter; 9] = [
    LiveCounter::Received,
    LiveCounter::Bytes,
    LiveCounter::NotIp,
    LiveCounter::Malformed,
    LiveCounter::Passed,
    LiveCounter::Unnumbered,
    LiveCounter::PartialChecksums,
    LiveCounter::Redirected,
    LiveCounter::Batches,
];

/// Counters with a series for each CPU: load, and decisions by rule. Counters in neither list are sums over all CPUs.
const BY_CPU: [LiveCounter; 10] = [
    LiveCounter::Received,
    LiveCounter::Bytes,
    LiveCounter::Local,
    LiveCounter::Bound,
    LiveCounter::Hashed,
    LiveCounter::InSlots,
    LiveCounter::Rfs,
    LiveCounter::Moves,
    LiveCounter::Deferred,
    LiveCounter::FlowLimitDrops,
];

/// Every metric of an instance.
pub(crate) fn families() -> Vec<Family> {
    let mut families = own();
    families.push(Family {
        name: "rxsteer_delay".to_owned(),
        unit: Some("seconds"),
        kind: Kind::Delay,
        help: "Time of sampled packets from arrival to delivery. The sum uses the middle of each bucket of status \
               --json, so its error is at most an eighth."
            .to_owned(),
        value: Value::Delay,
    });
    for counter in LiveCounter::ALL.iter().copied() {
        let of = |prefix: &str, value| {
            let help = match prefix {
                "cpu_" => counter.help().to_owned(),
                _ => of_all_cpus(counter.help()),
            };
            family(prefix, counter.name(), counter.unit(), Kind::Counter, &help, value)
        };
        let (by_interface, by_cpu) = (BY_INTERFACE.contains(&counter), BY_CPU.contains(&counter));
        if by_interface {
            let value = Value::Interface(Box::new(move |known| known.counts.get(counter) as f64));
            families.push(of("interface_", value));
        }
        if by_cpu {
            let value = Value::Cpu(Box::new(move |on| received(&on.counts, counter) as f64));
            families.push(of("cpu_", value));
        }
        if !by_interface && !by_cpu {
            let value = move |status: &Status| Some(received(&status.totals, counter) as f64);
            families.push(of("", Value::Instance(Box::new(value))));
        }
    }
    let dropped = RxCounter::KernelDrops;
    let value = Value::Interface(Box::new(|known| known.kernel_drops.unwrap_or(0) as f64));
    families.push(family(
        "interface_",
        dropped.name(),
        dropped.unit(),
        Kind::Counter,
        dropped.help(),
        value,
    ));
    families.extend(LiveCpuCounter::ALL.iter().copied().filter_map(of_cpu));
    families
}

/// A counter of the receiving side.
fn received(counts: &Counts, counter: LiveCounter) -> u64 {
    match counter {
        LiveCounter::FlowLimitDrops => counts.drops.flow_limit,
        LiveCounter::RedirectErrors => counts.drops.redirect_errors,
        _ => counts.rx.get(counter),
    }
}

/// A counter of the CPU on which packets are delivered. Rates have no metric, because Prometheus computes them.
fn of_cpu(counter: LiveCpuCounter) -> Option<Family> {
    let kind = match counter {
        LiveCpuCounter::Rate => return None,
        LiveCpuCounter::Waiting | LiveCpuCounter::LongestWait => Kind::Gauge,
        _ => Kind::Counter,
    };
    let scale = if counter.unit() == Unit::Nanoseconds { 1e-9 } else { 1.0 };
    let count = move |on: &CpuStatus| {
        let count = match counter {
            LiveCpuCounter::Delivered => on.counts.delivered,
            LiveCpuCounter::AllocDrops => on.counts.drops.alloc,
            LiveCpuCounter::Lost => on.counts.drops.ring_full,
            LiveCpuCounter::Waiting => on.counts.waiting,
            _ => on.thread.get(counter),
        };
        count as f64 * scale
    };
    let (prefix, value) = match counter {
        // The causes of losses are summed over all CPUs.
        LiveCpuCounter::LostWaiting | LiveCpuCounter::LostBusy | LiveCpuCounter::LostBurst => {
            let sum = move |status: &Status| Some(status.cpus.iter().map(count).sum());
            ("", Value::Instance(Box::new(sum)))
        }
        LiveCpuCounter::ThreadRan | LiveCpuCounter::ThreadWaited | LiveCpuCounter::LongestWait => {
            ("cpu_thread_", Value::Cpu(Box::new(count)))
        }
        _ => ("cpu_", Value::Cpu(Box::new(count))),
    };
    let help = match value {
        Value::Instance(_) => of_all_cpus(counter.help()),
        _ => counter.help().to_owned(),
    };
    Some(family(prefix, counter.name(), counter.unit(), kind, &help, value))
}

/// The help of a counter of one CPU, for the sum over all of them.
fn of_all_cpus(help: &str) -> String {
    help.replace(" on this CPU", "").replace("this CPU's", "a CPU's")
}

/// The metric of a counter. Times are in seconds, as usual in Prometheus. A name that contains the unit gets no suffix.
fn family(prefix: &str, name: &str, unit: Unit, kind: Kind, help: &str, value: Value) -> Family {
    let word = match unit {
        Unit::Packets => "packets",
        Unit::Bytes => "bytes",
        Unit::Flows => "flows",
        Unit::Nanoseconds => "seconds",
        Unit::Events => "events",
    };
    let name = name.trim_end_matches("_ns");
    let bare = name.strip_suffix(word).map(|bare| bare.trim_end_matches('_'));
    let says_it = [word, word.trim_end_matches('s')].iter().any(|word| name.contains(word));
    let (name, unit) = match (bare, unit) {
        (Some(bare), _) => (bare, Some(word)),
        (None, Unit::Events) => (name, None),
        (None, _) if says_it || name.contains("frames") => (name, None),
        (None, _) => (name, Some(word)),
    };
    let name = format!("rxsteer_{prefix}{name}").trim_end_matches('_').to_owned();
    Family { name, unit, kind, help: help.to_owned(), value }
}

/// The metrics that are not in the list of counters.
fn own() -> Vec<Family> {
    let gauge = |name: &str, unit, help: &str, value| Family {
        name: format!("rxsteer_{name}"),
        unit,
        kind: Kind::Gauge,
        help: help.to_owned(),
        value,
    };
    let of = |value: fn(&Status) -> Option<f64>| Value::Instance(Box::new(value));
    vec![
        gauge(
            "running",
            Some("seconds"),
            "Time since the instance started.",
            of(|status| Some(status.running_ns as f64 * 1e-9)),
        ),
        gauge(
            "memory",
            Some("bytes"),
            "Kernel memory of the BPF maps.",
            of(|status| status.memory_bytes.map(|bytes| bytes as f64)),
        ),
        gauge(
            "changing",
            None,
            "1 while a change of settings is in progress.",
            of(|status| Some(f64::from(u8::from(status.changing)))),
        ),
        gauge(
            "shadow",
            None,
            "1 in shadow mode, in which rxsteer decides and counts only.",
            of(|status| Some(f64::from(u8::from(status.settings.shadow)))),
        ),
        gauge(
            "guarded",
            None,
            "1 while the order guard applies.",
            of(|status| Some(f64::from(u8::from(status.guarded)))),
        ),
        gauge(
            "longest_round",
            Some("seconds"),
            "Longest time that the event thread worked without checking for events, within the last 10 to 20 seconds.",
            of(|status| Some(status.longest_round_ns as f64 * 1e-9)),
        ),
        gauge(
            "interface_steered",
            None,
            "1 while the interface is steered.",
            Value::Interface(Box::new(|known| f64::from(u8::from(known.state == State::Steered)))),
        ),
    ]
}

impl Family {
    /// Its name in the `# TYPE` line of OpenMetrics.
    pub(crate) fn full_name(&self) -> String {
        match self.unit {
            Some(unit) => format!("{}_{unit}", self.name),
            None => self.name.clone(),
        }
    }

    /// The names of its series.
    fn series(&self) -> Vec<String> {
        let name = self.full_name();
        match self.kind {
            Kind::Counter => vec![format!("{name}_total")],
            Kind::Gauge => vec![name],
            Kind::Delay => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).into(),
        }
    }
}

/// Names and help of the metrics that do not come from `families`.
pub(crate) const INFO: (&str, &str) =
    ("rxsteer_instance", "Version, command, policy and mode of the instance.");
pub(crate) const ANSWERING: (&str, &str) = ("rxsteer_instances", "Instances that answered.");
pub(crate) const SILENT: (&str, &str) =
    ("rxsteer_instances_silent", "Instances that did not answer within two seconds.");

/// The names of all series.
#[must_use]
pub fn names() -> Vec<String> {
    let others = [format!("{}_info", INFO.0), ANSWERING.0.to_owned(), SILENT.0.to_owned()];
    others.into_iter().chain(families().iter().flat_map(Family::series)).collect()
}

/// The table of all metrics, in Markdown.
#[must_use]
pub fn documentation() -> String {
    let mut text = String::from("| metric | type | by | what it counts |\n|---|---|---|---|\n");
    let mut row = |name: &str, kind: &str, by: &str, help: &str| {
        // Writing to a String does not fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {by} | {help} |");
    };
    row(&format!("{}_info", INFO.0), "info", "instance", INFO.1);
    for (name, help) in [ANSWERING, SILENT] {
        row(name, "gauge", "", help);
    }
    for family in families() {
        let by = match family.value {
            Value::Instance(_) | Value::Delay => "instance",
            Value::Interface(_) => "interface",
            Value::Cpu(_) => "CPU",
        };
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Delay => "histogram",
        };
        let name = match family.kind {
            Kind::Delay => family.full_name(),
            _ => family.series().concat(),
        };
        row(&name, kind, by, &family.help);
    }
    text
}
