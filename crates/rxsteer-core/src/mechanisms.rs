//! The mechanisms used by a policy and the rules before it, since some rules name a policy.

use crate::admission::Slots;
use crate::matching::PacketRule;
use crate::policy::Policy;

/// The mechanisms that a policy or one of the rules before it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    /// Desired CPUs are followed.
    pub rfs: bool,
    /// The settings of sparse slots, if there are slots. There is one table of slots.
    pub slots: Option<Slots>,
    /// RX queues can have separate CPU maps.
    pub maps: bool,
}

impl Mechanisms {
    /// The mechanisms of `policy` after `rules`.
    #[must_use]
    pub fn of(policy: &Policy, rules: &[PacketRule]) -> Mechanisms {
        let own = || rules.iter().filter_map(|rule| rule.action.policy());
        let mut all = Mechanisms {
            rfs: policy.is_rfs(),
            slots: policy.slots(),
            // Buckets have one table for all queues.
            maps: policy.has_maps() || own().next().is_some() && policy.balance().is_none(),
        };
        for own in own().map(|own| own.with_settings_of(policy)) {
            all.rfs |= own.is_rfs();
            all.slots = all.slots.or(own.slots());
        }
        all
    }

    /// Whether the CPU of a flow can change while the settings stay the same.
    #[must_use]
    pub fn move_flows(&self) -> bool {
        self.rfs || self.slots.is_some()
    }
}
