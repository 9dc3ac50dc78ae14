//! Workers that die or are stopped: another one takes over their packets, and what is lost is counted.

use crate::common::*;
use rxsteer_user::core::{CpuId, DropReason};
use rxsteer_user::{Handler, OnFull, PacketList, Pipeline, PipelineError, Speed, run};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

#[test]
fn worker_that_dies_is_taken_over_from() {
    let mut config = config("rps", "0-2");
    config.max_backlog = 64;
    let report = run_with(&config, "packets=20000,flows=200", |on| {
        let mut left = 500usize;
        move |list: &PacketList<'_>| {
            left = left.saturating_sub(list.len());
            assert!(on != cpu(1) || left > 0, "meant to happen");
        }
    });
    assert_conserved(&report);
    assert_eq!(report.packets, 20_000);
    let lost = report.drops.get(DropReason::WorkerLost);
    assert!((1..=64).contains(&lost), "only the list in hand is lost, not {lost}");
    assert_eq!(report.reordered, 0);
    let failures: Vec<CpuId> =
        report.per_cpu.iter().filter(|c| c.failure.is_some()).map(|c| c.cpu).collect();
    assert_eq!(failures, [cpu(1)]);
    assert_eq!(report.handlers.len(), 2, "the handler that panicked is gone");
}

#[test]
fn stopped_worker_loses_nothing() {
    let config = config("rps", "0-1");
    let mut sources = synthetic(&config, "packets=50000,flows=100");
    let report = run(
        &config,
        &mut sources,
        Speed::Max,
        &AtomicBool::new(false),
        |_| nothing,
        |_, control| {
            assert!(control.stop_worker(cpu(1)));
            assert!(!control.stop_worker(cpu(5)));
        },
    )
    .unwrap();
    assert_conserved(&report);
    assert_eq!((report.delivered, report.reordered), (50_000, 0));
}

/// The worker of CPU 1 is stopped while its backlog is full and its handler is blocked. Then another worker processes
/// all of that backlog.
#[test]
fn full_backlog_of_a_stopped_worker_is_taken_over() {
    let mut config = config("none", "0-1");
    config.max_backlog = 100;
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let (pipeline, mut receivers) = Pipeline::start(&config, |on| {
        let gate = gate.clone();
        move |_: &PacketList<'_>| {
            if on == cpu(1) {
                let _ = gate.lock().unwrap().recv();
            }
        }
    })
    .unwrap();
    let mut receiver = receivers.remove(0);
    receiver.hand_off(cpu(1), [(&[0u8; 60][..], info(0)); 100]);
    assert!(pipeline.control().stop_worker(cpu(1)));
    drop(release);
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_conserved(&report);
    assert_eq!((report.delivered, report.reordered), (100, 0));
    let processed: Vec<u64> = report.per_cpu.iter().map(|cpu| cpu.packets).collect();
    assert_eq!(processed[0] + processed[1], 100);
    assert_eq!(report.per_cpu[1].failure.as_deref(), Some("it was stopped"));
}

#[test]
fn with_no_worker_left_packets_are_counted_and_nothing_hangs() {
    for on_full in [OnFull::Wait, OnFull::Drop] {
        let mut config = config("rps", "0-1");
        config.on_full = on_full;
        let report = run_with(&config, "packets=20000,flows=100", |_| {
            |_: &PacketList<'_>| panic!("meant to happen")
        });
        assert_conserved(&report);
        assert_eq!(report.delivered, 0);
        assert!(report.drops.get(DropReason::WorkerLost) > 0);
        assert!(report.handlers.is_empty());
        let by_cpu: u64 = report.per_cpu.iter().map(|cpu| cpu.drops.total()).sum();
        let elsewhere = report.drops.get(DropReason::NoBuffer);
        assert_eq!(by_cpu + elsewhere, 20_000, "each CPU has its own losses");
    }
}

/// How many packets each CPU gets depends on the other work of the machine; `rebalance.rs` tests that.
#[test]
fn measured_load_moves_buckets_and_keeps_the_order() {
    let mut config = config("rps+balance:interval=10ms", "0-1");
    config.measure_load = true;
    let handler = |on| {
        move |list: &PacketList<'_>| {
            let end = Instant::now() + Duration::from_micros(30) * list.len() as u32;
            while on == cpu(1) && Instant::now() < end {}
        }
    };
    let report = run_with(&config, "packets=12000,flows=2000,rate=20000", handler);
    assert_conserved(&report);
    assert_eq!((report.delivered, report.reordered), (12_000, 0));
    assert!(report.moves_by_load.intervals > 0);
}

/// Counts its ticks, and panics at the `fatal`-th.
struct Ticking {
    on: CpuId,
    ticks: Arc<[AtomicU32; 2]>,
    fatal: u32,
}

impl Handler for Ticking {
    fn handle(&mut self, list: &PacketList<'_>) {
        assert_eq!(list.cpu(), self.on);
    }

    fn tick(&mut self, cpu: CpuId) {
        assert_eq!(cpu, self.on);
        let ticks = self.ticks[cpu.index()].fetch_add(1, Ordering::Relaxed) + 1;
        assert!(ticks < self.fatal, "meant to happen");
    }
}

#[test]
fn handlers_are_called_without_packets_where_ticks_are_asked_for() {
    let mut config = config("none", "0-1");
    config.tick = Some(Duration::from_millis(1));
    let ticks: Arc<[AtomicU32; 2]> = Arc::default();
    // The worker of CPU 1 never has a packet.
    let (pipeline, mut receivers) = Pipeline::start(&config, |on| {
        let fatal = if on == cpu(1) { 5 } else { u32::MAX };
        Ticking { on, ticks: ticks.clone(), fatal }
    })
    .unwrap();
    let mut receiver = receivers.remove(0);
    let started = Instant::now();
    while ticks.iter().any(|ticks| ticks.load(Ordering::Relaxed) < 5) {
        receiver.hand_off(cpu(0), [(&[0u8; 60][..], info(0)); 10]);
        std::thread::sleep(Duration::from_millis(1));
        assert!(started.elapsed() < Duration::from_secs(60), "{ticks:?}");
    }
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_conserved(&report);
    assert_eq!(report.delivered, report.packets);
    assert_eq!(report.per_cpu[0].failure, None);
    let failure = report.per_cpu[1].failure.as_deref();
    assert_eq!(failure, Some("its handler panicked: meant to happen"));
    assert_eq!(ticks[1].load(Ordering::Relaxed), 5, "none after the panic");

    config.tick = Some(Duration::from_micros(999));
    assert!(matches!(config.check(), Err(PipelineError::Tick(_))));
}
