//! Tunnels that are steered by their number, in generated captures.

use crate::program;
use crate::program::pcap::{pcap, written};
use crate::program::rxsteer;
use serde_json::Value;
use std::path::Path;

/// An IPv4 frame from one host to another.
fn frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let ethernet = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
    let header = [0x45, 0, length[0], length[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
    let addresses = [10, 0, 0, 1, 192, 0, 2, 1];
    [&ethernet[..], &[8, 0], &header, &addresses, payload].concat()
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let [[a, b], [c, d]] = ports.map(u16::to_be_bytes);
    let length = (8 + payload.len() as u16).to_be_bytes();
    frame(17, &[&[a, b, c, d, length[0], length[1], 0, 0], payload].concat())
}

/// Frames of 64 tunnels of a kind, five of each.
fn tunnels(kind: &str) -> Vec<Vec<u8>> {
    let numbers = (0..64 * 5).map(|n: u32| (n % 64 + 1).wrapping_mul(0x9e37_79b1).to_be_bytes());
    let of = |number: [u8; 4]| {
        let behind = |start: [u8; 4]| [&start, &number[..], &[0xee; 40]].concat();
        match kind {
            "esp" => frame(50, &[&number[..], &[0xee; 40]].concat()),
            "gtp" => udp([2152, 2152], &behind([0x30, 255, 0, 40])),
            "l2tp" => udp([1701, 1701], &behind([0, 3, 0, 0])),
            _ => udp([51820, 51820], &behind([4, 0, 0, 0])),
        }
    };
    numbers.map(of).collect()
}

fn replay(capture: &Path, options: &[&str]) -> Value {
    let capture = capture.to_str().expect("a plain path");
    let shared = ["replay", capture, "--cpus", "4", "--hash-seed", "2a", "--json", "--no-pin"];
    let output = rxsteer(&[&shared[..], options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", program::errors(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The CPUs that received packets.
fn cpus(report: &Value) -> usize {
    let per_cpu = report["cpus"].as_array().expect("an array").iter();
    per_cpu.filter(|cpu| cpu["delivered"].as_u64().expect("a count") > 0).count()
}

#[test]
fn tunnels_of_the_chosen_kind_spread_and_stay_in_order() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    for kind in ["esp", "gtp", "l2tp", "wireguard"] {
        let frames = tunnels(kind);
        let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        let capture = written(dir.path(), kind, &pcap(1, &frames));
        let plain = replay(&capture, &[]);
        assert_eq!(
            (cpus(&plain), &plain["settings"]["key_tunnels"]),
            (1, &"none".into()),
            "{kind}"
        );
        for chosen in [kind, "all"] {
            let keyed = replay(&capture, &["--key-tunnels", chosen]);
            assert_eq!(
                (cpus(&keyed), &keyed["settings"]["key_tunnels"]),
                (4, &chosen.into()),
                "{kind}"
            );
            assert_eq!((&keyed["packets"], &keyed["reordered"]), (&320.into(), &0.into()));
        }
        let other = if kind == "esp" { "gtp" } else { "esp" };
        assert_eq!(cpus(&replay(&capture, &["--key-tunnels", other])), 1, "{kind}");
    }
}

#[test]
fn explain_uses_the_number_of_a_frame_and_a_bad_name_is_refused() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let frames = tunnels("esp");
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let capture = written(dir.path(), "esp", &pcap(1, &frames));
    let capture = capture.to_str().expect("a plain path");
    let hash = |frame: &str, keys: &str| {
        let options = ["--hash-seed", "2a", "--json", "--key-tunnels", keys];
        let output = rxsteer(&[&["explain", capture, "--frame", frame][..], &options].concat());
        let decided: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(decided["settings"]["key_tunnels"], keys);
        assert_eq!(decided["flow"]["src_port"], 0, "the flow has no ports, whatever is hashed");
        assert_eq!(decided["tunnel"].is_u64(), keys != "none", "{decided:#}");
        decided["flow_hash"].as_u64().expect("a hash")
    };
    assert_eq!(hash("1", "none"), hash("2", "none"));
    assert_ne!(hash("1", "esp"), hash("2", "esp"));
    assert_eq!(hash("1", "esp"), hash("65", "all"), "the same SPI");
    let text = rxsteer(&["explain", capture, "--frame", "1", "--key-tunnels", "esp"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("192.0.2.1, esp, no ports"), "{text}");
    assert!(text.contains("number 0x9e3779b1, hashed instead of ports"), "{text}");
    let refused = rxsteer(&["replay", capture, "--key-tunnels", "vxlan"]);
    let errors = program::errors(&refused);
    assert_eq!(refused.status.code(), Some(2));
    assert!(errors.contains("'vxlan' is no tunnel whose number can be a key"), "{errors}");
}

#[test]
fn compare_takes_them_too() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let frames = tunnels("esp");
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    let capture = written(dir.path(), "esp", &pcap(1, &frames));
    let capture = capture.to_str().expect("a plain path");
    let json = |args: &[&str]| -> Value {
        let output = rxsteer(args);
        assert_eq!(output.status.code(), Some(0), "{}", program::errors(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let shared = ["compare", capture, "--cpus", "4", "--seeds", "3", "--json"];
    assert_eq!(json(&shared)["flows_steered"], 1);
    let keyed = json(&[&shared[..], &["--key-tunnels", "esp"]].concat());
    assert_eq!(
        (&keyed["flows_steered"], &keyed["settings"]["key_tunnels"]),
        (&64.into(), &"esp".into())
    );
}
