//! Policies that move flows, and changes while packets flow: no packet is lost, no flow is reordered.

use crate::common::*;
use rxsteer_user::core::{CpuId, CpuSet, DropReason, Policy};
use rxsteer_user::source::{Fill, Source};
use rxsteer_user::{
    Block, ChangeError, Control, OnFull, PacketList, Pipeline, Receiver, RxProgress, Speed,
    SteerChange, When, run,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A handler that records a new desired CPU for each flow all the time.
fn restless(cpus: &CpuSet) -> impl FnMut(CpuId) -> Box<dyn FnMut(&PacketList<'_>) + Send> + use<> {
    let cpus: Vec<CpuId> = cpus.iter().collect();
    let lists = Arc::new(AtomicU64::new(0));
    move |_| {
        let (cpus, lists) = (cpus.clone(), lists.clone());
        Box::new(move |list: &PacketList<'_>| {
            let turn = lists.fetch_add(1, Ordering::Relaxed) / 16;
            for packet in list.iter() {
                let at = u64::from(packet.hash().get()).wrapping_add(turn) % cpus.len() as u64;
                list.record(packet.hash(), cpus[at as usize]);
            }
        })
    }
}

#[test]
fn flows_follow_their_applications_and_stay_in_order() {
    for policy in ["rfs", "rfs+sparse", "sparse:loops=1"] {
        for (batch, max_backlog, rx_threads) in [(7, 16, 1), (64, 1000, 1), (32, 64, 2)] {
            let mut config = config(policy, "0-4");
            config.batch = batch;
            config.max_backlog = max_backlog;
            config.rx_queues = 4;
            config.flow_cnt = Some(64);
            config.rx_cpus = config.cpus.iter().take(rx_threads).collect();
            let spec = "packets=40000,flows=300,share=zipf:1.1,rate=100000";
            let report = run_with(&config, spec, restless(&config.cpus));
            let case = format!("{policy} {batch} {max_backlog} {rx_threads}");
            assert_conserved(&report);
            assert_eq!((report.delivered, report.reordered), (40_000, 0), "{case}");
            assert_eq!(report.distinct_flows.bidirectional(), 300, "{case}");
            let counts = report.steering;
            if policy.starts_with("rfs") {
                assert!(report.moves > 100, "{case}: {} moves", report.moves);
                assert!(counts.rfs > 1000 && counts.deferred > 0, "{case}: {counts:?}");
            } else {
                assert!(counts.in_slots > 0 && counts.rfs == 0, "{case}: {counts:?}");
            }
        }
    }
}

/// Every kind of change, one after the other, while packets flow and applications move.
#[test]
fn changes_at_run_time_keep_every_flow_in_order() {
    let changes = || {
        let change = SteerChange::default;
        let cpus = |list: &str| Some(list.parse().unwrap());
        let policy = |text: &str| Some(text.parse().unwrap());
        vec![
            SteerChange { policy: policy("rps"), ..change() },
            SteerChange { cpus: cpus("1-3"), ..change() },
            SteerChange { policy: policy("rfs+sparse:loops=2"), ..change() },
            SteerChange { flow_cnt: Some(4096), ..change() },
            SteerChange { flow_cnt: Some(8), sock_flow_entries: Some(64), ..change() },
            SteerChange { max_backlog: Some(500), ..change() },
            SteerChange { policy: policy("bound:0=3,1=2,2=1"), ..change() },
            SteerChange { policy: policy("rps"), cpus: cpus("0,4"), ..change() },
            SteerChange { rps_maps: Some(vec![(1.into(), "2-3".parse().unwrap())]), ..change() },
            SteerChange { policy: policy("none"), max_backlog: Some(20), ..change() },
            SteerChange { policy: policy("sparse"), flow_limit: Some(Some(256)), ..change() },
            SteerChange { policy: policy("rfs"), flow_limit: Some(None), ..change() },
        ]
    };
    for rx_threads in [1, 2] {
        let mut config = config("rps", "0-3");
        config.standby = Some("4".parse().unwrap());
        config.rx_queues = 3;
        config.largest_backlog = 500;
        config.max_backlog = 100;
        config.rx_cpus = config.cpus.iter().take(rx_threads).collect();
        let mut sources =
            synthetic(&config, "packets=300000,flows=400,share=zipf:1.05,rate=100000");
        let done = AtomicBool::new(false);
        let report = std::thread::scope(|threads| {
            let (send, receive) = mpsc::channel::<(Control, Arc<RxProgress>)>();
            let done = &done;
            threads.spawn(move || {
                let (control, progress) = receive.recv().unwrap();
                let mut all = changes().into_iter().cycle();
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let packets = progress.packets.get();
                    if packets >= last + 2000 {
                        last = packets;
                        control.change(&all.next().unwrap()).unwrap();
                    }
                    std::thread::yield_now();
                }
            });
            let started = |receivers: &[Receiver], control: Control| {
                send.send((control, receivers[0].progress())).unwrap();
            };
            let stop = AtomicBool::new(false);
            let handler = restless(&"0-4".parse().unwrap());
            let report = run(&config, &mut sources, Speed::Max, &stop, handler, started).unwrap();
            done.store(true, Ordering::Relaxed);
            report
        });
        assert_conserved(&report);
        assert_eq!(report.packets, 300_000);
        assert_eq!(report.drops.total(), report.drops.get(DropReason::FlowLimit));
        assert_eq!(report.reordered, 0);
        assert!(report.moves > 100, "{} moves", report.moves);
        let used = report.per_cpu.iter().filter(|cpu| cpu.packets > 0).count();
        assert_eq!(used, 5, "every CPU had its part, the one on standby too");
    }
}

#[test]
fn impossible_change_is_refused_and_changes_nothing() {
    let config = config("rps", "0-1");
    let (pipeline, mut receivers) = Pipeline::start(&config, |_| nothing).unwrap();
    let control = pipeline.control();
    let change = SteerChange {
        policy: Some(Policy::None),
        cpus: Some("0-2".parse().unwrap()),
        ..SteerChange::default()
    };
    let error = control.change(&change).unwrap_err();
    assert!(error.to_string().contains("CPU 2"), "{error}");
    let change = SteerChange { max_backlog: Some(1001), ..SteerChange::default() };
    assert_eq!(control.change(&change), Err(ChangeError::Backlog(1001, 1000)));
    let rules = vec!["gre teid 5 -> 0".parse().unwrap()];
    let inner = SteerChange { packet_rules: Some(rules), ..SteerChange::default() };
    let error = control.change(&inner).unwrap_err();
    assert!(error.to_string().contains("no packet can match"), "{error}");
    let change = SteerChange { flow_cnt: Some(0), policy: Some(Policy::None), ..change };
    assert!(control.change(&change).is_err());
    // Under `rps` frames with different ports spread; under `none` they would all be on CPU 0.
    let mut receiver = receivers.remove(0);
    for port in 0..64u8 {
        receiver.netif_rx(&udp(port), info(0));
    }
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert!(report.per_cpu.iter().all(|cpu| cpu.packets > 0), "still rps");
}

/// Delivers some frames, then nothing until the source is stopped.
struct Once {
    frames: Vec<[u8; 60]>,
    end: Arc<AtomicBool>,
}

impl Source for Once {
    fn fill(&mut self, block: &mut Block) -> Fill {
        for (frame, number) in self.frames.drain(..).zip(0..) {
            assert!(block.push(&frame, info(number)));
        }
        if self.end.load(Ordering::Relaxed) { Fill::End } else { Fill::More }
    }
}

/// Without traffic a change takes effect too, and its end is noticed.
#[test]
fn change_is_taken_and_done_while_nothing_is_received() {
    let end = Arc::new(AtomicBool::new(false));
    let frames = (0..64).map(udp).collect();
    let mut sources = [Once { frames, end: end.clone() }];
    let mut config = config("rps", "0-1");
    config.standby = "2".parse().ok();
    let report = std::thread::scope(|threads| {
        let started = |receivers: &[Receiver], control: Control| {
            let progress = receivers[0].progress();
            let end = end.clone();
            threads.spawn(move || {
                let until = |is_so: &dyn Fn() -> bool| {
                    let begun = Instant::now();
                    while !is_so() && begun.elapsed() < Duration::from_secs(20) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    is_so()
                };
                let mut was_so = until(&|| progress.packets.get() == 64);
                let changes = [
                    SteerChange { policy: Some("sparse".parse().unwrap()), ..Default::default() },
                    SteerChange { flow_cnt: Some(64), ..Default::default() },
                    SteerChange {
                        policy: Some(Policy::Rps),
                        cpus: "2".parse().ok(),
                        ..Default::default()
                    },
                ];
                for change in changes {
                    control.change(&change).unwrap();
                    was_so &= until(&|| {
                        progress.changes.get() == control.changes() && progress.changing.get() == 0
                    });
                }
                end.store(true, Ordering::Relaxed);
                assert!(was_so, "a change waited for a packet");
            });
        };
        let stop = AtomicBool::new(false);
        run(&config, &mut sources, Speed::Max, &stop, |_| nothing, started).unwrap()
    });
    assert_eq!((report.packets, report.delivered), (64, 64));
}

/// A CPU whose worker is stopped gets no new packets once its flows have no packets under way there.
#[test]
fn stopped_cpu_is_steered_around() {
    for policy in ["rps", "rfs+sparse", "bound:0=1"] {
        let config = config(policy, "0-3");
        let (pipeline, mut receivers) = Pipeline::start(&config, |_| nothing).unwrap();
        let control = pipeline.control();
        let mut receiver = receivers.remove(0);
        let mut queued_to_1 = |rounds: u32| {
            for _ in 0..rounds {
                for port in 0..64 {
                    receiver.netif_rx(&udp(port), info(0));
                }
                receiver.flush();
                std::thread::yield_now();
            }
            receiver.backlog_reports().iter().find(|backlog| backlog.cpu == cpu(1)).unwrap().queued
        };
        assert!(queued_to_1(10) > 0);
        assert!(control.stop_worker(cpu(1)));
        // Waits until the worker has left and all packets are drained, with a limited number of checks.
        let mut last = 0;
        let drained = (0..100_000).any(|_| {
            let now = queued_to_1(1);
            std::mem::replace(&mut last, now) == now
        });
        assert!(drained, "{policy}: packets still go to a CPU that is gone");
        assert_eq!(queued_to_1(100), last, "{policy}: and later none");
        receiver.finish();
        let report = pipeline.finish().unwrap();
        assert_conserved(&report);
        assert_eq!((report.reordered, report.drops.total()), (0, 0), "{policy}");
    }
}

/// A flow that fills a backlog is dropped first; other flows get room.
#[test]
fn flow_limit_drops_the_elephant() {
    let mut config = config("rps", "0");
    config.on_full = OnFull::Drop;
    config.flow_limit = Some(4096);
    config.max_backlog = 400;
    let gate = Arc::new(AtomicBool::new(false));
    let (pipeline, mut receivers) = Pipeline::start(&config, |_| {
        let gate = gate.clone();
        move |_: &PacketList<'_>| {
            while !gate.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
    })
    .unwrap();
    let mut receiver = receivers.remove(0);
    for round in 0..400u32 {
        receiver.netif_rx(&udp(0), info(0));
        if round % 8 == 0 {
            receiver.netif_rx(&udp((1 + round / 8) as u8), info(0));
        }
    }
    receiver.flush();
    gate.store(true, Ordering::Relaxed);
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_conserved(&report);
    let limited = report.drops.get(DropReason::FlowLimit);
    assert!(limited > 100, "{limited} of 400 were over the limit");
    assert_eq!(report.drops.total(), limited, "so the backlog never filled, and no mouse was lost");
}

/// Two devices with one flow each send lists in turns. Each list goes back a little in time, but each flow keeps
/// its own CPU.
#[test]
fn sparse_flows_of_two_devices_keep_their_cpus() {
    let mut config = config("sparse", "0-3");
    config.rx_queues = 2;
    config.rx_devices = vec![0, 1];
    let (pipeline, mut receivers) = Pipeline::start(&config, |_| nothing).unwrap();
    let mut receiver = receivers.remove(0);
    for poll in 0..200u64 {
        for queue in [0, 1] {
            let frame = udp(1);
            let list = (0..64).map(|packet| {
                let timestamp_ns = poll * 64_000 + packet * 1000 + u64::from(queue) * 500;
                (&frame[..], info(queue).at(timestamp_ns))
            });
            receiver.netif_receive(list);
        }
    }
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_eq!((report.moves, report.reordered), (0, 0));
    let packets: Vec<u64> = report.per_cpu.iter().map(|cpu| cpu.packets).collect();
    assert_eq!(packets, [0, 0, 12_800, 12_800], "one flow each, from the last CPU on");
    assert_eq!(report.steering.in_slots, 25_600);
}

/// A clock that is set back is different: slots with times in the future are free.
#[test]
fn clock_that_is_set_back_frees_slots() {
    let config = config("sparse:loops=1", "0");
    let (pipeline, mut receivers) = Pipeline::start(&config, |_| nothing).unwrap();
    let mut receiver = receivers.remove(0);
    for (port, seconds) in [(1, 10), (2, 3), (2, 4)] {
        receiver.netif_rx(&udp(port), info(0).at(seconds * 1_000_000_000));
        receiver.flush();
    }
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_eq!(report.steering.in_slots, 3, "the second flow got the slot of the first");
}

/// The next packet detects a clock that was set back while it was not in use.
#[test]
fn clock_set_back_under_rps_does_not_stop_time_under_sparse() {
    let config = config("sparse:loops=1", "0");
    let (pipeline, mut receivers) = Pipeline::start(&config, |_| nothing).unwrap();
    let control = pipeline.control();
    let mut receiver = receivers.remove(0);
    let policy =
        |text: &str| SteerChange { policy: Some(text.parse().unwrap()), ..Default::default() };
    let mut send = |port, seconds: u64| {
        receiver.netif_rx(&udp(port), info(0).at(seconds * 1_000_000_000));
        receiver.flush();
    };
    send(1, 100);
    control.change(&policy("rps")).unwrap();
    send(1, 10);
    control.change(&policy("sparse:loops=1")).unwrap();
    // Each packet comes after the slot of the previous one has expired: time advances.
    for (port, seconds) in [(2, 12), (3, 14), (4, 16)] {
        send(port, seconds);
    }
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_eq!(report.steering.in_slots, 4);
}

/// Planned changes are made in their order, whichever thread makes them.
#[test]
fn planned_changes_are_made_in_their_order_by_several_threads() {
    for _ in 0..30 {
        let mut config = config("none", "0-1");
        config.rx_queues = 4;
        config.rx_cpus = config.cpus.iter().cycle().take(4).collect();
        let policy = |text: &str| Some(text.parse().unwrap());
        let change = |policy, rps_maps| SteerChange { policy, rps_maps, ..SteerChange::default() };
        let maps = |cpus: &str| Some(vec![(0.into(), cpus.parse().unwrap())]);
        config.changes = [
            change(policy("rps"), None),
            change(None, maps("0")),
            change(policy("none"), Some(vec![])),
            change(policy("rps"), None),
            change(None, maps("1")),
        ]
        .map(|change| (When::Packets(1), change))
        .to_vec();
        let report = run_with(&config, "packets=4000,flows=10", |_| nothing);
        assert_eq!((report.changes_made, report.reordered), (5, 0));
    }
}
