//! Settings, compiled to what the programs decide by: the counterpart of `rxsteer_core::plan`.

use crate::abi::{CPU_BANK, CPU_USABLE, MAX_CPUS, NO_CPU, steer_config};
use crate::setup::{MAX_FLOW_LIMIT_BUCKETS, Settings};
use rxsteer_core::{CpuId, Policy};

/// How frames that are to stay on their CPU go there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// Straight on.
    Straight,
    /// Through the CPU's ring, for a moment.
    ByRing,
}

/// The configuration of `settings`, where `bank` says which of a CPU's rings is in use a second has
/// `hz` jiffies, and a flow table `1 << flow_log` slots.
pub(crate) fn compile(
    settings: &Settings,
    local: Local,
    (hz, flow_log): (u32, u32),
    bank: impl Fn(CpuId) -> u32,
) -> steer_config {
    let mut config = steer_config {
        policy: number_of(&settings.policy),
        loops: u32::from(settings.policy.loops().unwrap_or(0)),
        map_len: settings.cpus.len() as u32,
        ring_size: settings.queue_size,
        // There is room for no more, which was checked; what lies behind is another CPU's.
        flow_limit: settings.flow_limit.map_or(0, |buckets| {
            buckets.min(MAX_FLOW_LIMIT_BUCKETS).next_power_of_two().ilog2() + 1
        }),
        inactive_after: u64::from(hz),
        local_by_ring: u8::from(local == Local::ByRing),
        shadow: u8::from(settings.shadow),
        without_guard: u8::from(settings.without_guard),
        simple: u8::from(!settings.shadow && settings.flow_limit.is_none()),
        impatient: u8::from(!settings.policy.remembers_flows()),
        // Where the CPUs divide the slots, no slot's flows are wanted on two.
        straddling: u8::from(
            settings.policy == Policy::Rps
                && !(1usize << flow_log).is_multiple_of(settings.cpus.len()),
        ),
        ..empty()
    };
    for (place, cpu) in config.map.iter_mut().zip(settings.cpus.iter()) {
        // In place of a CPU that is offline stands the receiving one: the others keep their flows.
        *place = if settings.is_online(cpu) { cpu.get() } else { NO_CPU };
    }
    let usable = settings.cpus.iter().filter(|cpu| settings.is_online(*cpu));
    for (index, cpu) in (0..).zip(usable) {
        config.walk[usize::from(index)] = cpu.get();
        config.position[cpu.index()] = index;
        config.walk_len = u32::from(index) + 1;
        config.cpu[cpu.index()] |= CPU_USABLE;
    }
    for cpu in (0..MAX_CPUS).filter_map(CpuId::new) {
        if bank(cpu) != 0 {
            config.cpu[cpu.index()] |= CPU_BANK;
        }
    }
    if let Policy::Bound(bindings) = &settings.policy {
        for (queue, cpu) in bindings {
            if settings.is_online(*cpu) {
                config.bound[usize::from(*queue)] = cpu.get();
            }
        }
    }
    config
}

fn number_of(policy: &Policy) -> u32 {
    match policy {
        Policy::None => 0,
        Policy::Rps => 1,
        Policy::Bound(_) => 2,
        Policy::Sparse(_) => 3,
        Policy::Rfs => 4,
        Policy::RfsSparse(_) => 5,
    }
}

fn empty() -> steer_config {
    const CPUS: usize = MAX_CPUS as usize;
    steer_config {
        policy: 0,
        loops: 0,
        map_len: 0,
        walk_len: 0,
        ring_size: 0,
        flow_limit: 0,
        inactive_after: 0,
        local_by_ring: 0,
        shadow: 0,
        without_guard: 0,
        simple: 0,
        plain: 0,
        impatient: 0,
        straddling: 0,
        reserved: 0,
        map: [NO_CPU; CPUS],
        walk: [NO_CPU; CPUS],
        position: [NO_CPU; CPUS],
        bound: [NO_CPU; crate::abi::MAX_QUEUES],
        cpu: [0; CPUS],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offline_cpus_are_absent_and_banks_are_marked() {
        let mut settings = Settings::new(Policy::Sparse(4), "1-3".parse().unwrap());
        settings.offline = "2".parse().ok();
        let config =
            compile(&settings, Local::Straight, (250, 15), |cpu| u32::from(cpu.get() == 3));
        assert_eq!((config.policy, config.loops, config.map_len, config.walk_len), (3, 4, 3, 2));
        assert_eq!(config.map[..4], [1, NO_CPU, 3, NO_CPU]);
        assert_eq!(
            (config.walk[..2].to_vec(), config.position[1..4].to_vec()),
            (vec![1, 3], vec![0, NO_CPU, 1])
        );
        assert_eq!(config.cpu[..4], [0, CPU_USABLE, 0, CPU_USABLE | CPU_BANK]);
        assert_eq!((config.inactive_after, config.flow_limit), (250, 0));
    }

    #[test]
    fn slots_lie_across_boundaries_where_the_cpus_do_not_divide_them() {
        let straddling = |policy, cpus: &str, flow_log| {
            let settings = Settings::new(policy, cpus.parse().unwrap());
            compile(&settings, Local::Straight, (250, flow_log), |_| 0).straddling
        };
        assert_eq!(straddling(Policy::Rps, "0-1", 2), 0);
        assert_eq!(straddling(Policy::Rps, "0-2", 15), 1);
        assert_eq!(straddling(Policy::Rps, "0-7", 2), 1, "fewer slots than CPUs");
        assert_eq!(straddling(Policy::None, "0-2", 15), 0, "all are wanted where they are");
    }

    #[test]
    fn queues_bound_to_an_offline_cpu_are_not_bound() {
        let policy = "bound:0=1,5=2".parse().unwrap();
        let mut settings = Settings::new(policy, "0-2".parse().unwrap());
        settings.offline = "2".parse().ok();
        settings.flow_limit = Some(3000);
        let config = compile(&settings, Local::ByRing, (1000, 15), |_| 0);
        assert_eq!((config.bound[0], config.bound[5], config.bound[1]), (1, NO_CPU, NO_CPU));
        assert_eq!((config.flow_limit, config.local_by_ring), (13, 1));
        settings.flow_limit = Some(1 << 20);
        let config = compile(&settings, Local::ByRing, (1000, 15), |_| 0);
        assert_eq!(config.flow_limit, 13, "the programs' table has 4096 buckets for each CPU");
    }
}
