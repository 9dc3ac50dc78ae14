//! The parser in the kernel reads what its native build reads.
//!
//! Needs root (CAP_BPF and CAP_NET_ADMIN); prints SKIPPED without it.

use libbpf_rs::ProgramInput;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use rxsteer_bpf_native::{Frames, Oracle, Packet, parse, parse_options};
use rxsteer_core::FlowKey;
use rxsteer_packet::{DissectOptions, HashWords, TunnelKinds};
use rxsteer_xdp::testing::loaded;
use rxsteer_xdp::testing::parse::{ParseTestSkel, ParseTestSkelBuilder, types};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

type Object = MaybeUninit<libbpf_rs::OpenObject>;

/// The test program in the kernel; otherwise prints why it is missing, and returns `None`.
fn load<'o>(test: &str, object: &'o mut Object) -> Option<ParseTestSkel<'o>> {
    crate::quiet();
    let open = ParseTestSkelBuilder::default().open(object).expect("the build made it");
    loaded(&format!("parse::{test}"), open.load())
}

fn words_of(words: &HashWords) -> types::steer_hash_words {
    types::steer_hash_words {
        nh_ipv4: words.nh_ipv4,
        nh_ipv6: words.nh_ipv6,
        finish_ipv4: words.finish_ipv4,
        finish_ipv6: words.finish_ipv6,
    }
}

/// The result for a frame, with the options of `parse_options`.
fn run(skeleton: &mut ParseTestSkel<'_>, frame: &[u8], options: i32) -> Packet {
    skeleton.maps.bss_data.as_mut().expect("it has globals").options = options as u32;
    let input = ProgramInput { data_in: Some(frame), ..ProgramInput::default() };
    skeleton.progs.parse.test_run(input).expect("the program runs");
    let result = &skeleton.maps.bss_data.as_ref().expect("it has globals").result;
    let key = &result.key;
    Packet {
        hash: result.hash,
        class: result.class,
        tcp_flags: result.tcp_flags,
        has_key: result.has_key,
        found: result.found,
        addresses: result.addresses,
        rest: result.rest,
        vlan: result.vlan,
        ip_offset: result.ip_offset,
        tunnel: result.tunnel,
        key: FlowKey {
            src: key.src,
            dst: key.dst,
            src_port: key.src_port,
            dst_port: key.dst_port,
            protocol: key.protocol,
            ip_version: key.ip_version,
            reserved: key.reserved,
        },
    }
}

/// The shortest frame that the kernel accepts for a test run: an Ethernet header.
const SHORTEST: usize = 14;

/// The parser leaves most of the verifier's budget to the programs around it.
#[test]
fn verifier_has_little_to_do() {
    let mut object = MaybeUninit::uninit();
    let Some(skeleton) = load("verifier_has_little_to_do", &mut object) else { return };
    let descriptor = skeleton.progs.parse.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).unwrap();
    let instructions = info.lines().find_map(|line| line.strip_prefix("verified_insns:"));
    let instructions: u32 = instructions.expect("Linux 5.16 or newer").trim().parse().unwrap();
    assert!(instructions < 20_000, "{instructions} instructions");
}

/// A frame whose transport header is behind two extension headers of 2 KiB each: in the second page of the frame, which
/// cannot be read in place.
#[test]
fn headers_beyond_the_first_page() {
    let mut object = MaybeUninit::uninit();
    let Some(mut skeleton) = load("headers_beyond_the_first_page", &mut object) else { return };
    let oracle = Oracle::new([1; 16]);
    skeleton.maps.bss_data.as_mut().expect("it has globals").hash_words = words_of(oracle.words());
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 60, 64]);
    frame.extend([0x20; 15].iter().chain(&[1]).chain(&[0x20; 15]).chain(&[2]));
    for next in [60, 6] {
        frame.extend([next, 255]);
        frame.resize(frame.len() + 2046, 1);
    }
    frame.extend([0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0]);
    let options = DissectOptions { inner: false, ..DissectOptions::default() };
    let packet = run(&mut skeleton, &frame, parse_options(options, false));
    oracle.check(&frame, options, &packet, false);
    assert_eq!((packet.key.src_port, packet.key.dst_port, packet.tcp_flags), (40_000, 443, 0x12));
}

#[test]
fn random_frames_in_the_kernel() {
    let mut object = MaybeUninit::uninit();
    let Some(mut skeleton) = load("random_frames_in_the_kernel", &mut object) else { return };
    for seed in 0..4_u8 {
        let oracle = Oracle::new([seed; 16]);
        skeleton.maps.bss_data.as_mut().expect("it has globals").hash_words =
            words_of(oracle.words());
        let mut frames = Frames::new(u64::from(seed) + 100, seed % 2 == 1);
        for _ in 0..50_000 {
            let frame = frames.next_frame();
            if frame.len() < SHORTEST {
                continue;
            }
            let key_tunnels = TunnelKinds::from_bits(frame.len() as u8);
            let options = DissectOptions { inner: seed >= 2, key_tunnels };
            let numbers = frame.len().is_multiple_of(2);
            let in_c = parse_options(options, numbers);
            let in_kernel = run(&mut skeleton, &frame, in_c);
            let native = parse(&frame, frame.len(), in_c, oracle.words());
            assert_eq!(in_kernel, native, "{options:?} {frame:02x?}");
            oracle.check(&frame, options, &in_kernel, numbers);
        }
    }
}
