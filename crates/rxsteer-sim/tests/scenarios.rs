//! Runs of scenario files: each built-in scenario shows what its title says, and every scenario that passes the
//! checks runs.

use proptest::prelude::*;
use rxsteer_sim::file::{builtin, read};
use rxsteer_sim::{RunResult, run};

/// Runs a built-in scenario with `sets` instead of its own values.
fn built_in_run(name: &str, sets: &[(&str, &str)]) -> RunResult {
    let sets: Vec<_> = sets.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let scenario = builtin::find(name).unwrap().scenario(&sets).unwrap();
    let result = run(&scenario, 1).unwrap();
    assert!(result.account.adds_up(), "{name}: {:?}", result.account);
    result
}

/// Runs a built-in scenario with another policy and for a short time.
fn under(name: &str, policy: &str) -> RunResult {
    built_in_run(name, &[("steering.policy", policy), ("duration", "200ms"), ("warm_up", "60ms")])
}

#[test]
fn only_spread_interrupts_reorder() {
    for builtin in builtin::builtin() {
        let result = built_in_run(builtin.name, &[("duration", "200ms"), ("warm_up", "60ms")]);
        assert!(result.traffic.iter().all(|traffic| traffic.packets > 0), "{}", builtin.name);
        assert_eq!(result.reordered > 0, builtin.name == "irq-spread", "{}", builtin.name);
    }
    assert_eq!(built_in_run("irq-spread", &[("nic.eth0.interrupts", "fixed")]).reordered, 0);
}

#[test]
fn each_built_in_shows_what_its_title_says() {
    let lost = |result: &RunResult| result.traffic[0].lost;
    let (alone, steered) = (under("router-one-queue", "none"), under("router-one-queue", "rps"));
    assert!(lost(&alone) > alone.account.arrived / 3, "one CPU can't forward all");
    assert_eq!(lost(&steered), 0);

    let inline = under("collector-hand-off", "none");
    let handed = under("collector-hand-off", "bound:0=2,1=3");
    assert!(lost(&inline) > 0);
    assert_eq!(lost(&handed), 0);
    assert!(handed.cpus[0].busy() < 0.6, "a CPU that only collects is about half idle");

    for (name, least) in [("rpc-8", 1.5), ("web-server-64", 1.05)] {
        let calls = |policy| under(name, policy).traffic[0].transactions_per_second.unwrap();
        let (none, rfs) = (calls("none"), calls("rfs"));
        assert!(rfs > least * none, "{name}: {rfs} and {none} transactions a second");
    }
}

/// Two of four flows, data and acknowledgements each way, share a CPU by hash in most seeds, but never by slot.
#[test]
fn sparse_flows_of_the_small_router_have_cpus_of_their_own() {
    let sets = |policy: &str| {
        let own = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
        [("steering.policy", policy), ("duration", "3s"), ("warm_up", "1s")].map(own)
    };
    let small = builtin::find("router-4-slow-cores").unwrap();
    let bits = |policy: &str| -> Vec<f64> {
        let scenario = small.scenario(&sets(policy)).unwrap();
        let sum =
            |seed| run(&scenario, seed).unwrap().traffic.iter().map(|t| t.bits_per_second).sum();
        (0..8).map(sum).collect()
    };
    let (hashed, sparse) = (bits("rps"), bits("sparse"));
    let mean = |runs: &[f64]| runs.iter().sum::<f64>() / runs.len() as f64;
    let spread = |runs: &[f64]| runs.iter().map(|run| (run - mean(runs)).powi(2)).sum::<f64>();
    assert!(mean(&sparse) > 1.1 * mean(&hashed), "{sparse:?} {hashed:?}");
    assert!(spread(&sparse) * 100.0 < spread(&hashed), "{sparse:?} {hashed:?}");
}

/// Keys with values at the ends of their ranges.
const EXTREMES: [(&str, &[&str]); 31] = [
    ("machine.cpus", &["4", "5", "300"]),
    ("machine.speed", &["0.000001", "1000", "0.1"]),
    ("machine.smt_speed", &["0.01", "1"]),
    (
        "pause",
        &["[{ every = \"1ms\", lasts = \"900us\" }]", "[{ every = \"24h\", lasts = \"1ns\" }]"],
    ),
    ("nic.0.rate", &["1", "1Mbit", "800Gbit"]),
    ("nic.0.queues", &["2", "100"]),
    ("nic.0.ring", &["1", "1048576"]),
    ("nic.0.moderation", &["0", "1s"]),
    ("costs.protocol", &["0", "1s"]),
    ("costs.receive", &["0", "1ms"]),
    ("costs.wake_delay", &["0", "1s"]),
    ("costs.thread_wake", &["0", "10ms"]),
    ("costs.flow_cache", &["0", "1e9"]),
    ("costs.flow_miss", &["0", "1ms"]),
    ("wire", &["{ delay = \"0\", switch = \"0\" }", "{ delay = \"5s\" }"]),
    (
        "steering.policy",
        &["none", "rps", "bound:0=1,2=3", "sparse:loops=1", "rfs", "rfs+sparse:loops=5"],
    ),
    ("steering.flow_cnt", &["1", "65536"]),
    ("steering.sock_flow_entries", &["1", "1000000"]),
    ("steering.flow_limit", &["1", "4096"]),
    ("steering.max_backlog", &["1", "1048576"]),
    ("steering.budget", &["1", "65536"]),
    ("scheduler.placement", &["pinned", "sticky", "waker"]),
    ("scheduler.balance", &["0", "10us"]),
    ("scheduler.slice", &["1us", "24h"]),
    ("traffic.0.flows", &["1", "2000"]),
    ("traffic.bulk.window", &["1", "1048576"]),
    ("traffic.bulk.min_rto", &["100us", "24h"]),
    ("traffic.1.rate", &["0.001", "5Mpps"]),
    ("traffic.1.share", &["zipf:0", "zipf:10", "equal"]),
    ("traffic.2.think", &["0", "24h"]),
    ("event.4.clock_step", &["-24h", "24h", "0"]),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// A scenario that passes the checks runs to its end: each packet is accounted for, and none is overtaken.
    #[test]
    fn whatever_can_be_runs(
        picks in prop::collection::vec((0..EXTREMES.len(), any::<prop::sample::Index>()), 0..6),
        seed in any::<u64>(),
    ) {
        let mut sets = vec![("duration".to_string(), "7ms".to_string()), ("warm_up".to_string(), "1ms".to_string())];
        for (key, value) in picks {
            let (path, values) = EXTREMES[key];
            sets.push((path.to_string(), values[value.index(values.len())].to_string()));
        }
        // NIC b spreads its interrupts in that file, which reorders flows.
        sets.push(("nic.b.interrupts".to_string(), "fixed".to_string()));
        if let Ok(scenario) = read(include_str!("../src/file/tests.toml"), "extreme", &sets) {
            let result = run(&scenario, seed).unwrap();
            prop_assert!(result.account.adds_up(), "{:?}", result.account);
            prop_assert_eq!(result.reordered, 0);
        }
    }
}
