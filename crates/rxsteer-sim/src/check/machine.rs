//! Checks of CPUs, NICs, costs, the scheduler, and the steering.

use super::{
    Checked, MAX_BUDGET, MAX_CPUS, MAX_NICS, MAX_RATE, MAX_RING, MAX_TIME_NS, Problem, SPEEDS,
    refuse, some, up_to, within,
};
use crate::Scenario;
use crate::costs::COSTS;
use crate::scenario::{Interrupts, Load, Nic, Pause, Steering, Traffic};
use rxsteer_core::limits::{MAX_BACKLOG, MAX_RX_QUEUES};
use rxsteer_core::{ConfigError, CpuId, CpuSet, PacketRule};

/// The largest number of kinds of pauses.
const MAX_PAUSES: u64 = 64;

/// The largest share of the time in which a CPU is paused.
const MAX_PAUSED: f64 = 0.9;

pub(super) fn check(scenario: &Scenario) -> Checked {
    if scenario.cpus.is_empty() {
        return refuse("machine.cpus", "the machine has no CPUs; give it at least one");
    }
    some("machine.cpus", scenario.cpus.len() as u64, MAX_CPUS as u64)?;
    for (id, cpu) in scenario.cpus.iter().enumerate() {
        let what = format!("(the speed of CPU {id}, 1 being the CPU that costs are given for)");
        within("machine.speed", cpu.speed, SPEEDS, &what)?;
    }
    within("machine.smt_speed", scenario.smt_speed, 0.01..=1.0, "of a lone CPU's speed")?;
    check_pauses(&scenario.pauses)?;
    check_nics(scenario)?;
    let mut costs = scenario.costs;
    for cost in &COSTS {
        let path = format!("costs.{}", cost.key);
        within(path, *(cost.field)(&mut costs), 0.0..=cost.most, cost.unit)?;
    }
    check_scheduler(scenario)
}

fn check_pauses(pauses: &[Pause]) -> Checked {
    let mut share = 0.0;
    up_to("pause", pauses.len() as u64, MAX_PAUSES, "kinds of pauses")?;
    for (index, Pause { every_ns, lasts_ns }) in pauses.iter().enumerate() {
        let at = |key: &str| format!("pause.{index}.{key}");
        for (key, ns) in [("every", *every_ns), ("lasts", *lasts_ns)] {
            some(at(key), ns, MAX_TIME_NS)?;
        }
        if *every_ns < 1000 {
            return refuse(at("every"), format!("{every_ns} ns is too often; give at least 1us"));
        }
        share += *lasts_ns as f64 / *every_ns as f64;
    }
    if share > MAX_PAUSED {
        return refuse(
            "pause",
            format!(
                "the CPUs would be paused {:.0} % of the time; more than {:.0} % is not possible",
                100.0 * share,
                100.0 * MAX_PAUSED
            ),
        );
    }
    Ok(())
}

fn check_nics(scenario: &Scenario) -> Checked {
    if scenario.nics.is_empty() {
        return refuse("nic", "the machine has no network card; add a [[nic]]");
    }
    some("nic", scenario.nics.len() as u64, MAX_NICS as u64)?;
    for (index, nic) in scenario.nics.iter().enumerate() {
        check_nic(scenario, nic, index)?;
        if scenario.nics[..index].iter().any(|earlier| earlier.name == nic.name) {
            return refuse(
                format!("nic.{index}.name"),
                format!("two cards are called '{}'", nic.name),
            );
        }
    }
    let queues = scenario.rx_queues();
    if queues > usize::from(MAX_RX_QUEUES) {
        return refuse(
            "nic",
            format!(
                "the cards have {queues} RX queues (one on each of its CPUs where interrupts are spread); \
                 there can be {MAX_RX_QUEUES}"
            ),
        );
    }
    Ok(())
}

fn check_nic(scenario: &Scenario, nic: &Nic, index: usize) -> Checked {
    let at = |key: &str| format!("nic.{index}.{key}");
    if nic.name.is_empty() {
        return refuse(at("name"), "a card's name can't be empty");
    }
    if nic.rate == 0.0 {
        return refuse(at("rate"), "a card of rate 0 carries nothing; write e.g. rate = \"1Gbit\"");
    }
    within(at("rate"), nic.rate, 1.0..=MAX_RATE, "bits per second")?;
    some(at("queues"), nic.irq_cpus.len() as u64, MAX_RX_QUEUES.into())?;
    there(scenario, nic.irq_cpus.iter().copied(), &at("irq_cpus"), "an RX queue interrupts")?;
    if let Interrupts::Spread(cpus) = &nic.interrupts {
        there(scenario, cpus.iter(), &at("interrupts"), "interrupts are spread over")?;
    }
    some(at("ring"), nic.ring.into(), MAX_RING.into())?;
    up_to(at("moderation"), nic.moderation_ns, 1_000_000_000, "nanoseconds (1 s)")
}

fn check_scheduler(scenario: &Scenario) -> Checked {
    let scheduler = &scenario.scheduler;
    there(scenario, scheduler.cpus.iter(), "scheduler.cpus", "threads may run on")?;
    for (key, ns) in [("slice", scheduler.slice_ns), ("softirq", scheduler.softirq_ns)] {
        let path = format!("scheduler.{key}");
        if ns < 1000 {
            return refuse(path, format!("{ns} ns is too short; give at least 1us"));
        }
        up_to(path, ns, MAX_TIME_NS, "nanoseconds (a day)")?;
    }
    if (1..10_000).contains(&scheduler.balance_ns) {
        return refuse(
            "scheduler.balance",
            "this is too often; the shortest interval is 10us, and 0 means never",
        );
    }
    up_to("scheduler.balance", scheduler.balance_ns, MAX_TIME_NS, "nanoseconds (a day)")
}

/// Checks settings that apply from the start, or from an event on; `path` identifies which.
pub(super) fn check_steering(scenario: &Scenario, steering: &Steering, path: &str) -> Checked {
    let at = |key: &str| format!("{path}.{key}");
    there(scenario, steering.cpus.iter(), &at("cpus"), "the CPU map names")?;
    let policy = at("policy");
    there(scenario, steering.policy.named_cpus(), &policy, "the policy names")?;
    let desired = steering.rfs_cpus.iter().flat_map(CpuSet::iter);
    there(scenario, desired, &at("rfs_cpus"), "rfs_cpus names")?;
    let rules = PacketRule::cpus_of(&steering.packet_rules);
    there(scenario, rules, &at("rule"), "a rule names")?;
    let is_recorded = |traffic: &Traffic| matches!(traffic.load, Load::Recorded(_));
    if !steering.packet_rules.is_empty() && scenario.traffic.iter().any(is_recorded) {
        let what = "recorded traffic has no header fields for rules to match; leave the rules out";
        return refuse(at("rule"), what);
    }
    let queues = scenario.rx_queues();
    for (name, cpus) in &steering.rps_maps {
        let path = at(&format!("rps_map.{name}"));
        if name.queue().is_some_and(|queue| usize::from(queue) >= queues) {
            let last = queues - 1;
            return refuse(path, format!("there is no RX queue {name}: they are 0 to {last}"));
        }
        there(scenario, cpus.iter(), &path, "the queue's CPU map names")?;
    }
    some(at("max_backlog"), steering.max_backlog.into(), MAX_BACKLOG.into())?;
    some(at("budget"), steering.budget.into(), MAX_BUDGET.into())?;
    scenario
        .steer_config(steering, None)
        .check()
        .map_err(|error| match error {
            ConfigError::NeedsInner(rule) => Problem {
                path: at("rule"),
                what: format!(
                    "'{rule}': no packet can match: a TEID or a VNI is in udp, and no traffic has 'headers' of packets \
                     inside such tunnels; leave the protocol out"
                ),
            },
            error => Problem { path: path.to_string(), what: error.to_string() },
        })
}

/// Refuses CPUs that the machine does not have; `which` completes the message after "CPU 7, which".
pub(super) fn there(
    scenario: &Scenario,
    mut cpus: impl Iterator<Item = CpuId>,
    path: &str,
    which: &str,
) -> Checked {
    let count = scenario.cpus.len();
    match cpus.find(|cpu| cpu.index() >= count) {
        None => Ok(()),
        Some(cpu) => refuse(
            path,
            format!("there is no CPU {cpu}, which {which}: the machine's are 0 to {}", count - 1),
        ),
    }
}
