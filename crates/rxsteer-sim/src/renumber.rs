//! The same machine with its CPUs numbered backwards. Equal CPUs have no order, so the difference between the two shows
//! how much a result depends only on the numbers of CPUs.

use crate::Scenario;
use crate::scenario::{Event, EventKind, Interrupts, Nic, Scheduler, Steering};
use rxsteer_core::matching::Action;
use rxsteer_core::{CpuId, CpuSet, PacketRule, Policy};

/// `scenario` with its CPUs numbered backwards, everywhere a CPU is named.
#[must_use]
pub fn backwards(scenario: &Scenario) -> Scenario {
    let last = scenario.cpus.len().saturating_sub(1) as u16;
    let cpu = |id: CpuId| CpuId::new(last.saturating_sub(id.get())).unwrap_or(id);
    let set = |cpus: &CpuSet| CpuSet::new(cpus.iter().map(cpu)).unwrap_or_else(|| cpus.clone());
    let rule = |rule: &PacketRule| PacketRule {
        terms: rule.terms.clone(),
        action: match &rule.action {
            Action::Cpus(cpus) => Action::Cpus(set(cpus)),
            Action::Local => Action::Local,
            Action::Pass => Action::Pass,
            Action::Policy(policy) => Action::Policy(*policy),
        },
    };
    let steering = |steering: &Steering| Steering {
        policy: match &steering.policy {
            Policy::Bound(bindings) => {
                let bound = bindings.iter().map(|(queue, to)| (queue.clone(), cpu(*to)));
                Policy::Bound(bound.collect())
            }
            policy => policy.clone(),
        },
        cpus: set(&steering.cpus),
        packet_rules: steering.packet_rules.iter().map(rule).collect(),
        rps_maps: steering.rps_maps.iter().map(|(queue, map)| (queue.clone(), set(map))).collect(),
        rfs_cpus: steering.rfs_cpus.as_ref().map(set),
        // The fields are named one by one, so that a new setting that names a CPU is not forgotten here.
        fallback: steering.fallback,
        sock_flow_entries: steering.sock_flow_entries,
        flow_cnt: steering.flow_cnt,
        flow_limit: steering.flow_limit,
        max_backlog: steering.max_backlog,
        budget: steering.budget,
    };
    let nic = |nic: &Nic| Nic {
        irq_cpus: nic.irq_cpus.iter().map(|id| cpu(*id)).collect(),
        interrupts: match &nic.interrupts {
            Interrupts::Fixed => Interrupts::Fixed,
            Interrupts::Spread(cpus) => Interrupts::Spread(set(cpus)),
        },
        ..nic.clone()
    };
    let event = |event: &Event| Event {
        at_ns: event.at_ns,
        what: match &event.what {
            EventKind::Offline(id) => EventKind::Offline(cpu(*id)),
            EventKind::Online(id) => EventKind::Online(cpu(*id)),
            EventKind::Speed(id, speed) => EventKind::Speed(cpu(*id), *speed),
            EventKind::Steering(later) => EventKind::Steering(steering(later)),
            EventKind::ClockStep(by) => EventKind::ClockStep(*by),
            EventKind::Burst(traffic, packets) => EventKind::Burst(*traffic, *packets),
        },
    };
    Scenario {
        cpus: scenario.cpus.iter().rev().copied().collect(),
        nics: scenario.nics.iter().map(nic).collect(),
        steering: steering(&scenario.steering),
        scheduler: Scheduler { cpus: set(&scenario.scheduler.cpus), ..scenario.scheduler.clone() },
        events: scenario.events.iter().map(event).collect(),
        ..scenario.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::builtin::builtin;
    use crate::sample::scenario;

    #[test]
    fn all_that_names_a_cpu_is_renumbered_and_twice_is_as_before() {
        let mut machine = scenario();
        machine.cpus[0].speed = 2.0;
        machine.steering.policy = "bound:0=1".parse().unwrap();
        machine.steering.rfs_cpus = CpuSet::new(CpuId::new(3));
        machine.steering.packet_rules = vec!["tcp -> 0-1".parse().unwrap()];
        let id = |id| CpuId::new(id).unwrap();
        machine.events = vec![Event { at_ns: 5, what: EventKind::Offline(id(1)) }];
        let other = backwards(&machine);
        other.check().unwrap();
        assert_eq!(other.cpus[3].speed, 2.0);
        assert_eq!(other.nics[0].irq_cpus, [id(3)]);
        assert_eq!(other.steering.policy.to_string(), "bound:0=2");
        assert_eq!(other.steering.packet_rules[0].to_string(), "tcp → 2-3");
        assert_eq!(other.steering.cpus.to_string(), "0-2");
        assert_eq!(other.steering.rfs_cpus, CpuSet::new(CpuId::new(0)));
        assert_eq!(other.events[0].what, EventKind::Offline(id(2)));
        assert_eq!(backwards(&other), machine);
    }

    #[test]
    fn built_in_scenarios_can_be_renumbered() {
        for builtin in builtin() {
            let scenario = builtin.scenario(&[]).unwrap();
            let other = backwards(&scenario);
            other.check().unwrap();
            assert_eq!(backwards(&other), scenario, "{}", builtin.name);
        }
    }
}
