//! Recorded frames go to the same CPUs live as in a replay with the same seed.

use std::path::{Path, PathBuf};
use std::process::Command;

use rxsteer_lab::{
    LinkOptions, OrderCheck, Steering, Testbed, rxsteer, send_recorded, skipped, slice,
};
use rxsteer_user::Block;
use rxsteer_user::packet::LinkType;
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
use rxsteer_user::source::{Fill, Source};
use serde_json::Value;

const SEED: &str = "0123456789abcdef0123456789abcdef";
const TEST: &str = "captures::recorded_frames_go_where_replay_sends_them";

/// The Ethernet frames of a capture that fit into an MTU of 1500 bytes.
pub(super) fn frames(path: &Path) -> Vec<Vec<u8>> {
    let Ok(mut source) = CaptureSource::open(&[path.to_owned()], CaptureOptions::default()) else {
        // Some captures are invalid on purpose.
        return vec![];
    };
    let mut frames = vec![];
    loop {
        let mut block = Block::new();
        let fill = source.fill(&mut block);
        let ethernet = block.frames().iter().filter(|frame| frame.link == LinkType::Ethernet);
        let bytes = ethernet.map(|frame| block.bytes_of(frame).to_vec());
        frames.extend(bytes.filter(|bytes| (60..=1514).contains(&bytes.len())));
        if fill == Fill::End {
            return frames;
        }
    }
}

/// Writes frames as a pcap file.
pub(super) fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let header = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1];
    let mut pcap: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap();
        pcap.extend([1, 0, length, length].iter().flat_map(|word: &u32| word.to_le_bytes()));
        pcap.extend(frame);
    }
    std::fs::write(path, pcap).unwrap();
}

/// The packets of each CPU in a replay.
fn replayed(pcap: &Path) -> Vec<u64> {
    let mut replay = Command::new(rxsteer().unwrap());
    replay.args(["replay", "--policy", "rps", "--cpus", "0-1", "--json", "--hash-seed", SEED]);
    let output = replay.arg(pcap).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cpus = report["cpus"].as_array().unwrap();
    cpus.iter().map(|cpu| cpu["delivered"].as_u64().unwrap()).collect()
}

/// The number of frames with a partial checksum that have passed so far.
fn partial_checksums(socket: &str) -> u64 {
    let status: Value =
        serde_json::from_str(&super::ask(&["status", "--json", "--socket", socket])).unwrap();
    status.get(0).unwrap_or(&status)["partial_checksums"].as_u64().unwrap()
}

pub(super) fn captures(test: &str) -> Option<Vec<PathBuf>> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let folder = std::env::var_os("RXSTEER_CAPTURES").map_or_else(default, PathBuf::from);
    if !folder.join("reference.tsv").is_file() {
        let reason = format!(
            "no reference.tsv in {}; set RXSTEER_CAPTURES to the folder of captures",
            folder.display()
        );
        skipped(&format!("live::{test}"), &reason);
        return None;
    }
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    Some(files)
}

#[test]
fn recorded_frames_go_where_replay_sends_them() {
    let Some(_alone) = super::ready(TEST, &[], 2) else { return };
    let Some(captures) = captures(TEST) else { return };
    let folder = tempfile::tempdir().unwrap();
    let pcap = folder.path().join("frames.pcap");
    let testbed = Testbed::hosts(LinkOptions::default()).unwrap();
    let (link, receiver) = (testbed.link(), testbed.receiver());
    // Neither host sends anything by itself, so only recorded frames arrive.
    testbed.sender().run("sysctl -q -w net.ipv6.conf.out0.disable_ipv6=1").unwrap();
    // With the guard, flows that share a slot of the flow table would follow each other for a while.
    let mut arguments = vec!["in0", "--policy", "rps", "--cpus", "0-1", "--hash-seed", SEED];
    arguments.extend(["--queue-size", "16384", "--without-order-guard"]);
    let socket = folder.path().join("socket").display().to_string();
    arguments.extend(["--socket", &socket]);
    let steering = Steering::start(receiver, &arguments).unwrap();
    let (mut compared, mut different, mut partial) = (0, vec![], 0);
    for capture in captures.into_iter().step_by(slice(5, 1)) {
        let frames = frames(&capture);
        if frames.is_empty() {
            continue;
        }
        write_pcap(&pcap, &frames);
        let check = OrderCheck::new(receiver, &link.far, 1).unwrap();
        send_recorded(testbed.sender(), link, 0, &frames).unwrap();
        check.drained().unwrap();
        let (live, replay) = (check.all_by_cpu().unwrap(), replayed(&pcap));
        // Frames with a partial checksum pass, so they stay on CPU 0, which receives all frames.
        let before = partial;
        partial = partial_checksums(&socket);
        let stayed = live[0].wrapping_sub(replay[0]);
        if live[..2].iter().sum::<u64>() != replay[..2].iter().sum::<u64>()
            || stayed > partial - before
        {
            different.push(format!("{}: live {live:?}, replay {replay:?}", capture.display()));
        }
        compared += frames.len();
    }
    let totals = steering.totals().unwrap();
    assert!(different.is_empty(), "{totals:?}\n{}", different.join("\n"));
    assert!(compared > 1000, "only {compared} frames to compare");
    assert!(partial * 100 < compared as u64, "{partial} of {compared} frames passed");
    assert_eq!((totals.unaccounted(), totals.dropped()), (0, 0), "{totals:?}");
}
