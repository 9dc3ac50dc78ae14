//! Where the packets go that a rule matches.

use super::{Action, PacketRule};
use crate::backlogs::Arrival;
use crate::cpu::{CpuId, CpuSet};
use crate::rps::RpsMap;
use alloc::boxed::Box;

/// For each rule its CPU map; `None`: the CPU that receives the packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Targets(Box<[Option<RpsMap>]>);

impl Targets {
    /// Only CPUs that are usable get packets. Without one, packets stay on the CPU that receives them.
    pub(crate) fn new(rules: &[PacketRule], is_usable: impl Fn(CpuId) -> bool) -> Targets {
        let map = |rule: &PacketRule| match &rule.action {
            Action::Cpus(cpus) => CpuSet::new(cpus.iter().filter(|cpu| is_usable(*cpu)))
                .map(|cpus| RpsMap::new(&cpus)),
            Action::Local | Action::Pass => None,
        };
        Targets(rules.iter().map(map).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPU of a packet that a rule matches; `Some(None)`: the CPU that receives it. `None`: no rule matches it.
    pub(crate) fn cpu(&self, packet: &Arrival) -> Option<Option<CpuId>> {
        let map = self.0.get(usize::from(packet.rule.checked_sub(1)?))?;
        let map = map.as_ref().filter(|_| !packet.hash.is_none());
        Some(map.map(|map| map.cpu(packet.hash)))
    }
}
