//! How receiving ends: receivers that are dropped, kept, stopped or that panic leave no packet uncounted.

use rxsteer_user::block::Block;
use rxsteer_user::core::{CpuId, DropReason};
use rxsteer_user::packet::LinkType;
use rxsteer_user::source::{Fill, Source};
use rxsteer_user::{
    Count, FrameInfo, OnFull, Pace, PacketList, Pipeline, PipelineConfig, Receiver, Report, Speed,
    run,
};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

const FRAME: [u8; 60] = [0; 60];

fn config(cpus: &str) -> PipelineConfig {
    let mut config = PipelineConfig::new("none".parse().unwrap(), cpus.parse().unwrap());
    config.pin = false;
    config
}

fn info(rx_queue: u16) -> FrameInfo {
    FrameInfo::new(LinkType::Ethernet, 0, 60).on_rx_queue(rx_queue)
}

fn nothing(_: &PacketList<'_>) {}

fn started(config: &PipelineConfig) -> (Pipeline<impl rxsteer_user::Handler>, Receiver) {
    let (pipeline, mut receivers) = Pipeline::start(config, |_| nothing).unwrap();
    (pipeline, receivers.remove(0))
}

fn assert_conserved<H>(report: &Report<H>) {
    assert_eq!(report.packets, report.delivered + report.drops.total());
}

#[test]
fn dropped_receiver_steers_and_counts_its_open_batch() {
    let (pipeline, mut receiver) = started(&config("0-1"));
    for _ in 0..5 {
        receiver.netif_rx(&FRAME, info(0));
    }
    drop(receiver);
    let report = pipeline.finish().unwrap();
    assert_eq!((report.packets, report.delivered), (5, 5));
}

#[test]
fn pipeline_is_not_finished_while_a_receiver_is_left() {
    let (pipeline, mut receiver) = started(&config("0"));
    receiver.netif_rx(&FRAME, info(0));
    let Err(early) = pipeline.finish() else { panic!("a receiver is left") };
    assert_eq!(early.receivers, 1);
    assert!(early.to_string().contains("finish or drop them first"), "{early}");
    receiver.finish();
    let report = early.pipeline.finish().unwrap();
    assert_eq!((report.packets, report.delivered), (1, 1));
}

#[test]
fn receiver_that_panics_counts_what_it_held() {
    let (pipeline, mut receiver) = started(&config("0"));
    let thread = std::thread::spawn(move || {
        receiver.netif_rx(&FRAME, info(0));
        receiver.flush();
        receiver.netif_rx(&FRAME, info(0));
        panic!("meant to happen");
    });
    assert!(thread.join().is_err());
    let report = pipeline.finish().unwrap();
    assert_conserved(&report);
    assert_eq!((report.packets, report.drops.get(DropReason::WorkerLost)), (2, 1));
}

#[test]
fn packets_of_an_unknown_rx_queue_are_counted() {
    let mut config = config("0-1");
    config.rx_queues = 2;
    let (pipeline, mut receiver) = started(&config);
    for queue in [0, 1, 2, 65_535] {
        receiver.netif_rx(&FRAME, info(queue));
    }
    receiver.finish();
    let report = pipeline.finish().unwrap();
    assert_conserved(&report);
    assert_eq!((report.packets, report.unknown_rx_queue), (4, 2));
}

/// An endless number of frames.
struct Endless;

impl Source for Endless {
    fn fill(&mut self, block: &mut Block) -> Fill {
        while block.push(&FRAME, info(0)) {}
        Fill::More
    }
}

/// Without a check of `stop` the receiver would wait for room forever: the worker's handler never returns by
/// itself.
#[test]
fn stop_ends_a_wait_for_room() {
    let mut config = config("0");
    config.on_full = OnFull::Wait;
    config.max_backlog = 4;
    let (release, gate) = mpsc::channel::<()>();
    let mut gate = Some(gate);
    let (pipeline, mut receivers) = Pipeline::start(&config, |_: CpuId| {
        let gate = gate.take().unwrap();
        move |_: &PacketList<'_>| while gate.recv().is_ok() {}
    })
    .unwrap();
    let mut receiver = receivers.remove(0);
    receiver.run(&mut Endless, &Pace::new(Speed::Max), &AtomicBool::new(true));
    assert_eq!(
        receiver.backlog_reports()[0].queued,
        0,
        "a stop that was set before receives nothing"
    );
    let stop = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn({
        let stop = stop.clone();
        move || receiver.run(&mut Endless, &Pace::new(Speed::Max), &stop)
    });
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("it stops, and drops the receiver");
    drop(release);
    let report = pipeline.finish().unwrap();
    assert_conserved(&report);
    assert!(report.delivered <= 4, "{} delivered", report.delivered);
    assert!(
        report.packets <= config.batch as u64,
        "frames behind the batch in hand are not received"
    );
}

/// Has no frame for the first 200 calls, then one frame, then ends.
struct Quiet(Arc<AtomicU32>);

impl Source for Quiet {
    fn fill(&mut self, block: &mut Block) -> Fill {
        if self.0.fetch_add(1, Ordering::Relaxed) < 200 {
            return Fill::More;
        }
        assert!(block.push(&FRAME, info(0)));
        Fill::End
    }
}

#[test]
fn source_without_frames_is_asked_again() {
    for speed in [Speed::Max, Speed::Times(1e9)] {
        let asked = Arc::new(AtomicU32::new(0));
        let mut sources: [Box<dyn Source>; 1] = [Box::new(Quiet(asked.clone()))];
        let stop = AtomicBool::new(false);
        let report = run(&config("0"), &mut sources, speed, &stop, |_| nothing, |_, _| {}).unwrap();
        assert_eq!((report.packets, report.delivered), (1, 1));
        assert_eq!(asked.load(Ordering::Relaxed), 201);
    }
}

/// Delivers full blocks of frames; before each block, records how many frames of the blocks before were processed.
struct InStep {
    processed: Arc<AtomicU32>,
    given: u32,
    seen: Vec<(u32, u32)>,
}

impl Source for InStep {
    fn fill(&mut self, block: &mut Block) -> Fill {
        self.seen.push((self.given, self.processed.load(Ordering::Relaxed)));
        for _ in 0..200 {
            assert!(block.push(&FRAME, info(0)));
            self.given += 1;
        }
        if self.given < 2000 { Fill::More } else { Fill::End }
    }
}

#[test]
fn drained_run_receives_when_all_before_is_processed() {
    let processed = Arc::new(AtomicU32::new(0));
    let mut sources = [InStep { processed: processed.clone(), given: 0, seen: Vec::new() }];
    let handler = |_| {
        let processed = processed.clone();
        move |list: &PacketList<'_>| {
            std::thread::sleep(std::time::Duration::from_micros(300));
            processed.fetch_add(list.len() as u32, Ordering::Relaxed);
        }
    };
    let stop = AtomicBool::new(false);
    let report =
        run(&config("0-1"), &mut sources, Speed::Drained, &stop, handler, |_, _| {}).unwrap();
    assert_eq!((report.packets, report.delivered), (2000, 2000));
    let seen = &sources[0].seen;
    assert!(seen.len() == 10 && seen.iter().all(|(given, done)| given == done), "{seen:?}");
}

/// Two frames whose times are an hour apart, delivered at once.
struct HourApart(bool);

impl Source for HourApart {
    fn fill(&mut self, block: &mut Block) -> Fill {
        for timestamp_ns in [0, 3_600_000_000_000] {
            assert!(block.push(&FRAME, info(0).at(timestamp_ns)));
        }
        self.0 = true;
        Fill::End
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some((if self.0 { 10 } else { 0 }, 10))
    }
}

#[test]
fn progress_of_a_paced_run_counts_what_was_due() {
    let (pipeline, mut receiver) = started(&config("0"));
    let progress = receiver.progress();
    let stop = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn({
        let stop = stop.clone();
        move || receiver.run(&mut HourApart(false), &Pace::new(Speed::Times(1.0)), &stop)
    });
    let begun = std::time::Instant::now();
    while progress.total.get() == 0 {
        assert!(begun.elapsed().as_secs() < 60, "the first frame is due at once");
        std::thread::yield_now();
    }
    let figures = [&progress.packets, &progress.done, &progress.total];
    assert_eq!(figures.map(Count::get), [1, 5, 10]);
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("it stops");
    assert_eq!(pipeline.finish().unwrap().packets, 1);
}
