//! Attaching an XDP program: whether another one is attached, the mode, and the longest frames.

use crate::attached::{Attached, AttachedMode};
use crate::finding::Finding;
use crate::host::Host;
use crate::interface::{Interface, Peer};
use crate::trial::Trial;

/// The longest packet that fits into a page together with what XDP needs (256 bytes before it, `skb_shared_info` after
/// it, and an Ethernet header with two VLAN tags). Drivers differ by some bytes.
const ONE_PAGE_MTU: u32 = 3498;

pub(super) fn findings(interface: &Interface, host: &Host) -> Vec<Finding> {
    let mut findings = vec![other_program(interface), mode(interface, host)];
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
            "rxsteer steers it already: change that instance (rxsteer set), or end it (kill {})",
            holder.pid
        ),
        Some(holder) => {
            format!("first end {} (process {}), if you can", holder.name, holder.pid)
        }
        None => {
            let mode = if attached.mode == AttachedMode::Generic { "xdpgeneric" } else { "xdp" };
            format!("if it is not needed, detach it first: ip link set dev {name} {mode} off")
        }
    };
    Finding::blocker(
        topic,
        described(attached),
        "an interface takes one XDP program, and rxsteer never replaces another one",
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

/// Native: in the driver, before there is a socket buffer. Generic: after that, if the kernel supports it.
fn mode(interface: &Interface, host: &Host) -> Finding {
    let topic = "xdp_mode";
    let name = &interface.link.name;
    let veth = interface.link.is("veth");
    let why_generic = match interface.xdp {
        Some(xdp) if xdp.redirects() => return Finding::fine(topic, "native"),
        Some(xdp) if xdp.native => "the driver runs XDP programs, but can't redirect",
        Some(_) if veth => {
            "native XDP on a veth needs at least as many RX queues as its peer has TX queues"
        }
        Some(_) => "the driver has no native XDP",
        None => {
            "the kernel does not report what the driver's XDP can do; --mode auto tries native first"
        }
    };
    let queues = format!(
        "give it as many: ethtool -L {name} rx N (or the peer fewer: ethtool -L {} tx N)",
        interface.peer.as_ref().map_or("PEER", Peer::name)
    );
    let is_known = interface.xdp.is_some();
    let mode = if is_known { "generic" } else { "native or generic" };
    match &host.generic {
        Trial::Fails { what, .. } if is_known => {
            let other = format!(
                "the kernel's own RPS: rxsteer host apply {name}; or a NIC whose driver has native XDP"
            );
            Finding::blocker(
                topic,
                format!("generic mode would be needed, and loses frames on this kernel: {what}"),
                why_generic,
                if veth { queues } else { other },
            )
        }
        Trial::Fails { what, .. } => Finding::note(
            topic,
            format!("native, if the driver can; generic mode loses frames on this kernel: {what}"),
            why_generic,
        ),
        tried => {
            let cost = "generic mode works with every driver, but the kernel makes a socket buffer first and bypasses GRO, \
                        so the gain is less";
            let tried = match tried {
                Trial::NotTried { why } => {
                    format!(
                        "; not tried ({why}): rxsteer run first tries it on an interface of its own"
                    )
                }
                _ => "; check tried it, and no frame was lost".to_owned(),
            };
            let finding =
                Finding::note(topic, format!("{mode}: {why_generic}"), format!("{cost}{tried}"));
            if veth && is_known { finding.fix(queues) } else { finding }
        }
    }
}

/// Our programs accept frames of several buffers, so the MTU matters only if the driver does not support them.
fn mtu(interface: &Interface) -> Option<Finding> {
    let topic = "mtu";
    let mtu = interface.link.mtu?;
    let native = interface.xdp.is_none_or(|xdp| xdp.redirects());
    let frags = interface.xdp.is_some_and(|xdp| xdp.frags);
    if mtu <= ONE_PAGE_MTU || !native || frags {
        return Some(Finding::fine(topic, mtu.to_string()));
    }
    let without = if interface.xdp.is_some() { "without" } else { "and unknown" };
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
