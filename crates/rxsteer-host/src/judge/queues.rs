//! RX queues, the CPUs near them, and the kernel's own steering after rxsteer's.

use super::listed;
use crate::finding::Finding;
use crate::host::Host;
use crate::interface::Interface;
use crate::queues::SteeredQueue;

pub(super) fn findings(interface: &Interface, host: &Host) -> Vec<Finding> {
    vec![rx_queues(interface), near_cpus(interface, host), kernel_rps(interface)]
}

fn rx_queues(interface: &Interface) -> Finding {
    let topic = "rx_queues";
    match interface.rx_queues {
        Some(queues) => Finding::fine(topic, queues.to_string()),
        None => Finding::note(
            topic,
            match interface.link.max_rx_queues {
                Some(most) => format!("unknown; at most {most}"),
                None => "unknown".to_owned(),
            },
            "the number of queues in use is in /sys/class/net, which shows another network namespace here, or nothing",
        ),
    }
}

fn near_cpus(interface: &Interface, host: &Host) -> Finding {
    let topic = "near_cpus";
    let node = match (interface.numa_node, &interface.node_cpus) {
        (Some(node), Some(cpus)) => format!("NUMA node {node} (CPUs {cpus})"),
        _ => "no NUMA node of its own".to_owned(),
    };
    match host.cpus.usable(std::slice::from_ref(&interface.node_cpus)) {
        Some(used) => Finding::fine(
            topic,
            format!("{node}; CPUs {used} are used, unless --cpus names others"),
        ),
        None => {
            Finding::note(topic, node, "which CPUs are online is unknown; name some with --cpus")
        }
    }
}

/// The kernel's own steering also applies to packets that come out of a CPUMAP.
fn kernel_rps(interface: &Interface) -> Finding {
    let topic = "kernel_rps";
    let name = &interface.link.name;
    let why = "the kernel would send packets on to another CPU, and rxsteer can't see when they are processed there, so \
               it can't keep order";
    let Some(steered) = &interface.steered_queues else {
        return Finding::note(topic, "whether the kernel's RPS is on is unknown", why).fix(format!(
            "make sure: cat /sys/class/net/{name}/queues/rx-*/rps_cpus shows zeroes in its network namespace"
        ));
    };
    let with = |of: fn(&SteeredQueue) -> bool| {
        steered.iter().filter(move |queue| of(queue)).map(|queue| queue.queue)
    };
    let rps: Vec<u32> = with(|queue| !queue.rps_cpus.is_empty()).collect();
    let rfs: Vec<u32> = with(|queue| queue.rps_cpus.is_empty()).collect();
    let mut what = Vec::new();
    for (queues, mechanism) in [(&rps, "RPS"), (&rfs, "RFS")] {
        if !queues.is_empty() {
            what.push(format!(
                "{mechanism} of the kernel is on for RX queue{} {}",
                if queues.len() == 1 { "" } else { "s" },
                numbers(queues)
            ));
        }
    }
    if what.is_empty() {
        return Finding::fine(topic, "off");
    }
    Finding::blocker(topic, listed(&what), why, format!("rxsteer host apply {name} --off"))
}

/// At most eight of them.
fn numbers(queues: &[u32]) -> String {
    let shown: Vec<String> = queues.iter().take(8).map(u32::to_string).collect();
    match queues.len() - shown.len() {
        0 => listed(&shown),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
