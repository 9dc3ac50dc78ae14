//! The text form of actions, and the policies that they name.

use super::{Action, RuleError};
use crate::cpu::CpuSet;
use crate::policy::{Front, Policy};
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// A policy that a rule can name instead of CPUs: `rps`, `sparse`, `rfs` or `rfs+sparse`. It uses the settings of the
/// policy that follows the rules: its CPU maps or buckets, its sparse slots, its fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulePolicy {
    /// Whether desired CPUs come first.
    pub rfs: bool,
    /// Whether sparse slots come before the hash.
    pub sparse: bool,
}

impl RulePolicy {
    /// Every policy that a rule can name.
    pub const ALL: [RulePolicy; 4] = [
        RulePolicy { rfs: false, sparse: false },
        RulePolicy { rfs: false, sparse: true },
        RulePolicy { rfs: true, sparse: false },
        RulePolicy { rfs: true, sparse: true },
    ];

    /// Its name, which is also that of the [`Policy`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match (self.rfs, self.sparse) {
            (false, false) => "rps",
            (false, true) => "sparse",
            (true, false) => "rfs",
            (true, true) => "rfs+sparse",
        }
    }

    /// The policy of a rule before `policy`, with the settings of `policy`.
    #[must_use]
    pub fn with_settings_of(self, policy: &Policy) -> Policy {
        // All policies share one table of slots, with one number of slots per CPU.
        let slots = self.sparse.then(|| policy.slots().unwrap_or_default());
        match (policy, self.rfs, slots) {
            (Policy::Balance(_, balance), rfs, slots) => {
                Policy::Balance(Front { rfs, slots }, *balance)
            }
            (_, false, None) => Policy::Rps,
            (_, false, Some(slots)) => Policy::Sparse(slots),
            (_, true, None) => Policy::Rfs,
            (_, true, Some(slots)) => Policy::RfsSparse(slots),
        }
    }

    /// The policy with this name, or why a rule can't name it.
    fn read(name: &str) -> Result<RulePolicy, String> {
        let known = RulePolicy::ALL.into_iter().find(|policy| policy.name() == name);
        known.ok_or_else(|| {
            let word = name.split(':').next().unwrap_or(name);
            let why = if word == "bound" {
                "it uses the RX queue; name the CPUs themselves, e.g. -> 2"
            } else if word.contains("balance") {
                "all flows share its buckets. With --policy rps+balance, 'policy rps' uses these buckets, so name \
                 rps, sparse, rfs or rfs+sparse"
            } else if name.contains(':') && Policy::NAMES.contains(&word) {
                "in a rule it has no settings: the rules share the sparse slots of --policy, with their loops and after"
            } else {
                "a rule can have none, rps, sparse, rfs or rfs+sparse"
            };
            why.to_owned()
        })
    }
}

impl fmt::Display for RulePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Action {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Action, RuleError> {
        let text = text.trim();
        let cpus = text.strip_prefix("cpus ").or_else(|| text.strip_prefix("cpu ")).unwrap_or(text);
        if let Some(name) = text.strip_prefix("policy ") {
            let name = name.trim();
            // `none` means that a packet stays on the CPU that receives it.
            if name == "none" {
                return Ok(Action::Local);
            }
            let policy = RulePolicy::read(name);
            return policy
                .map(Action::Policy)
                .map_err(|why| RuleError::Policy(name.to_owned(), why));
        }
        match text {
            "local" => Ok(Action::Local),
            "pass" => Ok(Action::Pass),
            _ => match cpus.trim().parse::<CpuSet>() {
                Ok(cpus) => Ok(Action::Cpus(cpus)),
                Err(why) if cpus.trim().starts_with(|c: char| c.is_ascii_digit()) => {
                    Err(RuleError::Cpus(text.to_owned(), why))
                }
                Err(_) => Err(RuleError::Action(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Cpus(cpus) => write!(f, "{cpus}"),
            Action::Local => f.write_str("local"),
            Action::Pass => f.write_str("pass"),
            Action::Policy(policy) => write!(f, "policy {policy}"),
        }
    }
}
