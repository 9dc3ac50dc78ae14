use super::*;
use rxsteer_user::core::Policy;
use rxsteer_user::packet::{DissectOptions, LinkType, TunnelKinds};
use rxsteer_user::{FrameInfo, OnFull, PacketList, Pipeline, PipelineConfig};
use std::sync::Barrier;

const INNER: DissectOptions = DissectOptions { inner: true, key_tunnels: TunnelKinds::NONE };

/// A UDP frame; each number is a different flow.
fn frame(number: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, number, 10, 9, 9, 9, 0, number, 0, 53, 0, 30, 0, 0]);
    frame.resize(64, 0);
    frame
}

fn sum(reading: &Reading) -> u64 {
    let totals = reading.totals();
    assert_eq!(totals.rx.get(LiveCounter::Passed), 0);
    totals.delivered + totals.drops.total() + totals.waiting
}

#[test]
fn packets_add_up_while_they_wait_and_afterwards() {
    let mut config = PipelineConfig::new(Policy::Rps, "0-1".parse().unwrap());
    (config.check_order, config.pin) = (true, false);
    (config.on_full, config.max_backlog) = (OnFull::Drop, 16);
    let gate = Arc::new(Barrier::new(3));
    let handler = |_| {
        let (gate, mut first) = (gate.clone(), true);
        move |_: &PacketList<'_>| {
            if std::mem::take(&mut first) {
                gate.wait();
            }
        }
    };
    let (pipeline, mut receivers) = Pipeline::start(&config, handler).unwrap();
    let watched = Watched::new(&receivers, pipeline.control());
    let info = FrameInfo::new(LinkType::Ethernet, 0, 64);
    let frames: Vec<Vec<u8>> = (0..=255).map(frame).chain([vec![0xff; 60]]).collect();
    receivers[0].netif_receive(frames.iter().map(|frame| (&frame[..], info)));
    let reading = watched.read();
    let (totals, cpus) = (reading.totals(), reading.cpus());
    let received = totals.rx.get(LiveCounter::Received);
    assert_eq!((received, totals.delivered), (257, 0), "all handlers are held up");
    assert_eq!((totals.waiting, totals.drops.ring_full), (32, 225));
    assert_eq!(cpus.iter().map(|cpu| cpu.counts.waiting).collect::<Vec<_>>(), [16, 16]);
    assert_eq!(sum(&reading), received);
    gate.wait();
    receivers.clear();
    let report = pipeline.finish().unwrap();
    let reading = watched.read();
    let (totals, cpus) = (reading.totals(), reading.cpus());
    assert_eq!((sum(&reading), totals.waiting), (257, 0));
    assert_eq!((totals.delivered, totals.drops.total()), (report.delivered, report.drops.total()));
    let rx = |counter| totals.rx.get(counter);
    assert_eq!((rx(LiveCounter::Hashed), rx(LiveCounter::Local)), (256, 1));
    assert_eq!((rx(LiveCounter::NotIp), rx(LiveCounter::Bytes)), (1, 257 * 64));
    for (cpu, of) in cpus.iter().zip(&report.per_cpu) {
        assert_eq!((cpu.cpu, cpu.counts.delivered), (of.cpu.get(), of.packets));
        let delay = cpu.delay.as_ref().unwrap();
        assert_eq!(delay.count(), of.packets);
        let (coarse, fine) = (delay.quantile(0.5).unwrap(), of.delay_ns.value_at_quantile(0.5));
        assert!(coarse >= fine && coarse <= fine + fine / 3 + 1, "{coarse} and {fine} ns");
    }
    assert_eq!(reading.received(0..1).0, totals.rx);
    assert_eq!(
        (reading.reordered(), reading.is_changing(), reading.input_share()),
        (0, false, None)
    );
}

#[test]
fn never_more_is_done_than_was_received() {
    let mut config = PipelineConfig::new("rfs+sparse".parse().unwrap(), "0-1".parse().unwrap());
    config.pin = false;
    let (pipeline, mut receivers) = Pipeline::start(&config, |_| |_: &PacketList<'_>| {}).unwrap();
    let watched = Watched::new(&receivers, pipeline.control());
    let info = FrameInfo::new(LinkType::Ethernet, 0, 64);
    let frames: Vec<Vec<u8>> = (0..=255).map(frame).collect();
    std::thread::scope(|threads| {
        let mut receiver = receivers.remove(0);
        let rounds = threads.spawn(move || {
            for _ in 0..400 {
                receiver.netif_receive(frames.iter().map(|frame| (&frame[..], info)));
            }
        });
        let mut before = 0;
        while !rounds.is_finished() {
            let reading = watched.read();
            let received = reading.totals().rx.get(LiveCounter::Received);
            assert_eq!(sum(&reading), received);
            assert!(received >= before, "{received} after {before}");
            before = received;
        }
    });
    let report = pipeline.finish().unwrap();
    assert_eq!((report.packets, sum(&watched.read())), (102_400, 102_400));
}

#[test]
fn settings_are_those_that_hold_now() {
    let config = PipelineConfig::new(Policy::Rps, "0-1".parse().unwrap());
    let (pipeline, mut receivers) = Pipeline::start(&config, |_| |_: &PacketList<'_>| {}).unwrap();
    let watched = Watched::new(&receivers, pipeline.control());
    let settings = watched.settings("packet", INNER, false);
    assert_eq!(
        (&settings.policy[..], &settings.mode[..], watched.is_guarded()),
        ("rps", "packet", false)
    );
    let change =
        rxsteer_user::SteerChange { policy: Some("sparse".parse().unwrap()), ..Default::default() };
    pipeline.control().change(&change).unwrap();
    assert_eq!(
        (&watched.settings("packet", INNER, false).policy[..], watched.is_guarded()),
        ("sparse", true)
    );
    let holds = || {
        let reading = watched.read();
        (reading.holds(), reading.is_changing())
    };
    assert_eq!(holds(), (false, true), "no RX thread has taken it");
    let info = FrameInfo::new(LinkType::Ethernet, 0, 64);
    receivers[0].netif_receive([(&frame(1)[..], info)]);
    assert!(holds().0, "a batch takes it");
    drop(receivers);
    assert_eq!(holds(), (true, false), "a receiver that has ended sends nothing elsewhere");
    pipeline.control().change(&Default::default()).unwrap();
    assert_eq!(holds(), (true, false));
    pipeline.finish().unwrap();
}
