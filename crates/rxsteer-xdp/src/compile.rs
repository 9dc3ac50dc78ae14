//! Compiles settings to the configuration of the programs: the counterpart of `rxsteer_core::plan`.

use crate::abi::{
    CPU_DESIRED, CPU_GENERATION, CPU_LINGER, MAP_ENTRIES, MAX_CPUS, MAX_MAPS, MAX_RULES, NO_CPU,
    number_of, steer_action, steer_config, steer_row,
};
use crate::setup::{MAX_FLOW_LIMIT_BUCKETS, Settings};
use rxsteer_core::matching::{Action, PacketRule};
use rxsteer_core::{CpuId, CpuSet, Fallback, Policy, QueueName};

/// How frames that stay on their CPU get there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// They pass.
    Passes,
    /// They go through the CPU's ring, for a moment: during a change, or after an interface is attached.
    ByRing,
}

const WORDS: usize = MAX_CPUS as usize / 64;

/// The configuration of `settings`. `generation` returns which ring of a CPU is in use, a second has `hz` jiffies, and
/// a flow table has `1 << flow_log` slots. The rows of the configuration ([`Rows`]) begin at `first_row`. `table` has the
/// CPU of each bucket.
pub(crate) fn compile(
    settings: &Settings,
    local: Local,
    (hz, flow_log): (u32, u32),
    first_row: u32,
    table: &[CpuId],
    generation: impl Fn(CpuId) -> u32,
) -> steer_config {
    let maps = Rows::new(settings).maps;
    // Buckets place every flow.
    let mechanisms = settings.mechanisms();
    let else_local = settings.fallback == Fallback::Local
        && mechanisms.move_flows()
        && settings.policy.balance().is_none();
    let slots = mechanisms.slots;
    let mut config = steer_config {
        policy: number_of(&settings.policy),
        loops: slots.map_or(0, |slots| slots.loops.into()),
        after: slots.map_or(0, |slots| slots.after),
        map_len: settings.cpus.len() as u32,
        first_row,
        ring_size: settings.queue_size,
        // `Settings::check` refuses more buckets than there is room for; the counts of another CPU follow after them.
        flow_limit: settings.flow_limit.map_or(0, |buckets| {
            buckets.min(MAX_FLOW_LIMIT_BUCKETS).next_power_of_two().ilog2() + 1
        }),
        inactive_after: u64::from(hz),
        // The frames of a flow that passes have no sequence numbers that show their delivery. So a flow that may get a
        // desired CPU at any time goes through the ring of the receiving CPU instead. The same holds with rules: packets
        // of a flow may match different ones.
        local_by_ring: u8::from(
            local == Local::ByRing || else_local || !settings.packet_rules.is_empty(),
        ),
        shadow: u8::from(settings.shadow),
        without_guard: u8::from(settings.without_guard),
        simple: u8::from(!settings.shadow && settings.flow_limit.is_none()),
        no_hysteresis: u8::from(!mechanisms.move_flows()),
        // If the number of CPUs divides the number of slots, no slot has flows with two targets.
        boundary_slots: u8::from(
            settings.policy == Policy::Rps
                && maps.iter().any(|map| !(1usize << flow_log).is_multiple_of(map.len())),
        ),
        by_queue: u8::from(match settings.policy {
            Policy::Bound(_) => true,
            _ => maps.len() > 1 && mechanisms.maps,
        }),
        else_local: u8::from(else_local),
        ..empty()
    };
    let entries =
        maps.iter().enumerate().flat_map(|(number, map)| map.iter().map(move |cpu| (number, cpu)));
    for (entry, (number, cpu)) in config.map.iter_mut().zip(entries) {
        // The receiving CPU takes over the flows of an offline CPU, so that the flows of other CPUs stay where they are.
        if settings.is_online(cpu) {
            *entry = cpu.get();
            config.members[number * WORDS + cpu.index() / 64] |= 1 << (cpu.index() % 64);
            config.cpu[cpu.index()] |= CPU_LINGER;
        }
    }
    if let Some(balance) = settings.policy.balance() {
        let first = settings.first_bucket();
        config.buckets = balance.buckets;
        config.first_bucket = first as u16;
        for (entry, cpu) in config.map[first..].iter_mut().zip(table) {
            let is_usable = settings.cpus.contains(*cpu) && settings.is_online(*cpu);
            *entry = if is_usable { cpu.get() } else { NO_CPU };
        }
    }
    let mut free = settings.first_rule_cpu();
    config.rules = settings.packet_rules.len() as u16;
    for (action, rule) in config.action.iter_mut().zip(&settings.packet_rules) {
        let (first, passes) = (free, rule.action == Action::Pass);
        // As in the core, the hash picks among the CPUs that are online; without one, the packet stays.
        for cpu in rule.action.cpus().filter(|cpu| settings.is_online(*cpu)) {
            config.map[free] = cpu.get();
            free += 1;
        }
        let len = (free - first) as u16;
        let own =
            rule.action.policy().map(|own| number_of(&own.with_settings_of(&settings.policy)));
        let policy = own.map_or(0, |number| number as u8 + 1);
        *action = steer_action { first: first as u16, len, passes: passes.into(), policy };
    }
    for cpu in (0..MAX_CPUS).filter_map(CpuId::new) {
        let bits = &mut config.cpu[cpu.index()];
        if generation(cpu) != 0 {
            *bits |= CPU_GENERATION;
        }
        if settings.is_desired(cpu) {
            // If the fallback uses no map, a flow may stay wherever its application ran.
            *bits |= if else_local { CPU_DESIRED | CPU_LINGER } else { CPU_DESIRED };
        }
    }
    config
}

/// The settings of single RX queues.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    settings: &'a Settings,
    /// Each distinct CPU map, the general one first, in the order of the configuration.
    maps: Vec<&'a CpuSet>,
}

impl Rows<'_> {
    pub(crate) fn new(settings: &Settings) -> Rows<'_> {
        let mut maps = vec![&settings.cpus];
        for (_, map) in &settings.rps_maps {
            if !maps.contains(&map) {
                maps.push(map);
            }
        }
        Rows { settings, maps }
    }

    /// Whether the configuration has room for all maps.
    pub(crate) fn fit(&self) -> bool {
        let of_rules = PacketRule::cpus_of(&self.settings.packet_rules).count();
        self.maps.len() <= MAX_MAPS && self.settings.first_rule_cpu() + of_rules <= MAP_ENTRIES
    }

    /// The CPUs of all maps together.
    fn entries(&self) -> usize {
        self.maps.iter().map(|map| map.len()).sum()
    }

    /// The row of an interface's queue.
    pub(crate) fn of(&self, interface: &str, queue: u16) -> steer_row {
        let map = self.settings.map_of(interface, queue);
        let number = self.maps.iter().position(|known| *known == map).unwrap_or(0);
        let first: usize = self.maps[..number].iter().map(|map| map.len()).sum();
        let bound = match &self.settings.policy {
            Policy::Bound(bindings) => {
                QueueName::most_specific(bindings, Some(interface), queue).copied()
            }
            _ => None,
        };
        let bound = bound.filter(|cpu| self.settings.is_online(*cpu));
        steer_row {
            first: first as u16,
            len: map.len() as u16,
            number: number as u16,
            bound: bound.map_or(NO_CPU, CpuId::get),
        }
    }
}

impl Settings {
    /// Where the CPUs of buckets begin in the configuration's entries: after the CPU maps.
    pub(crate) fn first_bucket(&self) -> usize {
        Rows::new(self).entries()
    }

    /// Where the CPUs of rules begin in these entries: after those of buckets.
    fn first_rule_cpu(&self) -> usize {
        let buckets = self.policy.balance().map_or(0, |balance| balance.buckets);
        self.first_bucket() + usize::from(buckets)
    }
}

fn empty() -> steer_config {
    steer_config {
        policy: 0,
        loops: 0,
        after: 0,
        map_len: 0,
        first_row: 0,
        ring_size: 0,
        flow_limit: 0,
        inactive_after: 0,
        local_by_ring: 0,
        shadow: 0,
        without_guard: 0,
        simple: 0,
        unguarded: 0,
        no_hysteresis: 0,
        boundary_slots: 0,
        by_queue: 0,
        else_local: 0,
        buckets: 0,
        first_bucket: 0,
        rules: 0,
        map: [NO_CPU; MAP_ENTRIES],
        members: [0; MAX_MAPS * WORDS],
        cpu: [0; MAX_CPUS as usize],
        action: [steer_action { first: 0, len: 0, passes: 0, policy: 0 }; MAX_RULES],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_core::Slots;

    fn compiled(settings: &Settings) -> steer_config {
        compile(settings, Local::Passes, (250, 15), 0, &[], |_| 0)
    }

    fn maps(maps: &[(&str, &str)]) -> Vec<(QueueName, CpuSet)> {
        let map = |(name, cpus): &(&str, &str)| (name.parse().unwrap(), cpus.parse().unwrap());
        maps.iter().map(map).collect()
    }

    #[test]
    fn offline_cpus_are_absent_and_generations_are_marked() {
        let mut settings = Settings::new(Policy::Sparse(Slots::of(4)), "1-3".parse().unwrap());
        settings.offline = "2".parse().ok();
        let config =
            compile(&settings, Local::Passes, (250, 15), 0, &[], |cpu| u32::from(cpu.get() == 3));
        assert_eq!((config.policy, config.loops, config.map_len, config.by_queue), (3, 4, 3, 0));
        assert_eq!(config.map[..4], [1, NO_CPU, 3, NO_CPU]);
        assert_eq!(config.members[..2], [0b1010, 0]);
        let (linger, generation, desired) = (CPU_LINGER, CPU_GENERATION, CPU_DESIRED);
        assert_eq!(config.cpu[..4], [desired, linger | desired, 0, linger | generation | desired]);
        assert_eq!((config.inactive_after, config.flow_limit), (250, 0));
    }

    #[test]
    fn slots_lie_across_boundaries_where_the_cpus_do_not_divide_them() {
        let boundary_slots = |policy, cpus: &str, own: &[(&str, &str)], flow_log| {
            let mut settings = Settings::new(policy, cpus.parse().unwrap());
            settings.rps_maps = maps(own);
            compile(&settings, Local::Passes, (250, flow_log), 0, &[], |_| 0).boundary_slots
        };
        assert_eq!(boundary_slots(Policy::Rps, "0-1", &[], 2), 0);
        assert_eq!(boundary_slots(Policy::Rps, "0-2", &[], 15), 1);
        assert_eq!(boundary_slots(Policy::Rps, "0-7", &[], 2), 1, "fewer slots than CPUs");
        assert_eq!(
            boundary_slots(Policy::None, "0-2", &[], 15),
            0,
            "all have the receiving CPU as their target"
        );
        assert_eq!(
            boundary_slots(Policy::Rps, "0-1", &[("eth0", "0-2")], 15),
            1,
            "one of the maps"
        );
    }

    #[test]
    fn queues_bound_to_an_offline_cpu_are_not_bound() {
        let policy = "bound:0=1,5=2,eth1:0=0,eth1=1".parse().unwrap();
        let mut settings = Settings::new(policy, "0-2".parse().unwrap());
        settings.offline = "2".parse().ok();
        settings.flow_limit = Some(3000);
        let bound = |interface, queue| Rows::new(&settings).of(interface, queue).bound;
        assert_eq!([0, 1, 5].map(|queue| bound("eth0", queue)), [1, NO_CPU, NO_CPU]);
        assert_eq!([0, 1, 5].map(|queue| bound("eth1", queue)), [0, 1, 1]);
        let config = compile(&settings, Local::ByRing, (1000, 15), 7, &[], |_| 0);
        assert_eq!((config.flow_limit, config.local_by_ring), (13, 1));
        assert_eq!((config.by_queue, config.first_row), (1, 7));
        settings.flow_limit = Some(1 << 20);
        let config = compile(&settings, Local::ByRing, (1000, 15), 0, &[], |_| 0);
        assert_eq!(config.flow_limit, 13, "the programs' table has 4096 buckets for each CPU");
    }

    #[test]
    fn each_map_stands_once_behind_the_general_one() {
        let mut settings = Settings::new(Policy::Sparse(Slots::of(1)), "0-1".parse().unwrap());
        settings.rps_maps =
            maps(&[("eth0:0", "4-6"), ("eth1", "0-1"), ("1", "4-6"), ("eth0", "9")]);
        settings.offline = "5".parse().ok();
        let config = compiled(&settings);
        assert_eq!((config.by_queue, config.map_len), (1, 2));
        assert_eq!(config.map[..7], [0, 1, 4, NO_CPU, 6, 9, NO_CPU]);
        assert_eq!([0, 1, 2].map(|map| config.members[map * WORDS]), [0b11, 0b101_0000, 1 << 9]);
        let rows = Rows::new(&settings);
        let of = |interface, queue| {
            let row = rows.of(interface, queue);
            (row.first, row.len, row.number)
        };
        assert_eq!(
            [of("eth0", 0), of("eth0", 1), of("eth0", 7)],
            [(2, 3, 1), (5, 1, 2), (5, 1, 2)]
        );
        assert_eq!(
            [of("eth1", 0), of("eth2", 0), of("eth2", 1)],
            [(0, 2, 0), (0, 2, 0), (2, 3, 1)]
        );
        settings.policy = Policy::None;
        assert_eq!(compiled(&settings).by_queue, 0, "nothing goes by a map");
    }

    #[test]
    fn buckets_stand_behind_the_map_and_skip_cpus_that_cannot_be_used() {
        let policy = "sparse+balance:buckets=256".parse().unwrap();
        let mut settings = Settings::new(policy, "1-3".parse().unwrap());
        settings.offline = "2".parse().ok();
        settings.fallback = Fallback::Local;
        let cpu = |id| CpuId::new(id).unwrap();
        let table: Vec<CpuId> = (0..256).map(|bucket| cpu(bucket % 4)).collect();
        let config = compile(&settings, Local::Passes, (250, 15), 0, &table, |_| 0);
        assert_eq!((config.policy, config.loops, config.map_len), (3, 4, 3));
        assert_eq!((config.buckets, config.first_bucket, config.else_local), (256, 3, 0));
        assert_eq!(config.map[..8], [1, NO_CPU, 3, NO_CPU, 1, NO_CPU, 3, NO_CPU]);
        assert_eq!(config.map[3 + 256], NO_CPU);
    }

    #[test]
    fn cpus_of_rules_stand_behind_the_buckets() {
        let policy = "rps+balance:buckets=256".parse().unwrap();
        let mut settings = Settings::new(policy, "1-3".parse().unwrap());
        settings.offline = "2".parse().ok();
        let rules = ["tcp -> 2-4", "udp -> local", "esp -> pass", "gre -> 2"];
        settings.packet_rules = rules.iter().map(|text| text.parse().unwrap()).collect();
        let config = compiled(&settings);
        let actions =
            [0, 1, 2, 3].map(|rule| (config.action[rule].len, config.action[rule].passes));
        assert_eq!(actions, [(2, 0), (0, 0), (0, 1), (0, 0)]);
        let first = usize::from(config.action[0].first);
        assert_eq!((first, &config.map[first..first + 3]), (3 + 256, &[3, 4, NO_CPU][..]));
        assert_eq!((config.rules, config.local_by_ring), (4, 1));
    }

    #[test]
    fn the_policy_of_a_rule_has_the_tables_of_the_policy_behind_it() {
        let compiled_with = |policy: &str, rule: &str| {
            let mut settings = Settings::new(policy.parse().unwrap(), "1-3".parse().unwrap());
            settings.fallback = Fallback::Local;
            settings.rps_maps = match settings.policy.balance() {
                None => maps(&[("0", "2")]),
                Some(_) => Vec::new(),
            };
            settings.packet_rules = vec![rule.parse().unwrap()];
            let config = compiled(&settings);
            let action = config.action[0];
            assert_eq!((action.len, action.passes, config.local_by_ring), (0, 0, 1));
            let own = u32::from(action.policy);
            (own, config.loops, config.after, config.by_queue, config.else_local)
        };
        assert_eq!(compiled_with("none", "udp -> policy rps"), (2, 0, 0, 1, 0));
        assert_eq!(compiled_with("rps", "udp -> policy sparse"), (4, 4, 1, 1, 1));
        assert_eq!(compiled_with("sparse:loops=2,after=3", "udp -> policy rfs+sparse").1, 2);
        assert_eq!(compiled_with("bound:0=1", "udp -> policy rfs"), (6, 0, 0, 1, 1));
        assert_eq!(compiled_with("rps+balance", "udp -> policy rps"), (5, 0, 0, 0, 0));
        assert_eq!(compiled_with("rps+balance", "udp -> policy rfs"), (6, 0, 0, 0, 0));
        assert_eq!(compiled_with("rps", "udp -> local"), (0, 0, 0, 1, 0));
    }

    #[test]
    fn desired_cpus_may_lie_outside_the_map() {
        let mut settings = Settings::new(Policy::Rfs, "0".parse().unwrap());
        settings.rfs_cpus = "1-3".parse().ok();
        settings.offline = "2".parse().ok();
        let config = compiled(&settings);
        assert_eq!(config.cpu[..5], [CPU_LINGER, CPU_DESIRED, 0, CPU_DESIRED, 0]);
        assert_eq!((config.else_local, config.local_by_ring), (0, 0));
        settings.fallback = Fallback::Local;
        let config = compiled(&settings);
        let both = CPU_LINGER | CPU_DESIRED;
        assert_eq!(config.cpu[..5], [CPU_LINGER, both, 0, both, 0]);
        assert_eq!((config.else_local, config.local_by_ring), (1, 1));
        settings.policy = Policy::Rps;
        assert_eq!(compiled(&settings).else_local, 0, "rps has its hash alone");
    }
}
