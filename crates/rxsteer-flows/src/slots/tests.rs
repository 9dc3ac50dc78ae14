use super::used::ENTRIES;
use super::*;

fn writer(id: u16) -> SlotWriter {
    SlotWriter::new(CpuId::new(id).unwrap())
}

fn packet(time_ns: u64) -> FlowPacket {
    FlowPacket { time_ns, bytes: 100, ..FlowPacket::default() }
}

fn record(slots: &FlowSlots) -> FlowRecord {
    let mut record = FlowRecord::default();
    slots.read_into(0, &mut record);
    record
}

/// `cpus` CPUs use a flow, each with more packets than the one before it.
fn fill(slots: &FlowSlots, cpus: u16) -> u64 {
    let mut first = writer(0);
    slots.claim(0, &first, &packet(1000));
    let mut packets = 1;
    for id in 1..cpus {
        let mut writer = writer(id);
        for _ in 0..id + 1 {
            slots.update(0, &mut writer, &packet(1000 + u64::from(id)));
            packets += 1;
        }
        writer.release(slots);
    }
    first.release(slots);
    packets
}

fn free(slots: &FlowSlots) {
    let mut writer = writer(0);
    slots.free(0, &mut writer);
    writer.release(slots);
}

/// 24 CPUs: one in the slot's block, one in the head, and three lines of the list, of which the last one is partly
/// filled.
#[test]
fn every_cpu_is_listed_in_its_order() {
    let slots = FlowSlots::new(1, 100).unwrap();
    for cpus in 1..=24 {
        fill(&slots, cpus);
        let listed: Vec<_> =
            record(&slots).per_cpu.iter().map(|of| (of.cpu.get(), of.packets)).collect();
        assert_eq!(listed, (0..cpus).map(|id| (id, u64::from(id) + 1)).collect::<Vec<_>>());
        let lines = usize::from(cpus.saturating_sub(2)).div_ceil(ENTRIES);
        assert_eq!(slots.free_blocks(), 100 - (usize::from(cpus) - 1) - lines);
        free(&slots);
        assert_eq!(slots.free_blocks(), 100, "all lines come back");
    }
}

/// Wherever the pool runs out, for a block or for a line of the list, the shared block takes the remaining CPUs.
#[test]
fn shared_block_takes_the_rest() {
    for blocks in 0..30 {
        let slots = FlowSlots::new(1, blocks).unwrap();
        for _ in 0..2 {
            let packets = fill(&slots, 24);
            let record = record(&slots);
            let own: u64 = record.per_cpu.iter().map(|of| of.packets).sum();
            assert_eq!(own + record.shared.packets, packets);
            assert_eq!(record.totals.packets, packets);
            assert_eq!((record.totals.first_ns, record.totals.last_ns), (1000, 1023));
            assert_eq!(record.shared.packets == 0, blocks >= 23 + 4, "{blocks} blocks");
            free(&slots);
            assert_eq!(slots.free_blocks(), blocks as usize);
        }
    }
}

/// The shared block's content from the slot's last flow does not count for this flow, and neither do the initial
/// zeroes.
#[test]
fn shared_block_starts_over_with_each_flow() {
    let slots = FlowSlots::new(1, 0).unwrap();
    for time in [500, 100, 900] {
        slots.claim(0, &writer(0), &packet(time));
        slots.update(0, &mut writer(1), &packet(time + 1));
        let totals = slots.read(0);
        assert_eq!((totals.packets, totals.first_ns, totals.last_ns), (2, time, time + 1));
        free(&slots);
    }
}

/// A clear does not make a flow idle, wherever its last packet was counted.
#[test]
fn clear_makes_no_flow_older() {
    for blocks in [0, 1] {
        let slots = FlowSlots::new(1, blocks).unwrap();
        slots.claim(0, &writer(0), &packet(10));
        slots.update(0, &mut writer(1), &packet(20));
        assert!(slots.clear(0));
        assert_eq!((slots.last_ns(0), slots.read(0)), (20, FlowTotals::default()));
    }
}
