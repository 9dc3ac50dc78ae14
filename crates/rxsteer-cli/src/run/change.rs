//! Settings of a running instance, and changes of them: read as a whole, refused as a whole.

use super::args::{MAX_FLOW_LIMIT, parse_queue_size, parse_threads};
use crate::steer_args::{
    CpuChoice, parse_cpu_list, parse_cpus, parse_fallback, parse_policy, parse_rps_map,
};
use crate::words::suggestion;
use rxsteer_user::core::config::DEFAULT_FLOW_LIMIT_BUCKETS;
use rxsteer_user::core::{CpuId, CpuSet, Fallback, Policy, QueueName, ThreadClass};
use rxsteer_xdp::Settings;

/// The settings that can be changed.
pub(crate) const KEYS: [&str; 9] = [
    "policy",
    "cpus",
    "rps-map",
    "else",
    "rfs-cpus",
    "queue-size",
    "flow-limit",
    "threads",
    "shadow",
];

/// What is to change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    policy: Option<Policy>,
    cpus: Option<CpuChoice>,
    /// All of them; none: the general map holds for all.
    rps_maps: Option<Vec<(QueueName, CpuSet)>>,
    fallback: Option<Fallback>,
    rfs_cpus: Option<Option<CpuSet>>,
    queue_size: Option<u32>,
    flow_limit: Option<Option<u32>>,
    threads: Option<ThreadClass>,
    shadow: Option<bool>,
}

impl Change {
    /// Reads `SETTING=VALUE`, one or more.
    pub(crate) fn parse<S: AsRef<str>>(settings: &[S]) -> Result<Change, String> {
        let mut change = Change::default();
        let mut seen: Vec<&str> = Vec::new();
        for setting in settings {
            let setting = setting.as_ref();
            let (key, value) =
                setting.split_once('=').map(|(key, value)| (key.trim(), value.trim())).ok_or_else(
                    || format!("'{setting}' is not SETTING=VALUE; write e.g. policy=rps"),
                )?;
            if seen.contains(&key) && !matches!(key, "rps-map" | "rps_map") {
                return Err(format!("{key} is set twice"));
            }
            seen.push(key);
            change.set(key, value)?;
        }
        if seen.is_empty() {
            return Err("no settings given; write e.g. policy=rps".to_owned());
        }
        Ok(change)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let named = |why: String| format!("{key}={value}: {why}");
        match key.replace('_', "-").as_str() {
            "policy" => self.policy = Some(parse_policy(value).map_err(named)?),
            "cpus" => self.cpus = Some(parse_cpus(value).map_err(named)?),
            "rps-map" if value == "none" && self.rps_maps.is_some() => {
                return Err(named("it takes away maps that are set beside it".to_owned()));
            }
            "rps-map" if value == "none" => self.rps_maps = Some(Vec::new()),
            "rps-map" => {
                let map = parse_rps_map(value).map_err(named)?;
                self.rps_maps.get_or_insert_default().push(map);
            }
            "else" => self.fallback = Some(parse_fallback(value).map_err(named)?),
            "rfs-cpus" if value == "all" => self.rfs_cpus = Some(None),
            "rfs-cpus" => self.rfs_cpus = Some(Some(parse_cpu_list(value).map_err(named)?)),
            "queue-size" => self.queue_size = Some(parse_queue_size(value).map_err(named)?),
            "flow-limit" => self.flow_limit = Some(parse_flow_limit(value).map_err(named)?),
            "threads" => self.threads = Some(parse_threads(value).map_err(named)?),
            "shadow" => self.shadow = Some(parse_switch(value).map_err(named)?),
            _ => {
                let hint = suggestion(key, &KEYS);
                return Err(format!("there is no setting '{key}' that can be changed{hint}"));
            }
        }
        Ok(())
    }

    /// The settings after it, where they can be had on a host with these CPUs.
    pub(crate) fn onto(&self, now: &Settings, host: &HostCpus) -> Result<Settings, String> {
        let mut settings = now.clone();
        if let Some(policy) = &self.policy {
            settings.policy = policy.clone();
        }
        if let Some(cpus) = &self.cpus {
            settings.cpus = cpus.cpus(Some(host.online.clone()));
        }
        if let Some(maps) = &self.rps_maps {
            settings.rps_maps.clone_from(maps);
        }
        settings.fallback = self.fallback.unwrap_or(settings.fallback);
        if let Some(cpus) = &self.rfs_cpus {
            settings.rfs_cpus.clone_from(cpus);
        }
        settings.queue_size = self.queue_size.unwrap_or(settings.queue_size);
        settings.flow_limit = self.flow_limit.unwrap_or(settings.flow_limit);
        settings.threads = self.threads.unwrap_or(settings.threads);
        settings.shadow = self.shadow.unwrap_or(settings.shadow);
        if self.cpus.is_some() {
            host.check(settings.cpus.iter(), "cpus")?;
        }
        if self.rps_maps.is_some() {
            let maps = settings.rps_maps.iter().flat_map(|(_, map)| map.iter());
            host.check(maps, "rps-map")?;
        }
        if self.rfs_cpus.is_some() {
            host.check(settings.rfs_cpus.iter().flat_map(CpuSet::iter), "rfs-cpus")?;
        }
        if self.policy.is_some() {
            host.check(settings.policy.named_cpus(), "policy")?;
        }
        settings.offline = host.offline();
        Ok(settings)
    }
}

fn parse_flow_limit(value: &str) -> Result<Option<u32>, String> {
    match value {
        "on" => Ok(Some(DEFAULT_FLOW_LIMIT_BUCKETS)),
        "off" => Ok(None),
        _ => value
            .parse()
            .ok()
            .filter(|buckets| (1..=MAX_FLOW_LIMIT).contains(buckets))
            .map(Some)
            .ok_or_else(|| {
                format!("it takes on, off or a number of buckets from 1 to {MAX_FLOW_LIMIT}")
            }),
    }
}

fn parse_switch(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it takes on or off".to_owned()),
    }
}

/// The CPUs of the host, as far as frames can be sent to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostCpus {
    /// Those that could be online.
    pub(crate) possible: CpuSet,
    /// Those that are.
    pub(crate) online: CpuSet,
}

impl HostCpus {
    /// Whether frames can be sent to all of `cpus`, which `of` names.
    pub(crate) fn check(&self, cpus: impl Iterator<Item = CpuId>, of: &str) -> Result<(), String> {
        let not_there = CpuSet::new(cpus.filter(|cpu| !self.online.contains(*cpu)));
        let Some(not_there) = not_there else { return Ok(()) };
        let all = not_there.iter().partition::<Vec<_>, _>(|cpu| self.possible.contains(*cpu));
        if let Some(none) = CpuSet::new(all.1) {
            return Err(format!(
                "{of}: this host has no CPU {none}; it has CPUs {}, and {} are online",
                self.possible, self.online
            ));
        }
        Err(format!(
            "{of}: CPU {not_there} is offline; CPUs {} are online (echo 1 > \
             /sys/devices/system/cpu/cpuN/online brings one back)",
            self.online
        ))
    }

    /// Those that can't be used now.
    pub(crate) fn offline(&self) -> Option<CpuSet> {
        CpuSet::new(self.possible.iter().filter(|cpu| !self.online.contains(*cpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let all = Settings::new(Policy::Rps, "0-1".parse().unwrap());
        Settings { queue_size: 64, flow_limit: Some(4096), threads: ThreadClass::Other, ..all }
    }

    fn host() -> HostCpus {
        HostCpus { possible: "0-7".parse().unwrap(), online: "0-3".parse().unwrap() }
    }

    fn changed(texts: &[&str]) -> Result<Settings, String> {
        Change::parse(texts)?.onto(&settings(), &host())
    }

    #[test]
    fn what_is_not_named_stays() {
        let after = changed(&["policy=sparse:loops=2", "cpus = 3"]).unwrap();
        let wanted = Settings {
            policy: Policy::Sparse(2),
            cpus: "0-2".parse().unwrap(),
            offline: "4-7".parse().ok(),
            ..settings()
        };
        assert_eq!(after, wanted);
        assert_eq!(changed(&["threads=fifo:2"]).unwrap().threads, ThreadClass::Fifo(2));
        let after = changed(&["queue_size=16384", "flow-limit=off", "shadow=on"]).unwrap();
        assert_eq!((after.queue_size, after.flow_limit, after.shadow), (16384, None, true));
        assert_eq!(after.policy, Policy::Rps);
    }

    #[test]
    fn maps_are_replaced_as_a_whole() {
        let after = changed(&["rps-map=eth0:0=0-3", "rps_map=1=2", "else=local", "rfs-cpus=3"]);
        let after = after.unwrap();
        let shown = |settings: &Settings| {
            let maps = settings.rps_maps.iter();
            maps.map(|(name, cpus)| format!("{name}={cpus}")).collect::<Vec<_>>()
        };
        assert_eq!(shown(&after), ["eth0:0=0-3", "1=2"]);
        assert_eq!((after.fallback, &after.rfs_cpus), (Fallback::Local, &"3".parse().ok()));
        let onto = |texts: &[&str]| Change::parse(texts).unwrap().onto(&after, &host()).unwrap();
        assert_eq!(onto(&["policy=rfs"]).rps_maps, after.rps_maps, "what is not named stays");
        assert_eq!(shown(&onto(&["rps-map=eth1=1"])), ["eth1=1"]);
        let reset = onto(&["rps-map=none", "rfs-cpus=all", "else=hash"]);
        assert_eq!(
            (shown(&reset).len(), reset.rfs_cpus, reset.fallback),
            (0, None, Fallback::Hash)
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (texts, part) in [
            (&["policy"][..], "SETTING=VALUE"),
            (&[], "no settings given"),
            (&["polcy=rps"], "did you mean 'policy'"),
            (&["policy=rps", "policy=rfs"], "set twice"),
            (&["policy=rsp"], "did you mean 'rps'"),
            (&["cpus="], "the CPU list is empty"),
            (&["cpus=0"], "0-0"),
            (&["cpus=2-9"], "has no CPU 8-9"),
            (&["cpus=2-5"], "CPU 4-5 is offline"),
            (&["policy=bound:0=6"], "CPU 6 is offline"),
            (&["policy=bound:0=1,1=99"], "has no CPU 99"),
            (&["queue-size=0"], "from 8 to 16384"),
            (&["queue-size=16385"], "from 8 to 16384"),
            (&["flow-limit=yes"], "on, off"),
            (&["flow-limit=0"], "from 1 to 4096"),
            (&["flow-limit=4097"], "from 1 to 4096"),
            (&["flow-limit=4294967296"], "from 1 to 4096"),
            (&["shadow=yes"], "on or off"),
            (&["rps-map=eth0:0"], "has no '='"),
            (&["rps-map=eth0:0=2-5"], "rps-map: CPU 4-5 is offline"),
            (&["rps-map=0=1", "rps-map=none"], "takes away maps"),
            (&["else=loca"], "did you mean 'local'"),
            (&["rfs-cpus=9"], "rfs-cpus: this host has no CPU 9"),
            (&["threads=rr:1"], "threads=rr:1: a class is fifo:N"),
            (&["threads=nice:-21"], "-20 (most CPU time) to 19"),
            (&["flow-cnt=5"], "no setting 'flow-cnt'"),
        ] {
            let error = changed(texts).unwrap_err();
            assert!(error.contains(part), "{texts:?}: {error}");
        }
    }

    #[test]
    fn offline_cpus_go_into_every_change() {
        let after = changed(&["policy=rfs"]).unwrap();
        assert_eq!(after.offline, "4-7".parse().ok());
        let host = HostCpus { online: "0,2".parse().unwrap(), ..host() };
        let after = Change::parse(&["policy=rfs"]).unwrap().onto(&settings(), &host).unwrap();
        assert_eq!(
            after.offline,
            "1,3-7".parse().ok(),
            "CPU 1 went, and is kept for when it is back"
        );
        assert_eq!(after.cpus, settings().cpus);
    }
}
