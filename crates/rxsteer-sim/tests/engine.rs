//! The engine, checked against the invariants of every run and against manually computed values.

use crate::common::*;
use rxsteer_core::counters::SteerCounter;
use rxsteer_sim::scenario::*;
use rxsteer_sim::{RunResult, run};

fn checked(scenario: &Scenario, seed: u64) -> RunResult {
    let result = run(scenario, seed).unwrap();
    assert!(result.account.adds_up(), "{:?}", result.account);
    assert!(result.account.processed > 0, "{:?}", result.account);
    result
}

fn forward(traffic: Traffic) -> Traffic {
    Traffic { out: Some(1), translated: true, ..traffic }
}

fn all_kinds() -> Vec<Traffic> {
    vec![
        forward(traffic("stream", 8, stream())),
        traffic("local stream", 4, stream()),
        traffic("constant", 50, constant(200_000.0)),
        traffic("requests", 30, requests()),
    ]
}

#[test]
fn same_seed_gives_the_same_result_and_another_another() {
    let mut scenario = machine(8, "rfs+sparse", "1-7");
    scenario.traffic = all_kinds();
    let first = checked(&scenario, 1);
    assert_eq!(first, checked(&scenario, 1));
    assert_ne!(first, checked(&scenario, 2));
}

#[test]
fn every_policy_keeps_order_and_loses_nothing_unseen() {
    for policy in ["none", "rps", "bound:0=2,1=3", "sparse", "rfs", "rfs+sparse"] {
        for seed in 0..5 {
            let mut scenario = machine(8, policy, "1-7");
            // One CPU alone loses requests, which clients repeat after 200 ms.
            if policy == "none" {
                scenario.duration_ns = 600_000_000;
            }
            scenario.traffic = all_kinds();
            let result = checked(&scenario, seed);
            assert_eq!(result.reordered, 0, "{policy}, seed {seed}");
            assert!(result.traffic.iter().all(|t| t.packets > 0), "{policy}: {:?}", result.traffic);
        }
    }
}

fn rules(texts: &[&str]) -> Vec<rxsteer_core::PacketRule> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Flows whose headers match a rule go where the rule sends them; the policy places the other flows.
#[test]
fn rules_place_flows_by_their_headers() {
    let with = |name: &str, headers: &str| Traffic {
        headers: headers.parse().unwrap(),
        ..traffic(name, 8, constant(100_000.0))
    };
    let mut scenario = machine(4, "none", "0-3");
    scenario.traffic = vec![with("web", "tcp dst-port 80,443"), with("rest", "udp")];
    scenario.steering.packet_rules = rules(&["tcp dst-port 443 -> 3", "interface eth1 -> 2"]);
    let result = checked(&scenario, 1);
    let all = result.account.processed;
    assert!((all / 5..all / 3).contains(&result.steered.matched), "{all} {:?}", result.steered);
    let packets: Vec<u64> = result.cpus.iter().map(|cpu| cpu.packets).collect();
    assert_eq!(packets[1..3], [0, 0], "half of the web flows are on CPU 3, the others on CPU 0");
    assert!(packets[3] > 1000 && packets[0] > 2 * packets[3], "{packets:?}");
    scenario.steering.packet_rules = rules(&["interface eth0 -> 2"]);
    assert_eq!(checked(&scenario, 1).cpus[0].packets, 0);
}

/// The packets on whose target the core decided.
fn decided(result: &RunResult) -> u64 {
    SteerCounter::ALL
        .iter()
        .map(|counter| match counter {
            SteerCounter::Deferred => 0,
            target => result.steered.get(*target),
        })
        .sum()
}

/// Each packet counts for the first rule that matches it, or as unmatched, also across changes of the rules.
#[test]
fn hits_of_rules_add_up_to_packets() {
    let with = |name: &str, headers: &str| Traffic {
        headers: headers.parse().unwrap(),
        ..traffic(name, 8, constant(100_000.0))
    };
    for policy in ["none", "rps", "rfs+sparse"] {
        let mut scenario = machine(4, policy, "0-3");
        scenario.traffic = vec![with("web", "tcp dst-port 80,443"), with("rest", "udp")];
        let texts = ["tcp dst-port 443 -> 3", "tcp -> policy sparse", "interface eth1 -> 2"];
        scenario.steering.packet_rules = rules(&texts);
        let shown = |result: &RunResult| -> Vec<String> {
            result.rules.iter().map(|(rule, _)| rule.to_string()).collect()
        };
        let hits = |result: &RunResult| -> Vec<u64> {
            result.rules.iter().map(|(_, packets)| *packets).collect()
        };
        let result = checked(&scenario, 1);
        let of = hits(&result);
        assert_eq!(of.iter().sum::<u64>() + result.unmatched, decided(&result), "{policy}");
        // Of the web flows half go to each port, and of all flows half are web flows.
        let quarter = decided(&result) / 4;
        let is_about =
            |packets: u64, quarters: u64| packets.abs_diff(quarters * quarter) < quarter / 10;
        assert!(
            is_about(of[0], 1) && is_about(of[1], 1) && is_about(result.unmatched, 2),
            "{of:?}"
        );
        assert_eq!((of[2], of[0]), (0, result.steered.matched));

        // Another rule replaces these rules for a while; then these rules are active again.
        for (at_ns, texts) in [(50_000_000, &["udp -> 1"][..]), (100_000_000, &texts)] {
            let packet_rules = rules(texts);
            let what = EventKind::Steering(Steering { packet_rules, ..scenario.steering.clone() });
            scenario.events.push(Event { at_ns, what });
        }
        let changed = checked(&scenario, 1);
        assert_eq!(shown(&changed)[..3], shown(&result));
        assert_eq!(shown(&changed)[3..], ["udp → 1"]);
        let of_changed = hits(&changed);
        let sum = of_changed.iter().sum::<u64>() + changed.unmatched;
        assert_eq!(sum, decided(&changed), "{policy}");
        assert!(of_changed[0] > of[0] / 2 && of_changed[0] < of[0] && of_changed[3] > 0);

        // While there are no rules nothing is unmatched.
        scenario.events.clear();
        scenario.steering.packet_rules.clear();
        let without = checked(&scenario, 1);
        assert_eq!((without.rules.len(), without.unmatched), (0, 0));
    }
}

/// One CPU that does everything processes as many packets as its costs allow. Rules add a cost, which does not depend
/// on how many there are.
#[test]
fn rules_cost_throughput() {
    let rate = |texts: &[&str], cost: f64| {
        let mut scenario = machine(1, "rps", "0");
        scenario.costs.rules = cost;
        scenario.steering.packet_rules = rules(texts);
        scenario.traffic = vec![traffic("flood", 100, constant(5e6))];
        let result = checked(&scenario, 1);
        result.traffic[0].packets as f64 / (result.measured_ns as f64 / 1e9)
    };
    let without = rate(&[], 500.0);
    for texts in [&["tcp -> 0"][..], &["tcp -> 0", "src-port 7 -> local", "udp -> policy rps"]] {
        let (cheap, dear) = (rate(texts, 0.0), rate(texts, 500.0));
        assert!((cheap / without - 1.0).abs() < 0.01, "{cheap} of {without} packets a second");
        let more_ns = 1e9 / dear - 1e9 / cheap;
        assert!((more_ns - 500.0).abs() < 10.0, "{more_ns} ns a packet");
    }
}

#[test]
fn changes_of_rules_keep_the_order() {
    for policy in ["none", "rps", "sparse", "rfs+sparse"] {
        let mut scenario = machine(8, policy, "1-7");
        scenario.traffic = all_kinds();
        let later = [
            &["tcp -> 1-2"][..],
            &["src-port 1024-1030 -> 3", "udp -> local"],
            &[],
            &["src-port 1026 -> 4", "dst-port 5001 -> 5-7"],
            &["any -> pass"],
        ];
        for (index, texts) in (0..).zip(later.iter().cycle().take(40)) {
            let packet_rules = rules(texts);
            let what = EventKind::Steering(Steering { packet_rules, ..scenario.steering.clone() });
            scenario.events.push(Event { at_ns: (index + 1) * 4_000_000, what });
        }
        let result = checked(&scenario, 3);
        assert_eq!(result.reordered, 0, "{policy}");
        assert!(result.moves > 40, "{policy}: {} moves", result.moves);
    }
}

#[test]
fn spread_interrupts_reorder_and_fixed_ones_do_not() {
    let mut scenario = machine(4, "none", "0-3");
    scenario.traffic = vec![traffic("stream", 4, stream()), traffic("constant", 4, constant(1e6))];
    assert_eq!(checked(&scenario, 1).reordered, 0);
    scenario.nics[0].interrupts = Interrupts::Spread(set("0-3"));
    assert!(checked(&scenario, 1).reordered > 100);
}

#[test]
fn one_cpu_does_as_much_as_its_costs_allow() {
    let mut scenario = machine(1, "none", "0");
    scenario.traffic = vec![traffic("flood", 100, constant(5e6))];
    let result = checked(&scenario, 1);
    let costs = &scenario.costs;
    let flows = 100.0 / (100.0 + costs.flow_cache);
    let each =
        costs.receive + costs.protocol + 60.0 * costs.protocol_byte + costs.flow_miss * flows;
    let rate = result.traffic[0].packets as f64 / (result.measured_ns as f64 / 1e9);
    assert!((rate * each / 1e9 - 1.0).abs() < 0.01, "{rate} packets of {each} ns per second");
    assert!((result.cpus[0].busy() - 1.0).abs() < 0.001, "{:?}", result.cpus[0]);
    assert!(result.account.ring_full > 0);
}

#[test]
fn unhindered_stream_fills_its_window_each_round_trip() {
    let mut scenario = machine(4, "none", "0-3");
    scenario.costs = Costs::default();
    scenario.wire_ns = 1_000_000;
    scenario.traffic = vec![forward(traffic("stream", 1, stream()))];
    let result = checked(&scenario, 1);
    // A window takes four wire delays, plus four frame times for its last two packets.
    let packets_per_second = 64.0 / 4.0e-3;
    let rate = result.traffic[0].packets as f64 / (result.measured_ns as f64 / 1e9);
    assert!((rate / packets_per_second - 1.0).abs() < 0.05, "{rate} for {packets_per_second}");
    assert_eq!(result.traffic[0].lost, 0);
}

#[test]
fn stream_never_gets_more_than_the_link() {
    let mut scenario = machine(4, "none", "0-3");
    scenario.costs = Costs::default();
    scenario.nics[0].rate = 100e6;
    scenario.traffic = vec![forward(traffic("stream", 4, stream()))];
    let result = checked(&scenario, 1);
    let share = 1514.0 / (1514.0 + 24.0);
    let got = result.traffic[0].bits_per_second / 100e6;
    assert!((got / share - 1.0).abs() < 0.01, "{got} of the link, at most {share}");
    assert!(result.traffic[0].fairness > 0.95);
}

#[test]
fn clients_get_one_answer_per_round_trip() {
    let mut scenario = machine(8, "rps", "0-7");
    scenario.traffic = vec![traffic("requests", 1, requests())];
    let result = checked(&scenario, 1);
    let traffic = &result.traffic[0];
    let rate = traffic.transactions_per_second.unwrap();
    assert!((rate * traffic.latency.mean / 1e9 - 1.0).abs() < 0.01, "Little's law with one client");
    // At least two wire delays and the service time.
    assert!(traffic.latency.p50 > 45_000 && traffic.latency.p50 < 60_000, "{:?}", traffic.latency);
}

#[test]
fn rfs_brings_packets_to_their_application() {
    let placed_well = |policy: &str| {
        let mut scenario = machine(8, policy, "0-7");
        scenario.scheduler.placement = Placement::Pinned;
        scenario.costs.miss_remote = 5000.0;
        scenario.traffic = vec![traffic("requests", 16, requests())];
        let result = checked(&scenario, 1);
        assert_eq!(result.reordered, 0);
        (result.traffic[0].transactions_per_second.unwrap(), result.steered.rfs)
    };
    let (rps, rps_by_rfs) = placed_well("rps");
    let (rfs, rfs_by_rfs) = placed_well("rfs");
    assert_eq!(rps_by_rfs, 0);
    assert!(rfs_by_rfs > 0 && rfs > rps * 1.05, "{rps} with rps, {rfs} with rfs");
}

#[test]
fn backlog_that_is_full_refuses_and_a_stream_recovers() {
    let mut scenario = machine(4, "rps", "2");
    scenario.steering.max_backlog = 20;
    scenario.costs.protocol = 20_000.0;
    scenario.traffic =
        vec![forward(traffic("streams", 8, stream())), traffic("flood", 10, constant(40_000.0))];
    let result = checked(&scenario, 3);
    assert!(result.account.dropped() > 0);
    assert_eq!(result.reordered, 0);
    assert!(result.traffic.iter().all(|traffic| traffic.packets > 0), "{:?}", result.traffic);
}

#[test]
fn work_goes_on_when_cpus_go_and_come() {
    for policy in ["none", "rps", "rfs+sparse", "bound:0=2"] {
        let mut scenario = machine(4, policy, "1-3");
        scenario.traffic = all_kinds();
        let mut at_ns = 0;
        for id in [2, 0, 1, 3, 0] {
            at_ns += 15_000_000;
            scenario.events.push(Event { at_ns, what: EventKind::Offline(cpu(id)) });
            let at_ns = at_ns + 20_000_000;
            scenario.events.push(Event { at_ns, what: EventKind::Online(cpu(id)) });
        }
        for seed in 0..5 {
            let result = checked(&scenario, seed);
            assert_eq!(result.reordered, 0, "{policy}, seed {seed}");
        }
    }
}

#[test]
fn policies_change_in_mid_run_in_order() {
    let policies =
        ["rps", "none", "sparse", "rfs", "bound:0=3,1=1", "rfs+sparse", "none", "sparse:loops=1"];
    let mut scenario = machine(8, "none", "0-7");
    scenario.traffic = all_kinds();
    for (index, policy) in (1..).zip(policies.iter().cycle().take(18)) {
        let mut steering =
            Steering::new(policy.parse().unwrap(), set(["1-7", "0-3", "2,5"][index % 3]));
        steering.flow_cnt = [None, Some(16), Some(4096)][index % 3];
        scenario
            .events
            .push(Event { at_ns: index as u64 * 10_000_000, what: EventKind::Steering(steering) });
    }
    for seed in 0..10 {
        assert_eq!(checked(&scenario, seed).reordered, 0, "seed {seed}");
    }
}

#[test]
fn slower_siblings_do_less() {
    let rate = |smt_speed| {
        let mut scenario = machine(2, "rps", "1");
        scenario.smt_speed = smt_speed;
        scenario.traffic = vec![traffic("flood", 10, constant(3e6))];
        checked(&scenario, 1).traffic[0].packets as f64
    };
    let share = rate(0.6) / rate(1.0);
    assert!((0.55..0.7).contains(&share), "{share}");
}

#[test]
fn memory_does_not_grow_with_time() {
    // Memory is used for packets under way, and a run ten times as long has no more of them.
    let under_way = |ms: u64| {
        let mut scenario = machine(4, "rps", "0-3");
        scenario.duration_ns = ms * 1_000_000;
        scenario.traffic = all_kinds();
        checked(&scenario, 1).account.under_way
    };
    assert!(under_way(2000) < 4 * 1000 + 2 * 512);
    assert!(under_way(2000) < under_way(200) + 2000);
}

#[test]
fn backlog_whose_cpu_is_away_gets_its_turn() {
    // The backlog of the CPU that takes over never empties.
    let mut scenario = machine(4, "rps", "1-3");
    scenario.duration_ns = 600_000_000;
    scenario.warm_up_ns = 300_000_000;
    scenario.traffic = vec![forward(traffic("flood", 64, constant(6e6)))];
    scenario.events = vec![Event { at_ns: 100_000_000, what: EventKind::Offline(cpu(1)) }];
    let result = checked(&scenario, 1);
    assert_eq!(result.reordered, 0);
    assert!(result.traffic[0].slowest_flow > 0.0, "{:?}", result.traffic[0]);
}

#[test]
fn wire_carries_no_more_than_its_rate_and_no_memory_waits_for_it() {
    let mut scenario = machine(8, "rps", "0-7");
    // Towards this machine: ten times the capacity of the wire.
    scenario.nics[0].rate = 100e6;
    scenario.traffic = vec![forward(traffic("flood", 16, constant(1.5e6)))];
    let result = checked(&scenario, 1);
    assert!(result.traffic[0].bits_per_second < 100e6, "{:?}", result.traffic[0]);
    assert!(result.traffic[0].lost > 100_000 && result.account.arrived < 40_000);
    // Away from this machine.
    scenario.nics.swap(0, 1);
    let result = checked(&scenario, 1);
    assert!(result.traffic[0].bits_per_second < 100e6, "{:?}", result.traffic[0]);
    assert!(result.tx_full > 0 && result.tx_full <= result.traffic[0].lost);
}

#[test]
fn pinned_threads_stay_and_an_empty_cache_costs_what_it_may() {
    let mut scenario = machine(4, "rps", "1");
    scenario.scheduler.placement = Placement::Pinned;
    scenario.costs.flow_cache = 0.0;
    scenario.traffic = vec![traffic("one", 1, requests()), traffic("another", 1, requests())];
    let result = checked(&scenario, 1);
    let application = result.cpus.iter().map(|cpu| cpu.application).collect::<Vec<f64>>();
    // Which CPUs the threads use is random.
    assert_eq!(application.iter().filter(|share| **share > 0.0).count(), 2, "{application:?}");
    assert!(result.cpus.iter().all(|cpu| cpu.busy().is_finite()));
}

#[test]
fn clock_that_steps_back_goes_on() {
    let in_slots = |at_ns: u64| {
        let mut scenario = machine(4, "sparse", "1-3");
        scenario.traffic = vec![traffic("few", 4, constant(1e5))];
        scenario.events = vec![Event { at_ns, what: EventKind::ClockStep(-10_000_000_000) }];
        checked(&scenario, 1).steered.in_slots
    };
    assert!(in_slots(60_000_000) > in_slots(190_000_000) / 2);
}

#[test]
fn burst_of_constant_traffic_arrives() {
    let packets = |burst: u32| {
        let mut scenario = machine(4, "rps", "1-3");
        scenario.traffic = vec![forward(traffic("few", 4, constant(1e5)))];
        scenario.events = vec![Event { at_ns: 100_000_000, what: EventKind::Burst(0, burst) }];
        checked(&scenario, 1).traffic[0].packets
    };
    assert_eq!(packets(30), packets(0) + 30);
}
