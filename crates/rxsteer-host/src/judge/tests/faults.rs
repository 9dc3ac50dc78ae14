//! One fault at a time.

use super::*;
use crate::attached::{Attached, AttachedMode};
use crate::holder::Holder;
use crate::interface::Master;
use crate::link::LOOPBACK;

/// Facts with one fault, the topic of its finding, its severity, and words that it must contain.
type Fault<Facts> = (Facts, &'static str, (State, bool), &'static [&'static str]);

const NO: (State, bool) = (State::No, true);
const LESS: (State, bool) = (State::No, false);
const NOTE: (State, bool) = (State::Note, false);

#[test]
fn every_fault_of_a_host_is_reported() {
    type Change = fn(&mut Host);
    let lacking = |lacks: &str| {
        let names = TRACEPOINTS.map(|tracepoint| tracepoint.name);
        Btf::Readable { tracepoints: names.into_iter().filter(|name| *name != lacks).collect() }
    };
    let mut faults: Vec<Fault<Host>> = Vec::new();
    let mut fault = |change: Change, topic, level, says| {
        let mut host = good_host();
        change(&mut host);
        faults.push((host, topic, level, says));
    };
    fault(
        |host| {
            let what = "the kernel refused steer_cpumap: R1 unbounded memory access".to_owned();
            host.programs = Trial::Fails { what, log: String::new() };
        },
        "programs",
        NO,
        &["steer_cpumap: R1 unbounded", "--kernel-log"],
    );
    fault(
        |host| host.programs = Trial::not_tried("this process lacks CAP_BPF"),
        "programs",
        NOTE,
        &["not tried: this process lacks CAP_BPF"],
    );
    fault(|host| host.realtime = true, "preemption", NO, &["PREEMPT_RT", "order"]);
    fault(|host| host.btf = Btf::Missing, "btf", NO, &["CONFIG_DEBUG_INFO_BTF"]);
    fault(|host| host.btf = Btf::Unreadable { why: "EPERM".to_owned() }, "btf", NO, &["EPERM"]);
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
    fault(
        |host| host.real_time.may_schedule = Some(false),
        "threads",
        LESS,
        &["CAP_SYS_NICE", "loses packets", "--cap-add SYS_NICE"],
    );
    fault(
        |host| {
            host.version = Some(KernelVersion::new(6, 1));
            host.real_time.runtime_us = Some(-1);
        },
        "threads",
        LESS,
        &["0.0 % of its CPU", "nice:-13", "sysctl kernel.sched_rt_runtime_us=950000"],
    );
    fault(
        |host| host.real_time.server_permille = Some(10),
        "threads",
        LESS,
        &["grants 1.0 %", "fair_server"],
    );
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

/// An interface like the good one, except for `change`.
fn nic(change: fn(&mut Interface)) -> Interface {
    let mut nic = good_nic();
    change(&mut nic);
    nic
}

#[test]
fn virtio_says_that_merged_segments_are_lost() {
    let virtio = nic(|nic| {
        nic.link.driver = Some("virtio_net".to_owned());
        nic.offloads.as_mut().unwrap().gro_hw = true;
    });
    let findings = interface(&virtio, &good_host());
    let of_lro: Vec<Finding> =
        findings.into_iter().filter(|finding| finding.topic == "lro").collect();
    only(&of_lro, "lro", State::Note, false, &["one frame per segment", "rxsteer host apply eth0"]);
}

#[test]
fn every_fault_of_an_interface_is_reported() {
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
        (nic(|nic| nic.rx_queues = None), "rx_queues", NOTE, &["unknown", "/sys/class/net"]),
        (nic(|nic| nic.steered_queues = None), "kernel_rps", NOTE, &["/sys/class/net/eth0/queues"]),
        (
            nic(|nic| {
                nic.port_of = Some(Master { kind: "bridge".to_owned(), name: "br0".to_owned() })
            }),
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
fn generic_mode_that_loses_frames_is_refused_where_it_is_needed() {
    let what = "64 of 64 frames were lost".to_owned();
    let host = Host { generic: Trial::Fails { what, log: String::new() }, ..good_host() };
    let judged = |nic: &Interface| super::interface(nic, &host);
    let says = ["64 of 64", "no native XDP", "rxsteer host apply eth0"];
    let nic_without = nic(|nic| nic.xdp = Some(XdpFeatures::default()));
    only(&judged(&nic_without), "xdp_mode", State::No, true, &says);
    let veth_without =
        Interface { xdp: Some(XdpFeatures::default()), ..veth(here(Some(Offloads::default()))) };
    only(&judged(&veth_without), "xdp_mode", State::No, true, &["ethtool -L eth0 rx N"]);
    // Native mode may work: an attempt shows that.
    only(&judged(&nic(|nic| nic.xdp = None)), "xdp_mode", State::Note, false, &["64 of 64"]);
    assert!(can_run(&judged(&good_nic())), "native mode is not concerned");
    let host = Host { generic: Trial::not_tried("no CAP_SYS_ADMIN"), ..good_host() };
    let judged = super::interface(&nic_without, &host);
    only(&judged, "xdp_mode", State::Note, false, &["not tried (no CAP_SYS_ADMIN)"]);
}

#[test]
fn default_policy_follows_the_kernel_and_no_version_is_asked() {
    assert_eq!(default_policy(&good_host()).to_string(), "rfs+sparse");
    let without = |lacking: &str| {
        let names = TRACEPOINTS.map(|tracepoint| tracepoint.name);
        let names = names.into_iter().filter(|name| *name != lacking).collect();
        Host { btf: Btf::Readable { tracepoints: names }, ..good_host() }
    };
    for name in ["sock_recv_length", "sock_send_length", "inet_sock_set_state"] {
        let host = without(name);
        assert_eq!(default_policy(&host).to_string(), "sparse", "{name}");
        let findings = super::host(&host);
        let policy = findings.iter().find(|finding| finding.topic == "default_policy").unwrap();
        assert!(policy.what.starts_with("sparse, since") && policy.what.contains(name));
        assert!(can_run(&findings));
    }
    assert_eq!(default_policy(&without("xdp_redirect_err")).to_string(), "rfs+sparse");
    // An enterprise kernel: an old number, and programs that load.
    let version = Some(KernelVersion::new(4, 18));
    assert!(can_run(&super::host(&Host { version, ..good_host() })));
}
