//! Random faults during a run, by seed: CPUs that go offline and come back, slow CPUs, bursts, overload, steps of
//! the clock, pauses, other policies and sizes. Whatever the faults, no flow may be overtaken and no packet lost
//! uncounted; [`crate::soak`] checks this.
//!
//! Guarantees for the faults: the same scenario, seed and count give the same faults; a scenario file could
//! contain each of them; and at least one CPU stays online.

use crate::scenario::{Event, EventKind, Pause, Scenario, Steering};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_core::matching::{Action, RulePolicy};
use rxsteer_core::policy::Front;
use rxsteer_core::{Balance, CpuId, CpuSet, Fallback, Policy, Slots};

/// The largest number of faults of a run.
pub const MAX_FAULTS: u32 = 1000;

/// The number of bursts in an overload.
const OVERLOAD_BURSTS: u64 = 16;

/// The largest step of the clock, in nanoseconds: more than the second after which sparse slots and desired CPUs
/// count as idle.
const LARGEST_STEP_NS: u64 = 3_000_000_000;

/// `scenario` with `count` faults drawn by `seed`, in addition to its own events.
///
/// # Panics
/// When `count` is above [`MAX_FAULTS`], or the scenario has no CPU.
#[must_use]
pub fn add(scenario: &Scenario, seed: u64, count: u32) -> Scenario {
    assert!(count <= MAX_FAULTS, "{count} faults are more than {MAX_FAULTS}");
    assert!(!scenario.cpus.is_empty(), "a scenario has a CPU");
    let mut draw = Draw::new(scenario, seed);
    let mut events = scenario.events.clone();
    for _ in 0..count {
        draw.fault(&mut events);
    }
    let mut pauses = scenario.pauses.clone();
    if count > 0 && pauses.is_empty() {
        pauses = draw.pauses();
    }
    // The sort is stable, so events with the same time stay in the order in which they were drawn.
    events.sort_by_key(|event| event.at_ns);
    Scenario { events, pauses, ..scenario.clone() }
}

/// Draws faults for a scenario.
struct Draw<'a> {
    scenario: &'a Scenario,
    rng: ChaCha8Rng,
    /// CPUs that may go offline. This excludes the CPU that stays online, and CPUs that the scenario itself takes
    /// offline: bringing those back would change the scenario's own events.
    mortal: Vec<CpuId>,
    /// CPUs that go offline, with the beginning and the end of that time.
    away: Vec<(CpuId, u64, u64)>,
}

impl<'a> Draw<'a> {
    fn new(scenario: &'a Scenario, seed: u64) -> Draw<'a> {
        // This differs from the random stream of the run with the same seed. Otherwise faults would be correlated
        // with the run's traffic.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1);
        let own = |cpu: &CpuId| {
            scenario.events.iter().any(
                |event| matches!(event.what, EventKind::Offline(gone) | EventKind::Online(gone) if gone == *cpu),
            )
        };
        let all = CpuSet::first(scenario.cpus.len() as u16);
        let mut mortal: Vec<CpuId> =
            all.iter().flat_map(CpuSet::iter).filter(|cpu| !own(cpu)).collect();
        if !mortal.is_empty() {
            let stays = (rng.next_u64() % mortal.len() as u64) as usize;
            mortal.remove(stays);
        }
        Draw { scenario, rng, mortal, away: Vec::new() }
    }

    /// A number below `end`, which is above 0.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.rng.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// One of 1, 2, 4, … `1 << most`, so that small sizes are as frequent as large ones.
    fn size(&mut self, most: u64) -> u32 {
        1 << self.below(most + 1)
    }

    /// A time within the run.
    fn time(&mut self) -> u64 {
        self.below(self.scenario.duration_ns.max(1))
    }

    /// A time after `at_ns`, if the run lasts that long; near times are more frequent.
    fn later(&mut self, at_ns: u64) -> Option<u64> {
        let most = (self.scenario.duration_ns / 4).max(2);
        let later = at_ns.saturating_add(1 + (self.below(most) >> self.below(8)));
        Some(later).filter(|later| *later < self.scenario.duration_ns)
    }

    fn fault(&mut self, events: &mut Vec<Event>) {
        let at_ns = self.time();
        match self.below(6) {
            0 if !self.mortal.is_empty() => self.offline(at_ns, events),
            0 | 1 => self.slow(at_ns, events),
            2 if !self.scenario.traffic.is_empty() => {
                let most = self.burst_packets();
                let packets = 1 + self.below(most) as u32;
                let traffic = self.below(self.scenario.traffic.len() as u64) as usize;
                events.push(Event { at_ns, what: EventKind::Burst(traffic, packets) });
            }
            3 if !self.scenario.traffic.is_empty() => self.overload(at_ns, events),
            2..=4 => {
                let size = (1 + self.below(LARGEST_STEP_NS)) >> self.below(20);
                let step = if self.below(2) == 0 { size as i64 } else { -(size as i64) };
                events.push(Event { at_ns, what: EventKind::ClockStep(step) });
            }
            _ => {
                let what = EventKind::Steering(self.steering());
                events.push(Event { at_ns, what });
            }
        }
    }

    /// A CPU goes offline, and in most cases comes back.
    fn offline(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let index = self.below(self.mortal.len() as u64) as usize;
        let cpu = self.mortal[index];
        let until = self.later(at_ns);
        let away = (cpu, at_ns, until.unwrap_or(u64::MAX));
        let meets =
            |other: &(CpuId, u64, u64)| other.0 == cpu && other.1 <= away.2 && away.1 <= other.2;
        if self.away.iter().any(meets) {
            // The CPU is already offline at that time.
            return self.slow(at_ns, events);
        }
        self.away.push(away);
        events.push(Event { at_ns, what: EventKind::Offline(cpu) });
        if let Some(at_ns) = until {
            events.push(Event { at_ns, what: EventKind::Online(cpu) });
        }
    }

    /// A CPU works 1.1 to 20 times slower for a while (heat, another virtual machine, a debugger).
    fn slow(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let cpu = self.below(self.scenario.cpus.len() as u64) as usize;
        let speed = self.scenario.cpus[cpu].speed;
        let share = 0.05 + 0.85 * self.below(1 << 20) as f64 / f64::from(1 << 20);
        // There are at most as many CPUs as ids, so each CPU has an id.
        let Some(cpu) = CpuId::new(cpu as u16) else { return };
        events.push(Event { at_ns, what: EventKind::Speed(cpu, speed * share) });
        if let Some(at_ns) = self.later(at_ns) {
            events.push(Event { at_ns, what: EventKind::Speed(cpu, speed) });
        }
    }

    /// Up to three kinds of pauses, in which CPUs spend at most a third of the time.
    fn pauses(&mut self) -> Vec<Pause> {
        let kinds = self.below(4);
        let mut pauses = Vec::new();
        for _ in 0..kinds {
            let every_ns = 1000 + (self.scenario.duration_ns >> self.below(16));
            let lasts_ns = 1 + self.below(every_ns / 9);
            pauses.push(Pause { every_ns, lasts_ns });
        }
        pauses
    }

    /// Enough packets to fill every queue.
    fn burst_packets(&self) -> u64 {
        let rings = self.scenario.nics.iter().map(|nic| u64::from(nic.ring)).max().unwrap_or(1);
        (2 * rings + 2 * u64::from(self.scenario.steering.max_backlog)).min(20_000)
    }

    /// A series of bursts that together are more than a CPU can process in that time.
    fn overload(&mut self, at_ns: u64, events: &mut Vec<Event>) {
        let traffic = self.below(self.scenario.traffic.len() as u64) as usize;
        let packets = 1 + (self.burst_packets() / 8) as u32;
        let end_ns = self.later(at_ns).unwrap_or(self.scenario.duration_ns);
        let between_ns = (end_ns - at_ns) / OVERLOAD_BURSTS;
        for burst in 0..OVERLOAD_BURSTS {
            let at_ns = at_ns + burst * between_ns;
            events.push(Event { at_ns, what: EventKind::Burst(traffic, packets) });
        }
    }

    /// Other steering settings, from which the core creates a plan.
    fn steering(&mut self) -> Steering {
        let policy = self.policy();
        let cpus = self.cpus();
        let mut rps_maps = Vec::new();
        if policy.has_maps() && self.below(4) == 0 {
            let queues = self.scenario.rx_queues().min(4) as u16;
            rps_maps = (0..queues).map(|queue| (queue.into(), self.cpus())).collect();
        }
        // Ports of flows begin at 1024.
        let packet_rules = match self.below(4) {
            0 => (0..self.below(4))
                .filter_map(|_| {
                    let (low, cpus) = (1024 + self.below(8), self.cpus());
                    let to = match self.below(4) {
                        0 => "local".to_owned(),
                        1 => {
                            let policy = RulePolicy::ALL[self.below(4) as usize];
                            Action::Policy(policy).to_string()
                        }
                        _ => format!("{cpus}"),
                    };
                    format!("src-port {low}-{} -> {to}", low + self.below(8)).parse().ok()
                })
                .collect(),
            _ => Vec::new(),
        };
        Steering {
            policy,
            cpus,
            packet_rules,
            rps_maps,
            fallback: if self.below(4) == 0 { Fallback::Local } else { Fallback::Hash },
            rfs_cpus: (self.below(4) == 0).then(|| self.cpus()),
            sock_flow_entries: self.size(15),
            flow_cnt: (self.below(2) == 0).then(|| self.size(13)),
            flow_limit: (self.below(4) == 0).then(|| self.size(12)),
            max_backlog: self.size(11),
            budget: self.scenario.steering.budget,
        }
    }

    fn policy(&mut self) -> Policy {
        let loops = 1 + self.below(5) as u8;
        let after = if self.below(2) == 0 { 1 } else { 1 + self.below(10) as u8 };
        let slots = Slots { loops, after };
        match self.below(7) {
            0 => Policy::None,
            1 => Policy::Rps,
            2 => {
                let queues = self.scenario.rx_queues().min(64) as u16;
                let cpus = self.scenario.cpus.len() as u64;
                let binding =
                    |queue: u16| CpuId::new(self.below(cpus) as u16).map(|cpu| (queue.into(), cpu));
                Policy::Bound((0..queues).filter_map(binding).collect())
            }
            3 => Policy::Sparse(slots),
            4 => Policy::Rfs,
            5 => Policy::RfsSparse(slots),
            _ => {
                let slots = (self.below(2) == 0).then_some(slots);
                let front = Front { rfs: self.below(4) == 0, slots };
                // Runs are short, so the shortest interval.
                let balance = Balance { buckets: 256, interval_ms: 10, ..Balance::default() };
                Policy::Balance(front, balance)
            }
        }
    }

    /// A random subset of the CPUs.
    fn cpus(&mut self) -> CpuSet {
        let all = self.scenario.cpus.len() as u64;
        let count = 1 + self.below(all);
        let some =
            (0..count).filter_map(|_| CpuId::new(self.below(all) as u16)).collect::<Vec<_>>();
        CpuSet::new(some).unwrap_or_else(|| self.scenario.steering.cpus.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;
    use std::collections::BTreeSet;

    /// The kind of the event, in one word.
    fn kind(event: &Event) -> &'static str {
        match &event.what {
            EventKind::Offline(_) => "offline",
            EventKind::Online(_) => "online",
            EventKind::Speed(..) => "speed",
            EventKind::Steering(steering) => match steering.policy {
                Policy::None => "none",
                Policy::Rps => "rps",
                Policy::Bound(_) => "bound",
                Policy::Sparse(_) => "sparse",
                Policy::Rfs => "rfs",
                Policy::RfsSparse(_) => "rfs+sparse",
                Policy::Balance(..) => "balance",
            },
            EventKind::ClockStep(step) if *step < 0 => "back",
            EventKind::ClockStep(_) => "on",
            EventKind::Burst(..) => "burst",
        }
    }

    /// Whether some CPU is online at all times, and each CPU exists.
    fn some_cpu_stays(scenario: &Scenario) -> bool {
        let mut online: BTreeSet<usize> = (0..scenario.cpus.len()).collect();
        scenario.events.iter().all(|event| {
            match event.what {
                EventKind::Offline(cpu) => drop(online.remove(&cpu.index())),
                EventKind::Online(cpu) => drop(online.insert(cpu.index())),
                _ => {}
            }
            !online.is_empty() && online.iter().all(|cpu| *cpu < scenario.cpus.len())
        })
    }

    #[test]
    fn faults_are_possible_and_in_the_order_of_time() {
        let scenario = scenario();
        let mut kinds = BTreeSet::new();
        for seed in 0..300 {
            let faulty = add(&scenario, seed, 8);
            assert_eq!(faulty, add(&scenario, seed, 8), "seed {seed}");
            assert!(faulty.events.len() >= scenario.events.len() + 8);
            assert!(faulty.events.is_sorted_by_key(|event| event.at_ns), "seed {seed}");
            assert!(some_cpu_stays(&faulty), "seed {seed}: {:?}", faulty.events);
            for event in &faulty.events {
                assert!(event.at_ns < scenario.duration_ns, "seed {seed}");
                kinds.insert(kind(event));
                match &event.what {
                    EventKind::Steering(steering) => {
                        let config = scenario.steer_config(steering, None);
                        assert_eq!(config.check(), Ok(()), "seed {seed}: {steering:?}");
                    }
                    EventKind::Speed(cpu, speed) => {
                        let full = scenario.cpus[cpu.index()].speed;
                        assert!(*speed > 0.0 && *speed <= full, "seed {seed}");
                    }
                    EventKind::Burst(traffic, packets) => {
                        assert!(*traffic < scenario.traffic.len() && *packets > 0, "seed {seed}");
                    }
                    _ => {}
                }
            }
            // Nothing else of the scenario changes.
            assert_eq!(
                Scenario {
                    events: scenario.events.clone(),
                    pauses: scenario.pauses.clone(),
                    ..faulty
                },
                scenario
            );
        }
        assert_eq!(kinds.len(), 13, "{kinds:?}");
    }

    #[test]
    fn what_the_scenario_takes_away_itself_stays_its_affair() {
        let mut scenario = scenario();
        let cpu = CpuId::new(1).unwrap();
        scenario.events = vec![Event { at_ns: 5, what: EventKind::Offline(cpu) }];
        for seed in 0..100 {
            let faulty = add(&scenario, seed, 30);
            let is_of_cpu = |event: &&Event| matches!(event.what, EventKind::Offline(c) | EventKind::Online(c) if c == cpu);
            assert_eq!(faulty.events.iter().filter(is_of_cpu).count(), 1, "seed {seed}");
            assert!(some_cpu_stays(&faulty), "seed {seed}");
        }
    }

    #[test]
    fn lone_cpu_stays_and_a_scenario_without_traffic_has_no_bursts() {
        let mut scenario = scenario();
        scenario.cpus.truncate(1);
        scenario.traffic.clear();
        scenario.events.clear();
        let faulty = add(&scenario, 1, 200);
        assert!(faulty.events.iter().all(|event| !["offline", "burst"].contains(&kind(event))));
    }
}
