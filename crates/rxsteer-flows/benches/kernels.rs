//! The measured cases: counting on two CPUs, compared with one block for both; and reading, clearing and freeing a
//! flow, compared with the walk over all possible CPUs that ovs-stats replaced.

#[path = "../../rxsteer-lab/src/flow_costs/walk.rs"]
#[allow(dead_code, reason = "the lab measures updates too")]
mod walk;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rxsteer_bench::{Case, unmeasured};
use rxsteer_core::{CpuId, FlowWords};
use rxsteer_flows::{FlowPacket, FlowSlots, FlowTable, FlowTableConfig, SlotWriter, WhenFull};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::scope;
use walk::{Block, WalkFlows};

/// Packets that each of two threads counts in a call. A call takes milliseconds; starting a thread takes little
/// beside that.
const PACKETS: u64 = 1 << 20;
/// The number of calls so far. Time advances from call to call, so that each packet is later than the last.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Flows that a call reads, clears or frees.
const FLOWS: u32 = 1024;
const CREATED: &str = "one flow created and freed per packet";

/// All cases of this crate.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (group, flows) in
        [("count, 2 threads on one flow", 1), ("count, 2 threads on 10 000 flows", 10_000)]
    {
        let mut add = |name, baseline, run| {
            cases.push(Case { group, name, baseline, per_iter: PACKETS, run });
        };
        add("one shared atomic block", true, with_atomics(flows));
        add("one block behind a mutex", true, with_mutex(flows));
        add("rxsteer", false, with_own_blocks(flows));
    }
    for used in [1, 2] {
        visits(used, &mut cases);
    }
    created(&mut cases);
    cases
}

fn cpu(id: usize) -> CpuId {
    CpuId::new(id as u16).expect("an id")
}

fn packet(number: u64) -> FlowPacket {
    FlowPacket {
        flow: FlowWords::default(),
        time_ns: number,
        bytes: 64,
        tcp_flags: 0x10,
        ..FlowPacket::default()
    }
}

/// Runs `count` on two threads, each pinned to one of the first two CPUs. Each thread gets the number of its first
/// packet.
fn two_threads(count: impl Fn(usize, u64) -> u64 + Sync) -> u64 {
    let first = CALLS.fetch_add(1, Ordering::Relaxed) * PACKETS;
    let cpus = sched_getaffinity(None).ok();
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_some_and(|all| all.is_set(*cpu)));
    let cpus = [cpus.next(), cpus.next()];
    let count = &count;
    scope(|threads| {
        let run = |thread: usize| {
            threads.spawn(move || {
                if let Some(cpu) = cpus[thread] {
                    let mut set = CpuSet::new();
                    set.set(cpu);
                    // If pinning isn't allowed, the figure is worse, but not wrong.
                    let _ = sched_setaffinity(None, &set);
                }
                count(thread, first)
            })
        };
        [run(0), run(1)].map(|thread| thread.join().expect("it ends")).iter().sum()
    })
}

/// The flow of packet `number`: flows take turns, but not in memory order.
fn flow_of(number: u64, flows: u64) -> usize {
    (((number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * flows) >> 32) as usize
}

fn with_own_blocks(flows: u64) -> Box<dyn FnMut() -> u64> {
    let slots = FlowSlots::new(flows as u32, flows as u32).expect("there is the memory");
    let writers = [0, 1].map(|id| Mutex::new(SlotWriter::new(cpu(id))));
    for flow in 0..flows as u32 {
        slots.claim(flow, &writers[0].lock().expect("no thread panics"), &packet(0));
    }
    Box::new(move || {
        two_threads(|thread, first| {
            let writer = &mut *writers[thread].lock().expect("no thread panics");
            for number in first..first + PACKETS {
                slots.update(flow_of(number, flows) as u32, writer, &packet(number));
            }
            slots.read(0).packets
        })
    })
}

fn with_atomics(flows: u64) -> Box<dyn FnMut() -> u64> {
    let blocks: Vec<Block> = (0..flows).map(|_| Block::default()).collect();
    Box::new(move || {
        two_threads(|_, first| {
            for number in first..first + PACKETS {
                let (block, packet) = (&blocks[flow_of(number, flows)], packet(number));
                block.packets.fetch_add(1, Ordering::Relaxed);
                block.bytes.fetch_add(u64::from(packet.bytes), Ordering::Relaxed);
                // A word that already has the value is not written.
                let flags = u64::from(packet.tcp_flags);
                if block.tcp_flags.load(Ordering::Relaxed) & flags != flags {
                    block.tcp_flags.fetch_or(flags, Ordering::Relaxed);
                }
                if block.last_ns.load(Ordering::Relaxed) < packet.time_ns {
                    block.last_ns.fetch_max(packet.time_ns, Ordering::Relaxed);
                }
            }
            blocks[0].packets.load(Ordering::Relaxed)
        })
    })
}

fn with_mutex(flows: u64) -> Box<dyn FnMut() -> u64> {
    #[repr(align(64))]
    #[derive(Default)]
    struct Locked(Mutex<(u64, u64, u8, u64)>);
    let blocks: Vec<Locked> = (0..flows).map(|_| Locked::default()).collect();
    Box::new(move || {
        two_threads(|_, first| {
            for number in first..first + PACKETS {
                let packet = packet(number);
                let mut block = blocks[flow_of(number, flows)].0.lock().expect("no thread panics");
                block.0 += 1;
                block.1 += u64::from(packet.bytes);
                block.2 |= packet.tcp_flags;
                block.3 = block.3.max(packet.time_ns);
            }
            blocks[0].0.lock().expect("no thread panics").0
        })
    })
}

/// Numbers of possible CPUs, with the names of the cases.
const POSSIBLE: [(usize, &str, &str); 4] = [
    (2, "mask, 2 possible CPUs", "walk, 2 possible CPUs"),
    (128, "mask, 128 possible CPUs", "walk, 128 possible CPUs"),
    (1024, "mask, 1024 possible CPUs", "walk, 1024 possible CPUs"),
    (8192, "mask, 8192 possible CPUs", "walk, 8192 possible CPUs"),
];

/// Flows in which the first possible CPU counted and, where two CPUs are used, the last one.
struct Masked {
    slots: FlowSlots,
    writers: [SlotWriter; 2],
}

impl Masked {
    fn new(possible: usize) -> Masked {
        Masked {
            slots: FlowSlots::new(FLOWS, FLOWS).expect("there is the memory"),
            writers: [0, possible - 1].map(|id| SlotWriter::new(cpu(id))),
        }
    }

    fn fill(&mut self, used: usize) {
        for flow in 0..FLOWS {
            self.slots.claim(flow, &self.writers[0], &packet(1));
            if used == 2 {
                self.slots.update(flow, &mut self.writers[1], &packet(2));
            }
        }
    }

    fn free(&mut self) {
        for flow in 0..FLOWS {
            self.slots.free(flow, &mut self.writers[1]);
        }
    }
}

fn walked(possible: usize, used: usize) -> WalkFlows {
    let mut flows = WalkFlows::new(FLOWS as usize, possible);
    fill(&mut flows, possible, used);
    flows
}

fn fill(flows: &mut WalkFlows, possible: usize, used: usize) {
    for flow in 0..FLOWS as usize {
        flows.claim(flow);
        if used == 2 {
            flows.add(flow, possible - 1);
        }
    }
}

/// Reading, clearing and freeing flows that `used` CPUs used.
fn visits(used: usize, cases: &mut Vec<Case>) {
    let names = match used {
        1 => ["read a flow, 1 CPU used", "clear a flow, 1 CPU used", "free a flow, 1 CPU used"],
        _ => ["read a flow, 2 CPUs used", "clear a flow, 2 CPUs used", "free a flow, 2 CPUs used"],
    };
    let mut of_all = Vec::new();
    let mut add = |group, name, run: Box<dyn FnMut() -> u64>| {
        of_all.push(Case { group, name, baseline: false, per_iter: u64::from(FLOWS), run });
    };
    for (possible, mask, walk) in POSSIBLE {
        // All cases of a row share their flows. The next free undoes a clear, since it fills the flows again.
        // Neither case depends on the counts.
        let mut flows = Masked::new(possible);
        flows.fill(used);
        let flows = Rc::new(RefCell::new(flows));
        let of = flows.clone();
        let read = move || {
            let flows = of.borrow();
            (0..FLOWS).map(|flow| flows.slots.read(flow)).fold(0, |all, totals| {
                all + totals.packets + totals.bytes + u64::from(totals.tcp_flags) + totals.last_ns
            })
        };
        add(names[0], mask, Box::new(read));
        let of = flows.clone();
        let clear = move || {
            let flows = of.borrow();
            (0..FLOWS).map(|flow| u64::from(flows.slots.clear(flow))).sum()
        };
        add(names[1], mask, Box::new(clear));
        let free = move || {
            let mut flows = flows.borrow_mut();
            flows.free();
            unmeasured(|| flows.fill(used));
            1
        };
        add(names[2], mask, Box::new(free));

        let flows = Rc::new(RefCell::new(walked(possible, used)));
        let of = flows.clone();
        let read = move || {
            let flows = of.borrow();
            (0..FLOWS as usize)
                .map(|flow| flows.read(flow))
                .fold(0, |all, (packets, bytes, flags, last)| all + packets + bytes + flags + last)
        };
        add(names[0], walk, Box::new(read));
        let of = flows.clone();
        let clear = move || {
            let flows = of.borrow();
            (0..FLOWS as usize).for_each(|flow| flows.clear(flow));
            1
        };
        add(names[1], walk, Box::new(clear));
        let free = move || {
            let mut flows = flows.borrow_mut();
            (0..FLOWS as usize).for_each(|flow| flows.free(flow));
            unmeasured(|| fill(&mut flows, possible, used));
            1
        };
        add(names[2], walk, Box::new(free));
    }
    of_all.sort_by_key(|case| names.iter().position(|name| *name == case.group));
    cases.extend(of_all);
}

/// The case of ovs-stats: each packet goes to user space and comes back, and a flow is created and freed for it.
fn created(cases: &mut Vec<Case>) {
    let mut add = |name, baseline, run: Box<dyn FnMut() -> u64>| {
        let per_iter = u64::from(FLOWS);
        cases.push(Case { group: CREATED, name, baseline, per_iter, run });
    };
    let mut walk = WalkFlows::new(1, 128);
    let walked = move || {
        for _ in 0..FLOWS {
            walk.claim(0);
            walk.free(0);
        }
        walk.read(0).0
    };
    add("walk, 128 possible CPUs", true, Box::new(walked));
    let mut masked = Masked::new(128);
    let created = move || {
        for number in 0..FLOWS {
            masked.slots.claim(0, &masked.writers[0], &packet(number.into()));
            masked.slots.free(0, &mut masked.writers[0]);
        }
        masked.slots.read(0).packets
    };
    add("mask", false, Box::new(created));
    add("mask, in a full table, with its record", false, in_a_full_table());
}

/// Every packet belongs to a new flow and evicts the oldest flow.
fn in_a_full_table() -> Box<dyn FnMut() -> u64> {
    let table = FlowTable::new(&FlowTableConfig::new(4096)).expect("there is the memory");
    let mut writer = table.writer(cpu(0)).expect("the first one");
    let mut flow = 0_u64;
    Box::new(move || {
        let mut packets = [packet(1); 64];
        let mut records = 0;
        for _ in 0..FLOWS / 64 {
            for packet in &mut packets {
                flow += 1;
                packet.flow.0[0] = flow;
            }
            records += writer.update_all(packets, WhenFull::Refuse);
            let left = table.collect(|record| records += record.totals.packets);
            assert_eq!(left, 0, "the one writer is not amid a list");
        }
        records
    })
}
