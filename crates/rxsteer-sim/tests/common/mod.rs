//! Small machines for tests.

#![allow(unreachable_pub, reason = "tests are no library")]

use rxsteer_core::{CpuId, CpuSet, Policy};
use rxsteer_sim::scenario::*;

pub fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

pub fn set(text: &str) -> CpuSet {
    text.parse().unwrap()
}

/// Costs of some hundred nanoseconds, as on a current machine.
pub fn costs() -> Costs {
    Costs {
        interrupt: 1000.0,
        receive: 150.0,
        rules: 60.0,
        steer: 50.0,
        hand_off: 50.0,
        splice: 100.0,
        wake_up: 300.0,
        woken: 500.0,
        wake_delay: 2000.0,
        protocol: 800.0,
        protocol_byte: 0.1,
        transmit: 300.0,
        thread_wake: 800.0,
        context_switch: 1000.0,
        miss_shared: 60.0,
        miss_remote: 200.0,
        flow_miss: 100.0,
        flow_cache: 1000.0,
    }
}

pub fn nic(name: &str, queues: u16) -> Nic {
    Nic {
        name: name.to_owned(),
        rate: 10e9,
        irq_cpus: (0..queues).map(cpu).collect(),
        interrupts: Interrupts::Fixed,
        ring: 512,
        moderation_ns: 0,
    }
}

pub fn machine(cpus: u16, policy: &str, over: &str) -> Scenario {
    Scenario {
        title: "test".to_owned(),
        duration_ns: 200_000_000,
        warm_up_ns: 50_000_000,
        cpus: (0..cpus).map(|id| Cpu { speed: 1.0, core: id / 2, cache: id / 4 }).collect(),
        smt_speed: 0.6,
        pauses: vec![],
        nics: vec![nic("eth0", 1), nic("eth1", 1)],
        costs: costs(),
        wire_ns: 20_000,
        steering: Steering::new(policy.parse::<Policy>().unwrap(), set(over)),
        scheduler: Scheduler {
            cpus: CpuSet::first(cpus).unwrap(),
            placement: Placement::Sticky,
            slice_ns: 3_000_000,
            softirq_ns: 2_000_000,
            balance_ns: 4_000_000,
            newidle: false,
        },
        traffic: Vec::new(),
        events: Vec::new(),
    }
}

pub fn traffic(name: &str, flows: u32, load: Load) -> Traffic {
    Traffic {
        name: name.to_owned(),
        nic: 0,
        out: None,
        translated: false,
        headers: Headers::default(),
        flows,
        start_ns: 0,
        ramp_ns: 1_000_000,
        load,
    }
}

pub fn stream() -> Load {
    Load::Stream(Stream {
        frame_bytes: 1514,
        ack_bytes: 66,
        packets_per_ack: 2,
        window: 64,
        min_rto_ns: 200_000_000,
        application: 0.0,
    })
}

pub fn constant(rate: f64) -> Load {
    Load::Constant(Constant {
        rate,
        frame_bytes: 60,
        share: Share::Equal,
        poisson: true,
        application: 0.0,
    })
}

pub fn requests() -> Load {
    Load::Requests(Requests {
        request_bytes: 70,
        response_bytes: 70,
        think_ns: 0.0,
        threads: None,
        service: 5000.0,
        service_exponential: false,
    })
}
