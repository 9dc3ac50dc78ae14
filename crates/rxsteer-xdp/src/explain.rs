//! Finds where a flow is, and why: applies the rules of rxsteer-core to the state of the live tables. This file makes no
//! decisions itself.

use crate::abi::{LINE_WORDS, LastPacket, REVERSED, SETS_LOG, SPARSE_ROW, steer_slot};
use crate::flows::LiveFlow;
use crate::live::{DeviceId, cpu_of};
use crate::setup::Settings;
use crate::view::{Known, View};
use rxsteer_core::admission::{Candidate, PACKETS_SHIFT, flow_in, set_of};
use rxsteer_core::explain::Explanation;
use rxsteer_core::matching::{Facts, InterfaceName, Matcher, Term};
use rxsteer_core::slot::{hash_32, upper_bits};
use rxsteer_core::sparse::{SlotId, SlotState, identity};
use rxsteer_core::{
    Arrival, Backlogs, CpuId, CpuSet, DevFlow, FlowHash, FlowKey, Move, Policy, QueueName, Refusal,
    SlotOrder, SockFlowTable, State, SteerConfig, Steering,
};
use std::time::SystemTime;

/// The most RX queues for which a flow is explained.
const MAX_DECISIONS: usize = 16;

/// Where the packets of a flow currently go, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowExplained {
    /// One decision for each interface and RX queue where the flow's packets are counted, the latest first. If there are
    /// none: for those where the flow's slot is set. If the flow was not seen at all: for the first queue of each interface.
    pub decisions: Vec<LiveDecision>,
    /// The flow's statistics in both directions, if flow statistics are kept.
    pub flows: Vec<LiveFlow>,
}

/// Where the flow's next packet goes if it arrives on one RX queue.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveDecision {
    /// The interface.
    pub device: DeviceId,
    /// The RX queue; in generic mode the receiving CPU.
    pub queue: u32,
    /// Whether the flow's packets are counted for this queue.
    pub is_seen: bool,
    /// The CPU that received the last packet of the slot. `None`: unknown; "the receiving CPU" in the explanation may then
    /// be any CPU.
    pub received_on: Option<CpuId>,
    /// The core's explanation. Its RX queue is always 0.
    pub explanation: Explanation,
    /// The last move of its bucket by load, with its time, if it is among the latest moves.
    pub moved: Option<(SystemTime, Move)>,
    /// Whether the order guard applies.
    pub is_guarded: bool,
}

/// An RX queue on which a flow may arrive.
struct QueueSlot {
    device: DeviceId,
    name: String,
    queue: u32,
    slot: steer_slot,
    /// The jiffies of the flow's last packet, if the flow is counted here.
    last_seen: Option<u32>,
}

/// Whether the packets that the slot names are delivered: all that the core needs of backlogs.
struct Delivered {
    rx_cpu: u16,
    is_delivered: bool,
}

impl Backlogs for Delivered {
    fn reserve(&mut self, _cpu: CpuId) -> Result<u32, Refusal> {
        Err(Refusal::Wait)
    }

    fn has_completed(&mut self, _producer: u16, _cpu: CpuId, _position: u32) -> bool {
        self.is_delivered
    }

    fn tail(&self, _cpu: CpuId) -> u32 {
        0
    }

    fn waiting(&mut self, _cpu: CpuId) -> (u32, u32) {
        (0, u32::MAX)
    }

    fn producer(&self) -> u16 {
        self.rx_cpu
    }
}

impl View {
    /// Where the packets of a flow currently go, and why. `key` is the flow key that steering uses.
    #[must_use]
    pub fn explain(&self, key: &FlowKey) -> FlowExplained {
        let known = self.known.get();
        let hash = self.hash.hash(key);
        let now = self.jiffies();
        let (queue_slots, lines) = self.queue_slots(&known, key, hash);
        let decisions = chosen(queue_slots, now as u32).into_iter();
        let decisions =
            decisions.filter_map(|queue_slot| self.decision(&known, &queue_slot, key, hash, now));
        let statistics = self.lines.statistics(lines.into_iter(), self.idle_s(now as u32));
        FlowExplained { decisions: decisions.collect(), flows: statistics.flows }
    }

    /// The flow's slot on every RX queue, and the flow's lines in both directions.
    fn queue_slots(
        &self,
        known: &Known,
        key: &FlowKey,
        hash: FlowHash,
    ) -> (Vec<QueueSlot>, Vec<u32>) {
        let log = self.sizes.flow_log;
        let both = [*key, key.reversed()];
        let (mut queue_slots, mut lines) = (Vec::new(), Vec::new());
        for device in &known.devices {
            for queue in 0..device.queues {
                let table = (device.first_table + queue) << log;
                let index = table + upper_bits(hash.get(), log);
                let mut last_seen = None;
                for at in lines_of(table, index, hash.get(), log) {
                    let Some(line) = self.lines.line(at) else { continue };
                    let of = crate::abi::key_of(&line.flow.key);
                    if both.contains(&of) && !lines.contains(&at) {
                        lines.push(at);
                        last_seen = last_seen.or((of == *key).then_some(line.slot.last_seen));
                    }
                }
                let slot = self.lines.slots.get(index);
                let (id, name) = (device.id, device.name.clone());
                queue_slots.push(QueueSlot { device: id, name, queue, slot, last_seen });
            }
        }
        (queue_slots, lines)
    }

    fn decision(
        &self,
        known: &Known,
        queue_slot: &QueueSlot,
        key: &FlowKey,
        hash: FlowHash,
        now: u64,
    ) -> Option<LiveDecision> {
        let settings = &known.settings;
        let log = self.sizes.flow_log;
        let map = settings.map_of(&queue_slot.name, queue_slot.queue as u16);
        let is_boundary_slot =
            settings.is_boundary_slot(log, upper_bits(hash.get(), log), map.len());
        let is_guarded = (!known.is_unguarded || is_boundary_slot) && !settings.shadow;
        let last = LastPacket::of(&queue_slot.slot);
        let received_on = last.map(|last| cpu_of(last.rx_cpu));
        let is_delivered = last.is_none_or(|last| {
            let index = last.ring() * self.sizes.cpus + last.rx_cpu;
            let pair = self.rings.lock().pairs.get(index);
            pair.delivered.wrapping_sub(last.seq) as i32 >= 0
        });
        let config = self.config(settings, queue_slot, received_on)?;
        let state = State {
            sock_entry: self.sock_entry(hash, key.src > key.dst),
            sparse: self.sparse_slots(),
            hash_active_ns: self.hash_actives(),
            candidate: self.candidate(
                queue_slot.device.0,
                hash,
                last.map_or(0, |last| last.rx_cpu),
            ),
            buckets: known.buckets.table.clone(),
            slot: is_guarded.then(|| last.map_or_else(DevFlow::default, LastPacket::in_core)),
        };
        let time_ns = now * self.ns_per_jiffy();
        let matcher = Matcher::new(&settings.packet_rules, 0);
        let interface = InterfaceName::new(&queue_slot.name);
        let facts = Facts::of_flow(key).map(|facts| Facts { interface, ..facts });
        let rule = facts.and_then(|facts| matcher.find(&facts));
        let rule = rule.map_or(0, |index| index + 1);
        let packet = Arrival { time_ns, hash, rule, ..Arrival::default() };
        let rx_cpu = last.map_or(0, |last| last.rx_cpu as u16);
        let mut backlogs = Delivered { rx_cpu, is_delivered };
        // The active settings were checked, so the core never refuses them.
        let explanation = Steering::explain_by(&config, &state, &packet, &mut backlogs).ok()?;
        Some(LiveDecision {
            device: queue_slot.device,
            queue: queue_slot.queue,
            is_seen: queue_slot.last_seen.is_some(),
            received_on,
            moved: known.buckets.move_of(&explanation.reason),
            explanation,
            is_guarded,
        })
    }

    /// The core's configuration for one RX queue.
    fn config(
        &self,
        settings: &Settings,
        queue_slot: &QueueSlot,
        received_on: Option<CpuId>,
    ) -> Option<SteerConfig> {
        let possible = CpuSet::new((0..self.sizes.cpus).map(cpu_of))?;
        let receiving = received_on.unwrap_or_else(|| settings.cpus.lowest());
        let queue = queue_slot.queue as u16;
        let policy = match &settings.policy {
            Policy::Bound(bindings) => {
                let bound = QueueName::most_specific(bindings, Some(&queue_slot.name), queue);
                Policy::Bound(bound.map(|cpu| (QueueName::from(0), *cpu)).into_iter().collect())
            }
            policy => policy.clone(),
        };
        // The maps of the other queues determine on which CPUs flows may linger.
        let own = settings.map_of(&queue_slot.name, queue);
        let maps = [own].into_iter().chain(settings.rps_maps.iter().map(|(_, map)| map));
        let maps = (0..).map(QueueName::from).zip(maps.cloned());
        let mut config = SteerConfig::new(policy, settings.cpus.clone(), vec![receiving]);
        config.packet_rules.clone_from(&settings.packet_rules);
        if config.mechanisms().maps {
            config.rps_maps = maps.collect();
            config.receiving_cpus = vec![receiving; config.rps_maps.len()];
        }
        // The core checks whether such interfaces and packets exist; which rule matches is already known.
        config.inner = true;
        let terms = settings.packet_rules.iter().flat_map(|rule| &rule.terms);
        config.device_names = terms.filter_map(Term::interface).collect();
        config.fallback = settings.fallback;
        config.rfs_cpus.clone_from(&settings.rfs_cpus);
        config.devices = vec![queue_slot.device.0];
        config.offline.clone_from(&settings.offline);
        config.possible = Some(possible);
        config.sock_flow_entries = self.socks.len() * LINE_WORDS;
        config.slot_order = SlotOrder::Ascending;
        Some(config)
    }

    /// The entry of the sock flow table in the form of the core. The programs keep entries by direction
    /// (`steer_sock_hash`), the core by the hash alone.
    fn sock_entry(&self, hash: FlowHash, reversed: bool) -> u32 {
        let direction = if reversed { REVERSED } else { 0 };
        let index = (hash.get() ^ direction) % (self.socks.len() * LINE_WORDS);
        let entry = self.socks.get(index / LINE_WORDS).word[(index % LINE_WORDS) as usize];
        let mask = SockFlowTable::sock_cpu_mask(cpu_of(self.sizes.cpus - 1));
        if entry == 0 { 0 } else { entry ^ (direction & !mask) }
    }

    fn sparse_slots(&self) -> Vec<SlotState> {
        let slots = (0..self.sparse.len()).map(|index| (index, self.sparse.get(index)));
        let state = |(index, slot): (u32, crate::abi::steer_sparse_slot)| {
            let slot_id =
                SlotId { cpu: cpu_of(index / SPARSE_ROW), loop_: (index % SPARSE_ROW) as u8 };
            Some(SlotState {
                slot: slot_id,
                device: (slot.flow >> 32).checked_sub(1)? as u16,
                hash: FlowHash::from_raw(slot.flow as u32),
                seen_ns: slot.last_seen.checked_sub(1)? * self.ns_per_jiffy(),
            })
        };
        slots.filter_map(state).collect()
    }

    fn hash_actives(&self) -> Vec<u64> {
        let rows =
            (0..self.hash_actives.len()).map(|rx_cpu| self.hash_actives.get(rx_cpu).last_seen);
        rows.filter_map(|seen| Some(seen.checked_sub(1)? * self.ns_per_jiffy())).collect()
    }

    /// What an RX CPU has counted of a flow without a sparse slot.
    fn candidate(&self, device: u16, hash: FlowHash, rx_cpu: u32) -> Option<Candidate> {
        let flow = identity(device, hash);
        let set = self.candidates.get((rx_cpu << SETS_LOG) + set_of(flow));
        let way = set.word.iter().position(|word| flow_in(*word) == flow)?;
        let began_ns = set.began[way].checked_sub(1)? * self.ns_per_jiffy();
        Some(Candidate { packets: (set.word[way] >> PACKETS_SHIFT) as u8, began_ns })
    }

    /// Rounds down, so that `hz` jiffies are at most a second, and one jiffy more is longer than a second.
    fn ns_per_jiffy(&self) -> u64 {
        1_000_000_000 / u64::from(self.hz)
    }
}

/// The queues that are explained.
fn chosen(mut queue_slots: Vec<QueueSlot>, now: u32) -> Vec<QueueSlot> {
    if queue_slots.iter().any(|queue_slot| queue_slot.last_seen.is_some()) {
        queue_slots.retain(|queue_slot| queue_slot.last_seen.is_some());
        queue_slots
            .sort_by_key(|queue_slot| queue_slot.last_seen.map(|seen| now.wrapping_sub(seen)));
    } else if queue_slots.iter().any(|queue_slot| queue_slot.slot.packed != 0) {
        queue_slots.retain(|queue_slot| queue_slot.slot.packed != 0);
    } else {
        queue_slots.retain(|queue_slot| queue_slot.queue == 0);
    }
    queue_slots.truncate(MAX_DECISIONS);
    queue_slots
}

/// The lines in which a flow may be counted, as in `steer_line_at`.
fn lines_of(table: u32, index: u32, hash: u32, log: u32) -> impl Iterator<Item = u32> {
    let second = table + hash_32(hash, log);
    [index, second].into_iter().flat_map(|set| (0..crate::abi::WAYS).map(move |way| set ^ way))
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
