//! The receive path from its users' view: under all conditions no packet is lost or reordered.

use crate::common::*;
use rxsteer_user::core::{CpuId, CpuSet, DropReason, FlowKey, Policy};
use rxsteer_user::packet::{Hasher, Toeplitz};
use rxsteer_user::source::Source;
use rxsteer_user::source::memory::MemorySource;
use rxsteer_user::source::synthetic::SyntheticSource;
use rxsteer_user::{
    FrameInfo, Handler, OnFull, PacketList, Pipeline, PipelineConfig, Receiver, Report, Speed, run,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

#[test]
fn no_flow_is_reordered_under_any_policy_cpu_count_and_list_length() {
    for policy in ["none", "rps", "bound:0=1,1=0,2=3"] {
        for cpus in ["0", "0-1", "0-4,9"] {
            for (batch, max_backlog) in [(1, 1), (7, 16), (32, 1000), (256, 300)] {
                for (rx_queues, rx_threads) in [(1, 1), (4, 1), (5, 2)] {
                    let mut config = config(policy, cpus);
                    config.batch = batch;
                    config.max_backlog = max_backlog;
                    config.rx_queues = if policy.starts_with("bound") { 5 } else { rx_queues };
                    config.rx_cpus =
                        config.cpus.iter().cycle().take(rx_threads).collect::<Vec<_>>();
                    let spec = "packets=4000,flows=60,share=zipf:1.2,ip=mixed,protocol=mixed";
                    let report = run_with(&config, spec, |_| nothing);
                    let case = format!("{policy} {cpus} {batch} {max_backlog} {rx_threads}");
                    assert_conserved(&report);
                    assert_eq!((report.packets, report.delivered), (4000, 4000), "{case}");
                    assert_eq!((report.reordered, report.moves), (0, 0), "{case}");
                    assert_eq!(report.distinct_flows.bidirectional(), 60, "{case}");
                    assert_eq!(report.steered_flows, 60, "{case}");
                }
            }
        }
    }
}

/// The order check of a run must be able to fail: if numbered frames of one flow are handed off to two workers in turn
/// without the policy, it must find them out of order.
#[test]
fn order_check_finds_what_hand_off_can_reorder() {
    let mut config = config("none", "0-1");
    config.max_backlog = 4096;
    let (hold, held) = mpsc::channel::<()>();
    let held = Arc::new(std::sync::Mutex::new(held));
    // CPU 0 waits with its packets until CPU 1 has processed later ones of the same flow.
    let (pipeline, mut receivers) = Pipeline::start(&config, |on| {
        let (hold, held) = (hold.clone(), held.clone());
        let mut lists = 0;
        move |_: &PacketList<'_>| {
            lists += 1;
            if on == cpu(0) {
                let _ = held.lock().unwrap().recv();
            } else if lists == 2 {
                // The list before this one is completed by now.
                let _ = hold.send(());
            }
        }
    })
    .unwrap();
    let mut receiver = receivers.remove(0);
    receiver.hand_off(cpu(0), [(&[0u8; 60][..], info(0))]);
    receiver.hand_off(cpu(1), [(&[0u8; 60][..], info(0))]);
    receiver.hand_off(cpu(1), [(&[0u8; 60][..], info(0))]);
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_eq!((report.delivered, report.reordered, report.moves), (3, 1, 1));
}

#[test]
fn overload_drops_are_counted_and_nothing_is_lost() {
    let mut config = config("rps", "0-1");
    config.on_full = OnFull::Drop;
    config.max_backlog = 8;
    config.batch = 32;
    let report = run_with(&config, "packets=30000,flows=100", |_| {
        |_: &PacketList<'_>| std::thread::yield_now()
    });
    assert_conserved(&report);
    assert_eq!(report.packets, 30_000);
    assert!(report.drops.get(DropReason::BacklogFull) > 0, "a backlog of 8 overflows");
    assert_eq!(report.reordered, 0, "drops leave gaps, not disorder");
}

/// The result of `feed` when the only worker is blocked until everything was received.
fn with_blocked_worker(
    config: &PipelineConfig,
    feed: impl FnOnce(&mut Receiver),
) -> Report<impl Handler> {
    let (release, gate) = mpsc::channel::<()>();
    let mut gate = Some(gate);
    let (pipeline, mut receivers) = Pipeline::start(config, |_| {
        let gate = gate.take().unwrap();
        // Returns only once the sender is gone.
        move |_: &PacketList<'_>| while gate.recv().is_ok() {}
    })
    .unwrap();
    let mut receiver = receivers.remove(0);
    feed(&mut receiver);
    receiver.flush();
    drop(release);
    receiver.finish();
    pipeline.finish().unwrap()
}

#[test]
fn full_backlog_refuses_exactly_what_does_not_fit() {
    let mut config = config("none", "0");
    config.on_full = OnFull::Drop;
    config.max_backlog = 10;
    let report = with_blocked_worker(&config, |receiver| {
        receiver.hand_off(cpu(0), [(&[0u8; 60][..], info(0)); 25]);
    });
    assert_conserved(&report);
    assert_eq!((report.packets, report.delivered), (25, 10), "the head that fits is taken");
    assert_eq!(report.drops.get(DropReason::BacklogFull), 15);
}

/// The limit of a backlog is a number of packets, independent of their size and of how they entered: large frames fill
/// blocks early, and frames steered one by one have a block each.
#[test]
fn backlog_holds_its_limit_whatever_the_frames() {
    for (size, polled) in [(9018, true), (60, false), (60, true)] {
        let mut config = config("none", "0");
        config.on_full = OnFull::Drop;
        config.max_backlog = 1000;
        let frame = vec![0u8; size];
        let report = with_blocked_worker(&config, |receiver| {
            for _ in 0..1100 {
                receiver.netif_rx(&frame, info(0));
                if !polled {
                    receiver.flush();
                }
            }
        });
        assert_conserved(&report);
        assert_eq!(report.delivered, 1000, "{size} {polled}");
        assert_eq!(report.drops.get(DropReason::BacklogFull), 100);
        assert_eq!(report.per_cpu[0].drops.total(), 100);
        assert_eq!(report.not_ip, 1100, "what is dropped counts as what it is");
    }
}

/// Idle workers keep their last block. Here each of 300 workers does, and the receiver still finds a block for the next
/// packet.
#[test]
fn idle_workers_do_not_starve_the_receiver_of_memory() {
    let mut config = config("rps", "0-299");
    config.max_backlog = 1;
    config.batch = 1;
    let report = run_with(&config, "packets=3000,flows=3000,size=1514", |_| nothing);
    assert_conserved(&report);
    assert_eq!((report.delivered, report.reordered), (3000, 0));
}

#[test]
fn thread_can_receive_again_after_a_run() {
    let config = config("rps", "0-1");
    let before = rxsteer_user::sys::allowed_cpus();
    let (pipeline, mut receivers) = Pipeline::start(&config, |_| nothing).unwrap();
    let mut receiver = receivers.remove(0);
    let spec = "packets=10".parse().unwrap();
    let mut source = SyntheticSource::new(spec, 1, (0, 1));
    let pace = rxsteer_user::Pace::new(Speed::Max);
    receiver.run(&mut source, &pace, &AtomicBool::new(false));
    assert_eq!(rxsteer_user::sys::allowed_cpus(), before, "it was pinned for the run only");
    receiver.finish();
    let _ = pipeline.finish().unwrap();
}

#[test]
fn packets_of_a_removed_queue_are_dropped_and_counted() {
    let mut config = config("rps", "0-1");
    config.rx_queues = 2;
    let mut sources = synthetic(&config, "packets=10000,flows=100");
    let of_queue_1 = Arc::new(AtomicU64::new(0));
    let report = run(
        &config,
        &mut sources,
        Speed::Max,
        &AtomicBool::new(false),
        |_| {
            let of_queue_1 = of_queue_1.clone();
            move |list: &PacketList<'_>| {
                let count = list.iter().filter(|p| p.meta().rx_queue == 1).count();
                of_queue_1.fetch_add(count as u64, Ordering::Relaxed);
            }
        },
        |_, control| control.remove_rx_queue(1),
    )
    .unwrap();
    assert_conserved(&report);
    assert_eq!(of_queue_1.load(Ordering::Relaxed), 0, "removed before anything was received");
    let dropped = report.drops.get(DropReason::InterfaceRemoved);
    assert!(dropped > 1000 && report.delivered > 1000, "{dropped} dropped");
}

/// Where packets of each hash were sent, by CPU.
fn placed(config: &PipelineConfig, feed: impl FnOnce(&mut Receiver)) -> Placed {
    let (sender, seen) = mpsc::channel();
    let (pipeline, mut receivers) = Pipeline::start(config, |on| {
        let sender = sender.clone();
        move |list: &PacketList<'_>| {
            for packet in list.iter() {
                sender.send((on.get(), packet.hash().get())).unwrap();
            }
        }
    })
    .unwrap();
    drop(sender);
    let mut receiver = receivers.remove(0);
    feed(&mut receiver);
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_conserved(&report);
    drop(report);
    let mut placed = Placed::new();
    for place in seen {
        *placed.entry(place).or_default() += 1;
    }
    placed
}

type Placed = BTreeMap<(u16, u32), u32>;

#[test]
fn frames_one_by_one_and_polled_lists_are_steered_alike() {
    let config = config("rps", "0-3");
    let mut source = SyntheticSource::new("packets=3000,flows=300".parse().unwrap(), 1, (0, 1));
    let mut block = rxsteer_user::Block::new();
    source.fill(&mut block);
    let frames: Vec<(&[u8], FrameInfo)> =
        block.frames().iter().map(|f| (block.bytes_of(f), info(0))).collect();
    let one_by_one = placed(&config, |receiver| {
        for (frame, info) in &frames {
            receiver.netif_rx(frame, *info);
        }
    });
    let polled = placed(&config, |receiver| {
        for list in frames.chunks(64) {
            receiver.netif_receive(list.iter().copied());
        }
    });
    assert_eq!(one_by_one, polled);
    let cpus: std::collections::BTreeSet<u16> = polled.keys().map(|(cpu, _)| *cpu).collect();
    assert_eq!(cpus.len(), 4, "300 flows reach every CPU");
}

#[test]
fn nics_hash_is_used_and_no_header_read() {
    let config = config("rps", "0-3");
    let with_hash = |hash| info(0).with_nic_hash(hash);
    let placed = placed(&config, |receiver| {
        for hash in [1, 0x4000_0000, 0xffff_ffff, 0] {
            receiver.netif_rx(b"no header at all", with_hash(hash));
        }
    });
    let places: Vec<(u16, u32)> = placed.into_keys().collect();
    assert_eq!(places, [(0, 0), (0, 1), (1, 0x4000_0000), (3, 0xffff_ffff)]);
}

/// A frame whose packet carries that of `frame`, by IP in IP.
fn in_tunnel(frame: &[u8; 60]) -> [u8; 80] {
    let mut outer = [0; 80];
    outer[..34].copy_from_slice(&frame[..34]);
    outer[34..].copy_from_slice(&frame[14..]);
    (outer[17], outer[23]) = (66, 4);
    outer[26..34].copy_from_slice(&[172, 16, 0, 1, 172, 16, 0, 2]);
    outer
}

/// Notes the key of each packet, which must have the packet's hash.
struct Keys {
    hasher: Hasher,
    keys: Vec<FlowKey>,
}

impl Handler for Keys {
    fn handle(&mut self, list: &PacketList<'_>) {
        for packet in list.iter() {
            let key = packet.key();
            assert_eq!(self.hasher.hash(&key.unwrap_or_default()), packet.hash());
            assert_eq!(packet.flow().map(|of| of.flow.key()), key);
            self.keys.push(key.unwrap_or_default());
        }
    }
}

#[test]
fn key_of_a_packet_is_that_which_it_was_steered_by() {
    for inner in [false, true] {
        let mut config = config("rps", "0-1");
        config.dissect.inner = inner;
        let hasher = config.hasher.clone();
        let (pipeline, mut receivers) =
            Pipeline::start(&config, |_| Keys { hasher: hasher.clone(), keys: Vec::new() })
                .unwrap();
        let mut receiver = receivers.remove(0);
        receiver.netif_receive([(&udp(7)[..], info(0)), (&in_tunnel(&udp(7)), info(0))]);
        receiver.netif_rx(&[0; 60], info(0));
        receiver.finish();
        let report = pipeline.finish().unwrap();
        assert_eq!((report.delivered, report.reordered), (3, 0));
        let mut keys: Vec<String> =
            report.handlers.iter().flat_map(|(_, of)| &of.keys).map(ToString::to_string).collect();
        keys.sort();
        let plain = "10.0.0.1:7 -> 10.0.0.2:9 (protocol 17)";
        let tunnel = if inner { plain } else { "172.16.0.1:0 -> 172.16.0.2:0 (protocol 4)" };
        assert_eq!(keys, [plain, tunnel, "no flow"]);
    }
}

#[test]
fn hand_off_goes_to_its_binding_or_stays_local() {
    let mut config = config("rps", "2-3");
    config.rx_cpus = vec![cpu(3)];
    let placed = placed(&config, |receiver| {
        let frame = |hash| (&b"x"[..], info(0).with_nic_hash(hash));
        receiver.hand_off(cpu(2), [frame(1), frame(2)]);
        receiver.hand_off(cpu(3), [frame(3)]); // the own CPU
        receiver.hand_off(cpu(0), [frame(4)]); // a CPU without a worker
        receiver.hand_off(CpuId::NONE, [frame(5)]); // no CPU at all
        receiver.hand_off(cpu(2), []);
    });
    let places: Vec<(u16, u32)> = placed.into_keys().collect();
    assert_eq!(places, [(2, 1), (2, 2), (3, 3), (3, 4), (3, 5)]);
}

#[test]
fn rx_thread_without_a_queue_is_harmless() {
    let mut config = config("rps", "0-1");
    config.rx_cpus = vec![cpu(0), cpu(7)];
    let report = run_with(&config, "packets=1000", |_| nothing);
    assert_eq!((report.delivered, report.per_cpu.len()), (1000, 3));
}

#[test]
fn queue_can_have_its_own_cpu_map() {
    let mut config = config("rps", "0-1");
    config.rx_queues = 2;
    config.rps_maps = vec![(1.into(), "5".parse::<CpuSet>().unwrap())];
    let placed = placed(&config, |receiver| {
        for queue in [0, 1] {
            receiver.netif_rx(b"", info(queue).with_nic_hash(9));
        }
    });
    assert_eq!(placed.into_keys().collect::<Vec<_>>(), [(0, 9), (5, 9)]);
}

#[test]
fn with_toeplitz_each_direction_is_its_own_flow() {
    let mut config = config("rps", "0-3");
    config.hasher = Hasher::Toeplitz(Toeplitz::new(&Toeplitz::DEFAULT_KEY).unwrap());
    let report = run_with(&config, "packets=5000,flows=100", |_| nothing);
    assert_eq!((report.delivered, report.reordered), (5000, 0));
}

#[test]
fn frames_in_memory_are_received_as_often_as_asked() {
    for check_order in [false, true] {
        let mut config = config("rps", "0-1");
        config.check_order = check_order;
        let mut synthetic = SyntheticSource::new("packets=1500".parse().unwrap(), 1, (0, 1));
        let source = MemorySource::load(&mut synthetic, 100, 3);
        let mut sources: Vec<Box<dyn Source>> = vec![Box::new(source)];
        let report =
            run(&config, &mut sources, Speed::Max, &AtomicBool::new(false), |_| nothing, |_, _| {})
                .unwrap();
        assert_conserved(&report);
        assert_eq!((report.delivered, report.reordered), (4500, 0));
    }
}

#[test]
fn stop_ends_receiving_and_processes_what_was_received() {
    let config = config("rps", "0-1");
    let mut sources = synthetic(&config, "packets=1e12");
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let report = run(
        &config,
        &mut sources,
        Speed::Max,
        &stop,
        move |_| {
            let stop = seen.clone();
            move |_: &PacketList<'_>| stop.store(true, Ordering::Relaxed)
        },
        |_, _| {},
    )
    .unwrap();
    assert_conserved(&report);
    assert!(report.packets > 0 && report.packets == report.delivered);
}

#[test]
fn impossible_configurations_are_refused() {
    let start = |change: &dyn Fn(&mut PipelineConfig)| {
        let mut config = config("rps", "0");
        change(&mut config);
        Pipeline::start(&config, |_| nothing).err().map(|error| error.to_string())
    };
    assert!(start(&|_| {}).is_none());
    assert!(start(&|c| c.rx_cpus.clear()).unwrap().contains("0 RX threads"));
    let sources = run(
        &config("rps", "0"),
        &mut Vec::<Box<dyn Source>>::new(),
        Speed::Max,
        &AtomicBool::new(false),
        |_| nothing,
        |_, _| {},
    );
    assert!(sources.err().unwrap().to_string().contains("0 sources"));
    assert!(start(&|c| c.rx_queues = 0).unwrap().contains("0 RX queues"));
    assert!(start(&|c| c.max_backlog = 0).unwrap().contains("backlog limit of 0"));
    assert!(start(&|c| c.batch = 0).unwrap().contains("batch of 0"));
    assert!(start(&|c| c.batch = 257).unwrap().contains("batch of 257"));
    let bound = Policy::Bound(vec![(3.into(), cpu(0))]);
    assert!(start(&|c| c.policy = bound.clone()).unwrap().contains("RX queue 3"));
}
