//! Every interleaving (up to the preemption bound) of those who share a flow's statistics and a
//! small flow table. `cargo xtask loom` runs it; LOOM_MAX_PREEMPTIONS bounds it.
//!
//! Each packet's bytes are a power of 16, so a sum of bytes says which packets it is of.
//!
//! What was taken out to see whether a model fails, and which one does:
//!
//! | taken out | fails |
//! |---|---|
//! | a fence, the odd number, an Acquire or the Release of the seqlock | `totals_do_not_tear_…`, `a_reader_sees_all_…` |
//! | Acquire of the shared block's lock | `nothing_is_lost_in_the_shared_block` |
//! | the stamp looked at under that lock | `a_clear_keeps_…` |
//! | the second look at the stamp after a read | `reader_sees_all_of_a_clear_or_nothing` |
//! | a compare-exchange of `publish` (a store instead) | `two_cpus_get_…`, `…begin…`, `…join…`, one each |
//! | Release of a new line of the list | `a_line_of_the_list_is_filled_in_…` |
//! | starting a block before it is listed | `a_block_in_the_head_…`, `a_block_in_the_list_…` |
//! | either fence of the grace period, or the wait | `flow_waits_for_those_who_count_in_it` |
//! | the reader's part in it | `flow_waits_for_those_who_read_it` |
//! | the second look under the index's lock | `new_flow_is_made_once` |
//!
//! None fails without the Release of `leave`, of an entry or of the index, or without the Acquires that
//! pair with them: the release fence of the block counted in just before stands in for each.
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use rxsteer_core::{CpuId, FlowKey};
use rxsteer_flows::{
    FlowPacket, FlowRecord, FlowSlots, FlowTable, FlowTableConfig, FlowTotals, FlowWriter,
    SlotWriter,
};

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).unwrap()
}

/// The packet `number` of all: of one byte, of 16, of 256 …
fn packet(number: u32) -> FlowPacket {
    let key = FlowKey { ip_version: 4, ..FlowKey::default() };
    FlowPacket {
        flow: key.into(),
        time_ns: 100 + u64::from(number),
        bytes: 1 << (4 * number),
        tcp_flags: 1 << number,
    }
}

/// The totals of these packets.
fn totals(numbers: &[u32]) -> FlowTotals {
    let mut totals = FlowTotals::default();
    for number in numbers.iter().copied() {
        let packet = packet(number);
        totals.first_ns =
            if totals.packets == 0 { packet.time_ns } else { totals.first_ns.min(packet.time_ns) };
        totals.last_ns = totals.last_ns.max(packet.time_ns);
        totals.packets += 1;
        totals.bytes += u64::from(packet.bytes);
        totals.tcp_flags |= packet.tcp_flags;
    }
    totals
}

/// The packets whose bytes these are, each once.
fn packets_of(bytes: u64) -> Vec<u32> {
    (0..8).filter(|number| bytes >> (4 * number) & 0xf == 1).collect()
}

/// That the totals are those of some packets, all of it; which.
fn whole(got: &FlowTotals) -> Vec<u32> {
    let numbers = packets_of(got.bytes);
    assert_eq!(*got, totals(&numbers), "torn");
    numbers
}

/// One flow in slot 0, of CPU 0 with packet 0.
fn slots(blocks: u32) -> (Arc<FlowSlots>, SlotWriter) {
    let slots = Arc::new(FlowSlots::new(1, blocks).unwrap());
    let writer = SlotWriter::new(cpu(0));
    slots.claim(0, &writer, &packet(0));
    (slots, writer)
}

/// A thread of a CPU that counts these packets.
fn counts(
    slots: &Arc<FlowSlots>,
    id: u16,
    numbers: &'static [u32],
) -> thread::JoinHandle<SlotWriter> {
    let (slots, mut writer) = (slots.clone(), SlotWriter::new(cpu(id)));
    thread::spawn(move || {
        numbers.iter().for_each(|number| slots.update(0, &mut writer, &packet(*number)));
        writer
    })
}

/// Two CPUs get blocks in one flow at once: both are listed, once, and what a reader finds listed was
/// started before.
#[test]
fn two_cpus_get_blocks_at_once() {
    loom::model(|| {
        let (slots, mut first) = slots(4);
        let others = [counts(&slots, 3, &[1]), counts(&slots, 4095, &[2])];
        let seen = whole(&slots.read(0));
        assert!(seen.contains(&0), "{seen:?}");
        for other in others {
            let mut writer = other.join().unwrap();
            writer.release(&slots);
        }
        assert_eq!(slots.read(0), totals(&[0, 1, 2]));
        // Two blocks and a line of the list; each is free once again.
        slots.free(0, &mut first);
        slots.claim(0, &first, &packet(5));
        assert_eq!(slots.read(0), totals(&[5]), "nothing is left of the flow before");
    });
}

/// The same where the list gets its first line.
#[test]
fn two_cpus_begin_the_list_at_once() {
    loom::model(|| {
        let (slots, _first) = slots(6);
        let mut second = SlotWriter::new(cpu(1));
        slots.update(0, &mut second, &packet(1));
        let others = [counts(&slots, 3, &[2, 4]), counts(&slots, 4095, &[3])];
        let seen = whole(&slots.read(0));
        assert!(seen.starts_with(&[0, 1]), "{seen:?}");
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(slots.read(0), totals(&[0, 1, 2, 3, 4]));
    });
}

/// The same where the list has its first line.
#[test]
fn two_cpus_join_the_list_at_once() {
    loom::model(|| {
        let (slots, _first) = slots(6);
        for (id, number) in [(1, 1), (2, 2)] {
            slots.update(0, &mut SlotWriter::new(cpu(id)), &packet(number));
        }
        let others = [counts(&slots, 3, &[3]), counts(&slots, 4095, &[4])];
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(slots.read(0), totals(&[0, 1, 2, 3, 4]));
    });
}

/// Without blocks two CPUs count in the shared one, and neither overwrites the other.
#[test]
fn nothing_is_lost_in_the_shared_block() {
    loom::model(|| {
        let (slots, _first) = slots(0);
        let others = [counts(&slots, 3, &[1]), counts(&slots, 4095, &[2])];
        let seen = whole(&slots.read(0));
        assert!(seen.contains(&0), "{seen:?}");
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(slots.read(0), totals(&[0, 1, 2]));
    });
}

/// A reader sees packets, bytes, flags and times of one moment, and never an earlier one again.
#[test]
fn totals_do_not_tear_or_go_back() {
    loom::model(|| {
        let (slots, mut first) = slots(0);
        let reading = slots.clone();
        let reader = thread::spawn(move || {
            let mut before = 1;
            for _ in 0..2 {
                let seen = whole(&reading.read(0));
                assert_eq!(seen, [0, 1][..seen.len()]);
                assert!(seen.len() >= before, "back from {before} to {}", seen.len());
                before = seen.len();
            }
        });
        slots.update(0, &mut first, &packet(1));
        reader.join().unwrap();
        assert_eq!(slots.read(0), totals(&[0, 1]));
    });
}

/// The first packet of another CPU, whose lines were in use before: whoever finds its block finds what
/// that holds now. Without the order of `publish` and `blocks_of` a reader takes what it held for counts
/// of this flow. `cpus` are there already, and the lines come from a flow of `of` CPUs.
fn block_is_started_when_it_is_found(cpus: u16, of: u16) {
    loom::model(move || {
        let slots = Arc::new(FlowSlots::new(2, 6).unwrap());
        let mut writers: Vec<_> = (0..4).map(|id| SlotWriter::new(cpu(id))).collect();
        let mut last = writers.pop().unwrap();
        // The flow before: its lines go to the last writer, which takes them again below.
        slots.claim(1, &writers[0], &packet(6));
        writers[1..usize::from(of) - 1].iter_mut().for_each(|w| slots.update(1, w, &packet(6)));
        slots.update(1, &mut last, &packet(6));
        slots.free(1, &mut last);
        let mut expected = vec![0];
        slots.claim(0, &writers[0], &packet(0));
        for (number, writer) in writers[..usize::from(cpus)].iter_mut().enumerate().skip(1) {
            slots.update(0, writer, &packet(number as u32));
            expected.push(number as u32);
        }
        let reading = slots.clone();
        let reader = thread::spawn(move || whole(&reading.read(0)));
        slots.update(0, &mut last, &packet(5));
        let seen = reader.join().unwrap();
        assert_eq!(seen[..expected.len()], expected);
        expected.push(5);
        assert!(expected.starts_with(&seen), "{seen:?}");
        assert_eq!(slots.read(0), totals(&expected));
    });
}

#[test]
fn block_in_the_head_is_started_when_it_is_found() {
    block_is_started_when_it_is_found(1, 2);
}

#[test]
fn block_in_the_list_is_started_when_it_is_found() {
    block_is_started_when_it_is_found(3, 2);
}

#[test]
fn line_of_the_list_is_filled_in_when_it_is_found() {
    block_is_started_when_it_is_found(2, 3);
}

/// A packet comes before a clear or after it, and what comes after is kept: in a block of one's own …
#[test]
fn clear_comes_before_or_after_a_packet() {
    loom::model(|| {
        let (slots, _first) = slots(1);
        let other = counts(&slots, 3, &[1, 2]);
        assert!(slots.clear(0));
        let seen = whole(&slots.read(0));
        assert!(!seen.contains(&0), "it came before");
        other.join().unwrap();
        let kept = whole(&slots.read(0));
        assert!([&[][..], &[2], &[1, 2]].contains(&&kept[..]), "{kept:?}");
        assert!(kept.ends_with(&seen), "{seen:?} was counted after the clear");
    });
}

/// … and in the shared one, where another CPU may have looked at the flow before the clear and comes to
/// count after it.
#[test]
fn clear_keeps_what_comes_after_it_in_the_shared_block() {
    loom::model(|| {
        let (slots, _first) = slots(0);
        let other = counts(&slots, 3, &[2]);
        assert!(slots.clear(0));
        let mut writer = SlotWriter::new(cpu(4095));
        slots.update(0, &mut writer, &packet(1));
        other.join().unwrap();
        let kept = whole(&slots.read(0));
        assert!(kept == [1] || kept == [1, 2], "{kept:?}");
    });
}

/// A reader sees a flow from before a clear or from after it, not some of its CPUs from after it.
#[test]
fn reader_sees_all_of_a_clear_or_nothing() {
    loom::model(|| {
        let (slots, _first) = slots(1);
        let mut writer = SlotWriter::new(cpu(3));
        slots.update(0, &mut writer, &packet(1));
        let reading = slots.clone();
        let reader = thread::spawn(move || whole(&reading.read(0)));
        slots.clear(0);
        slots.update(0, &mut writer, &packet(2));
        let seen = reader.join().unwrap();
        assert!([&[0, 1][..], &[], &[2]].contains(&&seen[..]), "{seen:?}");
        assert_eq!(slots.read(0), totals(&[2]));
    });
}

/// A table of two flows, and the writers of two CPUs.
fn table() -> (std::sync::Arc<FlowTable>, [FlowWriter; 2]) {
    let mut config = FlowTableConfig::new(2);
    config.max_blocks = 1;
    config.idle_timeout_ns = Some(50);
    let table = FlowTable::new(&config).unwrap();
    let writers = [0, 4095].map(|id| table.writer(cpu(id)).unwrap());
    (table, writers)
}

fn collect(table: &FlowTable, records: &mut Vec<FlowRecord>) -> usize {
    table.collect(|record| records.push(record.clone()))
}

/// Two CPUs bring the same flow at once: it is one flow.
#[test]
fn new_flow_is_made_once() {
    loom::model(|| {
        let (table, [mut one, mut other]) = table();
        let thread = thread::spawn(move || {
            assert_eq!(other.update(&[packet(1)]), 1);
        });
        assert_eq!(one.update(&[packet(0)]), 1);
        thread.join().unwrap();
        assert_eq!(table.counts().created, 1);
        let record = table.get(&packet(0).flow.key()).unwrap();
        assert_eq!(record.totals, totals(&[0, 1]));
        assert_eq!(record.per_cpu.len(), 2);
    });
}

/// A flow is ended and collected while a CPU may be counting in it: what it counts there is in the
/// final record, or else in that of the next flow of this key.
#[test]
fn flow_waits_for_those_who_count_in_it() {
    loom::model(|| {
        let (table, [mut one, _other]) = table();
        assert_eq!(one.update(&[packet(0)]), 1);
        let thread = thread::spawn(move || {
            assert_eq!(one.update(&[packet(1)]), 1);
        });
        // The writer goes on between the two: that takes none of the interruptions loom has to give.
        thread::yield_now();
        table.finish();
        let mut records = Vec::new();
        collect(&table, &mut records);
        thread::yield_now();
        collect(&table, &mut records);
        thread.join().unwrap();
        table.finish();
        assert_eq!(collect(&table, &mut records), 0, "no reader is in");
        let all: Vec<_> = records.iter().map(|record| whole(&record.totals)).collect();
        assert!(all == [vec![0, 1]] || all == [vec![0], vec![1]], "{all:?}");
        assert_eq!(table.counts().created, records.len() as u64);
    });
}

/// Whoever reads a flow by its key gets that flow, though it goes meanwhile and another one gets its
/// slot. It goes because it was idle: whoever finishes the table waits for readers as it is.
#[test]
fn flow_waits_for_those_who_read_it() {
    loom::model(|| {
        let (table, [mut one, _other]) = table();
        assert_eq!(one.update(&[packet(0)]), 1);
        let reading = table.clone();
        let reader = thread::spawn(move || {
            let Some(record) = reading.get(&packet(0).flow.key()) else { return };
            assert_eq!(record.key, packet(0).flow.key());
            assert!([1, 16].contains(&record.totals.bytes), "{record:?}");
        });
        let late = FlowPacket { time_ns: 1000, ..packet(1) };
        assert_eq!(one.update(&[late]), 1);
        let mut records = Vec::new();
        collect(&table, &mut records);
        assert!(records.iter().all(|record| record.totals == totals(&[0])));
        let key = FlowKey { ip_version: 4, protocol: 6, ..FlowKey::default() };
        assert_eq!(one.update(&[FlowPacket { flow: key.into(), time_ns: 1000, ..packet(2) }]), 1);
        reader.join().unwrap();
        assert_eq!(table.counts().expired, 1);
    });
}
