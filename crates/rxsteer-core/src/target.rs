//! What the rules choose for a packet, before the order guard.

use crate::cpu::CpuId;

/// The rule that chose a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetRule {
    Local,
    Bound,
    Hash,
    Slot,
    Rfs,
    Matched,
}

/// The CPU that the rules choose for a packet, before the order guard, and the rule that chose it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) cpu: CpuId,
    pub(crate) by: TargetRule,
}

impl Target {
    /// The target of a flow whose desired CPU plus one is `cpu_plus_1`; `None` for 0.
    #[inline(always)]
    pub(crate) fn rfs(cpu_plus_1: u16) -> Option<Target> {
        let cpu = CpuId::from_raw(cpu_plus_1.wrapping_sub(1));
        (cpu_plus_1 != 0).then_some(Target { cpu, by: TargetRule::Rfs })
    }
}
