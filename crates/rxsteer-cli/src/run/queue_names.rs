//! Checks that the interfaces and RX queues named in settings exist.
//!
//! An interface is given by its name, never by a pattern. A setting may name an interface that does not exist if a
//! pattern of `rxsteer run` matches it: the setting takes effect when the interface appears. If the interface exists,
//! the named queue must exist as well. A number alone means that queue of every interface, and at least one existing
//! interface must have it.

use crate::words::plural;
use rxsteer_host::{Link, Pattern};
use rxsteer_user::core::{Policy, QueueName};
use rxsteer_xdp::Settings;

/// An interface that is steered, and the RX queues it uses.
pub(crate) type InterfaceQueues<'a> = (&'a str, u16);

/// All names in `settings`, each with the name of its setting.
fn named(settings: &Settings) -> impl Iterator<Item = (&'static str, &QueueName)> {
    let bindings = match &settings.policy {
        Policy::Bound(bindings) => bindings.as_slice(),
        _ => &[],
    };
    let bound = bindings.iter().map(|(name, _)| ("policy bound:", name));
    bound.chain(settings.rps_maps.iter().map(|(name, _)| ("rps-map ", name)))
}

/// Why settings are refused, if these interfaces exist and `patterns` may match others. A name in `before` was valid
/// when it was set, and stays valid, although its interface may have been removed or renamed since.
pub(crate) fn check(
    settings: &Settings,
    before: Option<&Settings>,
    there: &[InterfaceQueues<'_>],
    patterns: &[Pattern],
) -> Result<(), String> {
    let is_new = |new: &(&str, &QueueName)| {
        before.is_none_or(|before| named(before).all(|(_, name)| name != new.1))
    };
    named(settings).filter(is_new).try_for_each(|(setting, name)| {
        missing(name, there, patterns).map_or(Ok(()), |why| Err(format!("{setting}{name}: {why}")))
    })
}

/// The note about settings that still use the former name of an interface.
pub(crate) fn of_former_name(settings: &Settings, former: &str) -> Option<String> {
    let of_it = named(settings).filter(|(_, name)| name.interface() == Some(former));
    let names: Vec<String> = of_it.map(|(setting, name)| format!("{setting}{name}")).collect();
    (!names.is_empty()).then(|| {
        format!("settings apply to the present name; without effect now: {}", names.join(", "))
    })
}

/// The same on a host with these interfaces, any of which may be steered: notes that depend on which ones are steered;
/// or why settings are refused in every case.
pub(crate) fn on_host(
    settings: &Settings,
    there: &[InterfaceQueues<'_>],
) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    for (setting, name) in named(settings) {
        let known = there.iter().find(|(known, _)| Some(*known) == name.interface());
        match (name.interface(), known) {
            (Some(_), Some(known)) => {
                if let Some(why) = no_such_queue(name, std::slice::from_ref(known)) {
                    return Err(format!("{setting}{name}: {why}"));
                }
            }
            (Some(interface), None) => notes.push(format!(
                "{setting}{name}: there is no interface {interface} on this host now; rxsteer run refuses it unless a \
                 pattern that it is given, like veth*, matches {interface}"
            )),
            (None, _) => {
                let most = there.iter().max_by_key(|(_, queues)| *queues).copied();
                if let Some(why) = most.and_then(|most| no_such_queue(name, &[most])) {
                    return Err(format!("{setting}{name}: no interface here has it: {why}"));
                }
            }
        }
    }
    Ok(notes)
}

/// The message about an interface that appears without some of the named queues.
pub(crate) fn missing_queues(
    settings: &Settings,
    (interface, queues): InterfaceQueues<'_>,
) -> Option<String> {
    let lacks = |name: &QueueName| {
        name.interface() == Some(interface) && name.queue().is_some_and(|queue| queue >= queues)
    };
    let names: Vec<String> = named(settings)
        .filter(|(_, name)| lacks(name))
        .map(|(setting, name)| format!("{setting}{name}"))
        .collect();
    (!names.is_empty()).then(|| {
        let has = plural(usize::from(queues), "RX queue");
        format!("{interface} has {has}; without effect: {}", names.join(", "))
    })
}

/// Why a named interface or queue is missing.
fn missing(
    name: &QueueName,
    there: &[InterfaceQueues<'_>],
    patterns: &[Pattern],
) -> Option<String> {
    match name.interface() {
        Some(interface) => {
            let link = Link { name: interface.to_owned(), ..Link::default() };
            let may_appear = patterns.iter().any(|at| at.is_open() && at.matches(&link));
            match there.iter().find(|(known, _)| *known == interface) {
                Some(known) => no_such_queue(name, std::slice::from_ref(known)),
                None if may_appear => None,
                None => Some(format!(
                    "{interface} is not steered here{}; name an interface that this rxsteer run steers",
                    match there.is_empty() {
                        true => String::new(),
                        false => format!(", but {}", names(there)),
                    }
                )),
            }
        }
        None => no_such_queue(name, there),
    }
}

/// Why none of these interfaces has the queue, if there are interfaces.
fn no_such_queue(name: &QueueName, there: &[InterfaceQueues<'_>]) -> Option<String> {
    let queue = name.queue()?;
    let most = there.iter().map(|(_, queues)| *queues).max()?;
    (queue >= most).then(|| {
        let have = if there.len() == 1 { "has" } else { "have at most" };
        format!(
            "there is no RX queue {queue}: {} {have} {} (numbered from 0; ethtool -l IFACE shows them)",
            names(there),
            plural(usize::from(most), "RX queue")
        )
    })
}

fn names(there: &[InterfaceQueues<'_>]) -> String {
    there.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &str, maps: &[&str], patterns: &[&str]) -> Result<(), String> {
        let mut settings = Settings::new(policy.parse().unwrap(), "0-3".parse().unwrap());
        let map = |text: &&str| text.parse::<rxsteer_settings::MapSetting>().unwrap().0.unwrap();
        settings.rps_maps = maps.iter().map(map).collect();
        let patterns: Vec<Pattern> =
            patterns.iter().map(|text| Pattern::new(text).unwrap()).collect();
        super::check(&settings, None, &[("eth0", 2), ("eth1", 4)], &patterns)
    }

    #[test]
    fn what_is_there_can_be_named() {
        for policy in ["bound:0=1", "bound:3=1", "bound:eth0:1=0,eth1:3=2", "bound:eth1=1"] {
            assert_eq!(check(policy, &[], &["eth0", "eth1"]), Ok(()), "{policy}");
        }
        assert_eq!(check("rps", &["eth0:1=0-1", "eth1=2", "2=3"], &["eth0"]), Ok(()));
        assert_eq!(check("bound:veth7:9=1", &[], &["veth*"]), Ok(()), "when it appears");
    }

    #[test]
    fn what_is_not_there_is_refused_with_the_reason() {
        for (policy, maps, part) in [
            (
                "bound:7=1",
                &[][..],
                "policy bound:7: there is no RX queue 7: eth0, eth1 have at most 4 RX",
            ),
            ("bound:eth0:2=1", &[], "policy bound:eth0:2: there is no RX queue 2: eth0 has 2 RX"),
            ("bound:eth2:0=1", &[], "eth2 is not steered here, but eth0, eth1"),
            ("rps", &["eth1:4=0"], "rps-map eth1:4: there is no RX queue 4: eth1 has 4"),
            ("rps", &["eth9=0"], "rps-map eth9: eth9 is not steered here"),
        ] {
            let why = check(policy, maps, &["eth0", "eth1", "veth*"]).unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn file_is_checked_against_all_interfaces_of_the_host() {
        let on_host = |policy: &str| {
            let settings = Settings::new(policy.parse().unwrap(), "0-3".parse().unwrap());
            super::on_host(&settings, &[("eth0", 2), ("eth1", 4)])
        };
        assert_eq!(on_host("bound:3=1,eth0:1=0"), Ok(vec![]));
        let why = on_host("bound:eth0:2=1").unwrap_err();
        assert!(
            why.starts_with("policy bound:eth0:2: there is no RX queue 2: eth0 has 2"),
            "{why}"
        );
        let notes = on_host("bound:eth9:0=1").unwrap();
        assert!(
            notes[0].starts_with("policy bound:eth9:0: there is no interface eth9"),
            "{notes:?}"
        );
        let why = on_host("bound:4=0").unwrap_err();
        assert!(why.contains("there is no RX queue 4: eth1 has 4 RX queues"), "{why}");
    }

    #[test]
    fn interface_that_appears_with_too_few_queues_is_reported() {
        let policy = "bound:veth0:0=1,veth0:3=1,veth1:7=0,9=1".parse().unwrap();
        let settings = Settings::new(policy, "0-1".parse().unwrap());
        let lines = missing_queues(&settings, ("veth0", 2)).unwrap();
        assert_eq!(lines, "veth0 has 2 RX queues; without effect: policy bound:veth0:3");
        assert_eq!(missing_queues(&settings, ("veth0", 4)), None);
    }
}
