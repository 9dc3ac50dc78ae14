//! Hosts and interfaces nobody here owns.

use super::*;
use crate::btf::{Btf, TRACEPOINTS};
use crate::capabilities::Capabilities;
use crate::cpus::Cpus;
use crate::finding::{State, can_run};
use crate::holder::Holder;
use crate::host::KernelVersion;
use crate::interface::{Attached, AttachedMode, Offloads, Peer, SteeredQueue, XdpFeatures};
use crate::link::{ETHERNET, LOOPBACK, Link};
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

/// Facts with one fault, the topic it is told under, how bad that is, and words that must be in it.
type Fault<Facts> = (Facts, &'static str, (State, bool), &'static [&'static str]);

const NO: (State, bool) = (State::No, true);
const LESS: (State, bool) = (State::No, false);
const NOTE: (State, bool) = (State::Note, false);

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
fn every_fault_of_a_host_is_told() {
    type Change = fn(&mut Host);
    let lacking = |lacks: &str| {
        let names = TRACEPOINTS.map(|tracepoint| tracepoint.name);
        Btf::Tracepoints(names.into_iter().filter(|name| *name != lacks).collect())
    };
    let mut faults: Vec<Fault<Host>> = Vec::new();
    let mut fault = |change: Change, topic, level, says| {
        let mut host = good_host();
        change(&mut host);
        faults.push((host, topic, level, says));
    };
    fault(
        |host| host.version = Some(KernelVersion::new(5, 17)),
        "kernel",
        NO,
        &["too old", "5.18"],
    );
    fault(|host| host.version = None, "kernel", NOTE, &["names no version"]);
    fault(|host| host.realtime = true, "preemption", NO, &["PREEMPT_RT", "order"]);
    fault(|host| host.btf = Btf::Missing, "btf", NO, &["CONFIG_DEBUG_INFO_BTF"]);
    fault(|host| host.btf = Btf::Unreadable("EPERM".to_owned()), "btf", NO, &["EPERM"]);
    fault(
        |host| host.capabilities = Some(Capabilities { bpf: true, ..Capabilities::default() }),
        "capabilities",
        NO,
        &["CAP_NET_ADMIN and CAP_PERFMON", "setcap"],
    );
    fault(|host| host.capabilities = None, "capabilities", NOTE, &["CAP_BPF"]);
    fault(
        |host| host.capabilities.as_mut().unwrap().in_user_namespace = Some(true),
        "capabilities",
        NO,
        &["user namespace"],
    );
    fault(|host| host.cpus.online = None, "cpus", NOTE, &["--cpus"]);
    fault(|host| host.cpus.online = "0-1500".parse().ok(), "cpus", NOTE, &["1023"]);
    for tracepoint in TRACEPOINTS {
        let level = match tracepoint.name {
            name if tracepoint.needed => {
                assert!(name.starts_with("xdp_cpumap") || name == "sched_switch");
                NO
            }
            "xdp_redirect_err" => NOTE,
            _ => LESS,
        };
        faults.push((
            Host { btf: lacking(tracepoint.name), ..good_host() },
            "tracepoints",
            level,
            &[],
        ));
    }
    for (host, topic, (state, blocks), says) in faults {
        only(&super::host(&host), topic, state, blocks, says);
    }
}

/// An interface like the good one but for `change`.
fn nic(change: fn(&mut Interface)) -> Interface {
    let mut nic = good_nic();
    change(&mut nic);
    nic
}

fn vlan(protocol: u16) -> Link {
    Link {
        name: "eth0.5".to_owned(),
        kind: Some("vlan".to_owned()),
        vlan_protocol: Some(protocol),
        ..Link::default()
    }
}

#[test]
fn every_fault_of_an_interface_is_told() {
    let attached = |mode, holder: Option<&str>| {
        let holder = holder.map(|name| Holder { pid: 99, name: name.to_owned() });
        Interface { attached: Some(Attached { mode, id: Some(12), holder }), ..good_nic() }
    };
    let faults: Vec<Fault<Interface>> = vec![
        (nic(|nic| nic.link.hardware_type = LOOPBACK), "device", NO, &["loopback"]),
        (nic(|nic| nic.link.hardware_type = 0xfffe), "device", NO, &["Ethernet header", "NIC"]),
        (nic(|nic| nic.link.up = false), "up", NOTE, &["ip link set dev eth0 up"]),
        (
            nic(|nic| nic.link.driver = Some("mlx5_core".to_owned())),
            "driver",
            NOTE,
            &["known to", "-K eth0 lro off"],
        ),
        (
            attached(AttachedMode::Native, None),
            "other_program",
            NO,
            &["12", "native", "ip link set dev eth0 xdp off"],
        ),
        (
            attached(AttachedMode::Generic, None),
            "other_program",
            NO,
            &["generic", "xdpgeneric off"],
        ),
        (
            attached(AttachedMode::Native, Some("rxsteer")),
            "other_program",
            NO,
            &["rxsteer set", "kill 99"],
        ),
        (
            attached(AttachedMode::Native, Some("cilium")),
            "other_program",
            NO,
            &["end cilium (process 99)"],
        ),
        (nic(|nic| nic.xdp = Some(XdpFeatures::default())), "xdp_mode", NOTE, &["no native XDP"]),
        (
            nic(|nic| nic.xdp.as_mut().unwrap().redirect = false),
            "xdp_mode",
            NOTE,
            &["can't redirect"],
        ),
        (nic(|nic| nic.xdp = None), "xdp_mode", NOTE, &["--mode auto"]),
        (nic(|nic| nic.offloads = None), "offloads", NOTE, &["ethtool -k eth0"]),
        (
            nic(|nic| nic.offloads.as_mut().unwrap().gro = false),
            "gro",
            NOTE,
            &["ethtool -K eth0 gro on"],
        ),
        (
            nic(|nic| nic.offloads.as_mut().unwrap().lro = true),
            "lro",
            NO,
            &["ethtool -K eth0 lro off"],
        ),
        (nic(|nic| nic.offloads.as_mut().unwrap().gro_hw = true), "lro", NOTE, &["rx-gro-hw off"]),
        (nic(|nic| nic.rx_queues = None), "rx_queues", NOTE, &["can't be told"]),
        (nic(|nic| nic.steered_queues = None), "kernel_rps", NOTE, &["/sys/class/net/eth0/queues"]),
        (
            nic(|nic| nic.port_of = Some(("bridge".to_owned(), "br0".to_owned()))),
            "port",
            NOTE,
            &["port of br0 (bridge)", "rps_cpus"],
        ),
        (
            veth(here(Some(Offloads { tx_checksum: true, ..Offloads::default() }))),
            "peer_checksums",
            NO,
            &["ethtool -K v1 tx off"],
        ),
        (
            Interface {
                xdp: Some(XdpFeatures::default()),
                ..veth(here(Some(Offloads::default())))
            },
            "xdp_mode",
            NOTE,
            &["as its peer has TX queues", "ethtool -L eth0 rx N", "ethtool -L v1 tx N"],
        ),
        (veth(here(None)), "peer_checksums", NOTE, &["ethtool -K v1 tx off"]),
        (
            veth(Peer::Elsewhere),
            "peer_checksums",
            NOTE,
            &["another network namespace", "make sure"],
        ),
        (nic(|nic| nic.link.kind = Some("tun".to_owned())), "peer_checksums", NOTE, &["tap"]),
    ];
    for (interface, topic, (state, blocks), says) in faults {
        only(&super::interface(&interface, &good_host()), topic, state, blocks, says);
    }
}

#[test]
fn upper_devices_name_what_is_below() {
    let upper = |kind: &str| Interface {
        link: Link { kind: Some(kind.to_owned()), ..good_nic().link },
        stands_on: Some("eth7".to_owned()),
        ..good_nic()
    };
    for kind in ["vlan", "macvlan", "ipvlan", "vxlan", "macsec"] {
        only(
            &interface(&upper(kind), &good_host()),
            "device",
            State::No,
            true,
            &[kind, "rxsteer run eth7"],
        );
    }
    only(&interface(&upper("vxlan"), &good_host()), "device", State::No, true, &["--inner"]);
    let bond = Interface {
        stands_on: None,
        ports: vec!["eth1".to_owned(), "eth2".to_owned()],
        ..upper("bond")
    };
    only(&interface(&bond, &good_host()), "device", State::No, true, &["rxsteer run eth1 eth2"]);
    assert!(matches!(help(&bond, &good_host()), Help::Dont(_)));
}

#[test]
fn vlan_tags_matter_where_somebody_needs_them_and_they_are_taken_out() {
    let judged = |offloads: Offloads, above: &[u16], peer: Option<Peer>| {
        let base = peer.map_or_else(good_nic, veth);
        let above = above.iter().map(|protocol| vlan(*protocol)).collect();
        let gro = Offloads { gro: true, ..offloads };
        interface(&Interface { offloads: Some(gro), above, ..base }, &good_host())
    };
    let tagged = Offloads { rx_vlan: true, rx_vlan_stag: true, ..Offloads::default() };
    assert!(can_run(&judged(tagged, &[], None)));
    assert!(can_run(&judged(Offloads::default(), &[0x8100, 0x88a8], None)));
    let fix =
        |says: &[&str], findings: &[Finding]| only(findings, "vlan_tags", State::No, true, says);
    fix(&["ethtool -K eth0 rxvlan off", "eth0.5"], &judged(tagged, &[0x8100], None));
    fix(&["eth0 rx-vlan-stag-hw-parse off"], &judged(tagged, &[0x88a8], None));
    fix(&["eth0 rxvlan off rx-vlan-stag-hw-parse off"], &judged(tagged, &[0x8100, 0x88a8], None));
    // On a veth the sending end decides.
    let sends = Offloads { tx_vlan: true, ..Offloads::default() };
    fix(
        &["ethtool -K v1 txvlan off"],
        &judged(Offloads::default(), &[0x8100], Some(here(Some(sends)))),
    );
    assert!(can_run(&judged(tagged, &[0x8100], Some(here(Some(Offloads::default()))))));
    assert!(!can_run(&judged(tagged, &[0x8100], Some(Peer::Elsewhere))));
    assert!(can_run(&judged(Offloads::default(), &[0x8100], Some(Peer::Elsewhere))));
}

#[test]
fn long_frames_matter_only_to_drivers_that_take_one_buffer() {
    let judged = |mtu, xdp| {
        let mut jumbo = good_nic();
        (jumbo.link.mtu, jumbo.xdp) = (Some(mtu), xdp);
        interface(&jumbo, &good_host())
    };
    let native = XdpFeatures { native: true, redirect: true, ..XdpFeatures::default() };
    only(
        &judged(9000, Some(native)),
        "mtu",
        State::Note,
        false,
        &["9000", "mtu 3498", "--mode generic"],
    );
    assert!(
        judged(9000, Some(XdpFeatures { frags: true, ..native }))
            .iter()
            .all(|is| is.state == State::Fine)
    );
    assert!(judged(3498, Some(native)).iter().all(|is| is.state == State::Fine));
}

#[test]
fn gro_depends_on_kernel_and_timer() {
    let judged = |host: Host| interface(&good_nic(), &host);
    let old = Host { version: Some(KernelVersion::new(6, 14)), ..good_host() };
    only(&judged(old), "gro", State::Note, false, &["not behind a CPUMAP", "6.15"]);
    let fast = Host { hz: Some(1000), ..good_host() };
    only(&judged(fast), "gro", State::Note, false, &["1000", "caught up", "gro off"]);
    assert!(
        judged(Host { hz: None, ..good_host() }).iter().all(|finding| finding.state == State::Fine)
    );
}

#[test]
fn the_kernels_own_steering_is_in_the_way() {
    let judged = |queues: &[(u32, &str)]| {
        let queue = |(queue, mask): &(u32, &str)| SteeredQueue {
            queue: *queue,
            rps_cpus: (*mask).to_owned(),
            rps_flow_cnt: 64,
        };
        let steered_queues = Some(queues.iter().map(queue).collect());
        interface(&Interface { steered_queues, ..good_nic() }, &good_host())
    };
    let no = |queues: &[(u32, &str)], says: &[&str]| {
        only(&judged(queues), "kernel_rps", State::No, true, says)
    };
    no(
        &[(0, "f"), (3, "f")],
        &["RX queues 0 and 3", "echo 0 | tee /sys/class/net/eth0/queues/rx-*/rps_cpus"],
    );
    no(&[(1, "")], &["RFS", "rps_flow_cnt"]);
    no(&(0..64).map(|queue| (queue, "1")).collect::<Vec<_>>(), &["5, 6, 7 and 56 more"]);
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
