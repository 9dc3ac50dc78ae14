//! What settings are set to, and how it is written.

use crate::nearest::suggestion;
use rxsteer_core::limits::{DEFAULT_FLOW_LIMIT_BUCKETS, MAX_BACKLOG};
use rxsteer_core::policy::PolicyError;
use rxsteer_core::{CpuId, CpuSet, CpuSetError, Fallback, Policy, QueueName};
use std::str::FromStr;

/// `--policy`.
///
/// # Errors
/// Why it is none; of an unknown name with the nearest one.
pub fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error: PolicyError| match &error {
        PolicyError::UnknownName(name) => format!("{error}{}", suggestion(name, &Policy::NAMES)),
        _ => error.to_string(),
    })
}

/// `--cpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuChoice {
    /// These.
    List(CpuSet),
    /// So many; holds CPUs 0 up to that.
    Count(CpuSet),
}

impl CpuChoice {
    /// The CPUs that are meant: of a count the first ones this process may use, if it may use so
    /// many, else CPUs 0 up to that.
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

/// A list of CPUs; a lone number is a count.
///
/// # Errors
/// Why it is neither.
pub fn cpus(text: &str) -> Result<CpuChoice, String> {
    let Ok(count) = text.trim().parse::<u64>() else { return cpu_list(text).map(CpuChoice::List) };
    let first = u16::try_from(count).ok().and_then(CpuSet::first);
    first.map(CpuChoice::Count).ok_or_else(|| {
        format!(
            "a count of CPUs is 1 to {}, not {count} (CPU 0 alone is written 0-0)",
            u32::from(CpuId::MAX.get()) + 1
        )
    })
}

/// A list of CPUs; a lone number is that CPU.
///
/// # Errors
/// Why it is none.
pub fn cpu_list(text: &str) -> Result<CpuSet, String> {
    text.parse().map_err(|error: CpuSetError| error.to_string())
}

/// `--rps-map`: `NAME=CPUS`; or `none`, which holds no map.
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

/// `--else`, one of [`Fallback::NAMES`].
pub(crate) fn fallback(word: &str) -> Fallback {
    let known = [Fallback::Hash, Fallback::Local];
    known.into_iter().find(|fallback| fallback.to_string() == word).unwrap_or_default()
}

/// `--rfs-cpus`; `None`: `all`.
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

/// `--flow-limit`: its buckets; `None`: `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimit(pub Option<u32>);

impl FlowLimit {
    /// Reads it, with `MOST` buckets at most.
    ///
    /// # Errors
    /// What it takes.
    pub fn up_to<const MOST: u32>(text: &str) -> Result<FlowLimit, String> {
        let buckets = || text.parse().ok().filter(|buckets| (1..=MOST).contains(buckets)).map(Some);
        let read = match switch(text) {
            Ok(true) => Some(Some(DEFAULT_FLOW_LIMIT_BUCKETS)),
            Ok(false) => Some(None),
            Err(_) => buckets(),
        };
        read.map(FlowLimit)
            .ok_or_else(|| format!("it takes on, off or a number of buckets from 1 to {MOST}"))
    }
}

/// `on` or `off`; `true` and `false` are TOML's words for them.
///
/// # Errors
/// What it takes.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("it takes on or off".to_owned()),
    }
}

/// Packets that may wait for one CPU.
///
/// # Errors
/// What it takes.
pub fn backlog(text: &str) -> Result<u32, String> {
    whole::<u32, 1, { MAX_BACKLOG as u64 }>(text)
}

/// A whole number from `MIN` to `MAX`.
///
/// # Errors
/// What it takes.
pub fn whole<T: TryFrom<u64>, const MIN: u64, const MAX: u64>(text: &str) -> Result<T, String> {
    text.parse::<u64>()
        .ok()
        .filter(|number| (MIN..=MAX).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("it takes a whole number from {MIN} to {MAX}"))
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
