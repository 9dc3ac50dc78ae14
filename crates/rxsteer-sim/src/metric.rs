//! The only list of a run's figures: every table, file and plot takes names, units and help texts from here. The
//! list also defines how each figure is computed from a [`RunResult`].
//!
//! A figure belongs to a [`Subject`]: the whole run, one traffic, or one CPU. Figures that add up are also
//! reported as their sum over the whole run. A figure that a run does not have (the latency of no packet, the
//! transactions of a stream) is absent, never 0.

use crate::result::{CpuResult, TrafficResult};
use crate::{RunResult, Scenario};
use rxsteer_core::{CpuId, DropReason, Policy};
use std::collections::BTreeSet;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets.
    Packets,
    /// Packets per second of simulated time.
    PacketsPerSecond,
    /// Bits per second of simulated time, frames without preamble and gap.
    BitsPerSecond,
    /// Transactions per second of simulated time.
    TransactionsPerSecond,
    /// Nanoseconds of simulated time.
    Nanoseconds,
    /// Fully busy CPUs: 0.5 is half of one CPU's time.
    Cpus,
    /// A part of a whole, 0 to 1.
    Share,
    /// A number without a unit.
    Ratio,
    /// Events, such as wake-ups.
    Events,
}

impl Unit {
    /// The name of the unit in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Packets => "packets",
            Unit::PacketsPerSecond => "packets/s",
            Unit::BitsPerSecond => "bit/s",
            Unit::TransactionsPerSecond => "transactions/s",
            Unit::Nanoseconds => "ns",
            Unit::Cpus => "CPUs",
            Unit::Share => "share",
            Unit::Ratio => "ratio",
            Unit::Events => "events",
        }
    }
}

/// The direction that is an improvement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    More,
    /// Less is better.
    Less,
    /// Neither: the figure explains others and is not a goal.
    Neither,
}

/// The subject of a figure, and how it is computed.
#[derive(Clone, Copy)]
enum Of {
    /// A figure of the whole run.
    Run(fn(&Scenario, &RunResult) -> Option<f64>),
    /// A figure of each traffic.
    Traffic(fn(&TrafficResult) -> Option<f64>),
    /// A figure of each traffic, and of the whole run as the sum over all traffics that have it.
    TrafficSum(fn(&RunResult, &TrafficResult) -> Option<f64>),
    /// A figure of each CPU, and of the whole run as the sum over all CPUs.
    CpuSum(fn(&CpuResult) -> f64),
}

/// One kind of figure.
#[derive(Clone, Copy)]
pub struct Metric {
    /// The name in files; stable.
    pub name: &'static str,
    /// The title for display, without the unit.
    pub title: &'static str,
    /// The unit.
    pub unit: Unit,
    /// The direction that is an improvement.
    pub better: Better,
    /// Whether policies are compared by this metric ([`crate::compare`]).
    pub headline: bool,
    /// The meaning of the metric, in one sentence.
    pub help: &'static str,
    of: Of,
}

impl std::fmt::Debug for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Names are unique, so a name identifies the metric.
impl PartialEq for Metric {
    fn eq(&self, other: &Metric) -> bool {
        self.name == other.name
    }
}

/// The subject of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The whole run.
    Run,
    /// One traffic, by its index in the scenario.
    Traffic(usize),
    /// One CPU, by its id.
    Cpu(usize),
}

macro_rules! metrics {
    ($($name:literal, $title:literal, $unit:ident, $better:ident, $headline:literal, $of:expr, $help:literal;)*) => {
        /// Every metric, in display order.
        pub const METRICS: &[Metric] = &[$(Metric {
            name: $name,
            title: $title,
            unit: Unit::$unit,
            better: Better::$better,
            headline: $headline,
            help: $help,
            of: $of,
        }),*];
    };
}

metrics! {
    "bits_per_second", "throughput", BitsPerSecond, More, true, Of::TrafficSum(|_, traffic| Some(traffic.bits_per_second)),
        "Bits per second of frames that reached their destination.";
    "transactions_per_second", "transactions", TransactionsPerSecond, More, true, Of::TrafficSum(|_, traffic| traffic.transactions_per_second),
        "Transactions (request, answer) per second.";
    "packets_per_second", "packet rate", PacketsPerSecond, More, false,
        Of::TrafficSum(|run, traffic| (run.measured_ns > 0).then(|| traffic.packets as f64 * 1e9 / run.measured_ns as f64)),
        "Packets per second that reached their destination.";
    "packets", "packets", Packets, More, false, Of::TrafficSum(|_, traffic| Some(traffic.packets as f64)),
        "Packets that reached their destination in the measured time.";
    "fairness", "fairness", Share, More, true, Of::Traffic(|traffic| (traffic.flows > 1 && traffic.packets > 0).then_some(traffic.fairness)),
        "Jain's index over the flows' packets: 1 all alike, 1/n where one of n flows has all.";
    "slowest_flow", "slowest flow", BitsPerSecond, More, false, Of::Traffic(|traffic| Some(traffic.slowest_flow)),
        "Bits per second of the traffic's flow that got least.";
    "fastest_flow", "fastest flow", BitsPerSecond, Neither, false, Of::Traffic(|traffic| Some(traffic.fastest_flow)),
        "Bits per second of the traffic's flow that got most.";
    "latency_mean_ns", "latency mean", Nanoseconds, Less, false, Of::Traffic(|traffic| latency(traffic).map(|_| traffic.latency.mean)),
        "Mean latency: of requests the round trip, else from the card to the end of processing.";
    "latency_std_dev_ns", "latency std dev", Nanoseconds, Less, false, Of::Traffic(|traffic| latency(traffic).map(|_| traffic.latency.std_dev)),
        "Standard deviation of latency, within a run.";
    "latency_p50_ns", "latency p50", Nanoseconds, Less, false, Of::Traffic(|traffic| latency(traffic).map(|_| traffic.latency.p50 as f64)),
        "Half of the latencies are no longer.";
    "latency_p90_ns", "latency p90", Nanoseconds, Less, false, Of::Traffic(|traffic| latency(traffic).map(|_| traffic.latency.p90 as f64)),
        "90 % of the latencies are no longer.";
    "latency_p99_ns", "latency p99", Nanoseconds, Less, true, Of::Traffic(|traffic| latency(traffic).map(|_| traffic.latency.p99 as f64)),
        "99 % of the latencies are no longer.";
    "latency_p999_ns", "latency p99.9", Nanoseconds, Less, false, Of::Traffic(|traffic| latency(traffic).map(|_| traffic.latency.p999 as f64)),
        "99.9 % of the latencies are no longer.";
    "lost", "lost", Packets, Less, false, Of::TrafficSum(|_, traffic| Some(traffic.lost as f64)),
        "Packets lost on the way in the measured time.";
    "cpu_per_packet_ns", "CPU per packet", Nanoseconds, Less, true, Of::Run(cpu_per_packet),
        "CPU time, of all CPUs, for each packet that reached its destination.";
    "busy", "CPUs busy", Cpus, Less, false, Of::CpuSum(CpuResult::busy),
        "Share of the time in which a CPU did anything.";
    "receiving", "in receiving", Cpus, Neither, false, Of::CpuSum(|cpu| cpu.receiving),
        "Share of the time a CPU spent in interrupts and polling.";
    "protocol", "in protocol", Cpus, Neither, false, Of::CpuSum(|cpu| cpu.protocol),
        "Share of the time a CPU spent in protocol processing.";
    "application", "in application", Cpus, Neither, false, Of::CpuSum(|cpu| cpu.application),
        "Share of the time a CPU spent in applications' threads.";
    "cpu_packets", "packets on CPUs", Packets, Neither, false, Of::CpuSum(|cpu| cpu.packets as f64),
        "Packets processed on a CPU in the measured time.";
    "imbalance", "imbalance", Ratio, Less, false, Of::Run(imbalance),
        "Packets of the busiest CPU over the mean of all that are steered to or processed any; 1 is even.";
    "arrived", "arrived", Packets, Neither, false, Of::Run(|_, run| Some(run.account.arrived as f64)),
        "Frames that arrived at cards, warm-up included.";
    "processed", "processed", Packets, Neither, false, Of::Run(|_, run| Some(run.account.processed as f64)),
        "Packets that were processed, warm-up included.";
    "under_way", "under way", Packets, Neither, false, Of::Run(|_, run| Some(run.account.under_way as f64)),
        "Packets in a ring, a backlog or in work when the run ended.";
    "refused", "refused", Share, Less, false, Of::Run(|_, run| {
            let refused = run.account.ring_full + run.account.dropped();
            Some(refused as f64 / (run.account.arrived.max(1)) as f64)
        }),
        "Share of the arrived frames that a ring or a backlog refused, warm-up included.";
    "ring_full", "ring full", Packets, Less, false, Of::Run(|_, run| Some(run.account.ring_full as f64)),
        "Frames that found their card's ring full, warm-up included.";
    "backlog_full", "backlog full", Packets, Less, false, Of::Run(|_, run| drops(run, DropReason::BacklogFull)),
        "Packets refused by a full backlog, warm-up included.";
    "no_buffer", "no buffer", Packets, Less, false, Of::Run(|_, run| drops(run, DropReason::NoBuffer)),
        "Packets refused for lack of memory, warm-up included.";
    "worker_lost", "worker lost", Packets, Less, false, Of::Run(|_, run| drops(run, DropReason::WorkerLost)),
        "Packets whose CPU went away with no CPU left to process them, warm-up included.";
    "interface_removed", "interface removed", Packets, Less, false, Of::Run(|_, run| drops(run, DropReason::InterfaceRemoved)),
        "Packets whose card was removed, warm-up included.";
    "flow_limit", "flow limit", Packets, Less, false, Of::Run(|_, run| drops(run, DropReason::FlowLimit)),
        "Packets refused by the flow limit, warm-up included.";
    "tx_full", "tx full", Packets, Less, false, Of::Run(|_, run| Some(run.tx_full as f64)),
        "Processed packets that found no room at the card they are forwarded to.";
    "socket_full", "socket full", Packets, Less, false, Of::Run(|_, run| Some(run.socket_full as f64)),
        "Processed packets that found no room in their application's socket.";
    "moves", "moves", Events, Neither, false, Of::Run(|_, run| Some(run.moves as f64)),
        "Packets processed on another CPU than their flow's packet before.";
    "reordered", "reordered", Packets, Less, false, Of::Run(|_, run| Some(run.reordered as f64)),
        "Packets whose processing began or ended before that of an earlier one of their flow; must be 0 where interrupts are fixed.";
    "kicks", "kicks", Events, Less, false, Of::Run(|_, run| Some(run.kicks as f64)),
        "Wake-ups of other CPUs.";
    "interrupts", "interrupts", Events, Neither, false, Of::Run(|_, run| Some(run.interrupts as f64)),
        "Interrupts.";
    "rfs", "rfs", Packets, Neither, false, Of::Run(|_, run| Some(run.steered.rfs as f64)),
        "Packets whose target is the CPU where their application runs.";
    "in_slots", "in slots", Packets, Neither, false, Of::Run(|_, run| Some(run.steered.in_slots as f64)),
        "Packets whose target is the CPU of their sparse slot.";
    "matched", "by rule", Packets, Neither, false, Of::Run(|_, run| Some(run.steered.matched as f64)),
        "Packets whose target comes from a rule before the policy.";
    "bound", "bound", Packets, Neither, false, Of::Run(|_, run| Some(run.steered.bound as f64)),
        "Packets whose target is the CPU that their RX queue is bound to.";
    "hashed", "hashed", Packets, Neither, false, Of::Run(|_, run| Some(run.steered.hashed as f64)),
        "Packets whose target is the CPU that the flow hash selects.";
    "local", "local", Packets, Neither, false, Of::Run(|_, run| Some(run.steered.local as f64)),
        "Packets that no rule steers.";
    "unmatched", "matched by no rule", Packets, Neither, false, Of::Run(|_, run| (!run.rules.is_empty()).then_some(run.unmatched as f64)),
        "Packets that came while there were rules before the policy, and matched none; absent without rules.";
    "deferred", "deferred", Packets, Neither, false, Of::Run(|_, run| Some(run.steered.deferred as f64)),
        "Packets sent to the CPU in their flow table slot instead of their target: earlier ones were still under way there, or the slot's hysteresis was not used up.";
}

fn latency(traffic: &TrafficResult) -> Option<()> {
    (traffic.latency.count > 0).then_some(())
}

fn drops(run: &RunResult, reason: DropReason) -> Option<f64> {
    Some(run.account.drops.get(reason) as f64)
}

fn cpu_per_packet(_: &Scenario, run: &RunResult) -> Option<f64> {
    let packets: u64 = run.traffic.iter().map(|traffic| traffic.packets).sum();
    let busy: f64 = run.cpus.iter().map(CpuResult::busy).sum();
    (packets > 0).then(|| busy * run.measured_ns as f64 / packets as f64)
}

/// The imbalance over the CPUs that packets are steered to, and other CPUs that processed any packet. `bound` steers
/// only to the CPUs that it names; under `none` they are those that packets could be steered to.
fn imbalance(scenario: &Scenario, run: &RunResult) -> Option<f64> {
    let steering = &scenario.steering;
    let maps = steering.rps_maps.iter().flat_map(|(_, cpus)| cpus.iter());
    let mut cpus: BTreeSet<usize> = match &steering.policy {
        Policy::Bound(_) => steering.policy.named_cpus().map(CpuId::index).collect(),
        _ => steering.cpus.iter().chain(maps).map(CpuId::index).collect(),
    };
    cpus.extend(run.cpus.iter().enumerate().filter(|(_, cpu)| cpu.packets > 0).map(|(id, _)| id));
    cpus.retain(|id| *id < run.cpus.len());
    let any = run.cpus.iter().any(|cpu| cpu.packets > 0);
    any.then(|| run.imbalance(cpus.into_iter()))
}

impl Metric {
    /// The metric with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Metric> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// The figure, if the run has it for this subject.
    #[must_use]
    pub fn value(&self, scenario: &Scenario, run: &RunResult, of: Subject) -> Option<f64> {
        match (self.of, of) {
            (Of::Run(figure), Subject::Run) => figure(scenario, run),
            (Of::Traffic(figure), Subject::Traffic(index)) => figure(run.traffic.get(index)?),
            (Of::TrafficSum(figure), Subject::Traffic(index)) => {
                figure(run, run.traffic.get(index)?)
            }
            (Of::TrafficSum(figure), Subject::Run) => {
                let parts = run.traffic.iter().filter_map(|traffic| figure(run, traffic));
                parts.reduce(|sum, part| sum + part)
            }
            (Of::CpuSum(figure), Subject::Cpu(id)) => run.cpus.get(id).map(figure),
            (Of::CpuSum(figure), Subject::Run) => Some(run.cpus.iter().map(figure).sum()),
            _ => None,
        }
    }
}

/// Every subject of a scenario's runs: the whole run, its traffics, its CPUs.
pub fn subjects(scenario: &Scenario) -> impl Iterator<Item = Subject> + use<> {
    let traffics = (0..scenario.traffic.len()).map(Subject::Traffic);
    let cpus = (0..scenario.cpus.len()).map(Subject::Cpu);
    std::iter::once(Subject::Run).chain(traffics).chain(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{result, scenario};

    #[test]
    fn each_is_named_once_and_every_drop_reason_has_one() {
        for (index, metric) in METRICS.iter().enumerate() {
            assert!(!METRICS[..index].contains(metric), "{metric:?} is there twice");
            assert!(metric.help.ends_with('.'), "{metric:?}: {}", metric.help);
        }
        for reason in DropReason::ALL {
            assert!(Metric::named(reason.name()).is_some(), "{}", reason.name());
        }
    }

    #[test]
    fn figures_add_up_and_what_is_not_there_is_absent() {
        let (scenario, run) = (scenario(), result(7));
        let value = |name, of| Metric::named(name).unwrap().value(&scenario, &run, of);
        let parts = [Subject::Traffic(0), Subject::Traffic(1)]
            .map(|of| value("bits_per_second", of).unwrap());
        assert_eq!(value("bits_per_second", Subject::Run), Some(parts[0] + parts[1]));
        assert_eq!(value("transactions_per_second", Subject::Traffic(0)), None);
        assert_eq!(
            value("transactions_per_second", Subject::Run),
            value("transactions_per_second", Subject::Traffic(1))
        );
        assert_eq!(value("latency_p99_ns", Subject::Traffic(0)), None, "no packet, no latency");
        assert_eq!(value("latency_p99_ns", Subject::Run), None, "percentiles don't add up");
        let busy: f64 = run.cpus.iter().map(CpuResult::busy).sum();
        assert_eq!(value("busy", Subject::Run), Some(busy));
        assert_eq!(value("busy", Subject::Cpu(9)), None);
    }

    #[test]
    fn receiving_cpu_counts_for_imbalance_though_nothing_is_steered_to_it() {
        let (scenario, mut run) = (scenario(), result(7));
        let value = |run: &RunResult| {
            Metric::named("imbalance").unwrap().value(&scenario, run, Subject::Run)
        };
        for (cpu, packets) in run.cpus.iter_mut().zip([90, 10, 0, 0]) {
            cpu.packets = packets;
        }
        // Packets are steered to CPUs 1 to 3, and CPU 0 processed some: 90 over a mean of 25.
        assert_eq!(value(&run), Some(3.6));
        run.cpus.iter_mut().for_each(|cpu| cpu.packets = 0);
        assert_eq!(value(&run), None);
    }

    #[test]
    fn bound_is_even_if_the_cpus_it_names_are() {
        let (mut scenario, mut run) = (scenario(), result(7));
        scenario.steering.policy = "bound:0=2,1=3".parse().unwrap();
        for (cpu, packets) in run.cpus.iter_mut().zip([0, 0, 30, 10]) {
            cpu.packets = packets;
        }
        let imbalance = Metric::named("imbalance").unwrap();
        // CPU 1 is in the list of CPUs, which `bound` does not use: 30 over a mean of 20.
        assert_eq!(imbalance.value(&scenario, &run, Subject::Run), Some(1.5));
    }
}
