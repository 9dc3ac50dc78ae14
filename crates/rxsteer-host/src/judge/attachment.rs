//! Attaching an XDP program: whether there is one already, in which mode, and how long frames may be.

use crate::finding::Finding;
use crate::interface::{Attached, AttachedMode, Interface, Peer};

/// Longest packet that fits into a page beside what XDP needs in it (256 bytes in front, `skb_shared_info` behind, an
/// Ethernet header with two VLAN tags). Drivers differ by some bytes.
const ONE_PAGE_MTU: u32 = 3498;

pub(super) fn findings(interface: &Interface) -> Vec<Finding> {
    let mut findings = vec![other_program(interface), mode(interface)];
    findings.extend(mtu(interface));
    findings
}

fn other_program(interface: &Interface) -> Finding {
    let topic = "other_program";
    let Some(attached) = &interface.attached else {
        return Finding::fine(topic, "no other XDP program is attached");
    };
    let name = &interface.link.name;
    let fix = match &attached.holder {
        Some(holder) if holder.name == "rxsteer" => format!(
            "it is steered already: change that one (rxsteer set), or end it (kill {})",
            holder.pid
        ),
        Some(holder) => {
            format!("end {} (process {}) first, if it may end", holder.name, holder.pid)
        }
        None => {
            let mode = if attached.mode == AttachedMode::Generic { "xdpgeneric" } else { "xdp" };
            format!("take it off first, if nobody needs it: ip link set dev {name} {mode} off")
        }
    };
    Finding::blocker(
        topic,
        described(attached),
        "an interface takes one program, and one of somebody else is never touched",
        fix,
    )
}

fn described(attached: &Attached) -> String {
    let mode = match attached.mode {
        AttachedMode::Native => "native",
        AttachedMode::Generic => "generic",
        AttachedMode::Offloaded => "in the NIC",
        AttachedMode::Several => "several modes",
    };
    let program = match attached.id {
        Some(id) => format!("XDP program {id} is attached ({mode})"),
        None => format!("XDP programs are attached ({mode})"),
    };
    match &attached.holder {
        Some(holder) => format!("{program}, by {} (process {})", holder.name, holder.pid),
        None => program,
    }
}

/// Native: in the driver, before there is a socket buffer. Generic: behind it.
fn mode(interface: &Interface) -> Finding {
    let topic = "xdp_mode";
    const GENERIC: &str = "generic mode works with every driver, but a socket buffer is made first and GRO is \
                           bypassed, so less is gained";
    match interface.xdp {
        Some(xdp) if xdp.redirects() => Finding::fine(topic, "native"),
        Some(xdp) if xdp.native => Finding::note(
            topic,
            "generic: the driver runs XDP programs, but can't redirect",
            GENERIC,
        ),
        Some(_) if interface.link.is("veth") => Finding::note(
            topic,
            "generic: native XDP on a veth needs at least as many RX queues as its peer has TX queues",
            GENERIC,
        )
        .fix(format!(
            "give it as many: ethtool -L {} rx N (or the peer fewer: ethtool -L {} tx N)",
            interface.link.name,
            interface.peer.as_ref().map_or("PEER", Peer::name)
        )),
        Some(_) => Finding::note(topic, "generic: the driver has no native XDP", GENERIC),
        None => Finding::note(
            topic,
            "native or generic: it can't be told before it is tried",
            "kernels before 6.3 do not say what a driver's XDP can do; --mode auto tries native first",
        ),
    }
}

/// Our programs take frames of several buffers, so the MTU matters only where the driver doesn't.
fn mtu(interface: &Interface) -> Option<Finding> {
    let topic = "mtu";
    let mtu = interface.link.mtu?;
    let native = interface.xdp.is_none_or(|xdp| xdp.redirects());
    let frags = interface.xdp.is_some_and(|xdp| xdp.frags);
    if mtu <= ONE_PAGE_MTU || !native || frags {
        return Some(Finding::fine(topic, mtu.to_string()));
    }
    let without = if interface.xdp.is_some() {
        "without"
    } else {
        "and it is not known whether the driver has"
    };
    Some(
        Finding::note(
            topic,
            format!("{mtu}, {without} support for frames of several buffers"),
            format!("such a driver takes programs in native mode only up to an MTU of about {ONE_PAGE_MTU}"),
        )
        .fix(format!(
            "if it refuses: ip link set dev {} mtu {ONE_PAGE_MTU}, or --mode generic",
            interface.link.name
        )),
    )
}
