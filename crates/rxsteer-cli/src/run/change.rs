//! Settings of a running instance, and changes of them. A change is parsed and refused as a whole.

use super::args::LiveSettings;
use rxsteer_user::core::matching::PacketRule;
use rxsteer_user::core::{CpuId, CpuSet};
use rxsteer_xdp::Settings;

impl LiveSettings {
    /// The settings after this change, if they are possible on a host with these CPUs.
    pub(crate) fn onto(&self, now: &Settings, host: &HostCpus) -> Result<Settings, String> {
        let steering = &self.steering;
        let mut settings = now.clone();
        if let Some(policy) = &steering.policy {
            settings.policy = policy.clone();
        }
        if let Some(cpus) = &steering.cpus {
            settings.cpus = cpus.cpus(Some(host.online.clone()));
        }
        settings.packet_rules = self.rules.rules().unwrap_or(settings.packet_rules);
        settings.rps_maps = steering.rps_maps().unwrap_or(settings.rps_maps);
        settings.fallback = steering.fallback.unwrap_or(settings.fallback);
        settings.rfs_cpus = steering.rfs_cpus().unwrap_or(settings.rfs_cpus);
        settings.flow_limit = steering.flow_limit().unwrap_or(settings.flow_limit);
        settings.queue_size = self.kernel.queue_size.unwrap_or(settings.queue_size);
        settings.threads = self.kernel.threads.unwrap_or(settings.threads);
        settings.shadow = self.kernel.shadow.unwrap_or(settings.shadow);
        if steering.cpus.is_some() {
            host.check(settings.cpus.iter(), "cpus")?;
        }
        if steering.rps_map.is_some() {
            let maps = settings.rps_maps.iter().flat_map(|(_, map)| map.iter());
            host.check(maps, "rps-map")?;
        }
        if self.rules.rule.is_some() {
            host.check(PacketRule::cpus_of(&settings.packet_rules), "rule")?;
        }
        if steering.rfs_cpus.is_some() {
            host.check(settings.rfs_cpus.iter().flat_map(CpuSet::iter), "rfs-cpus")?;
        }
        if steering.policy.is_some() {
            host.check(settings.policy.named_cpus(), "policy")?;
        }
        settings.offline = host.offline();
        Ok(settings)
    }
}

/// The differences between two settings, as "policy=rps (was rfs)".
pub(super) fn changes(before: &Settings, after: &Settings) -> Vec<String> {
    let (before, after) = (listed(before), listed(after));
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
    changed.map(|((key, before), (_, after))| format!("{key}={after} (was {before})")).collect()
}

/// Settings by their names in `rxsteer set`.
fn listed(settings: &Settings) -> [(&'static str, String); 10] {
    let maps = settings.rps_maps.iter().map(|(name, cpus)| format!("{name}={cpus}"));
    let maps: Vec<String> = maps.collect();
    let rules: Vec<String> = settings.packet_rules.iter().map(ToString::to_string).collect();
    let rfs_cpus = settings.rfs_cpus.as_ref();
    let flow_limit = settings.flow_limit.map(|buckets| buckets.to_string());
    [
        ("policy", settings.policy.to_string()),
        ("cpus", settings.cpus.to_string()),
        ("rps-map", if maps.is_empty() { "none".to_owned() } else { maps.join(" ") }),
        ("rule", if rules.is_empty() { "none".to_owned() } else { rules.join("; ") }),
        ("else", settings.fallback.to_string()),
        ("rfs-cpus", rfs_cpus.map_or("all".to_owned(), ToString::to_string)),
        ("queue-size", settings.queue_size.to_string()),
        ("flow-limit", flow_limit.unwrap_or("off".to_owned())),
        ("threads", settings.threads.to_string()),
        ("shadow", if settings.shadow { "on" } else { "off" }.to_owned()),
    ]
}

/// The CPUs of the host to which frames can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostCpus {
    /// The possible CPUs.
    pub(crate) possible: CpuSet,
    /// The online CPUs.
    pub(crate) online: CpuSet,
}

impl HostCpus {
    /// Checks that frames can be sent to all of `cpus`; `of` names these CPUs in the message.
    pub(crate) fn check(&self, cpus: impl Iterator<Item = CpuId>, of: &str) -> Result<(), String> {
        let not_there = CpuSet::new(cpus.filter(|cpu| !self.online.contains(*cpu)));
        let Some(not_there) = not_there else { return Ok(()) };
        let all = not_there.iter().partition::<Vec<_>, _>(|cpu| self.possible.contains(*cpu));
        if let Some(none) = CpuSet::new(all.1) {
            let online = if self.possible == self.online {
                String::new()
            } else {
                format!(", {} of them online", self.online)
            };
            // Only in the CPUs' own option is a single number a count.
            let count = if of.trim_start_matches('-') == "cpus" {
                "; a number alone is a count of CPUs, 0-1 names two"
            } else {
                ""
            };
            return Err(format!(
                "{of}: this host has no CPU {none}; its CPUs are {}{online}{count}",
                self.possible
            ));
        }
        Err(format!(
            "{of}: CPU {not_there} is offline; CPUs {} are online (echo 1 > \
             /sys/devices/system/cpu/cpuN/online brings one back)",
            self.online
        ))
    }

    /// The possible CPUs that are offline now.
    pub(crate) fn offline(&self) -> Option<CpuSet> {
        CpuSet::new(self.possible.iter().filter(|cpu| !self.online.contains(*cpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_user::core::{Fallback, Policy, Slots, ThreadClass};

    fn settings() -> Settings {
        let all = Settings::new(Policy::Rps, "0-1".parse().unwrap());
        Settings { queue_size: 64, flow_limit: Some(4096), threads: ThreadClass::Other, ..all }
    }

    fn host() -> HostCpus {
        HostCpus { possible: "0-7".parse().unwrap(), online: "0-3".parse().unwrap() }
    }

    fn changed(texts: &[&str]) -> Result<Settings, String> {
        LiveSettings::parse(texts)?.onto(&settings(), &host())
    }

    #[test]
    fn what_is_not_named_stays() {
        let after = changed(&["policy=sparse:loops=2", "cpus = 3"]).unwrap();
        let wanted = Settings {
            policy: Policy::Sparse(Slots::of(2)),
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
        let onto =
            |texts: &[&str]| LiveSettings::parse(texts).unwrap().onto(&after, &host()).unwrap();
        assert_eq!(onto(&["policy=rfs"]).rps_maps, after.rps_maps, "what is not named stays");
        assert_eq!(shown(&onto(&["rps-map=eth1=1"])), ["eth1=1"]);
        let reset = onto(&["rps-map=none", "rfs-cpus=all", "else=hash"]);
        assert_eq!(
            (shown(&reset).len(), reset.rfs_cpus, reset.fallback),
            (0, None, Fallback::Hash)
        );
    }

    #[test]
    fn rules_are_replaced_as_a_whole() {
        let shown = |settings: &Settings| {
            settings.packet_rules.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let after = changed(&["rule=tcp dst-port 22 -> local", "rule = udp → 1-2"]).unwrap();
        assert_eq!(shown(&after), ["tcp dst-port 22 → local", "udp → 1-2"]);
        let onto =
            |texts: &[&str]| LiveSettings::parse(texts).unwrap().onto(&after, &host()).unwrap();
        assert_eq!(shown(&onto(&["policy=rfs"])), shown(&after), "what is not named stays");
        assert_eq!(shown(&onto(&["rule=esp -> 3"])), ["esp → 3"]);
        assert!(shown(&onto(&["rule=none"])).is_empty());
        assert!(changed(&["rule=tcp -> 5"]).unwrap_err().contains("rule: CPU 5 is offline"));
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
            (&["rps-map=0=1", "rps-map=none"], "removes what the other rps-map"),
            (&["else=loca"], "did you mean 'local'"),
            (&["rfs-cpus=9"], "rfs-cpus: this host has no CPU 9"),
            (&["threads=rr:1"], "threads=rr:1: a class is fifo:N"),
            (&["threads=nice:-21"], "-20 (most CPU time) to 19"),
            (&["flow-cnt=5"], "flow-cnt can't change while rxsteer runs"),
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
        let after = LiveSettings::parse(&["policy=rfs"]).unwrap().onto(&settings(), &host).unwrap();
        assert_eq!(
            after.offline,
            "1,3-7".parse().ok(),
            "CPU 1 went, and is kept for when it is back"
        );
        assert_eq!(after.cpus, settings().cpus);
    }
}
