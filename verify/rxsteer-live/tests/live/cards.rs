//! `rxsteer live` on a veth pair, or on two NICs of the machine (`RXSTEER_CARDS`): it receives from every RX queue, in
//! order, and packets add up. In the virtual machines of `cargo xtask vm` these are NICs with several queues.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rxsteer_lab::{Datagrams, LinkOptions, Steering, Testbed, online_cpus, slice};
use serde_json::Value;

use super::xdp::{dropped, quiet};

const FLOWS: u16 = 32;
/// Anything that takes longer counts as failed.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Frames that hosts may send by themselves.
const STRAY: u64 = 200;

fn number(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("{key}: {report}"))
}

/// Receives datagrams of many flows with `io` under each policy.
fn receives(test: &str, io: &str) {
    let Some(_alone) = super::ready(&format!("cards::{test}"), &[], 2) else { return };
    let frames = slice(20_000, 200_000);
    let cpus = format!("0-{}", online_cpus() - 1);
    for policy in ["rps", "sparse", "rfs+sparse"] {
        let testbed = Testbed::cards_or_pair(LinkOptions::default()).unwrap();
        let (sender, receiver, link) = (testbed.sender(), testbed.receiver(), testbed.link());
        quiet(sender, &link.near.name);
        quiet(receiver, &link.far.name);
        let listed = receiver.run(&format!("ls /sys/class/net/{}/queues", link.far.name)).unwrap();
        let queues = listed.split_whitespace().filter(|name| name.starts_with("rx-")).count();
        let arguments = [&link.far.name, "--io", io, "--policy", policy, "--cpus", &cpus];
        let live = Steering::live(receiver, &arguments).unwrap();
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
    }
}

#[test]
fn packet_sockets_receive_all_queues() {
    receives("packet_sockets_receive_all_queues", "packet");
}

#[test]
fn af_xdp_receives_all_queues() {
    receives("af_xdp_receives_all_queues", "xdp");
}
