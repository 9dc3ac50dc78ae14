//! `rxsteer live` on a veth pair, or on two NICs of the machine (`RXSTEER_CARDS`): it receives from every RX queue, in
//! order, and packets add up. In the virtual machines of `cargo xtask vm` these are NICs with several queues.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rxsteer_lab::{
    Datagrams, Link, LinkOptions, LiveFrames, Namespace, OrderCheck, Steering, Testbed, Traffic,
    online_cpus, skipped, slice,
};
use serde_json::Value;

use super::xdp::{dropped, quiet};

const FLOWS: u16 = 32;
/// Anything that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Drivers that must receive without copying, on kernels of virtual machines that have them.
const DRIVERS_WITHOUT_COPIES: [&str; 1] = ["igb"];
/// Frames that hosts may send by themselves.
const STRAY: u64 = 200;

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"))
}

/// Receives datagrams of many flows with `io` and `more` arguments under each policy. `mode` is a part of how the interface
/// must be received.
fn receives(io: &str, more: &[&str], mode: &str) {
    let frames = slice(20_000, 200_000);
    let cpus = format!("0-{}", online_cpus() - 1);
    for policy in ["rps", "sparse", "rfs+sparse"] {
        let testbed = Testbed::cards_or_pair(LinkOptions::default()).unwrap();
        let (sender, receiver, link) = (testbed.sender(), testbed.receiver(), testbed.link());
        quiet(sender, &link.near.name);
        quiet(receiver, &link.far.name);
        let listed = receiver.run(&format!("ls /sys/class/net/{}/queues", link.far.name)).unwrap();
        let queues = listed.split_whitespace().filter(|name| name.starts_with("rx-")).count();
        let arguments = [&*link.far.name, "--io", io, "--policy", policy, "--cpus", &cpus];
        let live = Steering::live(receiver, &[&arguments, more].concat()).unwrap();
        let pairs: Vec<(SocketAddr, SocketAddr)> = (0..FLOWS)
            .map(|flow| {
                ((link.near.ipv4, 10_000 + flow).into(), (link.far.ipv4, 20_000 + flow).into())
            })
            .collect();
        let datagrams = Datagrams::start(sender, &pairs, 0).unwrap();
        let started = Instant::now();
        while datagrams.sent() < frames {
            assert!(started.elapsed() < TIMEOUT, "{} of {frames} frames sent", datagrams.sent());
            std::thread::sleep(Duration::from_millis(20));
        }
        datagrams.pause();
        std::thread::sleep(Duration::from_millis(500));
        let sent = datagrams.sent();
        let (report, _) = live.stop().unwrap();
        let [packets, delivered, by_kernel] =
            ["packets", "delivered", "kernel_drops"].map(|key| number(&report, key));
        let interface = &report["interfaces"][0];
        let what = format!("{policy}, {sent} sent, {interface}: {report}");
        assert_eq!(packets, delivered + dropped(&report), "{what}");
        assert_eq!(number(&report, "reordered"), 0, "{what}");
        assert!(packets + by_kernel <= sent + STRAY && delivered > sent / 20, "{what}");
        let sockets = if io == "packet" { queues.min(online_cpus()) } else { queues };
        assert_eq!(number(&report["settings"], "rx_queues"), sockets as u64, "{what}");
        let received = report["interfaces"][0]["mode"].as_str().unwrap();
        assert!(received.contains(mode), "{what}");
    }
}

#[test]
fn packet_sockets_receive_all_queues() {
    let test = "cards::packet_sockets_receive_all_queues";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    receives("packet", &[], "packet sockets");
}

#[test]
fn af_xdp_receives_all_queues() {
    let Some(_alone) = super::ready("cards::af_xdp_receives_all_queues", &[], 2) else { return };
    receives("xdp", &[], "AF_XDP");
}

/// The name of an interface's driver.
fn driver(namespace: &Namespace, interface: &str) -> String {
    let info = namespace.run(&format!("ethtool -i {interface}")).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("driver: "));
    line.unwrap_or_default().to_owned()
}

#[test]
fn af_xdp_receives_without_copying_where_the_driver_can() {
    let test = "cards::af_xdp_receives_without_copying_where_the_driver_can";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let testbed = Testbed::cards_or_pair(LinkOptions::default()).unwrap();
    let (receiver, card) = (testbed.receiver(), &testbed.link().far.name);
    let driver = driver(receiver, card);
    let zero_copy = ["--zero-copy", "--busy-poll", "50"];
    let arguments = [card.as_str(), "--io", "xdp", "--zero-copy", "--cpus", "0-1"];
    match Steering::live(receiver, &arguments) {
        Ok(live) => drop(live.stop().unwrap()),
        Err(error) => {
            let error = error.to_string();
            assert!(error.contains("can't receive without copying"), "{error}");
            assert!(!DRIVERS_WITHOUT_COPIES.contains(&&*driver), "{driver}: {error}");
            return skipped(&format!("live::{test}"), &format!("the driver {driver} copies"));
        }
    }
    drop(testbed);
    receives("xdp", &zero_copy[..1], "zero-copy");
    receives("xdp", &zero_copy, "zero-copy");
}

/// Numbered frames that a bridge receives on a veth, and sends by the NIC from where they lie.
#[test]
fn af_xdp_bridges_in_order_without_copying_where_the_driver_can() {
    let test = "cards::af_xdp_bridges_in_order_without_copying_where_the_driver_can";
    let Some(_alone) = super::ready(test, &[], 2) else { return };
    let frames = slice(5_000, 200_000);
    let testbed = Testbed::cards_or_pair_in_a_row(LinkOptions::default()).unwrap();
    let [near, bridge, far] = [0, 1, 2].map(|host| &testbed.namespaces[host]);
    let [to_card, to_pair] = [0, 1].map(|link| &testbed.links[link]);
    let ends = [
        (near, &to_card.near),
        (bridge, &to_card.far),
        (bridge, &to_pair.near),
        (far, &to_pair.far),
    ];
    ends.iter().for_each(|(host, end)| quiet(host, &end.name));
    // The frames have the address of the bridge, and merged frames would hide others.
    near.ip(&format!("link set {} promisc on", to_card.near.name)).unwrap();
    near.run(&format!("ethtool -K {} gro off", to_card.near.name)).unwrap();
    let (card, pair) = (&to_card.far.name, &to_pair.near.name);
    let cpus = format!("0-{}", online_cpus() - 1);
    for policy in ["rps", "sparse", "rfs+sparse"] {
        let arguments =
            [card, "--bridge", pair, "--io", "xdp", "--policy", policy, "--cpus", &cpus];
        let live = Steering::live(bridge, &arguments).unwrap();
        let traffic = Traffic { flows: FLOWS.into(), train: 2, random: true, ..Traffic::default() };
        let check = OrderCheck::new(near, &to_card.near, traffic.flows).unwrap();
        let back = Link { near: to_pair.far.clone(), far: to_pair.near.clone() };
        LiveFrames::new(&back, &traffic).unwrap().send(far, 0, frames).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        let seen = check.drained().unwrap();
        let (report, _) = live.stop().unwrap();
        let what = format!("{policy}: {seen:?} {report}");
        assert_eq!((seen.late, number(&report, "reordered")), (0, 0), "{what}");
        assert!(seen.frames <= number(&report, "delivered"), "{what}");
        let lost = dropped(&report) + number(&report, "kernel_drops");
        assert!(
            number(&report, "packets") <= frames + STRAY && seen.frames > frames / 50,
            "{what}"
        );
        assert!(number(&report, "packets") + lost >= frames / 2, "{what}");
        let mode = report["interfaces"][0]["mode"].as_str().unwrap();
        let driver = driver(bridge, card);
        assert!(
            mode.contains("zero-copy") || !DRIVERS_WITHOUT_COPIES.contains(&&*driver),
            "{driver}: {what}"
        );
    }
}
