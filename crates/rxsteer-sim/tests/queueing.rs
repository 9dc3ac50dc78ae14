//! Compares the waiting times of the engine with queueing theory, and checks that results do not depend on the numbers
//! of CPUs.

use crate::common::*;
use rxsteer_sim::scenario::*;
use rxsteer_sim::{RunResult, run};

/// A machine without costs other than those that a test adds: equal CPUs, an endless ring, a wire without delay.
fn free_machine(cpus: u16, policy: &str, over: &str) -> Scenario {
    let mut scenario = machine(cpus, policy, over);
    scenario.cpus = (0..cpus).map(|id| Cpu { speed: 1.0, core: id, cache: 0 }).collect();
    scenario.costs = Costs::default();
    scenario.wire_ns = 0;
    scenario.nics[0].rate = 800e9;
    scenario.nics[0].ring = 1 << 20;
    scenario.steering.max_backlog = 1 << 20;
    scenario.scheduler.balance_ns = 0;
    scenario.scheduler.slice_ns = 1_000_000_000;
    scenario
}

fn within(what: &str, simulated: f64, theory: f64) {
    let off = simulated / theory - 1.0;
    assert!(off.abs() < 0.02, "{what}: {simulated:.1} ns, by theory {theory:.1} ns ({off:+.4})");
}

/// The mean time before service with Poisson arrivals, one server and constant service (Pollaczek and Khinchine).
fn m_d_1(load: f64, service_ns: f64) -> f64 {
    load / (2.0 * (1.0 - load)) * service_ns
}

/// The mean time before service with Poisson arrivals, exponential service and `servers` servers (Erlang C).
fn m_m_c(load: f64, service_ns: f64, servers: u32) -> f64 {
    let offered = load * f64::from(servers);
    // Erlang B by its recurrence, then C from B.
    let blocked = (1..=servers).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    let waits = blocked / (1.0 - load * (1.0 - blocked));
    waits * service_ns / (f64::from(servers) * (1.0 - load))
}

#[test]
fn formulas_are_those_of_textbooks() {
    assert!((m_d_1(0.5, 1.0) - 0.5).abs() < 1e-12);
    assert!((m_m_c(0.9, 1.0, 1) - 9.0).abs() < 1e-9);
    // M/M/2: load² / (1 - load²).
    assert!((m_m_c(0.5, 1.0, 2) - 1.0 / 3.0).abs() < 1e-9);
}

/// Tests packets that are processed in the poll, and packets that another CPU processes.
#[test]
fn packets_wait_as_in_m_d_1() {
    const SERVICE_NS: f64 = 1000.0;
    for (policy, over) in [("none", "0"), ("rps", "1")] {
        for load in [0.5, 0.9] {
            let mut scenario = free_machine(2, policy, over);
            scenario.costs.protocol = SERVICE_NS;
            scenario.duration_ns = 6_000_000_000;
            scenario.traffic = vec![traffic("packets", 1, constant(load * 1e9 / SERVICE_NS))];
            let result = run(&scenario, 1).unwrap();
            let waited = result.traffic[0].latency.mean - SERVICE_NS;
            within(&format!("{policy}, load {load}"), waited, m_d_1(load, SERVICE_NS));
        }
    }
}

/// Pauses are like packets of a higher priority: the mean time in an M/D/1 queue with preemption (e.g. Gross and Harris,
/// Fundamentals of Queueing Theory, priority queues).
#[test]
fn packets_wait_for_pauses_as_for_packets_of_a_higher_priority() {
    const SERVICE_NS: f64 = 1000.0;
    const PAUSE: Pause = Pause { every_ns: 50_000, lasts_ns: 5_000 };
    let (every, lasts) = (PAUSE.every_ns as f64, PAUSE.lasts_ns as f64);
    let paused = lasts / every;
    // Packets that wait for the CPU that receives them reach the other one together, not at random times, which matters
    // under load.
    let of_policies: [(&str, &str, &[f64]); 2] =
        [("none", "0", &[0.01, 0.5, 0.8]), ("rps", "1", &[0.01])];
    for (policy, over, loads) in of_policies {
        for &load in loads {
            let mut scenario = free_machine(2, policy, over);
            scenario.pauses = vec![PAUSE];
            scenario.costs.protocol = SERVICE_NS;
            scenario.duration_ns = 6_000_000_000;
            scenario.traffic = vec![traffic("packets", 1, constant(load * 1e9 / SERVICE_NS))];
            let result = run(&scenario, 1).unwrap();
            let in_progress = (lasts * paused + SERVICE_NS * load) / 2.0;
            let of_packet = SERVICE_NS + in_progress / (1.0 - paused - load);
            let mut theory = of_packet / (1.0 - paused);
            if policy == "rps" {
                // The CPU that receives them has pauses, but nothing else to do.
                theory += lasts * paused / 2.0 / (1.0 - paused);
            }
            let simulated = result.traffic[0].latency.mean;
            let off = simulated / theory - 1.0;
            let what = format!("{policy}, load {load}");
            assert!(off.abs() < 0.03, "{what}: {simulated:.1} ns, by theory {theory:.1} ns");
            // A pause is no work.
            let busy = result.cpus[usize::from(policy == "rps")].busy();
            assert!((busy - load).abs() < 0.01, "{what}: busy {busy}");
        }
    }
}

/// Requests with exponential service, from clients with pauses; there are so many clients that the arrivals are a
/// Poisson process. Threads on one CPU are one server; threads that any idle CPU takes are as many servers as there are
/// CPUs.
#[test]
fn requests_wait_as_in_m_m_c() {
    const SERVICE_NS: f64 = 100_000.0;
    const CLIENTS: u32 = 20_000;
    for (servers, threads) in [(1, Some(1)), (4, None)] {
        // The fuller the queue, the longer one wait follows from the one before, and the more requests a mean takes. Its
        // relative standard error on one server, by theory: 0.3 % and 0.8 %.
        for (load, requests) in [(0.5, 3e6), (0.9, 7e6)] {
            let per_second = load * f64::from(servers) * 1e9 / SERVICE_NS;
            let think_ns = f64::from(CLIENTS) / per_second * 1e9;
            let mut scenario = free_machine(servers as u16, "none", "0");
            scenario.scheduler.newidle = true;
            let load_of_clients = Load::Requests(Requests {
                request_bytes: 70,
                response_bytes: 70,
                think_ns,
                threads,
                service: SERVICE_NS,
                service_exponential: true,
            });
            scenario.traffic = vec![traffic("clients", CLIENTS, load_of_clients)];
            // Clients begin one by one: their first requests add only a twentieth to the load.
            scenario.traffic[0].ramp_ns = (20.0 * think_ns) as u64;
            scenario.warm_up_ns = (25.0 * think_ns) as u64;
            scenario.duration_ns = (requests / per_second * 1e9) as u64 + scenario.warm_up_ns;
            let result = run(&scenario, 1).unwrap();
            let waited = result.traffic[0].latency.mean - SERVICE_NS;
            let theory = m_m_c(load, SERVICE_NS, servers);
            within(&format!("{servers} servers, load {load}"), waited, theory);
        }
    }
}

/// `budget` is the most packets of a poll: a CPU that cannot keep up splices one list for each `budget` packets.
#[test]
fn poll_hands_off_as_many_packets_as_its_budget() {
    for budget in [1, 16, 64, 300] {
        let mut scenario = free_machine(2, "rps", "1");
        scenario.steering.budget = budget;
        scenario.costs.receive = 500.0;
        scenario.costs.splice = 2000.0;
        scenario.traffic = vec![traffic("flood", 10, constant(5e6))];
        let result = run(&scenario, 1).unwrap();
        let each_ns = result.measured_ns as f64 / result.cpus[1].packets as f64;
        within(&format!("budget {budget}"), each_ns, 500.0 + 2000.0 / f64::from(budget));
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The difference of the means in standard errors.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    let error = |values: &[f64]| {
        let middle = mean(values);
        let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
        squares / (values.len() - 1) as f64 / values.len() as f64
    };
    (mean(a) - mean(b)) / (error(a) + error(b)).sqrt()
}

/// Twelve equal CPUs: the result does not depend on which of them is interrupted, and the other CPUs do the same amount
/// of work.
#[test]
fn results_do_not_depend_on_the_numbers_of_cpus() {
    const SEEDS: u64 = 40;
    let results = |interrupted: u16| -> Vec<RunResult> {
        let mut scenario = machine(12, "rfs", "0-11");
        scenario.cpus = (0..12).map(|id| Cpu { speed: 1.0, core: id, cache: 0 }).collect();
        scenario.nics[0].irq_cpus = vec![cpu(interrupted)];
        scenario.traffic = vec![traffic("requests", 60, requests())];
        (0..SEEDS).map(|seed| run(&scenario, seed).unwrap()).collect()
    };
    let (first, last) = (results(0), results(11));
    for (what, figure) in [
        (
            "transactions",
            (|r| r.traffic[0].transactions_per_second.unwrap_or(0.0)) as fn(&RunResult) -> f64,
        ),
        ("p99", |r| r.traffic[0].latency.p99 as f64),
        ("busy", |r| r.cpus.iter().map(|cpu| cpu.busy()).sum()),
    ] {
        let of = |results: &[RunResult]| results.iter().map(figure).collect::<Vec<f64>>();
        let apart = apart(&of(&first), &of(&last));
        assert!(apart.abs() < 3.0, "{what}: CPU 0 and CPU 11 are {apart:.1} standard errors apart");
    }
    let busy =
        |cpu: usize| mean(&first.iter().map(|r| r.cpus[cpu].application).collect::<Vec<_>>());
    let others: Vec<f64> = (1..12).map(busy).collect();
    let (least, most) = others.iter().fold((f64::MAX, 0.0f64), |(l, m), b| (l.min(*b), m.max(*b)));
    assert!(most < 1.1 * least, "equal CPUs are busy with applications from {least} to {most}");
}
