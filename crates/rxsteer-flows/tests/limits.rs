//! Behaviour at the limits: no room, no blocks, no thread that collects records, a callback that panics.

use rxsteer_core::{CpuId, FlowKey};
use rxsteer_flows::{FlowEnd, FlowPacket, FlowTable, FlowTableConfig, FlowWriter, WhenFull};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn packet(flow: u32, time_ns: u64) -> FlowPacket {
    let mut key = FlowKey { ip_version: 4, ..FlowKey::default() };
    key.src[..4].copy_from_slice(&flow.to_be_bytes());
    FlowPacket { flow: key.into(), time_ns, bytes: 100, ..FlowPacket::default() }
}

fn table(config: &FlowTableConfig) -> (Arc<FlowTable>, FlowWriter) {
    let table = FlowTable::new(config).unwrap();
    let writer = table.writer(CpuId::new(0).unwrap()).unwrap();
    (table, writer)
}

/// Ends flows until no slot is free, with no thread to collect them. Returns the first unused flow number.
fn use_up(writer: &mut FlowWriter) -> u32 {
    (0..).find(|flow| writer.update(&[packet(*flow, 0)]) == 0).unwrap()
}

#[test]
fn without_room_known_flows_are_counted_and_new_ones_refused() {
    let (table, mut writer) = table(&FlowTableConfig::new(10));
    let next = use_up(&mut writer);
    let known = next - 1;
    let packets = (0..200).map(|at| packet(if at % 4 == 0 { known } else { next + at }, 1));
    assert_eq!(writer.update_all(packets, WhenFull::Refuse), 150);
    let counts = table.counts();
    assert_eq!((counts.refused, counts.live), (150, 10));
    assert_eq!(table.get(&packet(known, 0).flow.key()).unwrap().totals.packets, 51);
    // Collected flows make room again.
    table.collect(|_| {});
    assert_eq!(writer.update_all([packet(next, 2)], WhenFull::Refuse), 0);
}

#[test]
fn writer_that_waits_goes_on_after_collect() {
    let (table, mut writer) = table(&FlowTableConfig::new(10));
    let next = use_up(&mut writer);
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || {
            writer.update_all((0..5000).map(|flow| packet(next + flow, 1)), WhenFull::Wait)
        });
        while !waits.is_finished() {
            table.collect(|_| {});
            std::thread::yield_now();
        }
        assert_eq!(waits.join().unwrap(), 0);
    });
    assert_eq!(table.counts().created, u64::from(next) + 5000);
}

/// All flows of a table have become established since they were created, and none was examined yet.
#[test]
fn new_flow_is_taken_whoever_is_established() {
    let (table, mut writer) = table(&FlowTableConfig::new(2000));
    for flow in 0..2000 {
        assert_eq!(writer.update(&[packet(flow, flow.into()); 5]), 5);
    }
    for flow in 2000..4000 {
        assert_eq!(writer.update(&[packet(flow, flow.into())]), 1);
        table.collect(|_| {});
    }
    // The new flows have one packet each: all but the first few evicted each other.
    let counts = table.counts();
    assert_eq!((counts.refused, counts.evicted), (0, 2000));
    let left = (0..2000).filter(|flow| table.get(&packet(*flow, 0).flow.key()).is_some()).count();
    assert!(left > 1900, "{left} of 2000 established flows are left");
}

/// Established flows have few packets between two clears, among many flows of one packet.
#[test]
fn clears_make_no_established_flow_young() {
    let (table, mut writer) = table(&FlowTableConfig::new(1000));
    let mut flood = 1000;
    for round in 0..50 {
        // Enough packets to be established, then fewer than that between clears.
        let packets = if round == 0 { 5 } else { 3 };
        for flow in 0..100 {
            assert_eq!(writer.update(&vec![packet(flow, 0); packets]), packets);
        }
        table.clear_all();
        // The flood comes when each flow has fewer packets since its last clear than an established flow needs.
        let lists = if round == 0 { 0 } else { 20 };
        for _ in 0..lists {
            let attack = (flood..flood + 50).map(|flow| packet(flow, 0));
            assert_eq!(writer.update_all(attack, WhenFull::Refuse), 0);
            flood += 50;
            table.collect(|record| {
                assert!(u32::from_be_bytes(record.key.src[..4].try_into().unwrap()) >= 1000);
            });
        }
    }
    assert!(table.counts().evicted > 40_000);
}

#[test]
fn flow_that_was_idle_ends_for_that_whoever_finds_it() {
    let mut config = FlowTableConfig::new(2);
    config.idle_timeout_ns = Some(100);
    let (table, mut writer) = table(&config);
    let mut ends = Vec::new();
    // Flow 1 makes room for flow 3 and is idle. Flow 3 makes room for flow 4 and is not idle. Flow 2 is idle at
    // the end, at the time of flow 4's packet.
    for (flow, time) in [(1, 0), (3, 150), (4, 160)] {
        assert_eq!(writer.update(&[packet(flow, time)]), 1);
        if flow == 1 {
            assert_eq!(writer.update(&[packet(2, 20)]), 1);
            assert_eq!(writer.update(&[packet(2, 20); 9]), 9);
        }
        table.collect(|record| ends.push((record.key.src[3], record.end.unwrap())));
    }
    table.finish();
    table.collect(|record| ends.push((record.key.src[3], record.end.unwrap())));
    let expected =
        [(1, FlowEnd::Idle), (3, FlowEnd::Evicted), (2, FlowEnd::Idle), (4, FlowEnd::Finished)];
    assert_eq!(ends, expected);
    let counts = table.counts();
    assert_eq!((counts.expired, counts.evicted, counts.live), (2, 1, 0));
}

#[test]
fn callback_that_panics_costs_no_slot() {
    let (table, mut writer) = table(&FlowTableConfig::new(1));
    let mut collected = 0;
    for _ in 0..3 {
        use_up(&mut writer);
        let before = table.counts();
        let mut seen = 0;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            table.collect(|_| {
                seen += 1;
                assert!(seen < 1000, "on purpose");
            });
        }));
        assert!(panicked.is_err());
        table.collect(|_| seen += 1);
        assert_eq!(seen, before.created - before.live - collected, "each record once");
        assert_eq!(writer.update(&[packet(u32::MAX, 0)]), 1, "there is room");
        table.finish();
        collected += seen;
        table.collect(|_| collected += 1);
    }
}
