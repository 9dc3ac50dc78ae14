//! A small scenario and constructed results, for tests of code that uses results.

use crate::RunResult;
use crate::result::{CpuResult, Latency, PacketAccount, TrafficResult};
use crate::scenario::{
    Constant, Costs, Cpu, Headers, Interrupts, Load, Nic, Placement, Requests, Scenario, Scheduler,
    Share, Steering, Traffic,
};
use rxsteer_core::{CpuId, CpuSet, Drops, Policy, SteerCounts};

/// Four CPUs, a NIC received on CPU 0, steering over the other CPUs, two kinds of traffic.
pub(crate) fn scenario() -> Scenario {
    let traffic = |name: &str, load| Traffic {
        name: name.to_owned(),
        nic: 0,
        out: None,
        translated: false,
        headers: Headers::default(),
        flows: 4,
        start_ns: 0,
        ramp_ns: 0,
        load,
    };
    let constant = Constant {
        rate: 1e5,
        frame_bytes: 1000,
        share: Share::Equal,
        poisson: true,
        application: 100.0,
    };
    let requests = Requests {
        request_bytes: 100,
        response_bytes: 100,
        think_ns: 1e5,
        threads: Some(2),
        service: 1000.0,
        service_exponential: true,
    };
    Scenario {
        title: "for tests".to_owned(),
        duration_ns: 20_000_000,
        warm_up_ns: 2_000_000,
        cpus: (0..4).map(|core| Cpu { speed: 1.0, core, cache: core / 2 }).collect(),
        smt_speed: 1.0,
        pauses: vec![],
        nics: vec![Nic {
            name: "eth0".to_owned(),
            rate: 1e9,
            irq_cpus: CpuId::new(0).into_iter().collect(),
            interrupts: Interrupts::Fixed,
            ring: 256,
            moderation_ns: 10_000,
        }],
        costs: Costs { interrupt: 500.0, receive: 100.0, protocol: 500.0, ..Costs::default() },
        wire_ns: 10_000,
        steering: Steering::new(Policy::Rps, cpus("1-3")),
        scheduler: Scheduler {
            cpus: cpus("0-3"),
            placement: Placement::Sticky,
            slice_ns: 3_000_000,
            softirq_ns: 2_000_000,
            balance_ns: 0,
            newidle: false,
        },
        traffic: vec![
            traffic("bulk", Load::Constant(constant)),
            traffic("rpc", Load::Requests(requests)),
        ],
        events: Vec::new(),
    }
}

fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a list of CPUs")
}

/// A possible result of a run of [`scenario`]; figures differ a little by seed.
pub(crate) fn result(seed: u64) -> RunResult {
    let by_seed = 1.0 + (seed * 7 % 10) as f64 / 1000.0;
    let traffic = |name: &str, transactions: Option<f64>, latency| TrafficResult {
        name: name.to_owned(),
        packets: 1800,
        bits_per_second: 8e8 * by_seed,
        fairness: 0.9,
        flows: 4,
        slowest_flow: 1e8,
        fastest_flow: 3e8,
        transactions_per_second: transactions,
        lost: seed,
        latency,
    };
    let latency = Latency {
        count: 1800,
        mean: 3e4,
        std_dev: 1e4,
        p50: 2 << 14,
        p90: 4 << 14,
        p99: (8 << 14) + seed,
        p999: 9 << 14,
    };
    let cpu = CpuResult { receiving: 0.1, protocol: 0.2, application: 0.3, packets: 900 };
    RunResult {
        seed,
        measured_ns: 18_000_000,
        traffic: vec![
            traffic("bulk", None, Latency::default()),
            traffic("rpc", Some(1e5 * by_seed), latency),
        ],
        cpus: vec![cpu; 4],
        account: PacketAccount {
            arrived: 3600,
            ring_full: 0,
            drops: Drops::default(),
            processed: 3600,
            under_way: 0,
            ended: 3600,
            no_room: 0,
            with_application: 0,
        },
        steered: SteerCounts::default(),
        rules: Vec::new(),
        unmatched: 0,
        moves: 3,
        reordered: 0,
        kicks: 100,
        interrupts: 200,
        tx_full: 0,
        socket_full: 0,
    }
}
