//! The C parser reads the same from every frame as `rxsteer-packet`.

use proptest::prelude::*;
use rxsteer_bpf_native::check::packets;
use rxsteer_bpf_native::{Frames, Oracle};
use rxsteer_packet::LinkType;
use rxsteer_user::block::Block;
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource};
use rxsteer_user::source::{Fill, Source};
use std::io::Write;
use std::path::Path;

#[test]
fn random_frames() {
    for seed in 0..8_u8 {
        let oracle = Oracle::new([seed; 16]);
        let mut frames = Frames::new(u64::from(seed), seed % 2 == 1);
        for _ in 0..packets(50_000) {
            oracle.check_native(&frames.next_frame());
        }
    }
}

#[test]
fn random_frames_cut_at_every_length() {
    let oracle = Oracle::new(*b"a secret of ours");
    for tunnels in [false, true] {
        let mut frames = Frames::new(77, tunnels);
        for _ in 0..packets(1_500) {
            let frame = frames.next_frame();
            for length in 0..=frame.len() {
                oracle.check_native(&frame[..length]);
            }
        }
    }
}

/// Reading a frame of which only a part can be read in place must give the same as reading the whole frame.
#[test]
fn random_frames_of_which_a_part_can_be_read_in_place() {
    let oracle = Oracle::new([9; 16]);
    let mut frames = Frames::new(78, true);
    for _ in 0..2_000 {
        let frame = frames.next_frame();
        for linear in 0..=frame.len().min(90) {
            oracle.check_native_in_part(&frame, linear);
        }
    }
}

/// Every frame of every shared capture; also truncated ones, which these are.
#[test]
fn captures() {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/captures");
    let folder = std::env::var_os("RXSTEER_CAPTURES").map_or_else(default, Into::into);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        // eprintln! does not work here, since the test runner captures its output.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED parse::captures: no folder {}; set RXSTEER_CAPTURES to the folder of captures",
            folder.display()
        );
        return;
    };
    let oracle = Oracle::new([3; 16]);
    let mut frames = 0;
    for entry in entries {
        frames += check_capture(&entry.expect("the folder can be listed").path(), &oracle);
    }
    assert!(frames > 1_000, "{} has only {frames} Ethernet frames", folder.display());
}

/// Checks the Ethernet frames of a file, if it is a capture; returns their number.
fn check_capture(path: &Path, oracle: &Oracle) -> usize {
    let Ok(mut source) = CaptureSource::open(&[path.to_owned()], CaptureOptions::default()) else {
        return 0;
    };
    let (mut block, mut frames) = (Block::new(), 0);
    loop {
        let fill = source.fill(&mut block);
        for frame in block.frames().iter().filter(|frame| frame.link == LinkType::Ethernet) {
            oracle.check_native(block.bytes_of(frame));
            frames += 1;
        }
        block.clear();
        if fill == Fill::End {
            return frames;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_bytes(
        secret in any::<[u8; 16]>(),
        frame in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        Oracle::new(secret).check_native(&frame);
    }
}

/// The random frames contain enough of each kind for the comparison to be meaningful.
#[test]
fn random_frames_are_of_every_kind() {
    use rxsteer_packet::{DissectOptions, FrameClass, dissect, tunnel_id};
    let mut frames = Frames::new(5, true);
    let (mut tunnels, mut fragments, mut cut, mut classes) = ([0; 5], 0, 0, [0; 3]);
    let mut numbered = std::collections::HashMap::<_, u32>::new();
    let mut protocols = std::collections::HashMap::<_, u32>::new();
    for _ in 0..50_000 {
        let frame = frames.next_frame();
        if let Some(tunnel) = tunnel_id(LinkType::Ethernet, &frame) {
            *numbered.entry(tunnel.kind).or_default() += 1;
        }
        let options = DissectOptions { inner: true, ..DissectOptions::default() };
        let found = dissect(LinkType::Ethernet, &frame, options);
        tunnels[usize::from(found.tunnels)] += 1;
        fragments += u32::from(found.fragment);
        cut += u32::from(found.transport_truncated);
        classes[match found.class {
            FrameClass::Ip => 0,
            FrameClass::NotIp => 1,
            FrameClass::Malformed(_) => 2,
        }] += 1;
        *protocols.entry((found.key.ip_version, found.key.protocol)).or_default() += 1;
    }
    assert!(tunnels.iter().all(|&count| count > 300), "{tunnels:?}");
    assert!(numbered.len() == 6 && numbered.values().all(|&count| count > 100), "{numbered:?}");
    assert!(fragments > 500 && cut > 500, "{fragments} {cut}");
    assert!(classes.iter().all(|&count| count > 500), "{classes:?}");
    for version in [4, 6] {
        for protocol in [6, 17, 33, 132, 50, 51] {
            let count = protocols.get(&(version, protocol)).copied().unwrap_or(0);
            assert!(count > 50, "{version} {protocol}: {count}");
        }
    }
}
