//! The values of settings, and their text form.

use crate::nearest::suggestion;
use rxsteer_core::limits::{DEFAULT_FLOW_LIMIT_BUCKETS, MAX_BACKLOG};
use rxsteer_core::policy::PolicyError;
use rxsteer_core::{CpuId, CpuSet, CpuSetError, Fallback, PacketRule, Policy, QueueName};
use std::str::FromStr;

/// `--policy`.
///
/// # Errors
/// Why the text is not a policy; for an unknown name, with the nearest valid one.
pub fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error: PolicyError| match &error {
        PolicyError::UnknownName(name) => format!("{error}{}", suggestion(name, &Policy::NAMES)),
        _ => error.to_string(),
    })
}

/// `--cpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuChoice {
    /// These CPUs.
    List(CpuSet),
    /// A number of CPUs; holds CPUs 0 to that number minus one.
    Count(CpuSet),
}

impl CpuChoice {
    /// The selected CPUs. A count selects the first CPUs that this process may use, if the process may use that
    /// many; otherwise CPUs 0 to the count minus one.
    #[must_use]
    pub fn cpus(&self, allowed: Option<CpuSet>) -> CpuSet {
        match (self, allowed) {
            (CpuChoice::Count(first), Some(allowed)) if first.len() <= allowed.len() => {
                CpuSet::new(allowed.iter().take(first.len())).unwrap_or_else(|| first.clone())
            }
            (CpuChoice::List(cpus) | CpuChoice::Count(cpus), _) => cpus.clone(),
        }
    }
}

/// Reads a list of CPUs; a single number is a count.
///
/// # Errors
/// Why the text is neither.
pub fn cpus(text: &str) -> Result<CpuChoice, String> {
    let Ok(count) = text.trim().parse::<u64>() else { return cpu_list(text).map(CpuChoice::List) };
    let first = u16::try_from(count).ok().and_then(CpuSet::first);
    first.map(CpuChoice::Count).ok_or_else(|| {
        format!(
            "a count of CPUs must be 1 to {}, not {count} (to name CPU 0 alone, write 0-0)",
            u32::from(CpuId::MAX.get()) + 1
        )
    })
}

/// Reads a list of CPUs, and refuses a single number: other commands read it as a count, so a user could silently get
/// the other meaning.
///
/// # Errors
/// Why the text is not a list of CPUs, and both ways to write what a single number could mean.
pub fn cpus_listed(text: &str) -> Result<CpuSet, String> {
    let Ok(number) = text.trim().parse::<u64>() else { return cpu_list(text) };
    let first = u16::try_from(number).ok().and_then(CpuSet::first);
    let count = first.map(|first| format!(", or {} for a count of {number}", first.as_option()));
    Err(format!(
        "expected a list of CPUs, and in other commands a bare number is a count: write {number}-{number} for CPU \
         {number} alone{}",
        count.unwrap_or_default()
    ))
}

/// Reads a list of CPUs; a single number is that CPU.
///
/// # Errors
/// Why the text is not a list of CPUs.
pub fn cpu_list(text: &str) -> Result<CpuSet, String> {
    text.parse().map_err(|error: CpuSetError| error.to_string())
}

/// `--rps-map`: `NAME=CPUS`, or `none` for no map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapSetting(pub Option<(QueueName, CpuSet)>);

impl FromStr for MapSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(MapSetting(None));
        }
        let (name, cpus) = QueueName::parse_setting(text).map_err(|error| error.to_string())?;
        Ok(MapSetting(Some((name, cpu_list(cpus)?))))
    }
}

/// `--rule`: a rule before the policy, or `none` for no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSetting(pub Option<PacketRule>);

impl FromStr for RuleSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "none" {
            return Ok(RuleSetting(None));
        }
        let rule = text.parse::<PacketRule>().map_err(|error| error.to_string())?;
        Ok(RuleSetting(Some(rule)))
    }
}

/// `--else`, one of [`Fallback::NAMES`].
pub(crate) fn fallback(word: &str) -> Fallback {
    let known = [Fallback::Hash, Fallback::Local];
    known.into_iter().find(|fallback| fallback.to_string() == word).unwrap_or_default()
}

/// `--rfs-cpus`; `None` means `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RfsCpus(pub Option<CpuSet>);

impl FromStr for RfsCpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            Ok(RfsCpus(None))
        } else {
            cpu_list(text).map(|cpus| RfsCpus(Some(cpus)))
        }
    }
}

/// `--flow-limit`: the number of buckets; `None` means `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimit(pub Option<u32>);

impl FlowLimit {
    /// Reads the value, with at most `MAX` buckets.
    ///
    /// # Errors
    /// The valid values.
    pub fn up_to<const MAX: u32>(text: &str) -> Result<FlowLimit, String> {
        let buckets = || text.parse().ok().filter(|buckets| (1..=MAX).contains(buckets)).map(Some);
        let read = match switch(text) {
            Ok(true) => Some(Some(DEFAULT_FLOW_LIMIT_BUCKETS)),
            Ok(false) => Some(None),
            Err(_) => buckets(),
        };
        read.map(FlowLimit)
            .ok_or_else(|| format!("expected on, off or a number of buckets from 1 to {MAX}"))
    }
}

/// Reads `on` or `off`; `true` and `false` are the corresponding TOML words.
///
/// # Errors
/// The valid values.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

/// Reads the number of packets that may wait for one CPU.
///
/// # Errors
/// The valid values.
pub fn backlog(text: &str) -> Result<u32, String> {
    whole::<u32, 1, { MAX_BACKLOG as u64 }>(text)
}

/// Reads a whole number from `MIN` to `MAX`.
///
/// # Errors
/// The valid values.
pub fn whole<T: TryFrom<u64>, const MIN: u64, const MAX: u64>(text: &str) -> Result<T, String> {
    text.parse::<u64>()
        .ok()
        .filter(|number| (MIN..=MAX).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("expected a whole number from {MIN} to {MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_number_is_a_count_of_cpus() {
        let meant =
            |text: &str, allowed: &str| cpus(text).unwrap().cpus(allowed.parse().ok()).to_string();
        assert_eq!(meant("4", "0-1"), "0-3");
        assert_eq!(meant("2", "8-11"), "8-9");
        assert_eq!(meant("2", ""), "0-1");
        assert_eq!(meant("4-4", "0-1"), "4");
        assert!(cpus("0").unwrap_err().contains("0-0"));
        assert!(cpus("").unwrap_err().contains("empty"));
        assert!(cpus("70000").is_err());
    }

    #[test]
    fn lone_number_is_refused_where_a_list_is_meant() {
        let why = cpus_listed("3").unwrap_err();
        assert!(
            why.contains("3-3 for CPU 3 alone") && why.contains("0-2 for a count of 3"),
            "{why}"
        );
        let why = cpus_listed("1").unwrap_err();
        assert!(
            why.contains("1-1 for CPU 1 alone") && why.contains("0-0 for a count of 1"),
            "{why}"
        );
        assert!(cpus_listed("0").unwrap_err().contains("0-0"));
        assert_eq!(cpus_listed("3-3").unwrap().to_string(), "3");
    }

    #[test]
    fn misspelt_policies_are_named_with_the_nearest() {
        assert!(policy("rsp").unwrap_err().contains("did you mean 'rps'"));
        assert!(policy("sprase").unwrap_err().contains("did you mean 'sparse'"));
    }

    #[test]
    fn fallbacks_are_read_by_their_names() {
        let read = Fallback::NAMES.map(fallback);
        assert_eq!(read, [Fallback::Hash, Fallback::Local]);
    }
}
