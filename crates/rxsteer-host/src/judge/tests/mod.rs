//! Hosts and interfaces nobody here owns.

mod faults;
mod settings;

use super::*;
use crate::btf::{Btf, TRACEPOINTS};
use crate::capabilities::Capabilities;
use crate::cpus::Cpus;
use crate::finding::{State, can_run};
use crate::host::KernelVersion;
use crate::interface::{Offloads, Peer, XdpFeatures};
use crate::link::{ETHERNET, Link};
use std::time::Duration;

/// One that lacks nothing: 8 CPUs, two of them isolated.
fn good_host() -> Host {
    Host {
        release: "6.18.1".to_owned(),
        version: Some(KernelVersion::new(6, 18)),
        realtime: false,
        hz: Some(250),
        btf: Btf::Tracepoints(TRACEPOINTS.map(|tracepoint| tracepoint.name).to_vec()),
        capabilities: Some(Capabilities {
            bpf: true,
            perfmon: true,
            net_admin: true,
            in_user_namespace: Some(false),
        }),
        cpus: Cpus {
            online: "0-7".parse().ok(),
            possible: "0-7".parse().ok(),
            isolated: "6-7".parse().ok(),
        },
    }
}

/// A NIC with one queue, on a node with CPUs 0 to 3.
fn good_nic() -> Interface {
    Interface {
        link: Link {
            index: 2,
            name: "eth0".to_owned(),
            driver: Some("e1000e".to_owned()),
            up: true,
            hardware_type: ETHERNET,
            mtu: Some(1500),
            ..Link::default()
        },
        xdp: Some(XdpFeatures { native: true, redirect: true, frags: true, rx_hash: false }),
        offloads: Some(Offloads { gro: true, ..Offloads::default() }),
        rx_queues: Some(1),
        steered_queues: Some(Vec::new()),
        numa_node: Some(0),
        node_cpus: "0-3".parse().ok(),
        ..Interface::default()
    }
}

fn veth(peer: Peer) -> Interface {
    let mut veth = good_nic();
    (veth.link.driver, veth.link.kind) = (None, Some("veth".to_owned()));
    veth.peer = Some(peer);
    veth
}

fn here(offloads: Option<Offloads>) -> Peer {
    Peer::Here { name: "v1".to_owned(), offloads }
}

/// Of all findings exactly one is not fine, and that one is of this topic, and says these things.
fn only(findings: &[Finding], topic: &str, state: State, blocks: bool, says: &[&str]) {
    let bad: Vec<&Finding> =
        findings.iter().filter(|finding| finding.state != State::Fine).collect();
    let [finding] = bad.as_slice() else { panic!("{topic}: {bad:#?}") };
    assert_eq!(
        (finding.topic, finding.state, finding.blocks),
        (topic, state, blocks),
        "{finding:?}"
    );
    assert_eq!(can_run(findings), !blocks);
    assert!(!finding.what.is_empty() && !finding.why.is_empty(), "{finding:?}");
    assert!(state != State::No || finding.fix.is_some(), "{finding:?}");
    let text = format!("{} {} {}", finding.what, finding.why, finding.fix.as_deref().unwrap_or(""));
    for words in says {
        assert!(text.contains(words), "'{words}' is not in '{text}'");
    }
}

#[test]
fn where_nothing_is_missing_nothing_is_said() {
    let (host, nic) = (good_host(), good_nic());
    for finding in super::host(&host).iter().chain(&interface(&nic, &host)) {
        assert_eq!((finding.state, finding.blocks), (State::Fine, false), "{finding:?}");
        assert!(!finding.what.is_empty() && finding.fix.is_none(), "{finding:?}");
    }
    assert!(matches!(help(&nic, &host), Help::Likely(_)));
}

#[test]
fn help_goes_by_queues_and_usable_cpus() {
    let helps = |queues: Option<u32>, host: &Host| {
        help(&Interface { rx_queues: queues, ..good_nic() }, host)
    };
    let host = good_host();
    // Four CPUs are on its node.
    assert!(matches!(helps(Some(3), &host), Help::Likely(_)));
    assert!(matches!(helps(Some(4), &host), Help::Dont(_)));
    assert!(matches!(helps(Some(63), &host), Help::Dont(_)));
    assert!(matches!(helps(None, &host), Help::Unknown(_)));
    let mut one = good_host();
    one.cpus.online = "0".parse().ok();
    assert!(helps(Some(1), &one).to_string().starts_with("don't, because there is one CPU"));
    one.cpus.online = None;
    only(&interface(&good_nic(), &one), "near_cpus", State::Note, false, &["--cpus"]);
    assert!(matches!(helps(Some(1), &one), Help::Unknown(_)));
    assert!(matches!(help(&veth(Peer::Elsewhere), &host), Help::Likely(_)));
}

#[test]
fn a_cpu_that_does_not_keep_up_is_named() {
    let cpu =
        |cpu, processed, dropped, squeezed| crate::CpuLoad { cpu, processed, dropped, squeezed };
    let judged =
        |cpus: &[crate::CpuLoad]| load(&crate::Load(cpus.to_vec()), Duration::from_secs(2));
    let busy = judged(&[cpu(0, 30_000, 0, 0), cpu(4, 10_000, 0, 0)]);
    assert_eq!(busy.state, State::Fine);
    assert!(
        busy.what.contains("20000 frames/s") && busy.what.contains("75 % of them on CPU 0"),
        "{busy:?}"
    );
    assert!(judged(&[cpu(0, 5, 0, 0)]).what.contains("too few"));
    let late = judged(&[cpu(0, 30_000, 0, 1), cpu(4, 10_000, 7, 3)]);
    only(&[late], "load", State::Note, false, &["CPU 4 stopped 3 times", "dropped 7 packets"]);
    only(&[judged(&[])], "load", State::Note, false, &["not known"]);
}
