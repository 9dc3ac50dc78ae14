//! What can be configured, checked once; everything after is infallible.

use crate::bound::Bindings;
use crate::cpu::{CpuId, CpuSet};
use crate::rps::RpsMap;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// Most RX queues there can be.
pub const MAX_RX_QUEUES: u16 = 1024;

/// Which rule picks the CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every packet stays on the CPU that received it.
    None,
    /// Receive packet steering: the flow hash picks from the RX queue's CPU map.
    Rps,
    /// Each RX queue's packets go to the CPU it is bound to.
    Bound(Vec<(u16, CpuId)>),
}

impl Policy {
    /// The words a policy can begin with.
    pub const NAMES: [&'static str; 3] = ["none", "rps", "bound"];

    /// Every CPU the policy names itself.
    pub fn named_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        let bindings: &[(u16, CpuId)] = match self {
            Policy::Bound(bindings) => bindings,
            Policy::None | Policy::Rps => &[],
        };
        bindings.iter().map(|(_, cpu)| *cpu)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::None => f.write_str("none"),
            Policy::Rps => f.write_str("rps"),
            Policy::Bound(bindings) => {
                f.write_str("bound:")?;
                for (index, (queue, cpu)) in bindings.iter().enumerate() {
                    write!(f, "{}{queue}={cpu}", if index == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

/// Why a text is no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// The first word is no policy's name.
    UnknownName(String),
    /// The policy takes no settings; holds its name and what was given.
    TakesNothing(&'static str, String),
    /// `bound` without any binding.
    NothingBound,
    /// A part of `bound:` is not `QUEUE=CPU`.
    BadBinding(String),
    /// One queue is bound twice.
    BoundTwice(u16),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownName(name) => write!(f, "there is no policy '{name}'"),
            Self::TakesNothing(name, rest) => {
                write!(f, "the policy '{name}' takes no settings, but ':{rest}' follows it")
            }
            Self::NothingBound => {
                f.write_str("'bound' needs at least one binding, e.g. bound:0=1,1=2 (queue=CPU)")
            }
            Self::BadBinding(text) => write!(
                f,
                "'{text}' is no binding; write QUEUE=CPU with a queue below {MAX_RX_QUEUES} and a \
                 CPU up to {}, e.g. 0=1",
                CpuId::MAX
            ),
            Self::BoundTwice(queue) => write!(f, "RX queue {queue} is bound twice"),
        }
    }
}

impl core::error::Error for PolicyError {}

/// Reads `QUEUE=…` and returns the queue and what follows the sign.
///
/// # Errors
/// The text, when it has no such form or the queue is not below [`MAX_RX_QUEUES`].
pub fn parse_queue_setting(text: &str) -> Result<(u16, &str), String> {
    text.split_once('=')
        .and_then(|(queue, value)| Some((queue.trim().parse::<u16>().ok()?, value.trim())))
        .filter(|(queue, _)| *queue < MAX_RX_QUEUES)
        .ok_or_else(|| text.to_string())
}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name.trim(), Some(rest)),
            None => (text.trim(), None),
        };
        match (name, rest) {
            ("none", None) => Ok(Policy::None),
            ("rps", None) => Ok(Policy::Rps),
            ("none", Some(rest)) => Err(PolicyError::TakesNothing("none", rest.to_string())),
            ("rps", Some(rest)) => Err(PolicyError::TakesNothing("rps", rest.to_string())),
            ("bound", None) => Err(PolicyError::NothingBound),
            ("bound", Some(rest)) if rest.trim().is_empty() => Err(PolicyError::NothingBound),
            ("bound", Some(rest)) => parse_bindings(rest).map(Policy::Bound),
            _ => Err(PolicyError::UnknownName(name.to_string())),
        }
    }
}

fn parse_bindings(text: &str) -> Result<Vec<(u16, CpuId)>, PolicyError> {
    let mut bindings: Vec<(u16, CpuId)> = Vec::new();
    for item in text.split(',') {
        let (queue, cpu) = parse_queue_setting(item).map_err(PolicyError::BadBinding)?;
        let cpu = cpu
            .parse()
            .ok()
            .and_then(CpuId::new)
            .ok_or_else(|| PolicyError::BadBinding(item.to_string()))?;
        if bindings.iter().any(|(bound, _)| *bound == queue) {
            return Err(PolicyError::BoundTwice(queue));
        }
        bindings.push((queue, cpu));
    }
    Ok(bindings)
}

/// Everything the policy is told before it starts.
#[derive(Clone, Debug)]
pub struct SteerConfig {
    /// Which rule picks the CPU.
    pub policy: Policy,
    /// The CPU map of every RX queue that has none of its own.
    pub cpus: CpuSet,
    /// CPU maps of single RX queues, for `rps`.
    pub rps_maps: Vec<(u16, CpuSet)>,
    /// For each RX queue the CPU that receives it: its *default CPU*, where packets without a flow
    /// go. Its length is the number of RX queues.
    pub receiving_cpus: Vec<CpuId>,
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No RX queue, or more than [`MAX_RX_QUEUES`]; holds the number.
    RxQueues(usize),
    /// A receiving CPU is [`CpuId::NONE`]; holds the RX queue.
    NoReceivingCpu(usize),
    /// A setting names an RX queue that isn't there; holds the setting, the queue and how many
    /// there are.
    NoSuchQueue(&'static str, u16, usize),
    /// Maps per queue are given, but the policy has none.
    MapsNeedRps,
    /// One queue has two maps.
    MappedTwice(u16),
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
                "CPU maps per RX queue are given, but only the policy 'rps' uses them; \
                 choose it or leave them out",
            ),
            Self::MappedTwice(queue) => write!(f, "RX queue {queue} has two CPU maps"),
        }
    }
}

impl core::error::Error for ConfigError {}

/// The checked form of [`SteerConfig`] that decisions are made by.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) policy: Rule,
    pub(crate) receiving_cpus: Box<[CpuId]>,
}

#[derive(Clone, Debug)]
pub(crate) enum Rule {
    None,
    Rps {
        /// The maps: the common one first.
        maps: Box<[RpsMap]>,
        /// Which of `maps` each RX queue uses.
        map_of_queue: Box<[u16]>,
    },
    Bound(Bindings),
}

impl SteerConfig {
    pub(crate) fn check(&self) -> Result<Rules, ConfigError> {
        let queues = self.receiving_cpus.len();
        if queues == 0 || queues > usize::from(MAX_RX_QUEUES) {
            return Err(ConfigError::RxQueues(queues));
        }
        if let Some(queue) = self.receiving_cpus.iter().position(|cpu| *cpu == CpuId::NONE) {
            return Err(ConfigError::NoReceivingCpu(queue));
        }
        if !self.rps_maps.is_empty() && self.policy != Policy::Rps {
            return Err(ConfigError::MapsNeedRps);
        }
        let policy = match &self.policy {
            Policy::None => Rule::None,
            Policy::Rps => self.rps_rule()?,
            Policy::Bound(bindings) => {
                for (queue, _) in bindings {
                    self.check_queue("bound", *queue)?;
                }
                Rule::Bound(Bindings::new(bindings))
            }
        };
        Ok(Rules { policy, receiving_cpus: self.receiving_cpus.as_slice().into() })
    }

    fn rps_rule(&self) -> Result<Rule, ConfigError> {
        let mut maps = alloc::vec![RpsMap::new(&self.cpus)];
        let mut map_of_queue = alloc::vec![0u16; self.receiving_cpus.len()];
        for (queue, cpus) in &self.rps_maps {
            self.check_queue("the CPU map", *queue)?;
            let map = &mut map_of_queue[usize::from(*queue)];
            if *map != 0 {
                return Err(ConfigError::MappedTwice(*queue));
            }
            *map = maps.len() as u16;
            maps.push(RpsMap::new(cpus));
        }
        Ok(Rule::Rps { maps: maps.into(), map_of_queue: map_of_queue.into() })
    }

    fn check_queue(&self, setting: &'static str, queue: u16) -> Result<(), ConfigError> {
        let queues = self.receiving_cpus.len();
        if usize::from(queue) < queues {
            Ok(())
        } else {
            Err(ConfigError::NoSuchQueue(setting, queue, queues))
        }
    }

    /// Every CPU a packet can be sent to under this configuration.
    #[must_use]
    pub fn destinations(&self) -> CpuSet {
        let maps = self.rps_maps.iter().flat_map(|(_, cpus)| cpus.iter());
        let all = self.cpus.iter().chain(maps);
        CpuSet::new(all.chain(self.receiving_cpus.iter().copied()).chain(self.policy.named_cpus()))
            .unwrap_or_else(|| self.cpus.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn cpu(id: u16) -> CpuId {
        CpuId::new(id).unwrap()
    }

    #[test]
    fn policies_round_trip() {
        for text in ["none", "rps", "bound:0=1,1=1,5=0"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_policies_say_why() {
        let error = |text: &str| text.parse::<Policy>().unwrap_err();
        assert_eq!(error("rsp"), PolicyError::UnknownName("rsp".into()));
        assert_eq!(error("rps:4"), PolicyError::TakesNothing("rps", "4".into()));
        assert_eq!(error("bound"), PolicyError::NothingBound);
        assert_eq!(error("bound:"), PolicyError::NothingBound);
        for bad in ["bound:0", "bound:0=", "bound:0=1,", "bound:1024=0", "bound:0=9000"] {
            assert!(matches!(error(bad), PolicyError::BadBinding(_)), "{bad}");
        }
        assert_eq!(error("bound:0=1,0=2"), PolicyError::BoundTwice(0));
    }

    #[test]
    fn impossible_configurations_are_refused() {
        let good = SteerConfig {
            policy: Policy::Rps,
            cpus: "0-1".parse().unwrap(),
            rps_maps: vec![],
            receiving_cpus: vec![cpu(0); 2],
        };
        assert!(good.check().is_ok());
        let bad = |change: &dyn Fn(&mut SteerConfig)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert_eq!(bad(&|c| c.receiving_cpus.clear()), ConfigError::RxQueues(0));
        assert_eq!(bad(&|c| c.receiving_cpus[1] = CpuId::NONE), ConfigError::NoReceivingCpu(1));
        let map = || vec![(1, "0".parse().unwrap())];
        assert_eq!(
            bad(&|c| {
                c.policy = Policy::None;
                c.rps_maps = map();
            }),
            ConfigError::MapsNeedRps
        );
        assert_eq!(bad(&|c| c.rps_maps = [map(), map()].concat()), ConfigError::MappedTwice(1));
        assert_eq!(
            bad(&|c| c.policy = Policy::Bound(vec![(2, cpu(0))])),
            ConfigError::NoSuchQueue("bound", 2, 2)
        );
    }
}
