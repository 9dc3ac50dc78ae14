//! The kind of interface: whether there is a better one to attach to, whether it is up, and what is known about its
//! driver.

use super::listed;
use crate::drivers;
use crate::finding::Finding;
use crate::interface::{Interface, Master};
use crate::link::{ETHERNET, LOOPBACK};

pub(super) fn findings(interface: &Interface) -> Vec<Finding> {
    let mut findings = vec![device(interface)];
    findings.extend(port(interface));
    findings.extend(up(interface));
    findings.extend(driver(interface));
    findings
}

/// Link kinds whose packets arrive through another interface, where steering is earlier and cheaper.
const UPPER: [&str; 16] = [
    "bond",
    "bridge",
    "erspan",
    "geneve",
    "gretap",
    "hsr",
    "ip6gretap",
    "ipvlan",
    "ipvtap",
    "macsec",
    "macvlan",
    "macvtap",
    "team",
    "vlan",
    "vrf",
    "vxlan",
];

/// Those of them whose packets are encapsulated on the NIC, so that only --inner finds their flows there.
const TUNNELS: [&str; 5] = ["erspan", "geneve", "gretap", "ip6gretap", "vxlan"];

fn device(interface: &Interface) -> Finding {
    let topic = "device";
    let link = &interface.link;
    let kind = link.kind.as_deref();
    if link.hardware_type == LOOPBACK {
        return Finding::blocker(
            topic,
            LOOPBACK_IS[0],
            LOOPBACK_IS[1],
            "name the interface that packets arrive on; rxsteer check without a name lists NICs",
        );
    }
    if link.hardware_type != ETHERNET {
        return Finding::blocker(
            topic,
            format!("its frames have no Ethernet header ({})", kind.unwrap_or("a layer-3 device")),
            "the programs read Ethernet frames; the packets of such a device arrived on a NIC before",
            format!(
                "use the kernel's own RPS here: rxsteer host recommend {0} says with which CPUs, rxsteer host apply {0} sets \
                 it. Steering the NIC below does not help a tunnel: there all its packets are one flow",
                link.name
            ),
        );
    }
    match kind.filter(|kind| UPPER.contains(kind)) {
        Some(kind) => Finding::blocker(
            topic,
            format!("it is a {kind} interface on top of others"),
            "its packets arrived on the interfaces below: steering there comes before the work, here after most of it",
            below(interface, if TUNNELS.contains(&kind) { " with --inner" } else { "" }),
        ),
        None => Finding::fine(topic, kind_of(interface)),
    }
}

fn kind_of(interface: &Interface) -> String {
    let link = &interface.link;
    match (&link.driver, &link.kind) {
        (Some(driver), _) if link.is_wifi => format!("Wi-Fi, driver {driver}"),
        (Some(driver), _) => format!("Ethernet, driver {driver}"),
        (None, Some(kind)) => format!("Ethernet, virtual ({kind})"),
        (None, None) => "Ethernet, driver unknown".to_owned(),
    }
}

/// Whether rxsteer cannot attach here, but the kernel's own RPS works: devices without an Ethernet header (wg, tun,
/// ppp), which pass packets to the stack as a NIC does.
pub(super) fn takes_kernel_steering(interface: &Interface) -> bool {
    ![ETHERNET, LOOPBACK].contains(&interface.link.hardware_type)
}

/// "attach to the interface below", with its name if known.
fn below(interface: &Interface, with: &str) -> String {
    let below = interface.lower.iter().chain(&interface.ports);
    let below: Vec<&str> = below.map(String::as_str).collect();
    if below.is_empty() {
        format!(
            "attach to the NIC that its packets arrive on{with}; rxsteer check without a name lists NICs"
        )
    } else {
        format!("attach below: rxsteer run {}{with}", below.join(" "))
    }
}

/// Bridges and bonds take over frames before the stack, which is fine. What they do afterwards is not checked.
fn port(interface: &Interface) -> Option<Finding> {
    let Master { kind, name } = interface.port_of.as_ref()?;
    let hops = |kind: &str| ["macvlan", "ipvlan"].contains(&kind);
    let above: Vec<&str> = interface
        .above
        .iter()
        .filter(|link| link.kind.as_deref().is_some_and(hops))
        .map(|link| link.name.as_str())
        .collect();
    let mut what = format!("it is a port of {name} ({})", if kind.is_empty() { "?" } else { kind });
    if !above.is_empty() {
        what += &format!(", and {} stand on it", listed(&above));
    }
    Some(Finding::note(
        "port",
        what,
        format!(
            "rxsteer keeps order up to {name}; if kernel RPS is on there (rps_cpus of {name}), it can reorder flows \
             after that"
        ),
    ))
}

/// What the loopback interface is, and why it is left alone.
pub(crate) const LOOPBACK_IS: [&str; 2] = [
    "it is the loopback interface",
    "its packets come from this host: they are processed where they were sent, and steering them gains nothing",
];

/// The state of an interface that is down, and the consequence.
const DOWN_IS: [&str; 2] = ["it is down", "it receives nothing until it is up"];

fn up(interface: &Interface) -> Option<Finding> {
    let link = &interface.link;
    let [what, why] = DOWN_IS;
    (!link.up).then(|| Finding::note("up", what, why).fix(bring_up(&link.name)))
}

/// The command that brings an interface up.
fn bring_up(name: &str) -> String {
    format!("ip link set dev {name} up")
}

/// The message for an interface that is down, with the command that brings it up.
pub fn is_down(name: &str) -> String {
    let [what, why] = DOWN_IS;
    format!("{what}, and {why}: {}", bring_up(name))
}

fn driver(interface: &Interface) -> Option<Finding> {
    let driver = interface.link.driver.as_deref()?;
    let known = drivers::known(driver)?;
    let what = format!("{driver} is known to {}", known.to);
    let finding =
        Finding::note("driver", what, "NICs and driver versions differ; rxsteer run tries it");
    let fix = known.fix.replace("IF", &interface.link.name);
    Some(if fix.is_empty() { finding } else { finding.fix(fix) })
}
