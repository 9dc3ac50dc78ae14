//! A small scenario for tests of code that uses scenarios.

use crate::scenario::*;
use rxsteer_core::{CpuId, CpuSet, Policy};

/// Two CPUs, one NIC, two kinds of forwarded traffic, three events.
pub(crate) fn scenario() -> Scenario {
    let cpus: CpuSet = "0-1".parse().expect("two CPUs");
    let traffic = Traffic {
        name: "made up".to_owned(),
        nic: 0,
        out: Some(0),
        translated: true,
        headers: Headers::default(),
        flows: 9,
        start_ns: 5,
        ramp_ns: 5,
        load: Load::Constant(Constant {
            rate: 1e5,
            frame_bytes: 60,
            share: Share::Equal,
            poisson: true,
            application: 77.0,
        }),
    };
    let event = |at_ns, what| Event { at_ns, what };
    Scenario {
        title: "two CPUs".to_owned(),
        duration_ns: 1_000_000_000,
        warm_up_ns: 1_000_000,
        cpus: (0..2).map(|core| Cpu { speed: 1.0, core, cache: 0 }).collect(),
        smt_speed: 1.0,
        pauses: vec![],
        nics: vec![Nic {
            name: "eth0".to_owned(),
            rate: 1e9,
            irq_cpus: vec![CpuId::new(0).expect("a CPU")],
            interrupts: Interrupts::Fixed,
            ring: 256,
            moderation_ns: 0,
        }],
        costs: Costs { receive: 100.0, protocol: 500.0, ..Costs::default() },
        wire_ns: 1000,
        steering: Steering::new(Policy::Rps, cpus.clone()),
        scheduler: Scheduler {
            cpus,
            placement: Placement::Sticky,
            slice_ns: 3_000_000,
            softirq_ns: 2_000_000,
            balance_ns: 0,
            newidle: false,
        },
        traffic: vec![traffic.clone(), traffic],
        events: vec![
            event(10, EventKind::Burst(1, 5)),
            event(20, EventKind::ClockStep(-5)),
            event(999_000_000, EventKind::ClockStep(-5)),
        ],
    }
}
