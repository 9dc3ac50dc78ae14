use super::*;
use crate::testing::scenario;

fn key(port: u16) -> FlowKey {
    let mut key = FlowKey { src_port: port, dst_port: 443, ..FlowKey::default() };
    (key.protocol, key.ip_version) = (6, 4);
    key.src[..4].copy_from_slice(&[10, 0, 0, 1]);
    key.dst[..4].copy_from_slice(&[192, 0, 2, 7]);
    key
}

fn hash(value: u32) -> FlowHash {
    FlowHash::computed(value)
}

fn times(recorded: &Recorded) -> Vec<u64> {
    recorded.packets.iter().map(|packet| packet.at_ns).collect()
}

#[test]
fn both_directions_are_one_flow_and_packets_come_by_time() {
    let mut recording = Recording::new(10);
    let epoch = 1_700_000_000_000_000_001;
    assert!(recording.push(epoch + 50, key(1), hash(7), 60));
    assert!(recording.push(epoch, key(1).reversed(), hash(7), 1514));
    assert!(recording.push(epoch + 50, FlowKey::default(), FlowHash::NONE, 42));
    let (recorded, figures) = recording.finish(1.0).unwrap();
    assert_eq!(times(&recorded), [0, 50, 50]);
    assert_eq!(recorded.packets.iter().map(|p| p.flow).collect::<Vec<_>>(), [0, 0, 1]);
    assert_eq!(recorded.hashes, [7, 0]);
    let expected = RecordedFigures {
        packets: 3,
        flows: 2,
        bytes: 1616,
        recorded_ns: 50,
        simulated_ns: 50,
        late: 1,
        ..RecordedFigures::default()
    };
    assert_eq!(figures, expected);
}

#[test]
fn speed_scales_and_long_silences_are_cut_after_that() {
    let recording = || {
        let mut recording = Recording::new(10);
        for seconds in [0, 1, 11, 12] {
            recording.push(seconds * 1_000_000_000, key(1), hash(1), 60);
        }
        recording
    };
    let (recorded, figures) = recording().finish(1.0).unwrap();
    assert_eq!(times(&recorded), [0, 1_000_000_000, 3_000_000_000, 4_000_000_000]);
    assert_eq!((figures.silences, figures.recorded_ns), (1, 12_000_000_000));
    let (recorded, figures) = recording().finish(10.0).unwrap();
    assert_eq!(times(&recorded), [0, 100_000_000, 1_100_000_000, 1_200_000_000]);
    assert_eq!((figures.silences, figures.simulated_ns), (0, 1_200_000_000));
}

#[test]
fn limits_hold_and_nonsense_is_refused() {
    let mut recording = Recording::new(1);
    assert!(recording.push(u64::MAX, key(1), hash(1), u32::MAX));
    assert!(!recording.push(0, key(2), hash(2), 60), "as many as allowed");
    let (recorded, figures) = recording.finish(1.0).unwrap();
    assert_eq!((recorded.packets.len(), recorded.hashes.len()), (1, 1));
    assert_eq!((figures.more, figures.too_long, figures.bytes), (true, 1, LONGEST_FRAME.into()));

    assert_eq!(Recording::new(5).finish(1.0), Err(RecordedError::Empty));
    for speed in [0.0, -1.0, f64::INFINITY] {
        assert_eq!(Recording::new(5).finish(speed), Err(RecordedError::Speed(speed)));
    }
    let mut long = Recording::new(5000);
    for second in 0..3602 {
        long.push(second * 1_000_000_000, key(1), hash(1), 60);
    }
    let Err(RecordedError::TooLong(seconds)) = long.finish(1.0) else { panic!("it is too long") };
    assert!((seconds - 3601.0).abs() < 1e-6, "{seconds}");
}

fn span(port: u16, packets: u64, bytes: u64, first_ns: u64, last_ns: u64) -> FlowSpan {
    FlowSpan { key: key(port), hash: hash(port.into()), packets, bytes, first_ns, last_ns }
}

#[test]
fn records_become_their_packets_and_bytes_within_their_time() {
    let spans = [span(1, 5, 1003, 100, 500), span(2, 1, 60, 250, 250), span(3, 2, 120, 90, 900)];
    for how in [Spread::Even, Spread::Random(3)] {
        let mut recording = Recording::new(100);
        spread(spans.to_vec(), how, &mut recording);
        let (recorded, figures) = recording.finish(1.0).unwrap();
        assert_eq!(
            (figures.packets, figures.flows, figures.bytes, figures.late),
            (8, 3, 1183, 0),
            "{how:?}"
        );
        for (flow, of) in [(1, spans[0]), (2, spans[1]), (0, spans[2])] {
            let packets = recorded.packets.iter().filter(|packet| packet.flow == flow);
            let times: Vec<u64> = packets.clone().map(|packet| packet.at_ns + 90).collect();
            assert_eq!(times.len() as u64, of.packets, "{how:?}");
            assert_eq!((times[0], *times.last().unwrap()), (of.first_ns, of.last_ns), "{how:?}");
            assert_eq!(packets.map(|packet| u64::from(packet.bytes)).sum::<u64>(), of.bytes);
        }
        if how == Spread::Even {
            assert_eq!(times(&recorded), [0, 10, 110, 160, 210, 310, 410, 810]);
        }
    }
}

#[test]
fn drawn_moments_are_uniform_and_the_seed_decides() {
    let moments = |seed| {
        let mut recording = Recording::new(20_002);
        spread(
            vec![span(1, 20_002, 2_000_000, 0, 1_000_000_000)],
            Spread::Random(seed),
            &mut recording,
        );
        times(&recording.finish(1.0).unwrap().0)
    };
    let drawn = moments(1);
    assert_eq!(drawn, moments(1));
    assert_ne!(drawn, moments(2));
    // The Kolmogorov-Smirnov distance from the uniform distribution stays below 1.95 / sqrt(n) in 999 of 1000
    // cases.
    let n = drawn.len() as f64;
    let distance = |(index, at): (usize, &u64)| (*at as f64 / 1e9 - index as f64 / n).abs();
    let greatest = drawn.iter().enumerate().map(distance).fold(0.0, f64::max);
    assert!(greatest < 1.95 / n.sqrt(), "{greatest}");
}

#[test]
fn record_of_many_packets_gives_the_earliest_that_fit() {
    let spans = [span(1, u64::MAX, u64::MAX, 1000, u64::MAX), span(2, 3, 180, 0, 2)];
    for how in [Spread::Even, Spread::Random(9)] {
        let mut recording = Recording::new(5);
        spread(spans.to_vec(), how, &mut recording);
        let (recorded, figures) = recording.finish(1.0).unwrap();
        assert!(figures.more && figures.packets == 5, "{figures:?}");
        let times = times(&recorded);
        assert_eq!((times[0], times[2], times[3]), (0, 2, 1000), "{how:?}");
    }
}

#[test]
fn recording_takes_the_way_of_the_first_traffic_and_ends_the_run() {
    let mut recording = Recording::new(5);
    for at_ns in [3, 1003] {
        recording.push(at_ns, key(1), hash(1), 60);
    }
    let (recorded, _) = recording.finish(1.0).unwrap();
    let (replaced, left_out) = replace_traffic(&scenario(), recorded.clone(), "a.pcap").unwrap();
    assert_eq!(left_out, LeftOut { traffic: 1, events: 2 });
    assert_eq!((replaced.duration_ns, replaced.warm_up_ns), (1000 + AFTERWARDS_NS, 0));
    let [traffic] = &replaced.traffic[..] else { panic!("{:?}", replaced.traffic) };
    assert_eq!((traffic.name.as_str(), traffic.flows, traffic.out), ("a.pcap", 1, Some(0)));
    assert!(traffic.translated && traffic.start_ns == 0);
    assert!(matches!(&traffic.load, Load::Recorded(load) if load.application == 0.0));
    assert!(replaced.check().is_ok(), "{:?}", replaced.check());

    // If packets are addressed to this machine, the application reads the recorded ones too.
    let mut local = scenario();
    (local.traffic[0].out, local.traffic[0].translated) = (None, false);
    let (replaced, _) = replace_traffic(&local, recorded, "a.pcap").unwrap();
    assert!(matches!(&replaced.traffic[0].load, Load::Recorded(load) if load.application == 77.0));
    assert!(replaced.check().is_ok(), "{:?}", replaced.check());

    let without = Scenario { traffic: Vec::new(), ..scenario() };
    let refused = replace_traffic(&without, Recorded::default(), "a.pcap");
    assert_eq!(refused, Err(RecordedError::NoWay));
}

#[test]
fn packets_of_one_flow_too_many_are_counted_and_left_out() {
    let mut recording = Recording::new(MAX_PACKETS);
    for flow in 0..MAX_FLOWS as u32 + 2 {
        let mut key = key(1);
        key.src[..4].copy_from_slice(&flow.to_be_bytes());
        assert!(recording.push(flow.into(), key, hash(1), 60));
        assert!(recording.push(flow.into(), key, hash(1), 60));
    }
    let (recorded, figures) = recording.finish(1.0).unwrap();
    assert_eq!(recorded.hashes.len() as u64, MAX_FLOWS);
    assert_eq!((figures.of_more_flows, figures.packets), (4, 2 * MAX_FLOWS));
}

#[test]
fn order_of_records_does_not_matter() {
    let spans = [span(1, 5, 1003, 100, 500), span(2, 1, 60, 100, 500), span(3, 20, 1200, 90, 900)];
    let sent = |spans: Vec<FlowSpan>| {
        let mut recording = Recording::new(100);
        spread(spans, Spread::Random(1), &mut recording);
        recording.finish(1.0).unwrap()
    };
    let [a, b, c] = spans;
    assert_eq!(sent(vec![a, b, c]), sent(vec![c, b, a]));
}

#[test]
fn each_seed_has_other_hashes_that_spread_evenly() {
    let recorded = Recorded { hashes: (0..1000).chain([5]).collect(), ..Recorded::default() };
    let (scenario, _) = replace_traffic(&scenario(), recorded, "a.pcap").unwrap();
    let hashes = |seed| {
        let mut scenario = scenario.clone();
        rehash(&mut scenario, seed);
        let Load::Recorded(recorded) = &scenario.traffic[0].load else { panic!("a recording") };
        recorded.hashes.clone()
    };
    let (one, other) = (hashes(1), hashes(2));
    assert_eq!(one, hashes(1));
    assert_eq!((one[0], other[0]), (0, 0), "none stays none");
    assert_eq!(one[5], one[1000], "the same stay the same");
    assert!(one.iter().zip(&other).skip(1).all(|(a, b)| a != b && *a != 0));
    // The 999 hashes spread over 4 CPUs as chance allows: 250 each, within 4 standard deviations.
    for hashes in [one, other] {
        let mut cpus = [0_u32; 4];
        hashes[1..1000].iter().for_each(|hash| cpus[(*hash >> 30) as usize] += 1);
        assert!(cpus.iter().all(|count| (195..=305).contains(count)), "{cpus:?}");
    }
}
