//! loom checks every interleaving (up to the preemption bound LOOM_MAX_PREEMPTIONS) of the threads that share a
//! flow's statistics and a small flow table. `cargo xtask loom` runs these tests.
//!
//! Each packet's bytes are a power of 16, so a sum of bytes identifies its packets.
//!
//! Each row shows a part of the code that was removed, and the models that fail without it:
//!
//! | removed | fails |
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
//! No model fails without the Release of `leave`, of an entry or of the index, or without the Acquires that pair
//! with them: the release fence of the block that was counted in just before replaces each of them.

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

/// Packet `number`: of one byte, of 16, of 256 …
fn packet(number: u32) -> FlowPacket {
    let key = FlowKey { ip_version: 4, ..FlowKey::default() };
    FlowPacket {
        flow: key.into(),
        time_ns: 100 + u64::from(number),
        bytes: 1 << (4 * number),
        tcp_flags: 1 << number,
        ..FlowPacket::default()
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

/// The packets that make up this sum of bytes, each at most once.
fn packets_of(bytes: u64) -> Vec<u32> {
    (0..8).filter(|number| bytes >> (4 * number) & 0xf == 1).collect()
}

/// Checks that the totals are exactly those of some packets, and returns these packets.
fn whole(got: &FlowTotals) -> Vec<u32> {
    let numbers = packets_of(got.bytes);
    assert_eq!(*got, totals(&numbers), "torn");
    numbers
}

/// One flow in slot 0; CPU 0 counted packet 0.
fn slots(blocks: u32) -> (Arc<FlowSlots>, SlotWriter) {
    let slots = Arc::new(FlowSlots::new(1, blocks).unwrap());
    let writer = SlotWriter::new(cpu(0));
    slots.claim(0, &writer, &packet(0));
    (slots, writer)
}

/// A thread that counts these packets as one CPU.
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

/// Two CPUs get blocks in one flow at the same time: both are listed, once, and a reader finds only blocks that
/// were started before.
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
        // Two blocks and a line of the list; each is freed once.
        slots.free(0, &mut first);
        slots.claim(0, &first, &packet(5));
        assert_eq!(slots.read(0), totals(&[5]), "nothing is left of the flow before");
    });
}

/// The same when the list gets its first line.
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

/// The same when the list already has its first line.
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

/// When no blocks are left, two CPUs count in the shared block, and neither overwrites the other.
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

/// A reader sees packets, bytes, flags and times of one moment, and never an earlier moment afterwards.
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

/// The first packet of another CPU, whose lines were in use before. A reader that finds the CPU's block finds its
/// new content. Without the order of `publish` and `blocks_of`, a reader takes the old content for counts of this
/// flow. `cpus` CPUs already use the flow, and the lines come from a flow of `of` CPUs.
fn block_is_started_when_it_is_found(cpus: u16, of: u16) {
    loom::model(move || {
        let slots = Arc::new(FlowSlots::new(2, 6).unwrap());
        let mut writers: Vec<_> = (0..4).map(|id| SlotWriter::new(cpu(id))).collect();
        let mut last = writers.pop().unwrap();
        // The earlier flow: its lines go to the last writer, which uses them again below.
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

/// A packet comes before a clear or after it, and packets after it are kept. This test counts in a CPU's own block.
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

/// The same in the shared block, where another CPU may read the flow's stamp before the clear and count after it.
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

/// A reader sees a flow as before a clear or as after it, never some CPUs before and some after.
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

/// Two CPUs count packets of the same new flow at the same time: it becomes one flow.
///
/// Creating a flow needs so many atomics that this model alone took 90 s with two preemptions, so its limit is one
/// lower than that of the others.
#[test]
fn new_flow_is_made_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.map(|bound| bound.max(2) - 1);
    model.check(|| {
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

/// A flow is ended and collected while a CPU may be counting in it. The CPU's counts are in the final record, or
/// else in the record of the next flow with this key.
#[test]
fn flow_waits_for_those_who_count_in_it() {
    loom::model(|| {
        let (table, [mut one, _other]) = table();
        assert_eq!(one.update(&[packet(0)]), 1);
        let thread = thread::spawn(move || {
            assert_eq!(one.update(&[packet(1)]), 1);
        });
        // The writer runs between the two calls. `yield_now` uses none of loom's limited number of preemptions.
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

/// A thread that reads a flow by its key gets that flow, although the flow ends meanwhile and another flow gets
/// its slot. The flow ends because it was idle, since a thread that finishes the table waits for readers in any
/// case.
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
