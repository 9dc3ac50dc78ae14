//! The policies and their text form.

use crate::admission::Slots;
use crate::balance::Balance;
use crate::cpu::CpuId;
use crate::limits::MAX_RX_QUEUES;
use crate::queue_name::QueueName;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The policy: how the CPU of a packet is picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every packet stays on the CPU that received it.
    None,
    /// Receive packet steering: the flow hash picks from the RX queue's CPU map.
    Rps,
    /// Each RX queue's packets go to the CPU that the queue is bound to. The binding with the most specific name
    /// applies.
    Bound(Vec<(QueueName, CpuId)>),
    /// The first flows are spread over the CPU map, according to these settings; the hash places all other flows.
    Sparse(Slots),
    /// Receive flow steering: each flow goes to its desired CPU, where its application runs. The [`Fallback`]
    /// places flows without a desired CPU.
    Rfs,
    /// Receive flow steering, with sparse placement of flows without a desired CPU.
    RfsSparse(Slots),
    /// The hash picks a bucket, and measured load decides which CPU a bucket belongs to. Other rules may take precedence.
    Balance(Front, Balance),
}

/// The rules that take precedence over the buckets of [`Policy::Balance`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Front {
    /// Whether desired CPUs come first, as under [`Policy::Rfs`].
    pub rfs: bool,
    /// The settings of sparse slots, if there are slots, as under [`Policy::Sparse`].
    pub slots: Option<Slots>,
}

impl Policy {
    /// The words that a policy can begin with.
    pub const NAMES: [&'static str; 11] = [
        "none",
        "rps",
        "bound",
        "sparse",
        "rfs",
        "rfs+sparse",
        "balance",
        "rps+balance",
        "sparse+balance",
        "rfs+balance",
        "rfs+sparse+balance",
    ];

    /// The first word of the policy's text.
    fn name(&self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Rps => "rps",
            Policy::Bound(_) => "bound",
            Policy::Sparse(_) => "sparse",
            Policy::Rfs => "rfs",
            Policy::RfsSparse(_) => "rfs+sparse",
            Policy::Balance(front, _) => match (front.rfs, front.slots.is_some()) {
                (false, false) => "rps+balance",
                (false, true) => "sparse+balance",
                (true, false) => "rfs+balance",
                (true, true) => "rfs+sparse+balance",
            },
        }
    }

    /// The CPUs that the policy itself names.
    pub fn named_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        let bindings: &[(QueueName, CpuId)] = match self {
            Policy::Bound(bindings) => bindings,
            _ => &[],
        };
        bindings.iter().map(|(_, cpu)| *cpu)
    }

    /// Whether the policy follows the desired CPUs of flows.
    #[must_use]
    pub fn is_rfs(&self) -> bool {
        match self {
            Policy::Rfs | Policy::RfsSparse(_) => true,
            Policy::Balance(front, _) => front.rfs,
            _ => false,
        }
    }

    /// The settings of buckets, if the policy has buckets.
    #[must_use]
    pub fn balance(&self) -> Option<&Balance> {
        match self {
            Policy::Balance(_, balance) => Some(balance),
            _ => None,
        }
    }

    /// The settings of slots for sparse flows, if the policy has such slots.
    #[must_use]
    pub fn slots(&self) -> Option<Slots> {
        match self {
            Policy::Sparse(slots) | Policy::RfsSparse(slots) => Some(*slots),
            Policy::Balance(front, _) => front.slots,
            _ => None,
        }
    }

    /// Whether `name` is a setting of some policy, as in `sparse:loops=2,after=8`.
    #[must_use]
    pub fn has_setting(name: &str) -> bool {
        Slots::default().set(name, "").is_some() || Balance::default().set(name, "").is_some()
    }

    /// Whether the policy's decision for a flow can change, so that each flow's CPU must be remembered.
    #[must_use]
    pub fn remembers_flows(&self) -> bool {
        self.is_rfs() || self.slots().is_some()
    }

    /// Whether a flow can move to another CPU while the settings stay the same: by the policy's decision, or because its
    /// bucket moves.
    #[must_use]
    pub fn moves_flows(&self) -> bool {
        self.remembers_flows() || self.balance().is_some()
    }

    /// Whether RX queues can have separate CPU maps. Buckets have one table for all queues.
    #[must_use]
    pub fn has_maps(&self) -> bool {
        self.balance().is_none() && (*self == Policy::Rps || self.remembers_flows())
    }
}

/// How a flow with neither a desired CPU nor a sparse slot is placed, under policies that use these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fallback {
    /// The hash picks from the CPU map.
    #[default]
    Hash,
    /// The flow stays on the CPU that receives it, as in the kernel when `rps_cpus` is empty.
    Local,
}

impl Fallback {
    /// The names of the fallbacks.
    pub const NAMES: [&'static str; 2] = ["hash", "local"];
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES[*self as usize])
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if let Policy::Bound(bindings) = self {
            for (index, (queue, cpu)) in bindings.iter().enumerate() {
                write!(f, "{}{queue}={cpu}", if index == 0 { ":" } else { "," })?;
            }
        }
        let slots = self.slots().map_or(String::new(), |slots| slots.to_string());
        let balance = self.balance().map_or(String::new(), Balance::to_string);
        match (slots + &balance).strip_prefix(',') {
            Some(settings) => write!(f, ":{settings}"),
            None => Ok(()),
        }
    }
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// The first word is not the name of a policy.
    UnknownName(String),
    /// The policy takes no settings; holds its name and the settings given.
    TakesNothing(&'static str, String),
    /// `bound` has no binding.
    NothingBound,
    /// A part of `bound:` is not a binding; holds the part and the reason.
    BadBinding(String, String),
    /// The same queues are bound twice.
    BoundTwice(QueueName),
    /// A setting of a policy is unknown or out of range; holds the policy, the setting and the reason.
    BadSetting(&'static str, String, &'static str),
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
            Self::BadBinding(text, why) => write!(
                f,
                "'{text}' is not a binding: {why}. Write QUEUE=CPU or IFACE:QUEUE=CPU with a queue below \
                 {MAX_RX_QUEUES} and a CPU up to {}, e.g. 0=1 or eth0:0=1",
                CpuId::MAX
            ),
            Self::BoundTwice(name) => write!(f, "RX queue {name} is bound twice"),
            Self::BadSetting(name, text, why) => {
                write!(f, "'{text}' is not a valid setting of the policy '{name}': {why}")
            }
        }
    }
}

impl core::error::Error for PolicyError {}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name.trim(), Some(rest)),
            None => (text.trim(), None),
        };
        let plain = |name, policy| match rest {
            None => Ok(policy),
            Some(rest) => Err(PolicyError::TakesNothing(name, rest.to_string())),
        };
        match (name, rest) {
            ("none", _) => plain("none", Policy::None),
            ("rps", _) => plain("rps", Policy::Rps),
            ("rfs", _) => plain("rfs", Policy::Rfs),
            ("sparse", rest) => parse_slots("sparse", rest).map(Policy::Sparse),
            ("rfs+sparse", rest) => parse_slots("rfs+sparse", rest).map(Policy::RfsSparse),
            ("balance" | "rps+balance", rest) => parse_balance("rps+balance", rest),
            ("sparse+balance", rest) => parse_balance("sparse+balance", rest),
            ("rfs+balance", rest) => parse_balance("rfs+balance", rest),
            ("rfs+sparse+balance", rest) => parse_balance("rfs+sparse+balance", rest),
            ("bound", None) => Err(PolicyError::NothingBound),
            ("bound", Some(rest)) if rest.trim().is_empty() => Err(PolicyError::NothingBound),
            ("bound", Some(rest)) => parse_bindings(rest).map(Policy::Bound),
            _ => Err(PolicyError::UnknownName(name.to_string())),
        }
    }
}

/// Parses `name=value` items, separated by commas, for the policy `name`. `set` takes the name and the value of an item,
/// and returns `None` if there is no such setting. `settings` lists the existing settings.
fn parse_settings(
    name: &'static str,
    rest: Option<&str>,
    settings: &'static str,
    mut set: impl FnMut(&str, &str) -> Option<Result<(), &'static str>>,
) -> Result<(), PolicyError> {
    let mut keys: Vec<&str> = Vec::new();
    for item in rest.into_iter().flat_map(|rest| rest.split(',')) {
        let (key, value) = item.split_once('=').unwrap_or((item, ""));
        let key = key.trim();
        let read = set(key, value.trim()).unwrap_or(Err(settings));
        let read = read.and_then(|()| match keys.contains(&key) {
            true => Err("it is set twice"),
            false => Ok(()),
        });
        keys.push(key);
        read.map_err(|why| PolicyError::BadSetting(name, item.trim().to_string(), why))?;
    }
    Ok(())
}

fn parse_balance(name: &'static str, rest: Option<&str>) -> Result<Policy, PolicyError> {
    let has = |rule: &str| name.split('+').any(|part| part == rule);
    let mut front = Front { rfs: has("rfs"), slots: has("sparse").then(Slots::default) };
    let mut balance = Balance::default();
    let settings =
        "the settings are buckets, interval, threshold and moves, e.g. buckets=1024,interval=100ms";
    parse_settings(name, rest, settings, |key, value| {
        balance.set(key, value).or_else(|| match &mut front.slots {
            Some(slots) => slots.set(key, value),
            None => {
                Slots::default().set(key, value).map(|_| Err("only policies with 'sparse' have it"))
            }
        })
    })?;
    Ok(Policy::Balance(front, balance))
}

fn parse_slots(name: &'static str, rest: Option<&str>) -> Result<Slots, PolicyError> {
    let mut slots = Slots::default();
    let settings = "the settings are loops and after, e.g. after=8,loops=2";
    parse_settings(name, rest, settings, |key, value| slots.set(key, value))?;
    Ok(slots)
}

fn parse_bindings(text: &str) -> Result<Vec<(QueueName, CpuId)>, PolicyError> {
    let mut bindings: Vec<(QueueName, CpuId)> = Vec::new();
    for item in text.split(',') {
        let bad = |why: String| PolicyError::BadBinding(item.to_string(), why);
        let (name, cpu) = QueueName::parse_setting(item).map_err(|error| bad(error.to_string()))?;
        let id = cpu.parse().ok().and_then(CpuId::new);
        let id = id.ok_or_else(|| bad(alloc::format!("'{cpu}' is not a CPU's number")))?;
        bindings.push((name, id));
    }
    match QueueName::repeated(&bindings) {
        Some(name) => Err(PolicyError::BoundTwice(name.clone())),
        None => Ok(bindings),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn policies_round_trip() {
        for text in [
            "none",
            "rps",
            "bound:0=1,1=1,5=0",
            "bound:eth0:0=1,eth1=2,0=3",
            "sparse",
            "sparse:loops=1",
            "sparse:after=8",
            "sparse:after=255,loops=2",
            "rfs",
            "rfs+sparse",
            "rfs+sparse:loops=5",
            "rps+balance",
            "rps+balance:buckets=256,interval=10ms,threshold=20%,moves=1",
            "rfs+balance:interval=2s",
            "sparse+balance:loops=2",
            "sparse+balance:after=2,buckets=256",
            "rfs+sparse+balance:loops=1,buckets=4096",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_policies_say_why() {
        let error = |text: &str| text.parse::<Policy>().unwrap_err();
        assert_eq!(error("rsp"), PolicyError::UnknownName("rsp".into()));
        assert_eq!(error("rps:4"), PolicyError::TakesNothing("rps", "4".into()));
        assert_eq!(error("rfs:x"), PolicyError::TakesNothing("rfs", "x".into()));
        let (loops, after) = ("loops must be 1 to 5", "after must be 1 to 255 packets");
        let settings = "the settings are loops and after, e.g. after=8,loops=2";
        for (bad, why) in [
            ("loops=0", loops),
            ("loops=6", loops),
            ("loops", loops),
            ("after=0", after),
            ("after=256", after),
            ("after=-1", after),
            ("loop=1", settings),
            ("buckets=256", settings),
            ("", settings),
        ] {
            for name in ["sparse", "rfs+sparse"] {
                let refused = PolicyError::BadSetting(name, bad.into(), why);
                assert_eq!(error(&alloc::format!("{name}:{bad}")), refused);
                assert_eq!(error(&alloc::format!("{name}:loops=2,{bad}")), refused);
            }
        }
        assert_eq!(
            "sparse: loops = 2 ,after=3".parse(),
            "sparse:after=3,loops=2".parse::<Policy>()
        );
        assert_eq!("balance".parse(), "rps+balance".parse::<Policy>());
        for bad in [
            "buckets=255",
            "buckets=1000",
            "buckets=8192",
            "interval=9ms",
            "interval=11s",
            "interval=100",
            "threshold=0",
            "threshold=101%",
            "moves=0",
            "moves=4097",
            "loops=2",
            "after=2",
            "",
            "x=1",
        ] {
            let text = alloc::format!("rps+balance:{bad}");
            assert!(matches!(error(&text), PolicyError::BadSetting(..)), "{bad}");
        }
        assert!(matches!(error("sparse+balance:loops=6"), PolicyError::BadSetting(..)));
        for twice in ["sparse:loops=2,loops=3", "rps+balance:moves=1,buckets=512,moves=2"] {
            let message = error(twice).to_string();
            assert!(message.contains("set twice"), "{message}");
        }
        assert_eq!(error("bound"), PolicyError::NothingBound);
        assert_eq!(error("bound:"), PolicyError::NothingBound);
        for bad in
            ["bound:0", "bound:0=", "bound:0=1,", "bound:1024=0", "bound:0=9000", "bound:eth*:0=1"]
        {
            assert!(matches!(error(bad), PolicyError::BadBinding(..)), "{bad}");
        }
        assert_eq!(error("bound:0=1,0=2"), PolicyError::BoundTwice(0.into()));
        assert_eq!(error("bound:a:0=1,a:0=2").to_string(), "RX queue a:0 is bound twice");
    }
}
