//! A random machine with its interfaces and settings.

use crate::abi;
use crate::policy::{Act, NO_CPU, Row, Rules, Sizes};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_core::matching::{Action, PacketRule, RulePolicy};
use rxsteer_core::policy::Front;
use rxsteer_core::{
    Balance, CpuId, CpuSet, Fallback, FlowHash, Move, Policy, SlotOrder, Slots, SockFlowTable,
    SteerConfig,
};

/// Few buckets, so that each has several flows.
const BALANCE: Balance =
    Balance { buckets: 256, interval_ms: 100, threshold_percent: 5, moves: 64 };

/// A policy without its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing is steered.
    None,
    /// The hash decides.
    Rps,
    /// The queue decides.
    Bound,
    /// The sparse slot decides, otherwise the hash.
    Sparse,
    /// The desired CPU decides, otherwise the hash.
    Rfs,
    /// The desired CPU decides, otherwise the sparse slot, otherwise the hash.
    RfsSparse,
    /// The hash picks a bucket: without hysteresis.
    Balance,
    /// The desired CPU decides, otherwise the sparse slot, otherwise the bucket.
    RfsSparseBalance,
    /// Rules before any policy without buckets; some have a policy of their own.
    Matched,
    /// The same before a policy with buckets.
    MatchedBalance,
    /// The hash decides, with the settings of `run`: without hysteresis, and unguarded at times.
    RpsAsRun,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 8] = [
        Kind::None,
        Kind::Rps,
        Kind::Bound,
        Kind::Sparse,
        Kind::Rfs,
        Kind::RfsSparse,
        Kind::Balance,
        Kind::RfsSparseBalance,
    ];

    /// Whether the core decides without a flow table between changes.
    pub(crate) fn has_no_table(self) -> bool {
        matches!(self, Kind::RpsAsRun | Kind::Balance)
    }

    /// Whether the hash picks a bucket.
    pub(crate) fn has_buckets(self) -> bool {
        matches!(self, Kind::Balance | Kind::RfsSparseBalance | Kind::MatchedBalance)
    }

    /// Whether there are rules before the policy.
    fn has_rules(self) -> bool {
        matches!(self, Kind::Matched | Kind::MatchedBalance)
    }

    /// Whether it can be changed without a transition: the core guards its decisions, or nothing is under way at a
    /// change.
    pub(crate) fn can_change(self) -> bool {
        !matches!(self, Kind::None | Kind::Bound)
    }
}

/// An RX queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    /// The CPU that receives it.
    pub(crate) rx_cpu: u16,
    pub(crate) device: u16,
    /// The number of the queue on its device.
    pub(crate) number: u16,
}

/// The fixed properties, and the present settings.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) queues: Vec<Queue>,
    pub(crate) ring_size: u32,
    pub(crate) flow_log: u32,
    /// Every CPU to which packets can be sent.
    pub(crate) possible: CpuSet,
    pub(crate) config: SteerConfig,
    /// CPUs whose second ring is in use.
    pub(crate) second_generation: Vec<u16>,
    pub(crate) local_by_ring: bool,
    /// Whether frames are unguarded.
    pub(crate) unguarded: bool,
    /// The CPU of each bucket, from the core's plan.
    pub(crate) table: Vec<CpuId>,
}

/// The number of a policy in `enum steer_policy`.
fn number_of(policy: &Policy) -> u32 {
    match (policy, policy.is_rfs(), policy.slots()) {
        (Policy::None, ..) => abi::STEER_NONE,
        (Policy::Bound(_), ..) => abi::STEER_BOUND,
        (_, true, Some(_)) => abi::STEER_RFS_SPARSE,
        (_, true, None) => abi::STEER_RFS,
        (_, false, Some(_)) => abi::STEER_SPARSE,
        (Policy::Balance(..), false, None) => abi::STEER_BALANCE,
        (_, false, None) => abi::STEER_RPS,
    }
}

fn cpu(id: u16) -> CpuId {
    CpuId::new(id).expect("ids are small here")
}

fn cpu_set(ids: &[u16]) -> CpuSet {
    CpuSet::new(ids.iter().map(|id| cpu(*id))).expect("there is one")
}

/// At most `most` CPUs of `of`.
fn some(rng: &mut ChaCha8Rng, of: &[u16], most: usize) -> Vec<u16> {
    let count = rng.random_range(1..=most.min(of.len()));
    of.sample(rng, count).copied().collect()
}

impl Scenario {
    /// A scenario for a policy. The CPUs to which packets can be sent are some of `cpus`.
    #[must_use]
    pub fn new(kind: Kind, cpus: &[u16], rng: &mut ChaCha8Rng) -> Scenario {
        let possible = some(rng, cpus, 12);
        let receiving = some(rng, &possible, 3);
        let mut queues = Vec::new();
        for device in 0..rng.random_range(1..4) {
            for number in 0..rng.random_range(1..4) {
                let rx_cpu = *receiving.choose(rng).unwrap_or(&receiving[0]);
                queues.push(Queue { rx_cpu, device, number });
            }
        }
        let possible = CpuSet::new(possible.iter().map(|id| cpu(*id))).expect("there is one");
        let receivers = queues.iter().map(|queue| cpu(queue.rx_cpu)).collect();
        let mut config = SteerConfig::new(Policy::None, possible.clone(), receivers);
        config.possible = Some(possible.clone());
        config.devices = queues.iter().map(|queue| queue.device).collect();
        // Under `balance` the flows of a slot are in one bucket: as for the maps of `rps` below.
        let flow_log =
            if kind == Kind::Balance { 8 + rng.random_range(0..3) } else { rng.random_range(0..7) };
        config.flow_cnt = Some(1 << flow_log);
        config.slot_order = SlotOrder::Ascending;
        config.sock_flow_entries = 16 << rng.random_range(0..6);
        config.flow_limit = rng.random_ratio(1, 2).then(|| 1 << rng.random_range(0..9));
        let ring_size = rng.random_range(8..80);
        let local_by_ring = !kind.can_change() && rng.random_ratio(1, 4);
        // `rps` has no fallback except its hash; whether a flow may linger is the same for both sides.
        let is_rps = matches!(kind, Kind::Rps | Kind::RpsAsRun);
        if kind.can_change() && !is_rps && !kind.has_buckets() && rng.random_ratio(1, 3) {
            config.fallback = Fallback::Local;
        }
        let mut scenario = Scenario {
            kind,
            queues,
            ring_size,
            flow_log,
            possible,
            config,
            second_generation: Vec::new(),
            local_by_ring,
            unguarded: false,
            table: Vec::new(),
        };
        scenario.change(rng);
        scenario
    }

    /// Changes CPUs, offline CPUs, loops and generations; and if the core can do it at once, also the policy, to
    /// another one of its kind.
    pub(crate) fn change(&mut self, rng: &mut ChaCha8Rng) {
        let all: Vec<u16> = self.possible.iter().map(CpuId::get).collect();
        let after = if rng.random_ratio(1, 2) { 1 } else { rng.random_range(1..=6) };
        let slots = Slots { loops: rng.random_range(1..=5), after };
        let map = self.map(rng, &all);
        self.config.cpus = CpuSet::new(map.iter().map(|id| cpu(*id))).expect("there is one");
        // A receiving CPU cannot be offline.
        let receives = |id: &u16| self.queues.iter().any(|queue| queue.rx_cpu == *id);
        let idle: Vec<u16> = all.iter().copied().filter(|id| !receives(id)).collect();
        self.config.offline = None;
        if !idle.is_empty() && rng.random_ratio(1, 2) {
            self.config.offline = CpuSet::new(some(rng, &idle, 3).iter().map(|id| cpu(*id)));
        }
        self.config.rps_maps.clear();
        if self.kind.can_change() && !self.kind.has_buckets() && rng.random_ratio(1, 2) {
            let queues = 0..self.queues.len() as u16;
            let own = queues.filter(|_| rng.random_ratio(2, 3)).collect::<Vec<u16>>();
            let map = |queue: u16| (queue.into(), cpu_set(&self.map(rng, &all)));
            self.config.rps_maps = own.into_iter().map(map).collect();
        }
        self.config.rfs_cpus = rng.random_ratio(1, 3).then(|| cpu_set(&some(rng, &all, all.len())));
        self.config.policy = match self.kind {
            Kind::None => Policy::None,
            Kind::Bound => self.bindings(rng, &all),
            Kind::RpsAsRun => Policy::Rps,
            // The core's rps has no guard; its rfs without desired CPUs is rps with a guard.
            Kind::Rps | Kind::Rfs => Policy::Rfs,
            Kind::Sparse => Policy::Sparse(slots),
            Kind::RfsSparse => Policy::RfsSparse(slots),
            Kind::Matched => match rng.random_range(0..6) {
                0 => Policy::None,
                1 => Policy::Rps,
                2 => self.bindings(rng, &all),
                3 => Policy::Sparse(slots),
                4 => Policy::Rfs,
                _ => Policy::RfsSparse(slots),
            },
            Kind::MatchedBalance => {
                let slots = rng.random_ratio(1, 2).then_some(slots);
                Policy::Balance(Front { rfs: rng.random(), slots }, BALANCE)
            }
            Kind::Balance => Policy::Balance(Front::default(), BALANCE),
            Kind::RfsSparseBalance => {
                Policy::Balance(Front { rfs: true, slots: Some(slots) }, BALANCE)
            }
        };
        if self.kind.has_rules() {
            let rule = |rng: &mut ChaCha8Rng| {
                let action = match rng.random_range(0..8) {
                    0 | 1 => Action::Local,
                    2..5 => Action::Policy(*RulePolicy::ALL.choose(rng).expect("there are some")),
                    _ => Action::Cpus(cpu_set(&some(rng, &all, 4))),
                };
                PacketRule { terms: Vec::new(), action }
            };
            self.config.packet_rules = (0..rng.random_range(1..6)).map(|_| rule(rng)).collect();
            if !self.config.mechanisms().maps {
                self.config.rps_maps.clear();
            }
        }
        self.second_generation = all.into_iter().filter(|_| rng.random_ratio(1, 3)).collect();
        // As in `Settings::can_be_unguarded` of rxsteer-xdp.
        let is_fixed = self.kind == Kind::RpsAsRun && self.config.offline.is_none();
        self.unguarded = is_fixed && self.config.flow_limit.is_none() && rng.random_ratio(3, 4);
    }

    /// Some buckets that change to any CPUs, as load might decide.
    pub(crate) fn moves(&self, rng: &mut ChaCha8Rng) -> Vec<Move> {
        let cpus = self.possible.as_slice();
        let mut moves = Vec::new();
        for (bucket, from) in (0..).zip(&self.table) {
            if rng.random_ratio(1, 8) {
                let (from, to) = (*from, *cpus.choose(rng).unwrap_or(from));
                let large = FlowHash::NONE;
                moves.push(Move { bucket, from, to, from_percent: 0, to_percent: 0, large });
            }
        }
        moves
    }

    /// A CPU map. For `rps` as in `run`, the core does not guard flows that share a slot and have two targets, but the
    /// kernel does. So here the number of CPUs divides the number of slots. (tests/change has boundary slots.)
    fn map(&self, rng: &mut ChaCha8Rng, all: &[u16]) -> Vec<u16> {
        let mut map = some(rng, all, 8);
        if self.kind == Kind::RpsAsRun {
            map.truncate(1 << map.len().ilog2().min(self.flow_log));
        }
        map
    }

    /// Changes that only concern the C side: which rings are in use, and whether local packets go through one.
    pub(crate) fn switch_rings(&mut self, rng: &mut ChaCha8Rng) {
        let all = self.possible.iter().map(CpuId::get);
        self.second_generation = all.filter(|_| rng.random_ratio(1, 3)).collect();
        self.local_by_ring = rng.random();
    }

    /// Binds some queues.
    fn bindings(&self, rng: &mut ChaCha8Rng, all: &[u16]) -> Policy {
        let mut bindings = Vec::new();
        for queue in 0..self.queues.len() as u16 {
            let id = *all.choose(rng).unwrap_or(&all[0]);
            if !rng.random_ratio(1, 4) {
                bindings.push((queue.into(), cpu(id)));
            }
        }
        Policy::Bound(bindings)
    }

    /// The sizes of the tables.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        let highest = self.possible.highest();
        let rx_cpus = self.queues.iter().map(|queue| u32::from(queue.rx_cpu) + 1).max();
        let slots = (highest.index() as u32 + 1) * abi::STEER_SPARSE_ROW;
        Sizes {
            cpus: highest.index() as u32 + 1,
            rx_cpus: rx_cpus.unwrap_or(1),
            tables: self.queues.len() as u32,
            flow_log: self.flow_log,
            sock_entries: self.config.sock_flow_entries,
            sock_cpu_mask: SockFlowTable::sock_cpu_mask(highest),
            // Few chains, since long ones are the interesting case.
            chains_log: (slots / 4).next_power_of_two().max(abi::STEER_LINE_WORDS).ilog2(),
            limit_lines: self.config.flow_limit.unwrap_or(0).div_ceil(abi::STEER_LINE_BYTES).max(1),
        }
    }

    /// For each device its number of RX queues, and the flow table of the first.
    #[must_use]
    pub fn devices(&self) -> Vec<(u16, u32)> {
        let mut devices: Vec<(u16, u32)> = Vec::new();
        for (table, queue) in (0..).zip(&self.queues) {
            match devices.get_mut(usize::from(queue.device)) {
                Some(device) => device.0 += 1,
                None => devices.push((1, table)),
            }
        }
        devices
    }

    /// Whether local packets go through a ring, as with rules and where flows may leave their CPU at any time.
    pub(crate) fn goes_by_ring(&self) -> bool {
        self.local_by_ring || self.else_local() || !self.config.packet_rules.is_empty()
    }

    fn is_online(&self, id: CpuId) -> bool {
        self.possible.contains(id)
            && !self.config.offline.as_ref().is_some_and(|offline| offline.contains(id))
    }

    /// The rules for the C side.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let mechanisms = self.config.mechanisms();
        let slots = mechanisms.slots;
        let mut rules = Rules {
            policy: match self.kind {
                // The core's rps has no guard.
                Kind::Rps => abi::STEER_RPS,
                _ => number_of(&self.config.policy),
            },
            loops: slots.map_or(0, |slots| slots.loops.into()),
            after: slots.map_or(0, |slots| slots.after.into()),
            ring_size: self.ring_size,
            flow_limit: self.config.flow_limit.map_or(0, |buckets| buckets.ilog2() + 1),
            inactive_after: rxsteer_core::sparse::INACTIVE_AFTER_NS,
            local_by_ring: self.goes_by_ring().into(),
            else_local: self.else_local().into(),
            by_queue: u32::from(self.is_bound() || !self.config.rps_maps.is_empty()),
            no_hysteresis: if self.kind.has_rules() {
                (!mechanisms.move_flows()).into()
            } else {
                self.kind.has_no_table().into()
            },
            boundary_slots: 0,
            unguarded: self.unguarded.into(),
            map_len: self.config.cpus.len() as u32,
            buckets: self.table.len() as u32,
            first_bucket: self.config.cpus.len() as u32,
            map: [NO_CPU; abi::STEER_MAP_ENTRIES as usize],
            rows: [Row { first: 0, len: 0, number: 0, bound: NO_CPU }; abi::MAX_ROWS as usize],
            cpu: [0; abi::STEER_MAX_CPUS as usize],
            actions: [Act::default(); abi::STEER_MAX_RULES as usize],
        };
        let mut used = 0;
        let mut add = |map: &CpuSet| {
            let first = used;
            for id in map.iter() {
                rules.map[used] = if self.is_online(id) { id.get() } else { NO_CPU };
                used += 1;
            }
            (first as u16, map.len() as u16)
        };
        let general = add(&self.config.cpus);
        for (number, row) in (0..).zip(&mut rules.rows).take(self.queues.len()) {
            (row.first, row.len) = general;
            let own = self.config.rps_maps.iter().find(|(name, _)| name.queue() == Some(number));
            if let Some((_, map)) = own {
                (row.first, row.len) = add(map);
                row.number = number + 1;
            }
            if let Policy::Bound(bindings) = &self.config.policy {
                let bound = bindings.iter().find(|(name, _)| name.queue() == Some(number));
                let bound = bound.filter(|(_, id)| self.is_online(*id));
                row.bound = bound.map_or(NO_CPU, |(_, id)| id.get());
            }
        }
        for (entry, id) in rules.map[self.config.cpus.len()..].iter_mut().zip(&self.table) {
            let is_usable = self.config.cpus.contains(*id) && self.is_online(*id);
            *entry = if is_usable { id.get() } else { NO_CPU };
        }
        let mut used = self.config.cpus.len()
            + self.config.rps_maps.iter().map(|(_, map)| map.len()).sum::<usize>()
            + self.table.len();
        for (act, rule) in rules.actions.iter_mut().zip(&self.config.packet_rules) {
            act.first = used as u16;
            for id in rule.action.cpus().filter(|id| self.is_online(*id)) {
                rules.map[used] = id.get();
                used += 1;
            }
            act.len = used as u16 - act.first;
            let own = rule
                .action
                .policy()
                .map(|own| number_of(&own.with_settings_of(&self.config.policy)));
            act.policy = own.map_or(0, |number| number as u8 + 1);
        }
        for id in self.possible.iter() {
            let desired = self.is_online(id)
                && self.config.rfs_cpus.as_ref().is_none_or(|cpus| cpus.contains(id));
            let mut maps =
                self.config.rps_maps.iter().map(|(_, map)| map).chain([&self.config.cpus]);
            let mapped = self.is_online(id) && maps.any(|map| map.contains(id));
            let bits = [
                (abi::STEER_CPU_LINGER, mapped || desired && self.else_local()),
                (abi::STEER_CPU_GENERATION, self.second_generation.contains(&id.get())),
                (abi::STEER_CPU_DESIRED, desired),
            ];
            let set = bits.into_iter().filter(|(_, is_set)| *is_set);
            rules.cpu[id.index()] = set.map(|(bit, _)| bit as u8).sum();
        }
        rules
    }

    /// Whether flows that no rule places stay on the CPU that receives them.
    pub(crate) fn else_local(&self) -> bool {
        let moves = !self.kind.has_rules() || self.config.mechanisms().move_flows();
        self.config.fallback == Fallback::Local && moves
    }

    /// Whether queues are bound.
    pub(crate) fn is_bound(&self) -> bool {
        matches!(self.config.policy, Policy::Bound(_))
    }

    /// The rule, plus one, whose packets may have sparse slots; 0: all packets that no rule matches. `None`: no packet has
    /// any.
    pub(crate) fn rule_of_slots(&self) -> Option<u16> {
        if self.config.policy.slots().is_some() {
            return Some(0);
        }
        let is_sparse = |rule: &PacketRule| rule.action.policy().is_some_and(|own| own.sparse);
        let rule = self.config.packet_rules.iter().position(is_sparse)?;
        Some(rule as u16 + 1)
    }
}
