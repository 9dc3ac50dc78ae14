//! Tests with invented hosts and interfaces.

mod faults;
mod settings;

use super::*;
use crate::btf::{Btf, TRACEPOINTS};
use crate::capabilities::Capabilities;
use crate::finding::{State, can_run};
use crate::interface::{Offloads, Peer, XdpFeatures};
use crate::kernel_version::KernelVersion;
use crate::link::Link;
use crate::testing::facts::{good_host, good_nic};
use crate::trial::Trial;
use std::time::Duration;

fn veth(peer: Peer) -> Interface {
    let mut veth = good_nic();
    (veth.link.driver, veth.link.kind) = (None, Some("veth".to_owned()));
    veth.peer = Some(peer);
    veth
}

fn here(offloads: Option<Offloads>) -> Peer {
    Peer::Here { name: "v1".to_owned(), offloads }
}

/// Checks that exactly one finding is not fine, and that it has this topic and contains these texts.
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
fn where_nothing_is_missing_nothing_is_reported() {
    let (host, nic) = (good_host(), good_nic());
    for finding in super::host(&host).iter().chain(&interface(&nic, &host)) {
        assert_eq!((finding.state, finding.blocks), (State::Fine, false), "{finding:?}");
        assert!(!finding.what.is_empty() && finding.fix.is_none(), "{finding:?}");
    }
}

#[test]
fn counts_of_queues_answer_nothing() {
    let helps = |queues: Option<u32>, host: &Host| {
        help(&Interface { rx_queues: queues, ..good_nic() }, host, None)
    };
    let host = good_host();
    // Four CPUs are on its node.
    for queues in [None, Some(1), Some(3)] {
        let Help::Unknown(why) = helps(queues, &host) else { panic!("{queues:?}") };
        assert!(why.contains("rxsteer host recommend eth0"), "{why}");
    }
    for queues in [4, 63] {
        let Help::Unknown(why) = helps(Some(queues), &host) else { panic!("{queues}") };
        assert!(
            why.contains("RSS") && why.contains("PPPoE") && why.contains("host recommend"),
            "{why}"
        );
    }
    let mut one = good_host();
    one.cpus.online = "0".parse().ok();
    assert!(helps(Some(1), &one).to_string().starts_with("don't, because there is one CPU"));
    one.cpus.online = None;
    only(&interface(&good_nic(), &one), "near_cpus", State::Note, false, &["--cpus"]);
    assert!(matches!(helps(Some(1), &one), Help::Unknown(_)));
}

/// Ten seconds in which the CPUs spent these percentages in softirqs and idle, and eth0 received this many frames.
fn sampled(cpus: &[(u64, u64)], dropped: u32, frames: u64) -> crate::Load {
    let cpu = |(cpu, (softirq, idle)): (u32, &(u64, u64))| crate::CpuLoad {
        cpu,
        processed: 1,
        dropped: if cpu == 0 { dropped } else { 0 },
        ticks: crate::Ticks { softirq: *softirq, idle: *idle, all: 100 },
        ..crate::CpuLoad::default()
    };
    let received = [("eth0".to_owned(), frames)].into();
    crate::Load { cpus: (0..).zip(cpus).map(cpu).collect(), received }
}

#[test]
fn help_is_judged_by_what_was_measured() {
    let helps = |interface: &Interface, load: &crate::Load| {
        help(interface, &good_host(), Some((load, Duration::from_secs(10))))
    };
    // As many queues as CPUs, but one CPU does everything: tunnels, PPPoE.
    let many = Interface { rx_queues: Some(8), ..good_nic() };
    let one_cpu = sampled(&[(92, 5), (1, 97), (2, 95), (0, 99)], 0, 5_000_000);
    for nic in [&many, &good_nic()] {
        let Help::Likely(why) = helps(nic, &one_cpu) else { panic!("{:?}", helps(nic, &one_cpu)) };
        assert!(why.contains("CPU 0 spends 92 %") && why.contains("97 % idle"), "{why}");
        assert!(why.contains("rxsteer host recommend eth0"), "{why}");
    }
    let dont = |load, part: &str| match helps(&good_nic(), &load) {
        Help::Dont(why) => assert!(why.contains(part), "{part}: {why}"),
        other => panic!("{part}: {other:?}"),
    };
    dont(sampled(&[(20, 70), (1, 97), (2, 95), (0, 99)], 0, 5_000_000), "nothing to relieve");
    dont(sampled(&[(90, 5), (80, 10), (85, 10), (88, 9)], 9, 5_000_000), "share the work already");
    dont(sampled(&[(90, 5), (2, 10), (2, 10), (2, 10)], 9, 5_000_000), "would be slowed");
    let few = sampled(&[(90, 5), (1, 97), (2, 95), (0, 99)], 0, 500);
    assert!(matches!(helps(&good_nic(), &few), Help::Unknown(_)));
    let dropping = sampled(&[(30, 60), (1, 97), (2, 95), (0, 99)], 7, 5_000_000);
    assert!(matches!(helps(&good_nic(), &dropping), Help::Likely(_)));
    let nothing = crate::Load::default();
    assert!(matches!(helps(&good_nic(), &nothing), Help::Unknown(_)));
}

#[test]
fn veth_is_never_likely_to_gain() {
    let mut far = veth(Peer::Elsewhere);
    far.link.name = "eth0".to_owned();
    let busy = sampled(&[(95, 2), (1, 97), (2, 95), (0, 99)], 99, 5_000_000);
    for sample in [None, Some((&busy, Duration::from_secs(10)))] {
        let Help::Dont(why) = help(&far, &good_host(), sample) else { panic!("{sample:?}") };
        assert!(why.contains("0.73 to 1.01") && why.contains("RPS"), "{why}");
    }
}

#[test]
fn tunnels_without_ethernet_are_not_sent_to_the_nic() {
    for kind in ["wireguard", "tun"] {
        let mut tunnel = good_nic();
        (tunnel.link.hardware_type, tunnel.link.kind) = (0xfffe, Some(kind.to_owned()));
        tunnel.link.name = "wg0".to_owned();
        let says = ["rxsteer host apply wg0", "one flow"];
        only(&interface(&tunnel, &good_host()), "device", State::No, true, &says);
    }
}

#[test]
fn cpu_that_does_not_keep_up_is_named() {
    let cpu = |cpu, processed, dropped, squeezed| crate::CpuLoad {
        cpu,
        processed,
        dropped,
        squeezed,
        ..crate::CpuLoad::default()
    };
    let judged = |cpus: &[crate::CpuLoad]| {
        let all = crate::Load { cpus: cpus.to_vec(), ..crate::Load::default() };
        load(&all, Duration::from_secs(2))
    };
    let busy = judged(&[cpu(0, 30_000, 0, 0), cpu(4, 10_000, 0, 0)]);
    assert_eq!(busy.state, State::Fine);
    assert!(
        busy.what.contains("20000 frames/s") && busy.what.contains("75 % of them on CPU 0"),
        "{busy:?}"
    );
    assert!(judged(&[cpu(0, 5, 0, 0)]).what.contains("too few"));
    let late = judged(&[cpu(0, 30_000, 0, 1), cpu(4, 10_000, 7, 3)]);
    only(&[late], "load", State::Note, false, &["CPU 4 stopped 3 times", "dropped 7 packets"]);
    only(&[judged(&[])], "load", State::Note, false, &["unknown"]);
}

#[test]
fn wifi_without_native_xdp_is_sent_to_the_kernels_own_steering() {
    let mut wifi = good_nic();
    (wifi.link.name, wifi.link.is_wifi) = ("wlan0".to_owned(), true);
    (wifi.link.driver, wifi.xdp) = (Some("iwlwifi".to_owned()), Some(XdpFeatures::default()));
    let Help::Dont(why) = help(&wifi, &good_host(), None) else { panic!("it is advised") };
    assert!(why.contains("rxsteer host recommend wlan0"), "{why}");
    let device =
        interface(&wifi, &good_host()).into_iter().find(|it| it.topic == "device").unwrap();
    assert_eq!((device.state, &*device.what), (State::Fine, "Wi-Fi, driver iwlwifi"));
}
