//! The commands that follow the advice, for the interfaces of this host.

use super::advice::Advice;
use crate::check;
use crate::words::is_plain;
use rxsteer_host::{Host, Interface, can_run, judge, links};
use rxsteer_user::core::{CpuSet, Policy};
use rxsteer_user::packet::DissectOptions;
use rxsteer_user::printable;

/// The most interfaces that get separate commands.
const MAX: usize = 4;
/// The placeholder for an interface that is not on this host.
const SOME: &str = "IFACE";

/// Commands, and what they do.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Each command, with what it leaves out or what to know about it.
    pub(super) lines: Vec<(String, String)>,
    /// What to know about all of them.
    pub(super) notes: Vec<String>,
}

/// The commands for `interface`, or for this host's interfaces that look like NICs. Empty if the advice is to leave it
/// alone.
pub(super) fn of(
    advice: &Advice,
    cpus: &CpuSet,
    dissect: DissectOptions,
    interface: Option<&Interface>,
) -> anyhow::Result<Commands> {
    let mut commands = Commands::default();
    let Some(policy) = &advice.policy else { return Ok(commands) };
    let host = Host::read();
    let online = host.cpus.online.as_ref();
    let is_here = online.is_some_and(|online| cpus.iter().all(|cpu| online.contains(cpu)));
    let interfaces: Vec<Interface> = match interface {
        Some(interface) => vec![interface.clone()],
        None if is_here => {
            let links = links()?;
            let nics = check::nics(&links).into_iter().take(MAX);
            nics.map(|link| Interface::of_link(link, &links)).collect()
        }
        None => Vec::new(),
    };
    let dissect = DissectOptions { inner: dissect.inner || advice.inner, ..dissect };
    if interfaces.is_empty() {
        commands.notes.push(if is_here {
            format!("no NIC was found on this host; replace {SOME} by the name of the interface")
        } else {
            let online = online.map_or("unknown".to_owned(), ToString::to_string);
            format!(
                "this host has CPUs {online}, not all of {cpus}: run the commands on the machine that has them, and \
                 replace {SOME} by its interface"
            )
        });
        commands.for_interface(SOME, policy, cpus, dissect, true);
    }
    let can_host = can_run(&judge::host(&host));
    for interface in &interfaces {
        let name = &interface.link.name;
        let can = can_host && can_run(&judge::interface(interface, &host));
        if !can {
            commands
                .notes
                .push(format!("rxsteer run can't steer {name} now; rxsteer check {name} says why"));
        }
        let name = if is_plain(name) {
            name
        } else {
            commands.notes.push(format!(
                "a shell would not read the name {} literally; replace {SOME} by it, quoted",
                printable(name)
            ));
            SOME
        };
        commands.for_interface(name, policy, cpus, dissect, can);
    }
    for (holds, name) in
        [(policy.slots().is_some(), "sparse"), (policy.balance().is_some(), "balance")]
    {
        if holds {
            commands.notes.push(format!(
                "the kernel's own steering has no {name}, so only rxsteer run does this"
            ));
        }
    }
    if dissect.inner {
        commands.notes.push(
            "the kernel's own steering looks into some tunnels only (IPIP, GRE), so only rxsteer run does this for all"
                .to_owned(),
        );
    }
    if !dissect.key_tunnels.is_empty() {
        commands.notes.push(
            "the kernel's own steering hashes tunnels by addresses and ports, so only rxsteer run does this"
                .to_owned(),
        );
    }
    Ok(commands)
}

impl Commands {
    fn for_interface(
        &mut self,
        name: &str,
        policy: &Policy,
        cpus: &CpuSet,
        dissect: DissectOptions,
        can_run: bool,
    ) {
        let mut add = |command: String, what: &str| self.lines.push((command, what.to_owned()));
        let DissectOptions { inner, key_tunnels } = dissect;
        // The kernel's steering lacks sparse and balance, inner headers for most tunnels, and tunnel numbers.
        let in_kernel = !inner && key_tunnels.is_empty();
        if policy.slots().is_none() && policy.balance().is_none() && in_kernel {
            let (with, what) =
                if policy.is_rfs() { (" --rfs", "RPS and RFS") } else { ("", "RPS") };
            add(
                format!("sudo rxsteer host apply {name} --cpus {}{with}", cpus.as_option()),
                &format!("the kernel's own {what}; rxsteer host restore undoes it"),
            );
        }
        if can_run && cfg!(feature = "xdp") {
            let mut with = if inner { " --inner".to_owned() } else { String::new() };
            if !key_tunnels.is_empty() {
                with += &format!(" --key-tunnels {key_tunnels}");
            }
            add(
                format!(
                    "sudo rxsteer run {name} --policy {policy} --cpus {}{with}",
                    cpus.as_option()
                ),
                "in order, and undone when it ends",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(policy: &str, cpus: &str, inner: bool) -> Vec<String> {
        lines_of(policy, cpus, DissectOptions { inner, ..DissectOptions::default() })
    }

    fn lines_of(policy: &str, cpus: &str, dissect: DissectOptions) -> Vec<String> {
        let mut commands = Commands::default();
        let policy = policy.parse().unwrap();
        commands.for_interface("eth0", &policy, &cpus.parse().unwrap(), dissect, true);
        commands.lines.into_iter().map(|(command, _)| command).collect()
    }

    #[test]
    fn kernel_and_run_are_named_where_they_can_do_it() {
        let rps = lines("rps", "0-3", false);
        assert_eq!(rps[0], "sudo rxsteer host apply eth0 --cpus 0-3");
        let of_run = |lines: &[String]| lines.iter().any(|line| line.contains("rxsteer run"));
        assert_eq!(of_run(&rps), cfg!(feature = "xdp"));
        assert_eq!(lines("rfs", "0-3", false)[0], "sudo rxsteer host apply eth0 --cpus 0-3 --rfs");
        let only_run = [("sparse", false), ("rps+balance", false), ("rps", true)]
            .map(|(policy, inner)| lines(policy, "0-3", inner));
        for only_run in only_run {
            assert!(!only_run.iter().any(|line| line.contains("host apply")), "{only_run:?}");
        }
        let dissect =
            DissectOptions { key_tunnels: "esp,gtp".parse().unwrap(), ..DissectOptions::default() };
        let wanted = "sudo rxsteer run eth0 --policy rps --cpus 0-3 --key-tunnels esp,gtp";
        let lines = lines_of("rps", "0-3", dissect);
        assert_eq!(lines, if cfg!(feature = "xdp") { vec![wanted] } else { vec![] });
    }
}
