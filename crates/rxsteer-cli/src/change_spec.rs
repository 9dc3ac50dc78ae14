//! The settings that can change in a running receive path, and `--change-at T:SPEC`, a change planned in advance.

use clap::Args;
use rxsteer_settings::{Rules, Steering, Tables, Text, backlog};
use rxsteer_user::core::Policy;
use rxsteer_user::{SteerChange, When, sys};
use std::str::FromStr;
use std::time::Duration;

/// The settings that can change while packets flow: by `--change-at`, and by `rxsteer set` in `rxsteer live`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ChangeSettings {
    #[command(flatten)]
    pub(crate) steering: Steering,
    #[command(flatten)]
    pub(crate) rules: Rules,
    #[command(flatten)]
    pub(crate) tables: Tables,
    #[arg(long, value_name = "PACKETS", value_parser = backlog)]
    pub(crate) max_backlog: Option<u32>,
}

impl From<ChangeSettings> for SteerChange {
    fn from(settings: ChangeSettings) -> SteerChange {
        let ChangeSettings { steering, rules, tables, max_backlog } = settings;
        SteerChange {
            cpus: steering.cpus.as_ref().map(|choice| choice.cpus(sys::allowed_cpus())),
            packet_rules: rules.rules(),
            rps_maps: steering.rps_maps(),
            fallback: steering.fallback,
            rfs_cpus: steering.rfs_cpus(),
            sock_flow_entries: tables.sock_flow_entries,
            flow_cnt: tables.flow_cnt,
            flow_limit: steering.flow_limit(),
            max_backlog,
            policy: steering.policy,
        }
    }
}

/// When to change, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlannedChange(pub(crate) When, pub(crate) SteerChange);

impl FromStr for PlannedChange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (when, spec) = text.split_once(':').ok_or_else(|| {
            format!("'{text}' is not T:SPEC; write e.g. 2s:policy=rps or 5000p:cpus=0-1")
        })?;
        let texts = settings(spec).into_iter().map(Text::split).collect::<Result<Vec<_>, _>>()?;
        let change: ChangeSettings = rxsteer_settings::read(texts)?;
        Ok(PlannedChange(parse_when(when.trim())?, change.into()))
    }
}

/// The settings of a specification, separated by commas or semicolons. A comma belongs to a value such as 0-3,8 if no
/// setting's name follows it, and to a policy such as sparse:loops=2,after=8.
fn settings(spec: &str) -> Vec<&str> {
    let mut settings = Vec::new();
    let mut start = 0;
    for (at, separator) in spec.match_indices([',', ';']) {
        let rest = spec[at + 1..].trim_start();
        let word = rest.split('=').next().unwrap_or_default().trim();
        // A misspelt name does not belong to a list of CPUs either.
        let is_of_policy =
            spec[start..].trim_start().starts_with("policy") && Policy::has_setting(word);
        let is_name = rest.contains('=')
            && word.starts_with(|c: char| c.is_ascii_alphabetic())
            && !is_of_policy;
        if separator == ";" || is_name {
            settings.push(&spec[start..at]);
            start = at + 1;
        }
    }
    settings.push(&spec[start..]);
    settings
}

/// A duration of capture time like 150ms, or a number of packets like 5000p.
fn parse_when(text: &str) -> Result<When, String> {
    if let Some(packets) = text.strip_suffix('p') {
        return packets
            .parse()
            .map(When::Packets)
            .map_err(|_| format!("'{text}' is not a number of packets; write e.g. 5000p"));
    }
    parse_interval(text).map(|after| When::Time(after.as_nanos() as u64))
}

/// A duration with its unit.
pub(crate) fn parse_interval(text: &str) -> Result<Duration, String> {
    use humantime::DurationError::NumberOverflow;
    let too_long = || format!("'{text}' is too long; times are counted up to 584 years");
    match humantime::parse_duration(text) {
        Ok(duration) if u64::try_from(duration.as_nanos()).is_ok() => Ok(duration),
        Ok(_) | Err(NumberOverflow) => Err(too_long()),
        Err(_) => Err(format!(
            "'{text}' is not a duration; write a number and its unit (ns, us, ms, s, m or h), e.g. 2s, \
             150ms or 50us"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_user::core::{Fallback, Policy};

    fn parse(text: &str) -> Result<PlannedChange, String> {
        text.parse()
    }

    #[test]
    fn changes_name_a_time_and_settings() {
        let change = SteerChange {
            policy: Some(Policy::Bound(vec![(0.into(), "1".parse().ok().and_then(cpu).unwrap())])),
            cpus: "0-2".parse().ok(),
            ..SteerChange::default()
        };
        let expected = PlannedChange(When::Time(1_500_000_000), change);
        assert_eq!(parse("1500ms:policy=bound:0=1;cpus=0-2"), Ok(expected.clone()));
        assert_eq!(parse("1500ms:policy=bound:0=1, cpus = 0,1-2"), Ok(expected));
        let policy: Policy = "rfs+sparse+balance:buckets=512,interval=1s,after=3".parse().unwrap();
        let change = SteerChange {
            policy: Some(policy.clone()),
            cpus: "0-2".parse().ok(),
            ..SteerChange::default()
        };
        let expected = PlannedChange(When::Packets(5), change);
        assert_eq!(parse(&format!("5p:policy={policy},cpus=0-2")), Ok(expected.clone()));
        assert_eq!(parse(&format!("5p:cpus=0-2;policy={policy}")), Ok(expected));
        let change = SteerChange {
            rps_maps: Some(vec![
                (0.into(), "1".parse().unwrap()),
                (1.into(), "2-3".parse().unwrap()),
            ]),
            flow_limit: Some(None),
            max_backlog: Some(7),
            ..SteerChange::default()
        };
        let text = "5000p:rps-map=0=1-1; rps-map=1=2-3; flow-limit=off; max-backlog=7";
        assert_eq!(parse(text), Ok(PlannedChange(When::Packets(5000), change)));
        let change = SteerChange {
            fallback: Some(Fallback::Local),
            rfs_cpus: Some("0,2".parse().ok()),
            ..SteerChange::default()
        };
        let text = "1s:else=local,rfs-cpus=0,2";
        assert_eq!(parse(text), Ok(PlannedChange(When::Time(1_000_000_000), change)));
        let change = SteerChange { rfs_cpus: Some(None), ..SteerChange::default() };
        let parsed = parse("1s:rfs-cpus=all");
        assert_eq!(parsed, Ok(PlannedChange(When::Time(1_000_000_000), change)));
    }

    fn cpu(id: u16) -> Option<rxsteer_user::core::CpuId> {
        rxsteer_user::core::CpuId::new(id)
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("policy=rps", "T:SPEC"),
            ("2:policy=rps", "its unit (ns, us, ms, s, m or h)"),
            ("1000000h1000000d1000000y:policy=rps", "too long"),
            ("99999999999999999999s:policy=rps", "too long"),
            ("xp:policy=rps", "not a number of packets"),
            ("2s:policy", "SETTING=VALUE"),
            ("2s:polcy=rps", "did you mean 'policy'"),
            ("2s:policy=rsp", "did you mean 'rps'"),
            ("2s:flow-cnt=many", "whole number"),
            ("2s:rps-map=0=1-1;rps-map=none", "removes what the other rps-map"),
            ("2s:flow-limit=yes", "on, off"),
            ("2s:else=hush", "did you mean 'hash'"),
            ("2s:rfs-cpus=3-1", "runs backwards"),
            ("2s:cpus=2,polcy=rps", "did you mean 'policy'"),
            ("2s:cpus=2,policy=sparse,cpus=4", "cpus is set twice"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
