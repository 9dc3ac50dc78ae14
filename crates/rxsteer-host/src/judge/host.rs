//! The kernel, its type information and tracepoints, the capabilities of this process, and the CPUs.

use super::listed;
use crate::btf::{Btf, Tracepoint};
use crate::cpus;
use crate::finding::Finding;
use crate::host::Host;
use crate::trial::Trial;
use rxsteer_core::{Policy, Slots};

const ELSEWHERE: &str = "rxsteer replay and the library work on any host";

pub(super) fn findings(host: &Host) -> Vec<Finding> {
    let mut findings = vec![kernel(host), preemption(host)];
    findings.extend(type_information(host));
    findings.extend([capabilities(host), programs(host), policy(host), cpus(host)]);
    findings.extend(timer(host));
    findings.push(super::threads::finding(host));
    findings
}

/// The version number is not conclusive: enterprise kernels contain newer BPF under an old number. So `check` tries the
/// programs.
fn kernel(host: &Host) -> Finding {
    Finding::fine("kernel", format!("Linux {}", host.release))
}

fn programs(host: &Host) -> Finding {
    let topic = "programs";
    match &host.programs {
        Trial::Works => {
            Finding::fine(topic, "the kernel loads them, and they run without capabilities")
        }
        Trial::Fails { what, .. } => Finding::blocker(
            topic,
            what,
            "rxsteer run loads these programs; check tried it now, and attached them to nothing",
            format!(
                "boot a later kernel (6.1, 6.12, 6.18 and 7.2 load them); rxsteer check --kernel-log shows \
                 the kernel's whole answer; {ELSEWHERE}"
            ),
        ),
        Trial::NotTried { why } => Finding::note(
            topic,
            format!("not tried: {why}"),
            "only loading them shows whether this kernel accepts them",
        ),
    }
}

/// The default policy of `rxsteer run` on this kernel.
pub(super) fn default_policy(host: &Host) -> Policy {
    if missing_for_rfs(&host.btf).is_empty() {
        Policy::RfsSparse(Slots::default())
    } else {
        Policy::Sparse(Slots::default())
    }
}

fn missing_for_rfs(btf: &Btf) -> Vec<&'static str> {
    let missing = btf.missing().into_iter().filter(is_for_rfs);
    missing.map(|lack| lack.name).collect()
}

fn is_for_rfs(tracepoint: &Tracepoint) -> bool {
    tracepoint.used_for.ends_with("(rfs)")
}

fn policy(host: &Host) -> Finding {
    let missing = missing_for_rfs(&host.btf);
    let without = if missing.is_empty() {
        String::new()
    } else {
        format!(", since rfs requires {}, which this kernel lacks", listed(&missing))
    };
    Finding::fine("default_policy", format!("{}{without}", default_policy(host)))
}

fn preemption(host: &Host) -> Finding {
    let topic = "preemption";
    if host.realtime {
        return Finding::blocker(
            topic,
            "this is a PREEMPT_RT kernel",
            "it can preempt the processing of a packet, so rxsteer can't know when a flow may move, and can't keep order",
            format!("boot a kernel without PREEMPT_RT; {ELSEWHERE}"),
        );
    }
    Finding::fine(topic, "not PREEMPT_RT: rxsteer can keep order")
}

fn type_information(host: &Host) -> Vec<Finding> {
    let why = "loading adapts the programs to the running kernel by its type information, /sys/kernel/btf/vmlinux";
    match &host.btf {
        Btf::Readable { .. } => {
            vec![Finding::fine("btf", "/sys/kernel/btf/vmlinux is there"), tracepoints(&host.btf)]
        }
        Btf::Missing => vec![Finding::blocker(
            "btf",
            "the kernel has no type information",
            why,
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of all larger distributions are; in a container \
             make /sys visible",
        )],
        Btf::Unreadable { why: error } => vec![Finding::blocker(
            "btf",
            format!("the kernel's type information can't be read: {error}"),
            why,
            "let this process read /sys/kernel/btf/vmlinux (a container or security module may forbid it)",
        )],
    }
}

fn tracepoints(btf: &Btf) -> Finding {
    let topic = "tracepoints";
    let missing = btf.missing();
    let names = |of: &[Tracepoint]| listed(&of.iter().map(|lack| lack.name).collect::<Vec<_>>());
    let uses = |of: &[Tracepoint]| listed(&of.iter().map(|lack| lack.used_for).collect::<Vec<_>>());
    let (needed, other): (Vec<Tracepoint>, Vec<Tracepoint>) =
        missing.iter().partition(|lack| lack.needed);
    if !needed.is_empty() {
        return Finding::blocker(
            topic,
            format!("the kernel lacks {}", names(&needed)),
            format!("needed for {}", uses(&needed)),
            "boot a kernel built with CONFIG_TRACEPOINTS and CONFIG_BPF_SYSCALL, as those of all larger distributions are",
        );
    }
    if other.iter().any(is_for_rfs) {
        return Finding::no(
            topic,
            format!("the kernel lacks {}", names(&other)),
            format!("used for {}", uses(&other)),
            "leave --policy out or use one without rfs; mainline kernels have these tracepoints since Linux 6.3",
        );
    }
    if !other.is_empty() {
        return Finding::note(
            topic,
            format!("the kernel lacks {}", names(&other)),
            format!("used for {}; those counters stay 0", uses(&other)),
        );
    }
    Finding::fine(topic, "the kernel has all that rxsteer uses")
}

fn capabilities(host: &Host) -> Finding {
    let topic = "capabilities";
    let fix = "run rxsteer as root, or once: setcap cap_bpf,cap_net_admin,cap_perfmon=ep $(command -v rxsteer); a container \
               needs the same three (--cap-add)";
    let Some(capabilities) = host.capabilities else {
        return Finding::note(
            topic,
            "unknown: /proc/self/status can't be read",
            "rxsteer run needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
        );
    };
    let missing = capabilities.missing();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|capability| capability.name()).collect();
        let needed: Vec<&str> = missing.iter().map(|capability| capability.needed_for()).collect();
        return Finding::blocker(
            topic,
            format!("this process lacks {}", listed(&names)),
            format!("needed for {}", listed(&needed)),
            fix,
        );
    }
    if capabilities.in_user_namespace == Some(true) {
        return Finding::blocker(
            topic,
            "this process has its capabilities only inside a user namespace",
            "loading BPF programs requires capabilities in the initial user namespace",
            "run rxsteer outside of the user namespace (a rootless container is one)",
        );
    }
    Finding::fine(topic, "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
}

fn cpus(host: &Host) -> Finding {
    let topic = "cpus";
    let Some(online) = &host.cpus.online else {
        return Finding::note(
            topic,
            "which CPUs are online is unknown",
            "neither /sys/devices/system/cpu nor /proc/self/status can be read; name the CPUs with --cpus",
        );
    };
    let isolated = host.cpus.isolated.as_ref();
    let mut what = format!("{} online ({online})", online.len());
    if let Some(isolated) = isolated {
        what += &format!(", of which {isolated} are isolated and used only if --cpus names them");
    }
    if let Some(nohz_full) = &host.cpus.nohz_full {
        what +=
            &format!(", {nohz_full} without a timer tick while one task runs alone (nohz_full)");
    }
    if online.highest().get() > cpus::HIGHEST {
        return Finding::note(
            topic,
            what,
            format!("rxsteer can't send to CPUs above {} and leaves them out", cpus::HIGHEST),
        );
    }
    Finding::fine(topic, what)
}

/// Only if the kernel's configuration can be read; the loader itself measures the timer.
fn timer(host: &Host) -> Option<Finding> {
    let hz = host.hz?;
    Some(Finding::fine("timer", format!("{hz} ticks a second")))
}
