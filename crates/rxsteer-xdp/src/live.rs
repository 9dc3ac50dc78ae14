//! What the programs counted, and where flows are.

use crate::abi::{
    self, BANKS, SPARSE_ROW, steer_counters, steer_moved, steer_moved_key, steer_slot,
};
use crate::path::{DeviceId, Path, grace};
use libbpf_rs::MapCore;
use rxsteer_core::counters::{LiveCounter, LiveCpuCounter};
use rxsteer_core::{CpuId, FlowHash, FlowKey};
use std::collections::BTreeMap;

/// Where there is no room, a flow's share on a CPU it left goes after so long.
const SHARE_IDLE_AFTER_S: f64 = 60.0;

/// One CPU's counts of one interface.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxCounts(steer_counters);

impl RxCounts {
    /// The count that the list of counters names so.
    #[must_use]
    pub fn get(&self, counter: LiveCounter) -> u64 {
        let counts = &self.0;
        match counter {
            LiveCounter::Received => self.received(),
            LiveCounter::Bytes => counts.bytes,
            LiveCounter::Local => counts.by_rule[0],
            LiveCounter::Bound => counts.by_rule[1],
            LiveCounter::Hashed => counts.by_rule[2],
            LiveCounter::InSlots => counts.by_rule[3],
            LiveCounter::Wished => counts.by_rule[4],
            LiveCounter::NotIp => counts.not_ip,
            LiveCounter::Malformed => counts.malformed,
            LiveCounter::Passed => counts.passed,
            LiveCounter::Unnumbered => counts.unnumbered,
            LiveCounter::Redirected => {
                self.received().saturating_sub(counts.passed + counts.flow_limit_drops)
            }
            LiveCounter::RedirectErrors => counts.redirect_errors,
            LiveCounter::FlowLimitDrops => counts.flow_limit_drops,
            LiveCounter::Moves => counts.moves,
            LiveCounter::Held => counts.held,
            LiveCounter::Batches => counts.batches,
            LiveCounter::Flows => counts.flows,
            LiveCounter::FlowsEnded => counts.flows_ended,
            LiveCounter::FlowPacketsRefused => counts.flow_packets_refused,
        }
    }
}

impl RxCounts {
    /// Each frame is wanted by one rule.
    fn received(&self) -> u64 {
        self.0.by_rule.iter().sum()
    }
}

/// What became of the frames meant for one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    passed: u64,
    alloc_drops: u64,
    lost: u64,
    waiting: u64,
}

impl CpuCounts {
    /// The count that the list of counters names so.
    #[must_use]
    pub fn get(&self, counter: LiveCpuCounter) -> u64 {
        match counter {
            LiveCpuCounter::Delivered => self.passed.saturating_sub(self.alloc_drops),
            LiveCpuCounter::AllocDrops => self.alloc_drops,
            LiveCpuCounter::Lost => self.lost,
            LiveCpuCounter::Waiting => self.waiting,
        }
    }
}

/// All counts at one moment.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Of each receiving CPU and interface, where there was any frame.
    pub received: Vec<(CpuId, DeviceId, RxCounts)>,
    /// Of each processing CPU that was ever sent to.
    pub processed: Vec<(CpuId, CpuCounts)>,
}

impl Counters {
    /// The sum over all CPUs and interfaces.
    #[must_use]
    pub fn total(&self, counter: LiveCounter) -> u64 {
        self.received.iter().map(|(_, _, counts)| counts.get(counter)).sum()
    }

    /// The sum over all processing CPUs.
    #[must_use]
    pub fn cpu_total(&self, counter: LiveCpuCounter) -> u64 {
        self.processed.iter().map(|(_, counts)| counts.get(counter)).sum()
    }

    /// Frames that a full ring refused.
    #[must_use]
    pub fn ring_full_drops(&self) -> u64 {
        self.cpu_total(LiveCpuCounter::Lost).saturating_sub(self.total(LiveCounter::RedirectErrors))
    }

    /// Frames dropped, whatever the reason. When no frame is under way,
    /// received = passed + delivered + these.
    #[must_use]
    pub fn drops(&self) -> u64 {
        let lost = [LiveCpuCounter::Lost, LiveCpuCounter::AllocDrops];
        let lost: u64 = lost.into_iter().map(|counter| self.cpu_total(counter)).sum();
        lost + self.total(LiveCounter::FlowLimitDrops)
    }
}

/// A flow's packets and bytes on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuShare {
    /// Packets sent to the CPU; those that its full ring refused are among them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One direction of a flow, as it is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveFlow {
    /// Which.
    pub key: FlowKey,
    /// By CPU, lowest first: those it was sent to.
    pub cpus: BTreeMap<CpuId, CpuShare>,
    /// How often it went to another CPU.
    pub moves: u32,
    /// Seconds since its last packet.
    pub idle_s: f64,
    /// The TCP flags seen.
    pub tcp_flags: u8,
}

impl LiveFlow {
    /// All its packets and bytes.
    #[must_use]
    pub fn total(&self) -> CpuShare {
        self.cpus.values().fold(CpuShare::default(), |sum, share| CpuShare {
            packets: sum.packets + share.packets,
            bytes: sum.bytes + share.bytes,
        })
    }
}

/// Where the packets of a flow go now, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Whereabouts {
    /// Where its application wishes it, if that was recorded.
    pub wish: Option<CpuId>,
    /// Of each interface and RX queue where its slot was used: what the order guard knows.
    pub slots: Vec<GuardSlot>,
    /// Whether its packets are guarded by these slots: else it is wanted in one place, always.
    pub guarded: bool,
    /// The CPU of its sparse slot on each interface that has one; it may be out of use.
    pub sparse: Vec<(DeviceId, CpuId)>,
    /// Where its hash puts it in a map of so many CPUs: its place, from 0.
    pub place_in_map: usize,
    /// Its statistics, in both directions, where they are counted.
    pub flows: Vec<LiveFlow>,
}

/// A slot of a flow table, as the order guard has it. Flows with the same slot share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardSlot {
    /// The interface.
    pub device: DeviceId,
    /// Its RX queue; in generic mode the receiving CPU.
    pub queue: u32,
    /// Where the last packet went.
    pub cpu: CpuId,
    /// The CPU that received it.
    pub received_on: CpuId,
    /// Whether the last packet is delivered, or dropped: the flow may go elsewhere.
    pub is_delivered: bool,
    /// How often in a row packets may still follow the slot against their hash.
    pub patience: u32,
}

impl Path {
    /// All counts as they are now. It takes a grace period, some milliseconds, to tell what is lost; where frames are
    /// under way, another, to tell whether they were lost last of all.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let rings = &self.loaded.rings;
        rings.look();
        grace();
        rings.look();
        rings.find_lost(grace);
        let (cpus, interfaces) = (self.loaded.sizes.cpus, self.loaded.sizes.interfaces);
        let rows = (0..cpus).flat_map(|cpu| (0..interfaces).map(move |device| (cpu, device)));
        let received = rows.filter_map(|(cpu, device)| {
            let counts = RxCounts(self.loaded.counts.get(cpu * interfaces + device));
            (counts.received() != 0).then(|| (cpu_of(cpu), DeviceId(device as u16), counts))
        });
        let processed = (0..cpus).filter_map(|cpu| {
            let counts = self.cpu_counts(cpu);
            (counts != CpuCounts::default()).then(|| (cpu_of(cpu), counts))
        });
        Counters { received: received.collect(), processed: processed.collect() }
    }

    fn cpu_counts(&self, cpu: u32) -> CpuCounts {
        let rings = &self.loaded.rings;
        (cpu * BANKS..(cpu + 1) * BANKS).fold(CpuCounts::default(), |sum, dst| {
            let state = rings.dsts.get(dst);
            let (lost, waiting) = rings.lost_and_waiting(dst);
            CpuCounts {
                passed: sum.passed + state.passed,
                alloc_drops: sum.alloc_drops + state.alloc_drops,
                lost: sum.lost + lost,
                waiting: sum.waiting + waiting,
            }
        })
    }

    /// Every flow that is counted, those without a slot among them.
    #[must_use]
    pub fn flows(&self) -> Vec<LiveFlow> {
        let now = self.jiffies();
        let mut flows: BTreeMap<FlowKey, LiveFlow> = BTreeMap::new();
        for (_, first, queues) in self.devices() {
            let log = self.loaded.sizes.flow_log;
            for index in first << log..(first + queues) << log {
                self.add_slot(index, now, &mut flows);
            }
        }
        self.add_moved(now, &mut flows);
        flows.into_values().collect()
    }

    fn add_slot(&self, index: u32, now: u32, flows: &mut BTreeMap<FlowKey, LiveFlow>) {
        let slot = self.loaded.slots.get(index);
        if slot.rest == 0 || index >= self.loaded.flows.len() {
            return;
        }
        let key = abi::key_of(&self.loaded.flows.get(index).key);
        let share = CpuShare { packets: slot.packets, bytes: slot.bytes };
        let flow = flows.entry(key).or_insert_with(|| new_flow(key));
        flow.add(slot.cpu, share, self.seconds_since(slot.last_seen, now));
        flow.moves += slot.moves;
        flow.tcp_flags |= slot.tcp_flags;
    }

    fn add_moved(&self, now: u32, flows: &mut BTreeMap<FlowKey, LiveFlow>) {
        let map = &self.loaded.skel.maps.steer_moved;
        for key in map.keys() {
            let Some(entry) = abi::of_bytes::<steer_moved_key>(&key) else { continue };
            let Ok(Some(value)) = map.lookup(&key, libbpf_rs::MapFlags::ANY) else { continue };
            let Some(moved) = abi::of_bytes::<steer_moved>(&value) else { continue };
            let key = abi::key_of(&entry.flow);
            let share = CpuShare { packets: moved.packets, bytes: moved.bytes };
            let flow = flows.entry(key).or_insert_with(|| new_flow(key));
            flow.add(entry.cpu as u16, share, self.seconds_since(moved.last_seen, now));
        }
    }

    /// Takes shares out that nothing was added to for long.
    pub(crate) fn remove_idle_shares(&self) {
        let map = &self.loaded.skel.maps.steer_moved;
        let now = self.jiffies();
        for key in map.keys() {
            let Ok(Some(value)) = map.lookup(&key, libbpf_rs::MapFlags::ANY) else { continue };
            let idle = abi::of_bytes::<steer_moved>(&value)
                .is_some_and(|share| self.seconds_since(share.last_seen, now) > SHARE_IDLE_AFTER_S);
            if idle {
                // Somebody else may have; either way it is gone.
                let _ = map.delete(&key);
            }
        }
    }

    fn seconds_since(&self, then: u32, now: u32) -> f64 {
        f64::from((now.wrapping_sub(then) as i32).max(0)) / f64::from(self.loaded.hz)
    }

    fn jiffies(&self) -> u32 {
        let clock = self.loaded.skel.progs.steer_clock.test_run(libbpf_rs::ProgramInput::default());
        let bss = self.loaded.skel.maps.bss_data.as_deref();
        bss.filter(|_| clock.is_ok()).map_or(0, |bss| bss.steer_jiffies_now as u32)
    }

    /// Where the packets of a flow go, given its key as steering goes by it, and why.
    #[must_use]
    pub fn whereabouts(&self, key: &FlowKey) -> Whereabouts {
        let hash = self.loaded.hash.hash(key);
        let log = self.loaded.sizes.flow_log;
        let slots = self.devices().flat_map(|(device, first, queues)| {
            let slot =
                move |queue| (device, queue, ((first + queue) << log) + slot_of(hash.get(), log));
            (0..queues).map(slot)
        });
        let slots = slots.filter_map(|(device, queue, index)| {
            self.guard_slot(device, queue, &self.loaded.slots.get(index))
        });
        let both = [*key, key.reversed()];
        let map_len = self.settings().cpus.len() as u64;
        Whereabouts {
            wish: self.wish(hash, key.src > key.dst),
            slots: slots.collect(),
            guarded: !self.is_plain() || self.straddles(slot_of(hash.get(), log)),
            sparse: self.sparse_slots(hash),
            place_in_map: ((u64::from(hash.get()) * map_len) >> 32) as usize,
            flows: self.flows().into_iter().filter(|flow| both.contains(&flow.key)).collect(),
        }
    }

    fn guard_slot(&self, device: DeviceId, queue: u32, slot: &steer_slot) -> Option<GuardSlot> {
        let cpu = (slot.place & 0x1fff).checked_sub(1)?;
        let (bank, src) = (slot.place >> 13 & 1, slot.place >> 14 & 0x3fff);
        let dst = cpu * BANKS + bank;
        let pair = self.loaded.rings.pairs.get(dst * self.loaded.sizes.cpus + src);
        Some(GuardSlot {
            device,
            queue,
            cpu: cpu_of(cpu),
            received_on: cpu_of(src),
            is_delivered: pair.delivered.wrapping_sub(slot.last_seq) as i32 >= 0,
            patience: slot.place >> 28,
        })
    }

    /// The wish of the application that receives a flow's packets, whose source address is above their
    /// destination if `reversed`: `steer_wish_hash`.
    fn wish(&self, hash: FlowHash, reversed: bool) -> Option<CpuId> {
        let hash = hash.get() ^ if reversed { 0x5851_f42d } else { 0 };
        let index = hash % (self.loaded.socks.len() * 16);
        let entry = self.loaded.socks.get(index / 16).word[(index % 16) as usize];
        let mask = rxsteer_core::SockFlowTable::wish_mask(cpu_of(self.loaded.sizes.cpus - 1));
        let is_its_own = (entry ^ hash) & !mask == 0;
        if is_its_own { (entry & mask).checked_sub(1).map(cpu_of) } else { None }
    }

    fn sparse_slots(&self, hash: FlowHash) -> Vec<(DeviceId, CpuId)> {
        let slots =
            (0..self.loaded.sparse.len()).map(|index| (index, self.loaded.sparse.get(index)));
        let held = slots.filter(|(_, slot)| slot.flow != 0 && slot.flow as u32 == hash.get());
        held.map(|(index, slot)| {
            (DeviceId((slot.flow >> 32) as u16 - 1), cpu_of(index / SPARSE_ROW))
        })
        .collect()
    }
}

impl LiveFlow {
    fn add(&mut self, cpu: u16, share: CpuShare, idle_s: f64) {
        let sum = self.cpus.entry(CpuId::new(cpu).unwrap_or(CpuId::MAX)).or_default();
        sum.packets += share.packets;
        sum.bytes += share.bytes;
        self.idle_s = self.idle_s.min(idle_s);
    }
}

fn new_flow(key: FlowKey) -> LiveFlow {
    LiveFlow { key, cpus: BTreeMap::new(), moves: 0, idle_s: f64::INFINITY, tcp_flags: 0 }
}

fn cpu_of(id: u32) -> CpuId {
    u16::try_from(id).ok().and_then(CpuId::new).unwrap_or(CpuId::MAX)
}

/// As in the programs, and in `rxsteer_core::SlotOrder::Ascending`.
fn slot_of(hash: u32, log: u32) -> u32 {
    ((u64::from(hash) << log) >> 32) as u32
}
