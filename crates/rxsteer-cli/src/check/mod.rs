//! `rxsteer check`: what this host and its interfaces can do for the in-kernel path.
//!
//! `rxsteer-host` collects and judges facts, `trial` tries operations; this module combines and prints the results.

pub(crate) mod args;
pub(crate) mod show;
#[cfg(test)]
mod snapshots;

use crate::Outcome;
use crate::output;
use crate::words::nearest;
use args::CheckArgs;
use rxsteer_host::{
    Finding, Help, Host, Interface, LOOPBACK, Link, Load, Pattern, can_run, help, host_name,
    is_down, judge, links,
};
use rxsteer_status::client;
use rxsteer_user::printable;
use std::time::Duration;

/// The examined facts, and the findings.
pub(crate) struct Checked {
    /// The host's name.
    pub(crate) name: String,
    pub(crate) host: Host,
    pub(crate) host_findings: Vec<Finding>,
    pub(crate) interfaces: Vec<CheckedInterface>,
    /// Whether the user named these interfaces; otherwise each is shown in one line.
    pub(crate) asked_for: bool,
}

/// One of the interfaces.
pub(crate) struct CheckedInterface {
    pub(crate) facts: Interface,
    pub(crate) findings: Vec<Finding>,
    pub(crate) help: Help,
}

/// The command.
pub(crate) fn command(args: &CheckArgs) -> anyhow::Result<Outcome> {
    let sample = args.duration.map(|time| (sample(time), time));
    let checked = Checked::read(&args.interfaces, sample.as_ref())?;
    if args.json {
        // One line, so that the output of many hosts can be collected in a file.
        output::print(&format!("{}\n", show::json(&checked)))?;
    } else {
        output::print(&show::text(&checked, args.kernel_log))?;
    }
    Ok(if checked.can_run() { Outcome::Success } else { Outcome::Findings })
}

/// The load of the CPUs during this time; empty if the kernel does not report it.
fn sample(time: Duration) -> Load {
    let before = Load::read();
    std::thread::sleep(time);
    let after = Load::read();
    after.zip(before).map(|(after, before)| after.since(&before)).unwrap_or_default()
}

impl Checked {
    /// Examines the host and these interfaces; if none are named, those that look like NICs. The measurement over some
    /// time determines whether steering helps.
    pub(crate) fn read(
        names: &[String],
        sample: Option<&(Load, Duration)>,
    ) -> anyhow::Result<Checked> {
        let links = links()?;
        let chosen = if names.is_empty() { nics(&links) } else { chosen(names, &links)? };
        let facts: Vec<Interface> =
            chosen.into_iter().map(|link| Interface::of_link(link, &links)).collect();
        let host = tried(Host::read(), &facts);
        Ok(Checked::judged(host_name(), host, facts, !names.is_empty(), sample))
    }

    /// The findings from these facts.
    fn judged(
        name: String,
        host: Host,
        facts: Vec<Interface>,
        asked_for: bool,
        sample: Option<&(Load, Duration)>,
    ) -> Checked {
        let interfaces = facts.into_iter().map(|facts| {
            let findings = judge::interface(&facts, &host);
            let sample = sample.map(|(load, time)| (load, *time));
            CheckedInterface { findings, help: help(&facts, &host, sample), facts }
        });
        let mut host_findings = judge::host(&host);
        host_findings.extend(sample.map(|(load, time)| judge::load(load, *time)));
        Checked { interfaces: interfaces.collect(), host_findings, asked_for, name, host }
    }

    /// The command that would help this interface, if one is likely to help.
    pub(crate) fn by(&self, interface: &CheckedInterface) -> Option<String> {
        let Help::Likely(_) = interface.help else { return None };
        let name = &interface.facts.link.name;
        let can_run = can_run(&self.host_findings) && can_run(&interface.findings);
        Some(if can_run {
            format!("rxsteer run {name}")
        } else {
            // The kernel's own steering does not need XDP.
            format!("rxsteer host recommend {name}")
        })
    }

    /// Whether nothing blocks `rxsteer run`: on all named interfaces, or, if none are named, on at least one.
    pub(crate) fn can_run(&self) -> bool {
        let mut each = self.interfaces.iter().map(|interface| can_run(&interface.findings));
        let interfaces = if self.asked_for {
            each.all(|can| can)
        } else {
            each.len() == 0 || each.any(|can| can)
        };
        can_run(&self.host_findings) && interfaces
    }
}

/// The host, with the results of trying the operations of `rxsteer run`.
#[cfg(feature = "xdp")]
fn tried(mut host: Host, interfaces: &[Interface]) -> Host {
    use crate::trial;
    host.programs = trial::programs(&host);
    if host.programs == rxsteer_host::Trial::Works
        && interfaces.iter().any(rxsteer_host::may_be_generic)
    {
        host.generic = trial::generic(&host);
    }
    host
}

#[cfg(not(feature = "xdp"))]
fn tried(mut host: Host, _interfaces: &[Interface]) -> Host {
    let trial = rxsteer_host::Trial::not_tried("this build has no in-kernel path");
    (host.programs, host.generic) = (trial.clone(), trial);
    host
}

/// The interfaces that look like NICs; in a container, which has none, the veths.
pub(crate) fn nics(links: &[Link]) -> Vec<&Link> {
    let physical: Vec<&Link> = links.iter().filter(|link| link.is_physical()).collect();
    if physical.is_empty() {
        links.iter().filter(|link| link.is("veth")).collect()
    } else {
        physical
    }
}

/// The interfaces that match `names`, each once, in the order of the names.
pub(crate) fn chosen<'a>(names: &[String], links: &'a [Link]) -> anyhow::Result<Vec<&'a Link>> {
    let mut chosen: Vec<&Link> = Vec::new();
    for name in names {
        let pattern = Pattern::new(name)?;
        let found: Vec<&Link> = links.iter().filter(|link| pattern.matches(link)).collect();
        anyhow::ensure!(!found.is_empty(), "{}", not_found(&pattern, links));
        for link in found {
            if !chosen.iter().any(|other| other.index == link.index) {
                chosen.push(link);
            }
        }
    }
    Ok(chosen)
}

/// The most names in a list.
const MAX_NAMES: usize = 10;

/// The message if no interface has this name: the nearest name, or all names.
pub(crate) fn not_found(pattern: &Pattern, links: &[Link]) -> String {
    let steerable = links.iter().filter(|link| link.hardware_type != LOOPBACK);
    let names: Vec<&str> = steerable.map(|link| link.name.as_str()).collect();
    let name = pattern.to_string();
    if name.is_empty() {
        return "the name of the interface is empty".to_owned();
    }
    let mut text = if pattern.is_open() {
        format!("no interface of this network namespace matches '{name}'")
    } else {
        format!("there is no interface '{name}' in this network namespace")
    };
    match nearest(&name, &names).filter(|_| !pattern.is_open()) {
        Some(near) => text += &format!("; did you mean '{near}'?"),
        None if names.is_empty() => text += "; the loopback is the only one",
        None => {
            text += &format!("; there are {}", names[..names.len().min(MAX_NAMES)].join(", "));
            if names.len() > MAX_NAMES {
                text += &format!(" and {} more (ip link)", names.len() - MAX_NAMES);
            }
        }
    }
    text
}

/// Prints that an interface is down and receives nothing.
pub(crate) fn note_down(link: &Link) {
    if !link.up {
        let name = printable(&link.name);
        output::note(&format!("rxsteer: {name}: {}", is_down(&name)));
    }
}

/// An error if another instance already steers the interface.
pub(crate) fn busy(link: &Link) -> Option<anyhow::Error> {
    let program = link.attached.as_ref()?.id?;
    let other = client::running().into_iter().find(|other| other.program_id == Some(program))?;
    Some(anyhow::anyhow!(
        "{} is steered already, by rxsteer with process id {} (socket {}). Change that one with rxsteer set {0} \
         SETTING=VALUE, or end it with kill {1}",
        link.name,
        other.pid,
        other.socket
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(names: &[&str]) -> Vec<Link> {
        let link = |(index, name): (u32, &&str)| Link {
            index,
            name: (*name).to_owned(),
            ..Link::default()
        };
        (1..).zip(names).map(link).collect()
    }

    fn names(asked: &[&str], there: &[&str]) -> Result<Vec<String>, String> {
        let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
        match chosen(&asked, &links(there)) {
            Ok(chosen) => Ok(chosen.iter().map(|link| link.name.clone()).collect()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn each_interface_is_chosen_once() {
        let there = ["lo", "eth0", "eth1", "veth0"];
        assert_eq!(names(&["eth1", "eth*"], &there).unwrap(), ["eth1", "eth0"]);
    }

    #[test]
    fn what_is_not_there_is_answered_with_what_is() {
        let there = ["lo", "eth0"];
        assert!(names(&["ehh0"], &there).unwrap_err().ends_with("; did you mean 'eth0'?"));
        assert!(names(&["wlan17"], &there).unwrap_err().ends_with("; there are lo, eth0"));
        assert!(names(&["veth*"], &there).unwrap_err().contains("matches 'veth*'"));
        let many: Vec<String> = (0..99).map(|number| format!("v{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(names(&["wlan17"], &many).unwrap_err().ends_with("v9 and 89 more (ip link)"));
    }

    #[test]
    fn without_a_nic_veths_are_shown() {
        let mut links = links(&["lo", "eth0"]);
        links[1].kind = Some("veth".to_owned());
        assert_eq!(nics(&links).len(), 1);
        links[0].parent = Some(("pci".to_owned(), "0000:01:00.0".to_owned()));
        links[0].hardware_type = rxsteer_host::ETHERNET;
        assert_eq!(nics(&links)[0].name, "lo", "the one with a device");
    }
}
