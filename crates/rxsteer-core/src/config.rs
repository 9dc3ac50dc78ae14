//! The configuration. It is checked once; all later steps are infallible.

use crate::admission::{Candidates, Slots};
use crate::cpu::{CpuId, CpuSet};
use crate::limits::{
    DEFAULT_SOCK_FLOW_ENTRIES, MAX_FLOW_CNT, MAX_FLOW_CNT_OF_ALL, MAX_FLOW_LIMIT_BUCKETS,
    MAX_LOOPS, MAX_RX_QUEUES, MAX_SOCK_FLOW_ENTRIES,
};
use crate::matching::{InterfaceName, MAX_RULES, PacketRule, Term};
use crate::mechanisms::Mechanisms;
use crate::policy::{Fallback, Policy};
use crate::queue_name::QueueName;
use crate::slot::SlotOrder;
use alloc::vec::Vec;
use core::fmt;

/// All settings of the policy, at the start and at each change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteerConfig {
    /// The policy that picks the CPU.
    pub policy: Policy,
    /// Rules that are applied before the policy, in order: at most [`MAX_RULES`].
    pub packet_rules: Vec<PacketRule>,
    /// Whether rules match the packets inside tunnels. Rules that no other packet can match are refused without it.
    pub inner: bool,
    /// The CPU map of every RX queue without a separate map.
    pub cpus: CpuSet,
    /// CPU maps of single RX queues, for policies that use maps. Here queues are identified only by number, over all
    /// devices: a name with an interface is refused.
    pub rps_maps: Vec<(QueueName, CpuSet)>,
    /// How a flow is placed if no other rule places it, for policies that remember flows.
    pub fallback: Fallback,
    /// CPUs that `rfs` may send a flow to because its application runs there. `None`: every possible CPU.
    pub rfs_cpus: Option<CpuSet>,
    /// For each RX queue, the CPU that receives it. This *default CPU* gets the packets without a flow. The length
    /// is the number of RX queues.
    pub receiving_cpus: Vec<CpuId>,
    /// For each RX queue, its device, for `sparse`: a flow that arrives through two devices holds two slots. Queues
    /// beyond the end belong to device 0.
    pub devices: Vec<u16>,
    /// The name of each device, for rules with `interface`; a rule may name no other one.
    pub device_names: Vec<InterfaceName>,
    /// CPUs that can't be used now. As in the kernel, packets whose target is such a CPU stay on the CPU that
    /// receives them, if that CPU is online. Slots of sparse flows on such a CPU count as absent.
    pub offline: Option<CpuSet>,
    /// Every CPU that a packet may ever be sent to, now and after changes, by the policy or by a desired CPU.
    /// `None`: the CPUs that this configuration names.
    pub possible: Option<CpuSet>,
    /// Entries of the sock flow table, for `rfs`: 1 to [`MAX_SOCK_FLOW_ENTRIES`], rounded up to a power of two.
    pub sock_flow_entries: u32,
    /// Entries of each RX queue's flow table, for policies that remember flows: 1 to [`MAX_FLOW_CNT`], rounded up
    /// to a power of two. `None`: [`DEFAULT_SOCK_FLOW_ENTRIES`] divided by the number of RX queues, but at least
    /// 1024.
    pub flow_cnt: Option<u32>,
    /// Which flows share a slot of a flow table. This setting can't be changed later.
    pub slot_order: SlotOrder,
    /// Buckets of the flow limit: 1 to [`MAX_FLOW_LIMIT_BUCKETS`], rounded up to a power of two. `None`: no flow
    /// limit.
    pub flow_limit: Option<u32>,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// There is no RX queue, or there are more than [`MAX_RX_QUEUES`]; holds the number.
    RxQueues(usize),
    /// A receiving CPU is [`CpuId::NONE`]; holds the RX queue.
    NoReceivingCpu(usize),
    /// A setting names an RX queue that does not exist; holds the setting, the queue and the number of queues.
    NoSuchQueue(&'static str, u16, usize),
    /// CPU maps of single queues are given, but the policy uses no maps.
    MapsNeedRps,
    /// One queue has two maps.
    MappedTwice(QueueName),
    /// A setting names an interface, but queues are identified only by number; holds the setting and the name.
    NoInterfaces(&'static str, QueueName),
    /// A size is out of range; holds the setting, the size and the largest size.
    Size(&'static str, u64, u64),
    /// There are more than [`MAX_RULES`] rules before the policy; holds the number.
    Rules(usize),
    /// A rule names an interface that no RX queue belongs to; holds it and the known interfaces.
    NoSuchInterface(InterfaceName, Vec<InterfaceName>),
    /// No packet can match this rule by its outer headers, and inner headers are not matched.
    NeedsInner(PacketRule),
    /// `after` of sparse slots is out of range.
    After(u8),
    /// The number of loops is out of range.
    Loops(u8),
    /// A setting of buckets is out of range.
    Balance,
    /// A setting names a CPU that packets can't be sent to.
    NotPossible(CpuId),
    /// A change would alter a setting that is fixed at the start; holds the setting.
    Fixed(&'static str),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RxQueues(count) => {
                write!(f, "{count} RX queues are configured; there can be 1 to {MAX_RX_QUEUES}")
            }
            Self::NoReceivingCpu(queue) => {
                write!(f, "RX queue {queue} has no receiving CPU; name one for it")
            }
            Self::NoSuchQueue(setting, queue, count) => write!(
                f,
                "{setting} names RX queue {queue}, but there are only queues 0 to {}",
                count - 1
            ),
            Self::MapsNeedRps => f.write_str(
                "CPU maps per RX queue are given, but the policies 'none' and 'bound' use none, and those with \
                 'balance' have one map for all queues; choose another, give a rule a policy, or leave the maps out",
            ),
            Self::MappedTwice(name) => write!(f, "RX queue {name} has two CPU maps"),
            Self::NoInterfaces(setting, name) => write!(
                f,
                "{setting} names {name}, but here RX queues have numbers and no interfaces; write the queue's \
                 number alone, e.g. 0=1"
            ),
            Self::Size(setting, size, most) => {
                write!(f, "{setting}: {size} is out of range; it can be 1 to {most}")
            }
            Self::Rules(count) => {
                write!(f, "{count} rules are too many; the limit is {MAX_RULES}")
            }
            Self::NoSuchInterface(name, known) => {
                write!(f, "a rule names interface {}, ", name.as_str())?;
                if known.is_empty() {
                    return f.write_str("but here packets come through no interface; leave it out");
                }
                f.write_str("but packets come through")?;
                for (index, known) in known.iter().enumerate() {
                    write!(f, "{} {}", if index == 0 { "" } else { "," }, known.as_str())?;
                }
                f.write_str(" alone; name one of these")
            }
            Self::NeedsInner(rule) => write!(
                f,
                "'{rule}': no packet can match: a TEID or a VNI is in udp (GTP-U, VXLAN, Geneve); leave the protocol \
                 out, or match the packets inside tunnels with the setting inner"
            ),
            Self::After(after) => write!(f, "after={after} is out of range: 1 to 255 packets"),
            Self::Loops(loops) => write!(f, "{loops} loops are out of range: 1 to {MAX_LOOPS}"),
            Self::Balance => f.write_str(
                "a setting of balance is out of range: buckets must be a power of two from 256 to 4096, interval \
                 10ms to 10s, threshold 1% to 100%, moves 1 to 4096",
            ),
            Self::NotPossible(cpu) => write!(
                f,
                "CPU {cpu} is not among the CPUs that packets can be sent to; \
                 name it at the start, or leave it out"
            ),
            Self::Fixed(what) => {
                write!(f, "{what} can't be changed at run time; restart to change it")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

impl PacketRule {
    /// Refuses rules that no packet can match by its outer headers, unless rules match `inner` headers.
    ///
    /// # Errors
    /// [`ConfigError::NeedsInner`] with the first such rule.
    pub fn check_headers(rules: &[PacketRule], inner: bool) -> Result<(), ConfigError> {
        match rules.iter().find(|rule| !inner && rule.needs_inner()) {
            None => Ok(()),
            Some(rule) => Err(ConfigError::NeedsInner(rule.clone())),
        }
    }
}

impl SteerConfig {
    /// One map for all RX queues, which belong to one device; every CPU online; tables of default sizes; no flow
    /// limit.
    #[must_use]
    pub fn new(policy: Policy, cpus: CpuSet, receiving_cpus: Vec<CpuId>) -> SteerConfig {
        SteerConfig {
            policy,
            packet_rules: Vec::new(),
            inner: false,
            cpus,
            rps_maps: Vec::new(),
            fallback: Fallback::default(),
            rfs_cpus: None,
            receiving_cpus,
            devices: Vec::new(),
            device_names: Vec::new(),
            offline: None,
            possible: None,
            sock_flow_entries: DEFAULT_SOCK_FLOW_ENTRIES,
            flow_cnt: None,
            slot_order: SlotOrder::default(),
            flow_limit: None,
        }
    }

    /// Checks whether a policy can be made from this configuration.
    ///
    /// # Errors
    /// [`ConfigError`] when settings contradict each other or are out of range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let queues = self.receiving_cpus.len();
        if queues == 0 || queues > usize::from(MAX_RX_QUEUES) {
            return Err(ConfigError::RxQueues(queues));
        }
        if let Some(queue) = self.receiving_cpus.iter().position(|cpu| *cpu == CpuId::NONE) {
            return Err(ConfigError::NoReceivingCpu(queue));
        }
        if self.packet_rules.len() > MAX_RULES {
            return Err(ConfigError::Rules(self.packet_rules.len()));
        }
        PacketRule::check_headers(&self.packet_rules, self.inner)?;
        self.check_maps()?;
        if let Policy::Bound(bindings) = &self.policy {
            for (name, _) in bindings {
                self.check_queue("bound", name)?;
            }
        }
        let Slots { loops, after } = self.mechanisms().slots.unwrap_or_default();
        if !(1..=MAX_LOOPS).contains(&loops) {
            return Err(ConfigError::Loops(loops));
        }
        if after == 0 {
            return Err(ConfigError::After(after));
        }
        let terms = self.packet_rules.iter().flat_map(|rule| &rule.terms);
        for name in terms.filter_map(Term::interface) {
            if !self.device_names.contains(&name) {
                return Err(ConfigError::NoSuchInterface(name, self.device_names.clone()));
            }
        }
        if self.policy.balance().is_some_and(|balance| !balance.is_valid()) {
            return Err(ConfigError::Balance);
        }
        in_range("sock_flow_entries", self.sock_flow_entries, MAX_SOCK_FLOW_ENTRIES)?;
        in_range("flow_cnt", self.flow_cnt(), MAX_FLOW_CNT)?;
        let all = u64::from(self.flow_cnt().next_power_of_two()) * queues as u64;
        if all > MAX_FLOW_CNT_OF_ALL {
            return Err(ConfigError::Size("flow_cnt of all RX queues", all, MAX_FLOW_CNT_OF_ALL));
        }
        if let Some(buckets) = self.flow_limit {
            in_range("the buckets of the flow limit", buckets, MAX_FLOW_LIMIT_BUCKETS)?;
        }
        match self.destinations().iter().find(|cpu| !self.possible().contains(*cpu)) {
            Some(cpu) => Err(ConfigError::NotPossible(cpu)),
            None => Ok(()),
        }
    }

    fn check_maps(&self) -> Result<(), ConfigError> {
        if !self.rps_maps.is_empty() && !self.mechanisms().maps {
            return Err(ConfigError::MapsNeedRps);
        }
        for (name, _) in &self.rps_maps {
            self.check_queue("the CPU map", name)?;
        }
        match QueueName::repeated(&self.rps_maps) {
            Some(name) => Err(ConfigError::MappedTwice(name.clone())),
            None => Ok(()),
        }
    }

    fn check_queue(&self, setting: &'static str, name: &QueueName) -> Result<(), ConfigError> {
        let queues = self.receiving_cpus.len();
        match (name.interface(), name.queue()) {
            (None, Some(queue)) if usize::from(queue) < queues => Ok(()),
            (None, Some(queue)) => Err(ConfigError::NoSuchQueue(setting, queue, queues)),
            _ => Err(ConfigError::NoInterfaces(setting, name.clone())),
        }
    }

    /// Entries of each RX queue's flow table, before rounding up.
    #[must_use]
    pub fn flow_cnt(&self) -> u32 {
        let queues = self.receiving_cpus.len().clamp(1, usize::from(MAX_RX_QUEUES)) as u32;
        self.flow_cnt.unwrap_or_else(|| (DEFAULT_SOCK_FLOW_ENTRIES / queues).max(1024))
    }

    /// The memory of the tables of `producers` producers together, in bytes: the sock flow table, the flow tables of all
    /// RX queues if the policy remembers flows, and each producer's counts.
    #[must_use]
    pub fn table_memory(&self, producers: u16) -> u64 {
        let queues = self.receiving_cpus.len() as u64;
        let slots = u64::from(self.flow_cnt().next_power_of_two()) + 1;
        let flows = if self.remembers_flows() { 8 * slots * queues } else { 0 };
        let buckets = self.flow_limit.map_or(0, |buckets| u64::from(buckets.next_power_of_two()));
        let counters = self.policy.balance().map_or(0, |balance| {
            let row = u64::from(balance.buckets) + self.possible().highest().index() as u64 + 1;
            12 * row * u64::from(producers)
        });
        let counts = self.mechanisms().slots.is_some_and(|slots| slots.after > 1);
        let candidates = if counts { Candidates::MEMORY * u64::from(producers) } else { 0 };
        4 * u64::from(self.sock_flow_entries.next_power_of_two())
            + flows
            + counters
            + candidates
            + buckets * u64::from(producers)
    }

    /// The mechanisms that the policy and the rules before it use.
    #[must_use]
    pub fn mechanisms(&self) -> Mechanisms {
        Mechanisms::of(&self.policy, &self.packet_rules)
    }

    /// Whether the CPUs of flows are remembered: if the policy needs it, or if packets of a flow may match different
    /// rules.
    #[must_use]
    pub fn remembers_flows(&self) -> bool {
        self.policy.remembers_flows() || !self.packet_rules.is_empty()
    }

    /// The name of the interface that `queue` belongs to, if it has one.
    #[must_use]
    pub fn interface_of(&self, queue: u16) -> Option<InterfaceName> {
        let device = self.devices.get(usize::from(queue)).copied().unwrap_or(0);
        self.device_names.get(usize::from(device)).copied()
    }

    /// The CPU map of `queue`.
    #[must_use]
    pub fn map_of(&self, queue: u16) -> &CpuSet {
        QueueName::most_specific(&self.rps_maps, None, queue).unwrap_or(&self.cpus)
    }

    /// The CPUs that the policy itself spreads flows over: those of the general map and of the maps of single queues.
    pub(crate) fn mapped_cpus(&self) -> impl Iterator<Item = CpuId> + Clone + '_ {
        self.cpus.iter().chain(self.rps_maps.iter().flat_map(|(_, cpus)| cpus.iter()))
    }

    /// Every CPU a packet can be sent to under this configuration.
    #[must_use]
    pub fn destinations(&self) -> CpuSet {
        let desired = self.rfs_cpus.iter().flat_map(CpuSet::iter);
        let all = self.mapped_cpus().chain(desired).chain(PacketRule::cpus_of(&self.packet_rules));
        CpuSet::new(all.chain(self.receiving_cpus.iter().copied()).chain(self.policy.named_cpus()))
            .unwrap_or_else(|| self.cpus.clone())
    }

    /// Every CPU a packet may ever be sent to.
    #[must_use]
    pub fn possible(&self) -> CpuSet {
        self.possible.clone().unwrap_or_else(|| self.destinations())
    }
}

fn in_range(setting: &'static str, size: u32, most: u32) -> Result<(), ConfigError> {
    if (1..=most).contains(&size) {
        Ok(())
    } else {
        Err(ConfigError::Size(setting, size.into(), most.into()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::vec;

    fn cpu(id: u16) -> CpuId {
        CpuId::new(id).unwrap()
    }

    #[test]
    fn impossible_configurations_are_refused() {
        let good = SteerConfig::new(Policy::Rps, "0-1".parse().unwrap(), vec![cpu(0); 2]);
        assert!(good.check().is_ok());
        let bad = |change: &dyn Fn(&mut SteerConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert_eq!(bad(&|c| c.receiving_cpus.clear()), ConfigError::RxQueues(0));
        assert_eq!(bad(&|c| c.receiving_cpus[1] = CpuId::NONE), ConfigError::NoReceivingCpu(1));
        let map = || vec![(1.into(), "0".parse().unwrap())];
        assert_eq!(
            bad(&|c| {
                c.policy = Policy::None;
                c.rps_maps = map();
            }),
            ConfigError::MapsNeedRps
        );
        assert_eq!(
            bad(&|c| c.rps_maps = [map(), map()].concat()),
            ConfigError::MappedTwice(1.into())
        );
        assert_eq!(
            bad(&|c| c.policy = Policy::Bound(vec![(2.into(), cpu(0))])),
            ConfigError::NoSuchQueue("bound", 2, 2)
        );
        let named = |text: &str| text.parse::<QueueName>().unwrap();
        assert_eq!(
            bad(&|c| c.rps_maps = vec![(named("eth0:0"), "0".parse().unwrap())]),
            ConfigError::NoInterfaces("the CPU map", named("eth0:0"))
        );
        assert_eq!(
            bad(&|c| c.policy = Policy::Bound(vec![(named("eth0"), cpu(0))])),
            ConfigError::NoInterfaces("bound", named("eth0"))
        );
        assert_eq!(
            bad(&|c| {
                c.possible = "0-1".parse().ok();
                c.rfs_cpus = "1-2".parse().ok();
            }),
            ConfigError::NotPossible(cpu(2))
        );
        let size = |setting, size, most| ConfigError::Size(setting, size, most);
        let inner: PacketRule = "gre teid 5 -> 0".parse().unwrap();
        let needs_inner = |c: &mut SteerConfig| c.packet_rules = vec![inner.clone()];
        assert_eq!(bad(&needs_inner), ConfigError::NeedsInner(inner.clone()));
        let mut with_inner = SteerConfig { inner: true, ..good.clone() };
        needs_inner(&mut with_inner);
        assert_eq!(with_inner.check(), Ok(()));
        assert_eq!(bad(&|c| c.flow_cnt = Some(0)), size("flow_cnt", 0, MAX_FLOW_CNT.into()));
        assert_eq!(
            bad(&|c| c.sock_flow_entries = MAX_SOCK_FLOW_ENTRIES + 1),
            size("sock_flow_entries", (1 << 26) + 1, 1 << 26)
        );
        assert_eq!(
            bad(&|c| {
                c.receiving_cpus = vec![cpu(0); 5];
                c.flow_cnt = Some(MAX_FLOW_CNT);
            }),
            size("flow_cnt of all RX queues", 5 << 24, MAX_FLOW_CNT_OF_ALL)
        );
        assert_eq!(bad(&|c| c.policy = Policy::Sparse(Slots::of(6))), ConfigError::Loops(6));
        assert_eq!(bad(&|c| c.possible = "0".parse().ok()), ConfigError::NotPossible(cpu(1)));
    }
}
