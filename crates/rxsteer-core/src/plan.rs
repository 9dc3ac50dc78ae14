//! A plan: a checked configuration, compiled for decisions, with the tables that all producers share. A change at run
//! time creates a new [`Plan`] from the last one ([`Plan::next`]). The new plan keeps the tables whose sizes do not
//! change. The old plan stays alive while a producer still uses it.

use crate::admission::Candidates;
use crate::backlogs::Arrival;
use crate::balance::{Buckets, CountPackets, Counted};
use crate::balancer::Move;
use crate::bound::Bindings;
use crate::chooser::{Chooser, Rule, SlotSettings, Tables};
use crate::config::{ConfigError, SteerConfig};
use crate::cpu::{CpuId, CpuSet};
use crate::flow::FlowHash;
use crate::maps::Map;
use crate::matching::{Matcher, PacketRule, RulePolicy, Targets};
use crate::policy::Fallback;
use crate::rfs::SockFlowTable;
use crate::slot_request::SlotRequest;
use crate::sparse::SparseTable;
use crate::target::{Target, TargetRule};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// The rules and tables that every producer uses.
#[derive(Debug)]
pub struct Plan {
    pub(crate) config: SteerConfig,
    pub(crate) rules: Rules,
    pub(crate) socks: Arc<SockFlowTable>,
    pub(crate) sparse: Arc<SparseTable>,
    pub(crate) possible: CpuSet,
    /// The counts of flows that may be admitted to sparse slots. They exist since the first policy that needed them.
    pub(crate) candidates: Option<Arc<Candidates>>,
    /// The buckets, under policies that have them.
    buckets: Option<Buckets>,
    /// The rules before the policy, if there are any.
    pub(crate) matcher: Option<Arc<Matcher>>,
    producers: u16,
}

/// The rules that choose a packet's target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The policy.
    pub(crate) policy: Chooser,
    /// Where packets go that match a rule before the policy.
    pub(crate) matched: Targets,
    /// For each RX queue, the CPU of packets that are not steered.
    pub(crate) local: Box<[CpuId]>,
    /// For each RX queue, its device.
    devices: Box<[u16]>,
    /// How a flow is placed if no other rule places it; [`Fallback::Hash`] under rules without a flow table.
    fallback: Fallback,
    /// Indexed by CPU id plus one: whether a flow may go to this CPU because its application runs there. Row 0 is
    /// "no CPU". There are as many rows as the CPU bits of a sock flow entry can express; none under rules without
    /// a flow table.
    desired: Box<[bool]>,
    /// Indexed by CPU id: whether a flow that only the fallback places may stay on this CPU for a while. Empty
    /// under rules without a flow table.
    lingers: Box<[bool]>,
}

impl Plan {
    /// The number of producers that it serves.
    #[must_use]
    pub fn producers(&self) -> u16 {
        self.producers
    }

    /// The plan of `config`, for up to `producers` producers (RX threads), numbered from 0.
    ///
    /// # Errors
    /// [`ConfigError`] when settings contradict each other or are out of range.
    pub fn new(config: &SteerConfig, producers: u16) -> Result<Plan, ConfigError> {
        config.check()?;
        let possible = config.possible();
        let buckets = buckets_of(config, &possible, None, producers);
        let candidates = candidates_of(config, None, producers);
        Ok(Plan {
            rules: Rules::new(config, &possible, buckets.as_ref(), candidates.as_ref()),
            candidates,
            buckets,
            matcher: Matcher::of(&config.packet_rules, None, producers),
            config: config.clone(),
            socks: Arc::new(SockFlowTable::new(config.sock_flow_entries, possible.highest())),
            sparse: Arc::new(SparseTable::new(possible.highest(), producers)),
            possible,
            producers,
        })
    }

    /// The plan of a changed configuration. It keeps sparse slots, and the buckets that need not move. It keeps the sock
    /// flow table unless its size changes. A table of a new size starts empty, and the applications fill it again as they
    /// run.
    ///
    /// # Errors
    /// [`ConfigError`] if the configuration is invalid, or if it alters the RX queues, their devices or the possible
    /// CPUs.
    pub fn next(&self, config: &SteerConfig) -> Result<Plan, ConfigError> {
        let mut config = config.clone();
        config.possible = Some(self.possible.clone());
        config.check()?;
        if config.receiving_cpus != self.config.receiving_cpus {
            return Err(ConfigError::Fixed("the RX queues and the CPUs that receive them"));
        }
        if config.devices != self.config.devices || config.device_names != self.config.device_names
        {
            return Err(ConfigError::Fixed("the device of an RX queue"));
        }
        if self.config.slot_order != config.slot_order {
            return Err(ConfigError::Fixed("the order of flow tables' slots"));
        }
        let entries = config.sock_flow_entries.next_power_of_two();
        let socks = if entries == self.socks.len() {
            self.socks.clone()
        } else {
            Arc::new(SockFlowTable::new(entries, self.possible.highest()))
        };
        let buckets = buckets_of(&config, &self.possible, self.buckets.as_ref(), self.producers);
        let candidates = candidates_of(&config, self.candidates.as_ref(), self.producers);
        Ok(Plan {
            rules: Rules::new(&config, &self.possible, buckets.as_ref(), candidates.as_ref()),
            matcher: Matcher::of(&config.packet_rules, self.matcher(), self.producers),
            candidates,
            buckets,
            config,
            socks,
            sparse: self.sparse.clone(),
            possible: self.possible.clone(),
            producers: self.producers,
        })
    }

    /// The plan after `moves` of buckets. A move has no effect if the bucket is no longer on its CPU, or if the new CPU
    /// can't be used.
    #[must_use]
    pub fn moved(&self, moves: &[Move]) -> Plan {
        let mut table: Box<[CpuId]> = self.bucket_table().into();
        let usable = self.bucket_cpus();
        for Move { bucket, from, to, .. } in moves {
            if let Some(entry) = table.get_mut(usize::from(*bucket))
                && *entry == *from
                && usable.contains(to)
            {
                *entry = *to;
            }
        }
        self.with_buckets(&table)
    }

    /// The same plan with another table of buckets, if the new table has the same size.
    pub(crate) fn with_buckets(&self, table: &[CpuId]) -> Plan {
        let mut buckets = self.buckets.clone();
        if let Some(buckets) = buckets.as_mut().filter(|now| now.table.len() == table.len()) {
            buckets.table = table.into();
        }
        let candidates = self.candidates.clone();
        Plan {
            rules: Rules::new(&self.config, &self.possible, buckets.as_ref(), candidates.as_ref()),
            candidates,
            buckets,
            matcher: self.matcher.clone(),
            config: self.config.clone(),
            socks: self.socks.clone(),
            sparse: self.sparse.clone(),
            possible: self.possible.clone(),
            producers: self.producers,
        }
    }

    /// The CPU of each bucket; empty under policies without buckets.
    #[must_use]
    pub fn bucket_table(&self) -> &[CpuId] {
        self.buckets.as_ref().map_or(&[], |buckets| &buckets.table)
    }

    /// The CPUs that buckets can go to now.
    #[must_use]
    pub fn bucket_cpus(&self) -> Vec<CpuId> {
        let is_usable = usable(&self.config, &self.possible);
        self.config.cpus.iter().filter(|cpu| is_usable(*cpu)).collect()
    }

    /// The counts of the buckets; `None` under policies without buckets.
    #[must_use]
    pub fn bucket_counts(&self) -> Option<Counted> {
        self.buckets.as_ref().map(|buckets| buckets.counts.read())
    }

    /// The rules before the policy; `None` if there are none.
    #[must_use]
    pub fn matcher(&self) -> Option<&Arc<Matcher>> {
        self.matcher.as_ref()
    }

    /// The rules before the policy, and how many packets each has matched since it was set.
    #[must_use]
    pub fn rule_hits(&self) -> Vec<(PacketRule, u64)> {
        let of =
            |matcher: &Arc<Matcher>| matcher.rules().iter().cloned().zip(matcher.hits()).collect();
        self.matcher.as_ref().map(of).unwrap_or_default()
    }

    /// The configuration of this plan.
    #[must_use]
    pub fn config(&self) -> &SteerConfig {
        &self.config
    }

    /// The sock flow table. Only `rfs` uses it; it is kept under every policy.
    #[must_use]
    pub fn sock_flows(&self) -> &Arc<SockFlowTable> {
        &self.socks
    }

    /// The logarithm of the entries of an RX queue's flow table.
    pub(crate) fn flow_log(&self) -> u32 {
        self.config.flow_cnt().next_power_of_two().trailing_zeros()
    }

    /// The target of the packet, by all rules. The per-policy loops of [`crate::steer`] do the same, but evaluate
    /// the conditions once per batch.
    pub(crate) fn target(&self, packet: &Arrival, producer: u16) -> Target {
        let chooser = self.rules.chooser(packet);
        let desired =
            || chooser.rfs.then(|| self.rules.desired_target(&self.socks, packet)).flatten();
        match self.rules.matched_target(packet).or_else(desired) {
            Some(target) => {
                if let Some(buckets) = &self.buckets {
                    buckets.counts.row(producer).elsewhere(target.cpu);
                }
                target
            }
            None => self.rules.place(&chooser.rule, packet, &self.sparse, producer),
        }
    }
}

/// Whether a CPU can be used now.
fn usable<'a>(config: &'a SteerConfig, possible: &'a CpuSet) -> impl Fn(CpuId) -> bool + 'a {
    let is_offline =
        |cpu: CpuId| config.offline.as_ref().is_some_and(|offline| offline.contains(cpu));
    move |cpu| possible.contains(cpu) && !is_offline(cpu)
}

/// The candidates of a plan: those of the former plan, or new ones if the policy counts them.
fn candidates_of(
    config: &SteerConfig,
    old: Option<&Arc<Candidates>>,
    producers: u16,
) -> Option<Arc<Candidates>> {
    let counts = config.mechanisms().slots.is_some_and(|slots| slots.after > 1);
    old.cloned().or_else(|| counts.then(|| Arc::new(Candidates::new(producers))))
}

/// The buckets of a configuration, if its policy has buckets.
fn buckets_of(
    config: &SteerConfig,
    possible: &CpuSet,
    old: Option<&Buckets>,
    producers: u16,
) -> Option<Buckets> {
    let is_usable = usable(config, possible);
    let cpus: Vec<CpuId> = config.cpus.iter().filter(|cpu| is_usable(*cpu)).collect();
    let balance = config.policy.balance()?;
    Some(Buckets::next(balance, &cpus, old, possible.highest(), producers))
}

impl Rules {
    fn new(
        config: &SteerConfig,
        possible: &CpuSet,
        buckets: Option<&Buckets>,
        candidates: Option<&Arc<Candidates>>,
    ) -> Rules {
        let is_usable = usable(config, possible);
        let first_usable = possible.iter().find(|cpu| is_usable(*cpu));
        let local: Box<[CpuId]> = config
            .receiving_cpus
            .iter()
            // If no CPU is left, the choice makes no difference.
            .map(|cpu| if is_usable(*cpu) { *cpu } else { first_usable.unwrap_or(*cpu) })
            .collect();
        let tables = Tables { config, is_usable: &is_usable, local: &local, buckets, candidates };
        let policy = Chooser::new(&config.policy, &tables);
        let own = |own: RulePolicy| Chooser::new(&own.with_settings_of(&config.policy), &tables);
        let matched = Targets::new(&config.packet_rules, &is_usable, own);
        let queues = config.receiving_cpus.len();
        let devices = config.devices.iter().copied().chain(core::iter::repeat(0));
        let mut rules = Rules {
            policy,
            matched,
            local,
            devices: devices.take(queues).collect(),
            fallback: Fallback::default(),
            desired: Box::new([]),
            lingers: Box::new([]),
        };
        if rules.flows_move() {
            // Buckets place every flow.
            if buckets.is_none() {
                rules.fallback = config.fallback;
            }
            let rows = SockFlowTable::sock_cpu_mask(possible.highest()) as usize + 1;
            rules.desired = vec![false; rows].into();
            rules.lingers = vec![false; possible.highest().index() + 1].into();
            for cpu in possible.iter().filter(|cpu| is_usable(*cpu)) {
                let desired = config.rfs_cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu));
                rules.desired[cpu.index() + 1] = desired;
                // If the fallback does not use the maps, a flow may stay where its application ran.
                rules.lingers[cpu.index()] = config.mapped_cpus().any(|mapped| mapped == cpu)
                    || desired && rules.fallback == Fallback::Local;
            }
        }
        rules
    }

    /// Whether a packet that the rule `by` places may follow its slot to `cpu` for a while; see
    /// [`crate::order::HYSTERESIS`].
    #[inline(always)]
    pub(crate) fn may_linger(&self, by: TargetRule, cpu: CpuId) -> bool {
        let falls_back =
            by == TargetRule::Hash || by == TargetRule::Local && self.fallback == Fallback::Local;
        falls_back && self.lingers.get(cpu.index()).copied().unwrap_or(false)
    }

    /// Whether the CPUs of flows are remembered: if a flow's CPU can change while the rules stay the same, or if packets
    /// of a flow may match different rules.
    pub(crate) fn remember_flows(&self) -> bool {
        !self.matched.is_empty() || self.flows_move()
    }

    /// Whether the policy, or one that a rule names, can change a flow's CPU while the rules stay the same.
    fn flows_move(&self) -> bool {
        self.choosers().any(Chooser::moves_flows)
    }

    /// The policy, and the policies that rules name.
    pub(crate) fn choosers(&self) -> impl Iterator<Item = &Chooser> {
        self.matched.choosers().chain([&self.policy])
    }

    /// The policy that decides about the packet: that of the matching rule if it names one, else the general policy.
    pub(crate) fn chooser(&self, packet: &Arrival) -> &Chooser {
        self.matched.chooser(packet).unwrap_or(&self.policy)
    }

    /// The CPU of packets that are not steered. As in the kernel, a queue number out of range counts as queue 0.
    #[inline(always)]
    pub(crate) fn local(&self, packet: &Arrival) -> Target {
        let local = self.local.get(usize::from(packet.rx_queue)).copied();
        Target { cpu: local.unwrap_or(self.local[0]), by: TargetRule::Local }
    }

    /// The target by the rule that matches the packet, if a rule does and names no policy.
    pub(crate) fn matched_target(&self, packet: &Arrival) -> Option<Target> {
        let cpu = self.matched.cpu(packet)?;
        let local = self.local(packet).cpu;
        Some(Target { cpu: cpu.unwrap_or(local), by: TargetRule::Matched })
    }

    /// The flow's desired CPU as a target, if one was recorded and packets can be sent to it.
    pub(crate) fn desired_target(&self, socks: &SockFlowTable, packet: &Arrival) -> Option<Target> {
        let steered = !packet.hash.is_none() && usize::from(packet.rx_queue) < self.local.len();
        let desired = self.usable_desired(socks, socks.raw(packet.hash), packet.hash);
        Target::rfs(if steered { desired } else { 0 })
    }

    /// The desired CPU plus one that `entry` of the sock flow table holds for the flow of `hash`. The result is 0
    /// when the entry holds no desired CPU of this flow, or one that packets can't be sent to.
    #[inline(always)]
    pub(crate) fn usable_desired(&self, socks: &SockFlowTable, entry: u32, hash: FlowHash) -> u16 {
        let cpu_plus_1 = socks.desired_in(entry, hash);
        let is_usable = self.desired.get(cpu_plus_1 as usize).copied().unwrap_or(false);
        if is_usable { cpu_plus_1 as u16 } else { 0 }
    }

    /// The target by `rule` of a flow without a desired CPU.
    fn place(&self, rule: &Rule, packet: &Arrival, sparse: &SparseTable, producer: u16) -> Target {
        match rule {
            Rule::None => self.local(packet),
            Rule::Bound(bindings) => self.bound(bindings, packet),
            Rule::Rps(maps) => match maps.map(packet) {
                None => self.local(packet),
                Some(map) => map.by_hash(packet, maps.row(producer)),
            },
            Rule::Sparse(maps, in_slots) => match maps.map(packet) {
                None => self.local(packet),
                Some(map) => {
                    let slots = in_slots.settings();
                    self.in_slot(packet, map, slots, (sparse, producer), maps.row(producer))
                }
            },
        }
    }

    #[inline(always)]
    pub(crate) fn bound(&self, bindings: &Bindings, packet: &Arrival) -> Target {
        match bindings.cpu(packet.rx_queue) {
            Some(cpu) => Target { cpu, by: TargetRule::Bound },
            None => self.local(packet),
        }
    }

    #[inline(always)]
    pub(crate) fn in_slot(
        &self,
        packet: &Arrival,
        map: &Map,
        slots: SlotSettings<'_>,
        (sparse, producer): (&SparseTable, u16),
        counts: impl CountPackets,
    ) -> Target {
        let request = self.slot_request(packet, producer);
        match sparse.find(&request, &map.walk, slots.loops, slots.admission) {
            Some(cpu) => {
                counts.elsewhere(cpu);
                Target { cpu, by: TargetRule::Slot }
            }
            None if self.fallback == Fallback::Hash => map.by_hash(packet, counts),
            None => self.local(packet),
        }
    }

    /// Removes a packet from the counts. The packet must wait, and will be decided on again.
    #[inline(always)]
    pub(crate) fn waits(&self, packet: &Arrival, target: Target, producer: u16) {
        // Only packets that asked for a slot were counted.
        if !matches!(target.by, TargetRule::Matched | TargetRule::Rfs)
            && let Rule::Sparse(_, in_slots) = &self.chooser(packet).rule
            && let Some((candidates, _)) = in_slots.settings().admission
        {
            candidates.take_back(&self.slot_request(packet, producer));
        }
    }

    pub(crate) fn fallback(&self) -> Fallback {
        self.fallback
    }

    #[inline(always)]
    pub(crate) fn slot_request(&self, packet: &Arrival, producer: u16) -> SlotRequest {
        let device = self.devices.get(usize::from(packet.rx_queue)).copied().unwrap_or(0);
        SlotRequest { device, hash: packet.hash, now_ns: packet.time_ns, producer }
    }
}
