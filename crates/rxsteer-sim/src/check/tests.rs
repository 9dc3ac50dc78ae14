//! Invalid scenarios are refused, each with its reason and its place; values at a limit are accepted.

use super::*;
use crate::scenario::{Event, EventKind, Interrupts, Load, Pause, Recorded, RecordedPacket};
use rxsteer_core::{CpuId, Policy, Slots};

fn good() -> Scenario {
    crate::file::read(include_str!("../file/tests.toml"), "good", &[]).unwrap()
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

fn event(at_ns: u64, what: EventKind) -> Event {
    Event { at_ns, what }
}

fn pause(every_ns: u64, lasts_ns: u64) -> Pause {
    Pause { every_ns, lasts_ns }
}

type Change = fn(&mut Scenario);

/// Changes that make a scenario invalid, with the key that is reported and a part of the reason.
const IMPOSSIBLE: [(Change, &str, &str); 46] = [
    (|s| s.duration_ns = 0, "duration", "duration is 0"),
    (|s| s.duration_ns = MAX_TIME_NS + 1, "duration", "too much"),
    (|s| s.warm_up_ns = s.duration_ns, "warm_up", "leaves nothing"),
    (|s| s.wire_ns = u64::MAX, "wire", "too much"),
    (|s| s.cpus.clear(), "machine.cpus", "no CPUs"),
    (|s| s.cpus = vec![s.cpus[0]; MAX_CPUS + 1], "machine.cpus", "must be 1 to"),
    (|s| s.cpus[2].speed = 0.0, "machine.speed", "CPU 2"),
    (|s| s.cpus[0].speed = f64::NAN, "machine.speed", "NaN"),
    (|s| s.cpus[0].speed = -1.0, "machine.speed", "-1"),
    (|s| s.cpus[0].speed = 1e9, "machine.speed", "1000000000"),
    (|s| s.smt_speed = 0.0, "machine.smt_speed", "0"),
    (|s| s.pauses = vec![pause(0, 1)], "pause.0.every", "must be 1 to"),
    (
        |s| s.pauses = vec![pause(2000, 1000), pause(2000, 1000)],
        "pause",
        "paused 100 % of the time",
    ),
    (|s| s.pauses = vec![pause(999, 1)], "pause.0.every", "too often"),
    (|s| s.pauses = vec![pause(1000, 1); 65], "pause", "too much"),
    (|s| s.nics.clear(), "nic", "no network card"),
    (|s| s.nics[1].name = "a".into(), "nic.1.name", "two cards"),
    (|s| s.nics[0].rate = 0.0, "nic.0.rate", "carries nothing"),
    (|s| s.nics[0].rate = f64::INFINITY, "nic.0.rate", "inf"),
    (|s| s.nics[0].irq_cpus[1] = cpu(4), "nic.0.irq_cpus", "no CPU 4"),
    (
        |s| s.nics[1].interrupts = Interrupts::Spread("1-9".parse().unwrap()),
        "nic.1.interrupts",
        "no CPU 4",
    ),
    (|s| s.nics[1].irq_cpus = vec![cpu(0); 600], "nic", "1203 RX queues"),
    (|s| s.nics[0].ring = 0, "nic.0.ring", "it is 0"),
    (|s| s.costs.protocol = -1.0, "costs.protocol", "-1"),
    (|s| s.costs.wake_delay = f64::NAN, "costs.wake_delay", "NaN"),
    (|s| s.costs.receive = 1e10, "costs.receive", "10000000000"),
    (|s| s.scheduler.cpus = "3-4".parse().unwrap(), "scheduler.cpus", "no CPU 4"),
    (|s| s.scheduler.balance_ns = 1, "scheduler.balance", "too often"),
    (|s| s.steering.cpus = "0-9".parse().unwrap(), "steering.cpus", "no CPU 4"),
    (
        |s| s.steering.policy = Policy::Bound(vec![(0.into(), cpu(7))]),
        "steering.policy",
        "no CPU 7",
    ),
    (
        |s| s.steering.policy = Policy::Bound(vec![(9.into(), cpu(1))]),
        "steering",
        "names RX queue 9",
    ),
    (|s| s.steering.rfs_cpus = "1,9".parse().ok(), "steering.rfs_cpus", "no CPU 9"),
    (|s| s.steering.rps_maps[0].0 = 5.into(), "steering.rps_map.5", "no RX queue 5"),
    (|s| s.steering.policy = Policy::Sparse(Slots::of(9)), "steering", "9 loops"),
    (
        |s| s.steering.packet_rules = vec!["tcp -> 1,9".parse().unwrap()],
        "steering.rule",
        "no CPU 9, which a rule names",
    ),
    (
        |s| s.steering.packet_rules = vec!["interface eth7 -> 1".parse().unwrap()],
        "steering",
        "names interface eth7",
    ),
    (
        |s| s.steering.packet_rules = vec!["gre teid 5 -> 1".parse().unwrap()],
        "steering.rule",
        "no packet can match",
    ),
    (|s| s.steering.flow_cnt = Some(0), "steering", "flow_cnt: 0 is out of range"),
    (|s| s.steering.budget = 0, "steering.budget", "it is 0"),
    (|s| s.traffic.clear(), "traffic", "nothing is sent"),
    (|s| s.traffic[1].nic = 2, "traffic.1.nic", "no card 2"),
    (|s| s.traffic[2].flows = 2, "traffic.2.threads", "some serve none"),
    (|s| s.traffic[2].out = Some(0), "traffic.2.out", "nothing is forwarded"),
    (|s| s.traffic[1].out = Some(0), "traffic.1.application", "reach no application"),
    (|s| s.traffic[1].translated = true, "traffic.1.translated", "forwarded"),
    (|s| s.traffic[0].start_ns = s.duration_ns, "traffic.0.start", "the run ends"),
];

#[test]
fn impossible_scenarios_are_refused() {
    assert_eq!(good().check(), Ok(()));
    for (index, (change, path, reason)) in IMPOSSIBLE.iter().enumerate() {
        let mut scenario = good();
        change(&mut scenario);
        let problem = scenario.check().expect_err(&format!("{index}: {path}: {reason}"));
        assert_eq!(problem.path, *path, "{problem}");
        assert!(problem.what.contains(reason), "{problem}");
    }
}

#[test]
fn impossible_loads_are_refused() {
    type ChangeLoad = fn(&mut Load);
    let change: [(ChangeLoad, &str); 9] = [
        (
            |load| {
                if let Load::Constant(c) = load {
                    c.rate = 0.0
                }
            },
            "traffic.1.rate",
        ),
        (
            |load| {
                if let Load::Constant(c) = load {
                    c.rate = f64::NAN
                }
            },
            "traffic.1.rate",
        ),
        (
            |load| {
                if let Load::Constant(c) = load {
                    c.frame_bytes = 59
                }
            },
            "traffic.1.frame_bytes",
        ),
        (
            |load| {
                if let Load::Constant(c) = load {
                    c.application = -1.0
                }
            },
            "traffic.1.application",
        ),
        (
            |load| {
                if let Load::Stream(s) = load {
                    s.window = 0
                }
            },
            "traffic.0.window",
        ),
        (
            |load| {
                if let Load::Stream(s) = load {
                    s.packets_per_ack = 21
                }
            },
            "traffic.0.packets_per_ack",
        ),
        (
            |load| {
                if let Load::Stream(s) = load {
                    s.min_rto_ns = 0
                }
            },
            "traffic.0.min_rto",
        ),
        (
            |load| {
                if let Load::Requests(r) = load {
                    r.service = f64::INFINITY
                }
            },
            "traffic.2.service",
        ),
        (
            |load| {
                if let Load::Requests(r) = load {
                    r.threads = Some(0)
                }
            },
            "traffic.2.threads",
        ),
    ];
    for (change, path) in change {
        let mut scenario = good();
        scenario.traffic.iter_mut().for_each(|traffic| change(&mut traffic.load));
        assert_eq!(scenario.check().unwrap_err().path, path);
    }
}

#[test]
fn recordings_name_flows_that_are_there_in_the_order_of_time() {
    let mut scenario = good();
    let packet = |at_ns, flow| RecordedPacket { at_ns, flow, bytes: 60 };
    scenario.steering.packet_rules.clear();
    scenario.events.clear();
    let mut check = |packets: &[RecordedPacket]| {
        let recorded =
            Recorded { packets: packets.into(), hashes: vec![1, 2, 3], application: 0.0 };
        scenario.traffic[0].load = Load::Recorded(recorded);
        scenario.check().is_ok()
    };
    assert!(check(&[packet(0, 0), packet(5, 2), packet(5, 1)]));
    assert!(!check(&[packet(0, 3)]));
    assert!(!check(&[packet(5, 0), packet(4, 0)]));
    assert!(check(&[packet(0, 0)]));
    scenario.steering.packet_rules = vec!["tcp -> 1".parse().unwrap()];
    let why = scenario.check().unwrap_err().to_string();
    assert!(why.contains("recorded traffic has no header fields"), "{why}");
}

#[test]
fn rules_by_tunnel_take_the_traffic_of_such_tunnels() {
    let mut scenario = good();
    scenario.steering.packet_rules = vec!["tcp teid 5 -> 1".parse().unwrap()];
    let why = scenario.check().unwrap_err().to_string();
    assert!(why.contains("no traffic has 'headers'"), "{why}");
    scenario.traffic[0].headers = "tcp teid 5".parse().unwrap();
    assert_eq!(scenario.check(), Ok(()));
}

#[test]
fn impossible_events_are_refused() {
    let other = good().steering;
    let elsewhere = crate::scenario::Steering { cpus: "7".parse().unwrap(), ..other };
    let offline = |ids: &[u16]| -> Vec<Event> {
        ids.iter().map(|id| event(5, EventKind::Offline(cpu(*id)))).collect()
    };
    let refused = [
        (offline(&[4]), "event.0.offline", "no CPU 4"),
        (offline(&[1, 1]), "event.1.offline", "already"),
        (offline(&[0, 1, 2, 3]), "event.3.offline", "no CPU would be left"),
        (vec![event(5, EventKind::Online(cpu(1)))], "event.0.online", "online already"),
        (vec![event(u64::MAX, EventKind::Offline(cpu(1)))], "event.0.at", "the run ends"),
        (
            vec![event(5, EventKind::ClockStep(1)), event(4, EventKind::ClockStep(1))],
            "event.1.at",
            "order of time",
        ),
        (vec![event(5, EventKind::ClockStep(i64::MIN))], "event.0.clock_step", "too much"),
        (vec![event(5, EventKind::Speed(cpu(1), 0.0))], "event.0.speed", "it is 0"),
        (vec![event(5, EventKind::Speed(cpu(9), 1.0))], "event.0.cpu", "no CPU 9"),
        (vec![event(5, EventKind::Burst(3, 1))], "event.0.traffic", "no traffic 3"),
        (vec![event(5, EventKind::Burst(0, 0))], "event.0.burst", "it is 0"),
        (vec![event(5, EventKind::Steering(elsewhere))], "event.0.steering.cpus", "no CPU 7"),
    ];
    for (events, path, reason) in refused {
        let problem = Scenario { events, ..good() }.check().unwrap_err();
        assert_eq!(problem.path, path, "{problem}");
        assert!(problem.what.contains(reason), "{problem}");
    }
    let back = [
        offline(&[0, 1, 2]),
        vec![event(6, EventKind::Online(cpu(0)))],
        vec![event(7, EventKind::Offline(cpu(3)))],
    ];
    assert_eq!(Scenario { events: back.concat(), ..good() }.check(), Ok(()));
}

#[test]
fn too_many_are_refused() {
    let mut scenario = good();
    scenario.traffic[0].flows = MAX_FLOWS as u32;
    assert_eq!(scenario.check().unwrap_err().path, "traffic.1.flows", "all together are too many");
    let mut scenario = good();
    scenario.traffic[2].flows = MAX_THREADS as u32 + 1;
    assert_eq!(scenario.check(), Ok(()), "with threads of their own number");
    let Load::Requests(requests) = &mut scenario.traffic[2].load else { panic!("requests") };
    requests.threads = None;
    assert_eq!(scenario.check().unwrap_err().path, "traffic.2.threads");
    let mut scenario = good();
    scenario.events = vec![event(1, EventKind::ClockStep(0)); MAX_EVENTS + 1];
    assert_eq!(scenario.check().unwrap_err().path, "event");
}
