//! Translates settings of `rxsteer run` to the kernel's own steering, and finds those that it cannot express.

use crate::run::args::RunSettings;
use rxsteer_host::InterfaceKnobs;
use rxsteer_host::change::Wanted;
use rxsteer_user::core::{CpuSet, Fallback, Policy, QueueName};

/// What to set, and, in sentences, what is left out or differs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expressed {
    pub(crate) wanted: Wanted,
    pub(crate) differs: Vec<String>,
}

/// The same policy for the kernel. `policy` is the default policy; `allowed` are the CPUs from which a count selects.
///
/// # Errors
/// If none of it can be expressed, the reason.
pub(crate) fn expressed(
    asked: &RunSettings,
    policy: &Policy,
    knobs: &InterfaceKnobs,
    allowed: Option<CpuSet>,
) -> Result<Expressed, String> {
    let (steering, fixed) = (&asked.live.steering, &asked.fixed);
    if asked.live.kernel.shadow == Some(true) {
        return Err(
            "--shadow decides without acting, and the kernel's own steering can't".to_owned()
        );
    }
    let policy = steering.policy.as_ref().unwrap_or(policy);
    let mut found = Expressed::default();
    found.wanted.cpus = steering.cpus.as_ref().map(|choice| choice.cpus(allowed));
    found.wanted.flow_limit = steering.flow_limit().flatten().is_some();
    let mut differs = |is: bool, what: &str| {
        if is {
            found.differs.push(what.to_owned());
        }
    };
    differs(
        policy.slots().is_some(),
        "the kernel has no sparse: it steers few flows by their hash, too, so they may share a CPU",
    );
    differs(
        policy.balance().is_some(),
        "the kernel does not move flows by load: it steers them by their hash, so CPUs stay unevenly busy",
    );
    differs(
        asked.live.rules.rules().is_some_and(|rules| !rules.is_empty()),
        "the rules are left out: the kernel's own steering has none",
    );
    differs(
        policy.is_rfs() && steering.fallback == Some(Fallback::Local),
        "else=local is left out: flows without a desired CPU are spread by RPS",
    );
    differs(
        policy.is_rfs() && steering.rfs_cpus().flatten().is_some(),
        "rfs-cpus is left out: the kernel's RFS follows applications to any CPU",
    );
    differs(
        fixed.flows.inner(),
        "--inner is left out: the kernel looks into IPIP and GRE, not into VXLAN, Geneve or GTP-U",
    );
    differs(
        !fixed.tunnels.kinds().is_empty(),
        "--key-tunnels is left out: the kernel hashes ESP, GTP-U, L2TP and WireGuard by addresses and ports",
    );
    differs(
        fixed.tables.flow_cnt.is_some() || fixed.tables.sock_flow_entries.is_some(),
        "table sizes are left out: those of the kernel's documentation are set",
    );
    differs(
        asked.live.kernel.queue_size.is_some(),
        "queue-size is left out: net.core.netdev_max_backlog is the limit, of all interfaces",
    );
    differs(
        asked.live.kernel.threads.is_some(),
        "threads is left out: the kernel's RPS works in softirqs",
    );
    differs(
        policy != &Policy::None,
        "there is no order guard: the kernel reorders flows that move when its masks change",
    );
    let queues = || knobs.rx.iter().filter_map(|queue| u16::try_from(queue.queue).ok());
    let name = Some(knobs.name.as_str());
    match policy {
        Policy::None => return Err("policy none steers nothing".to_owned()),
        Policy::Rps | Policy::Sparse(_) => {}
        Policy::Rfs | Policy::RfsSparse(_) => found.wanted.rfs = true,
        Policy::Balance(front, _) => found.wanted.rfs = front.rfs,
        Policy::Bound(bindings) => {
            let of = |queue| {
                let cpu = QueueName::most_specific(bindings, name, queue)?;
                Some((u32::from(queue), CpuSet::new([*cpu])?))
            };
            found.wanted.queues = queues().filter_map(of).collect();
            if found.wanted.queues.is_empty() {
                return Err(format!("policy {policy} binds no RX queue of {}", knobs.name));
            }
        }
    }
    if let Some(maps) = steering.rps_maps().filter(|maps| !maps.is_empty()) {
        let cpus = found.wanted.cpus.clone();
        let of = |queue| {
            let map = QueueName::most_specific(&maps, name, queue).or(cpus.as_ref())?;
            Some((u32::from(queue), map.clone()))
        };
        found.wanted.queues = queues().filter_map(of).collect();
    }
    // The plan also needs a general set: all CPUs of the queues.
    if found.wanted.cpus.is_none() && !found.wanted.queues.is_empty() {
        let all = found.wanted.queues.iter().flat_map(|(_, cpus)| cpus.iter());
        found.wanted.cpus = CpuSet::new(all);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use rxsteer_host::RxQueue;

    /// The translation of the options of `rxsteer run eth0`, for two RX queues.
    fn of(options: &[&str]) -> Result<Expressed, String> {
        let line = [&["rxsteer", "run", "eth0"][..], options].concat();
        let Command::Run(args) = Cli::parse_from(line).command else { panic!("run") };
        let asked = args.settings().unwrap();
        let queue = |queue| RxQueue { queue, ..RxQueue::default() };
        let rx = vec![queue(0), queue(1)];
        let knobs = InterfaceKnobs { name: "eth0".to_owned(), rx, ..InterfaceKnobs::default() };
        expressed(&asked, &Policy::Rps, &knobs, "0-3".parse().ok())
    }

    fn queues(found: &Expressed) -> Vec<(u32, String)> {
        let queues = found.wanted.queues.iter();
        queues.map(|(queue, cpus)| (*queue, cpus.to_string())).collect()
    }

    #[test]
    fn words_that_the_kernel_has_are_its() {
        let rps = of(&["--policy", "rps", "--cpus", "1-3"]).unwrap();
        let expected = Wanted { cpus: "1-3".parse().ok(), ..Wanted::default() };
        assert_eq!((rps.wanted, rps.differs.len()), (expected, 1), "the order guard");
        let rfs = of(&["--policy", "rfs", "--flow-limit=on"]).unwrap().wanted;
        assert!(rfs.rfs && rfs.flow_limit && rfs.cpus.is_none());
        let bound = of(&["--policy", "bound:0=1,eth0:1=3,eth9:0=2"]).unwrap();
        assert_eq!(queues(&bound), [(0, "1".to_owned()), (1, "3".to_owned())]);
        let maps = of(&["--policy", "rps", "--cpus", "0-1", "--rps-map", "eth0:1=2-3"]).unwrap();
        assert_eq!(queues(&maps), [(0, "0-1".to_owned()), (1, "2-3".to_owned())]);
        assert_eq!(of(&[]).unwrap().wanted, Wanted::default(), "the policy that holds by default");
    }

    #[test]
    fn words_that_it_lacks_are_named() {
        let differs = |options: &[&str]| of(options).unwrap().differs.join("; ");
        assert!(differs(&["--policy", "sparse"]).contains("no sparse"));
        let all = differs(&[
            "--policy",
            "rfs+sparse",
            "--else",
            "local",
            "--rfs-cpus",
            "0-1",
            "--inner",
            "--key-tunnels",
            "esp",
            "--flow-cnt",
            "4096",
            "--queue-size",
            "512",
            "--threads",
            "other",
        ]);
        for word in [
            "sparse",
            "else=local",
            "rfs-cpus",
            "--inner",
            "--key-tunnels",
            "sizes",
            "queue-size",
            "threads",
            "order",
        ] {
            assert!(all.contains(word), "{word}: {all}");
        }
        for (options, word) in [
            (&["--policy", "none"][..], "steers nothing"),
            (&["--shadow"], "--shadow"),
            (&["--policy", "bound:eth9:0=1"], "binds no RX queue"),
        ] {
            let why = of(options).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }
}
