//! Settings that matter together with others: tags, lengths, merging, queues.

use super::*;
use crate::queues::SteeredQueue;

fn vlan(protocol: u16) -> Link {
    Link {
        name: "eth0.5".to_owned(),
        kind: Some("vlan".to_owned()),
        vlan_protocol: Some(protocol),
        ..Link::default()
    }
}

#[test]
fn upper_devices_name_what_is_below() {
    let upper = |kind: &str| Interface {
        link: Link { kind: Some(kind.to_owned()), ..good_nic().link },
        lower: Some("eth7".to_owned()),
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
        lower: None,
        ports: vec!["eth1".to_owned(), "eth2".to_owned()],
        ..upper("bond")
    };
    only(&interface(&bond, &good_host()), "device", State::No, true, &["rxsteer run eth1 eth2"]);
    assert!(matches!(help(&bond, &good_host(), None), Help::Dont(_)));
}

#[test]
fn vlan_tags_matter_where_they_are_needed_and_taken_out() {
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
    only(&judged(old), "gro", State::Note, false, &["not after a CPUMAP", "6.15"]);
    let fast = Host { hz: Some(1000), ..good_host() };
    only(&judged(fast), "gro", State::Note, false, &["1000", "ticks later"]);
    assert!(
        judged(Host { hz: None, ..good_host() }).iter().all(|finding| finding.state == State::Fine)
    );
}

#[test]
fn kernels_own_steering_is_in_the_way() {
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
    no(&[(0, "f"), (3, "f")], &["RX queues 0 and 3", "rxsteer host apply eth0 --off"]);
    no(&[(1, "")], &["RFS", "rxsteer host apply eth0 --off"]);
    no(&(0..64).map(|queue| (queue, "1")).collect::<Vec<_>>(), &["5, 6, 7 and 56 more"]);
}
