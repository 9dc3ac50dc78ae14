//! Recommendations for recorded trees, each with the rule that led there.

use super::*;
use crate::knobs::{Globals, InterfaceKnobs};
use crate::load::{CpuLoad, Ticks};
use crate::root::Root;
use crate::rss::Channels;
use crate::spreading::Spreading;
use crate::testing::{MachineSpec, NicSpec};
use crate::topology::Topology;
use insta::assert_snapshot;
use std::time::Duration;

/// Facts of the first NIC of a recorded host.
fn facts(machine: &MachineSpec) -> Facts {
    let folder = tempfile::tempdir().unwrap();
    let root: Root = machine.build(folder.path()).unwrap();
    Facts {
        topology: Topology::read(&root),
        globals: Globals::read(&root),
        knobs: InterfaceKnobs::read(&root, machine.nics[0].name).unwrap(),
        spreading: Spreading::default(),
        run: match (machine.nics[0].driver, machine.nics[0].kind) {
            (Some(_), None) => Ok(()),
            (Some(_), Some(_)) => Err("the driver has no native XDP".to_owned()),
            (None, _) => Err("its frames have no Ethernet header".to_owned()),
        },
    }
}

/// Ten seconds: the given CPUs spend these percentages in softirqs, the others 1; none does anything else. The
/// interface receives a million frames a second, and applications of this host consume them.
fn measured(facts: &Facts, busy: &[(u32, u64)]) -> Measurement {
    let load = |place: &crate::CpuPlace| {
        let cpu = u32::from(place.cpu.get());
        let softirq = busy.iter().find(|(busy, _)| *busy == cpu).map_or(1, |(_, share)| *share);
        let ticks = Ticks { softirq, idle: 100 - softirq, all: 100 };
        CpuLoad { cpu, processed: 100, ticks, ..CpuLoad::default() }
    };
    Measurement {
        time: Duration::from_secs(10),
        load: Load {
            cpus: facts.topology.cpus.iter().filter(|place| place.online).map(load).collect(),
            received: [(facts.knobs.name.clone(), 10_000_000)].into(),
        },
        delivered: 10_000_000,
        ..Measurement::default()
    }
}

fn one_flow(share: u64, inner_flows: u64, inner_largest: u64) -> Option<Traffic> {
    Some(Traffic { frames: 1000, flows: 9, largest: 10 * share, inner_flows, inner_largest })
}

/// The recommendation for a host's interface if CPU `busy` is short of time.
fn advised(
    machine: &MachineSpec,
    busy: u32,
    change: impl FnOnce(&mut Facts, &mut Measurement),
) -> String {
    let mut facts = facts(machine);
    let mut measured = measured(&facts, &[(busy, 95)]);
    change(&mut facts, &mut measured);
    let found = recommend(&facts, &measured);
    format!("rule {:?}\n{found}", found.rule)
}

fn as_it_is(_: &mut Facts, _: &mut Measurement) {}

#[test]
fn recorded_hosts() {
    let eth0 = || NicSpec::named("eth0");
    let two = MachineSpec::cpus(2).nic(eth0());
    let sixteen = MachineSpec::cpus(16).nic(eth0());
    let many = MachineSpec { nodes: 2, ..MachineSpec::cpus(72).smt() }
        .nic(eth0().queues(64, 64).interrupts(0..64).driver("ice").on_node(0));
    let sparse = MachineSpec { cores_per_cache: 8, ..MachineSpec::ids((0..256).map(|n| n * 4)) }
        .nic(eth0().queues(2, 2).interrupts([64, 512]).driver("mlx5_core"));
    let nodes = MachineSpec::cpus(16).nodes(2).nic(eth0().interrupts([9]).on_node(1));
    let smt = MachineSpec::cpus(16).smt().nic(eth0().interrupts([2]));
    let caches =
        MachineSpec { cores_per_cache: 4, ..MachineSpec::cpus(16) }.nic(eth0().interrupts([5]));
    let virtio = MachineSpec::cpus(4).nic(eth0().driver("virtio_net").interrupts([1]));
    let wg = MachineSpec::cpus(4).nic(NicSpec::made_by("wg0", "wireguard", 65534));
    let ppp = MachineSpec::cpus(4).nic(NicSpec::made_by("ppp0", "ppp", 512));
    let wifi = MachineSpec::cpus(4)
        .nic(NicSpec { kind: Some("wlan"), ..NicSpec::named("wlan0").driver("iwlwifi") });
    let isolated = MachineSpec { isolated: "2-3", ..MachineSpec::cpus(4) }.nic(eth0());
    let mut all = String::new();
    for (title, machine, busy) in [
        ("2 CPUs", &two, 0),
        ("16 CPUs, 1 queue", &sixteen, 0),
        ("72 CPUs with SMT, 2 nodes, 64 queues", &many, 3),
        ("256 CPUs with sparse ids, 8 a cache, 2 queues", &sparse, 64),
        ("two NUMA nodes, the NIC on the second", &nodes, 9),
        ("SMT on", &smt, 2),
        ("SMT off, 4 cores a cache", &caches, 5),
        ("virtio in a VM", &virtio, 1),
        ("WireGuard", &wg, 2),
        ("PPP", &ppp, 2),
        ("Wi-Fi", &wifi, 0),
        ("two isolated CPUs", &isolated, 0),
    ] {
        all += &format!("# {title}\n{}\n", advised(machine, busy, as_it_is));
    }
    assert_snapshot!("recorded-hosts", all);
}

#[test]
fn what_a_measurement_leads_to() {
    let veth = MachineSpec::cpus(8).nic(NicSpec::made_by("veth0", "veth", 1));
    let eth0 = MachineSpec::cpus(8).nic(NicSpec::named("eth0"));
    let queues = MachineSpec::cpus(8)
        .nic(NicSpec::named("eth0").queues(8, 8).interrupts(0..8).driver("igb"));
    let one_cpu =
        MachineSpec::cpus(8).nic(NicSpec::named("eth0").queues(4, 4).interrupts([0]).driver("igb"));
    let table = |table: Vec<u32>| Some(Rss { table, ..Rss::default() });
    type Change = Box<dyn FnOnce(&mut Facts, &mut Measurement)>;
    let cases: Vec<(&str, &MachineSpec, Change)> = vec![
        ("one flow", &eth0, Box::new(|_, it| it.traffic = one_flow(93, 9, 930))),
        ("one tunnel", &eth0, Box::new(|_, it| it.traffic = one_flow(99, 400, 20))),
        (
            "one tunnel, and rxsteer can't run",
            &eth0,
            Box::new(|facts, it| {
                facts.run = Err("the driver has no native XDP".to_owned());
                it.traffic = one_flow(99, 400, 20);
            }),
        ),
        (
            "few flows",
            &eth0,
            Box::new(|_, it| {
                it.traffic = Some(Traffic {
                    frames: 1000,
                    flows: 5,
                    largest: 250,
                    inner_flows: 5,
                    inner_largest: 250,
                });
            }),
        ),
        ("a router", &eth0, Box::new(|_, it| (it.delivered, it.forwarded) = (10, 1_000_000))),
        (
            "RPS on, and not enough",
            &eth0,
            Box::new(|facts, _| {
                facts.knobs.rx[0].rps_cpus = crate::CpuMask::read("1");
            }),
        ),
        (
            "a NIC that could use more queues",
            &eth0,
            Box::new(|facts, _| {
                facts.spreading.channels = Some(Channels { used: 1, most: 32 });
            }),
        ),
        (
            "a veth that could have more queues, which have no hash",
            &veth,
            Box::new(|facts, _| {
                facts.spreading.channels = Some(Channels { used: 1, most: 2 });
            }),
        ),
        (
            "a table that leaves queues out",
            &queues,
            Box::new(move |facts, _| {
                facts.spreading.rss = table(vec![0, 1, 0, 1]);
            }),
        ),
        (
            "UDP by addresses only",
            &queues,
            Box::new(|facts, it| {
                let fields =
                    [("udp4".to_owned(), vec!["ip-src".to_owned(), "ip-dst".to_owned()])].into();
                facts.spreading.rss =
                    Some(Rss { table: (0..8).collect(), fields, ..Rss::default() });
                it.queues = [(0, 990), (1, 10)].into();
                it.traffic = Some(Traffic {
                    frames: 1000,
                    flows: 300,
                    largest: 40,
                    inner_flows: 300,
                    inner_largest: 40,
                });
            }),
        ),
        (
            "8 queues for 8 CPUs, and all is one PPPoE session",
            &queues,
            Box::new(|facts, it| {
                facts.spreading.rss = Some(Rss { table: (0..8).collect(), ..Rss::default() });
                it.queues = [(0, 1_000_000), (3, 12)].into();
            }),
        ),
        (
            "4 queues whose interrupts one CPU serves",
            &one_cpu,
            Box::new(|facts, it| {
                facts.spreading.rss = Some(Rss { table: (0..4).collect(), ..Rss::default() });
                it.queues = (0..4).map(|queue| (queue, 250)).collect();
                it.interrupts = [(0, 4000)].into();
            }),
        ),
    ];
    let mut all = String::new();
    for (title, machine, change) in cases {
        all += &format!("# {title}\n{}\n", advised(machine, 0, change));
    }
    assert_snapshot!("measurements", all);
}

#[test]
fn leave_it_alone_takes_a_measurement() {
    let queues = MachineSpec::cpus(8)
        .nic(NicSpec::named("eth0").queues(8, 8).interrupts(0..8).driver("igb"));
    let mut all = String::new();
    let facts = facts(&queues);
    let shared: Vec<(u32, u64)> = (0..8).map(|cpu| (cpu, 80)).collect();
    let mut quiet = measured(&facts, &[(0, 95)]);
    quiet.load.received = [("eth0".to_owned(), 99)].into();
    let mut elsewhere = measured(&facts, &[(0, 95)]);
    for cpu in &mut elsewhere.load.cpus {
        cpu.ticks.idle = 5;
    }
    for (title, measured) in [
        ("idle CPUs", measured(&facts, &[(0, 12)])),
        ("work that is shared", measured(&facts, &shared)),
        ("CPUs that do other work", elsewhere),
        ("few frames", quiet),
        ("nothing measured", Measurement::default()),
    ] {
        let found = recommend(&facts, &measured);
        assert_eq!(found.action, Action::LeaveAlone, "{title}");
        all += &format!("# {title}\nrule {:?}\n{found}\n", found.rule);
    }
    let upper = MachineSpec::cpus(4).nic(NicSpec::made_by("bond0", "bond", 1));
    all += &format!("# a bond\n{}\n", advised(&upper, 0, as_it_is));
    all += &format!(
        "# one CPU\n{}",
        advised(&MachineSpec::cpus(1).nic(NicSpec::named("eth0")), 0, as_it_is)
    );
    assert_snapshot!("left-alone", all);
}

#[test]
fn what_is_down_or_the_loopback_is_left_alone_without_a_measurement() {
    let machine = MachineSpec::cpus(8).nic(NicSpec::named("eth0").driver("igb"));
    let mut down = facts(&machine);
    assert_eq!(left_alone(&down.knobs), None);
    down.knobs.up = false;
    let found = recommend(&down, &Measurement::default());
    let text = "Leave eth0 alone: it is down, and it receives nothing until it is up: ip link set dev eth0 up.";
    assert_eq!((found.rule, found.sentences), (Rule::Down, vec![text.to_owned()]));
    assert_eq!(left_alone(&down.knobs).as_deref(), Some(text));
    let mut loopback = facts(&machine);
    (loopback.knobs.name, loopback.knobs.hardware_type) = ("lo".to_owned(), Some(LOOPBACK));
    let found = recommend(&loopback, &measured(&loopback, &[(0, 95)]));
    assert_eq!(found.rule, Rule::Loopback);
    assert!(found.sentences[0].starts_with("Leave lo alone: it is the loopback"), "{found}");
}

#[test]
fn what_is_requested_is_what_is_reported() {
    let two = MachineSpec { cores_per_cache: 4, ..MachineSpec::cpus(8) }
        .nic(NicSpec::named("eth0").queues(2, 2).interrupts([0, 4]));
    let facts = facts(&two);
    let found = recommend(&facts, &measured(&facts, &[(0, 95), (4, 20)]));
    let Action::KernelSteering(sets) = &found.action else { panic!("{found:?}") };
    let wanted = sets.wanted();
    let queues: Vec<(u32, String)> =
        wanted.queues.iter().map(|(queue, set)| (*queue, set.to_string())).collect();
    assert_eq!(queues, [(0, "1-3".to_owned())], "the CPU of queue 1 has time");
    assert_eq!((wanted.cpus.unwrap().to_string().as_str(), wanted.rfs), ("1-3", true));
    assert_eq!(sets.rfs, Some((32768, 16384)));
}
