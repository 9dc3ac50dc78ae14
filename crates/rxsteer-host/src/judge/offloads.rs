//! Offloads: information that a CPUMAP loses, and processing that must not have happened before steering.

use super::listed;
use crate::finding::Finding;
use crate::host::Host;
use crate::interface::{Interface, Offloads, Peer};
use crate::kernel_version::KernelVersion;
use crate::link::Link;

/// Since this version, a CPUMAP's thread merges segments.
const CPUMAP_GRO: KernelVersion = KernelVersion::new(6, 15);
/// With this many ticks a second or more, GRO passes on only packets that are older than one tick.
const FAST_TIMER_HZ: u32 = 1000;
/// 802.1ad.
const SERVICE_TAG: u16 = 0x88a8;

pub(super) fn findings(interface: &Interface, host: &Host) -> Vec<Finding> {
    let Some(offloads) = interface.offloads else {
        let unknown = Finding::note(
            "offloads",
            "unknown: the kernel does not answer ethtool",
            "LRO must be off, and with VLAN interfaces above also rxvlan",
        )
        .fix(format!("look: ethtool -k {}", interface.link.name));
        return [Some(unknown), peer_checksums(interface)].into_iter().flatten().collect();
    };
    let mut findings = vec![gro(interface, &offloads, host), lro(interface, &offloads)];
    findings.push(vlan_tags(interface, &offloads));
    findings.extend(peer_checksums(interface));
    findings
}

fn gro(interface: &Interface, offloads: &Offloads, host: &Host) -> Finding {
    let topic = "gro";
    let name = &interface.link.name;
    let since = host.version.is_none_or(|version| version >= CPUMAP_GRO);
    if offloads.gro && !since {
        return Finding::note(
            topic,
            "on, but not after a CPUMAP",
            format!(
                "a CPUMAP merges segments since Linux {CPUMAP_GRO}; in older kernels every segment of a TCP stream \
                 goes up the stack alone"
            ),
        );
    }
    if !offloads.gro {
        let fix = format!("ethtool -K {name} gro on");
        let finding =
            Finding::note(topic, "off", "every segment of a TCP stream goes up the stack alone");
        return if since { finding.fix(fix) } else { finding };
    }
    if interface.xdp.is_some_and(|xdp| !xdp.redirects()) {
        return Finding::fine(topic, "on, but bypassed in generic mode");
    }
    match host.hz {
        Some(hz) if hz >= FAST_TIMER_HZ => Finding::note(
            topic,
            format!("on, at {hz} timer ticks a second"),
            "at this rate GRO may hold a packet past its batch, so flows of a busy CPU move a few ticks later",
        ),
        _ => Finding::fine(topic, "on, also after a CPUMAP"),
    }
}

fn lro(interface: &Interface, offloads: &Offloads) -> Finding {
    let topic = "lro";
    let name = &interface.link.name;
    if offloads.lro {
        return Finding::blocker(
            topic,
            "on",
            "the NIC merges segments into frames that XDP can't take; most drivers then refuse a program",
            format!("ethtool -K {name} lro off"),
        );
    }
    if offloads.gro_hw && interface.link.driver.as_deref() == Some("virtio_net") {
        return Finding::note(
            topic,
            "off, but the host hands over merged segments (rx-gro-hw)",
            "the host stops merging while a program is attached: a TCP stream then comes as one frame per segment, up to 40 \
             times as many frames (measured, see docs/in-kernel.md); where most traffic is TCP that ends on this machine, \
             kernel RPS keeps the merged segments",
        )
        .fix(format!("for kernel RPS instead: rxsteer host apply {name}"));
    }
    if offloads.gro_hw {
        return Finding::note(
            topic,
            "off, but GRO in hardware (rx-gro-hw) is on",
            "when a program is attached, some drivers turn it off, others refuse the program; without it a TCP stream comes \
             as one frame per segment",
        )
        .fix(format!("if it refuses: ethtool -K {name} rx-gro-hw off"));
    }
    Finding::fine(topic, "off")
}

/// If the NIC removes tags from a frame, they are in the descriptor, which a CPUMAP does not pass on.
fn vlan_tags(interface: &Interface, offloads: &Offloads) -> Finding {
    let topic = "vlan_tags";
    let name = &interface.link.name;
    let vlans: Vec<&Link> = interface.above.iter().filter(|link| link.is("vlan")).collect();
    if vlans.is_empty() {
        return Finding::fine(topic, "there is no VLAN interface above");
    }
    let service = |link: &&Link| link.vlan_protocol == Some(SERVICE_TAG);
    let customer = offloads.rx_vlan && !vlans.iter().all(service);
    let service = offloads.rx_vlan_stag && vlans.iter().any(service);
    let mut off = Vec::new();
    if interface.peer.is_some() {
        // A veth passes tags on as they are sent, outside the frame, whatever its own settings are.
        return veth_vlan_tags(interface, offloads, &vlans);
    }
    if customer {
        off.push("rxvlan off");
    }
    if service {
        off.push("rx-vlan-stag-hw-parse off");
    }
    if off.is_empty() {
        return Finding::fine(topic, format!("they stay in the frame ({} above)", named(&vlans)));
    }
    Finding::blocker(
        topic,
        format!("the NIC removes VLAN tags from frames, and {} above needs them", named(&vlans)),
        "a CPUMAP loses a tag that is not in the frame, so these packets would go to the wrong interface",
        format!("ethtool -K {name} {}", off.join(" ")),
    )
}

fn veth_vlan_tags(interface: &Interface, offloads: &Offloads, vlans: &[&Link]) -> Finding {
    let topic = "vlan_tags";
    let why = "if the sending end leaves tags to the veth, it passes them beside the frame, and a CPUMAP loses them";
    let what = format!("tags for {} above come beside the frame", named(vlans));
    match &interface.peer {
        Some(Peer::Here { name, offloads: Some(peer) }) if peer.tx_vlan => Finding::blocker(
            topic,
            what,
            why,
            format!("ethtool -K {name} txvlan off tx-vlan-stag-hw-insert off"),
        ),
        Some(Peer::Here { offloads: Some(_), .. }) => {
            Finding::fine(topic, format!("they stay in the frame ({} above)", named(vlans)))
        }
        _ if offloads.rx_vlan => Finding::blocker(
            topic,
            format!("{} is above, and the settings of the peer can't be read", named(vlans)),
            why,
            format!(
                "at the peer: ethtool -K PEER txvlan off tx-vlan-stag-hw-insert off; then set this here: ethtool -K {} \
                 rxvlan off",
                interface.link.name
            ),
        ),
        _ => Finding::note(
            topic,
            format!("{} is above, and the settings of the peer can't be read", named(vlans)),
            why,
        )
        .fix("make sure at the peer: ethtool -K PEER txvlan off tx-vlan-stag-hw-insert off"),
    }
}

fn named(links: &[&Link]) -> String {
    listed(&links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>())
}

/// The topic of findings about checksums that the peer of an interface leaves to a device.
pub const PEER_CHECKSUMS: &str = "peer_checksums";

/// Frames from a sender that leaves checksums to the device have no checksum. The stack recognizes this by a mark in
/// the socket buffer, which a redirect loses.
fn peer_checksums(interface: &Interface) -> Option<Finding> {
    let topic = PEER_CHECKSUMS;
    let why = "if a sender leaves the checksum to a device, receivers drop the frame after a redirect, so such frames \
               pass and are not steered: with tx on these are all frames that the peer's side itself sends";
    if interface.link.is("tun") {
        return Some(
            Finding::note(topic, "a tap: its user may leave checksums to the device", why)
                .fix("inside the virtual machine: ethtool -K IF tx off (or without csum in its network options)"),
        );
    }
    if interface.link.is("netkit") {
        return Some(
            Finding::note(topic, "a netkit: its peer may leave checksums to the device", why)
                .fix("make sure at the peer: ethtool -K PEER tx off"),
        );
    }
    Some(match interface.peer.as_ref()? {
        Peer::Here { name, offloads: Some(offloads) } if offloads.tx_checksum => Finding::blocker(
            topic,
            format!("the peer {name} has checksum offload on"),
            why,
            format!("ethtool -K {name} tx off"),
        ),
        Peer::Here { name, offloads: Some(_) } => {
            Finding::fine(topic, format!("the peer {name} completes checksums"))
        }
        Peer::Here { name, offloads: None } => Finding::note(
            topic,
            format!("whether the peer {name} completes checksums is unknown"),
            why,
        )
        .fix(format!("make sure: ethtool -K {name} tx off")),
        Peer::Elsewhere => Finding::note(
            topic,
            "the peer is in another network namespace, where its settings can't be read",
            why,
        )
        .fix("make sure there: ethtool -K PEER tx off; or run rxsteer peers"),
    })
}
