//! Frames of random flows, and the generations of their CPUs' rings.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::abi::STEER_CPU_GENERATION;

/// The generation that a CPU's frames go to.
pub(crate) fn generation_of(cpus: &[u8], cpu: u32) -> u32 {
    u32::from(u32::from(cpus[cpu as usize]) & STEER_CPU_GENERATION != 0)
}

/// A TCP or UDP frame over IPv4 or IPv6, with or without a VLAN tag.
pub(crate) fn frame(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let (v6, udp, tagged) = (rng.random(), rng.random(), rng.random_ratio(1, 5));
    let mut frame: Vec<u8> = rng.random::<[u8; 12]>().to_vec();
    if tagged {
        frame.extend([0x81, 0, 0, 7]);
    }
    let protocol = if udp { 17 } else { 6 };
    if v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, protocol, 64]);
        frame.extend(rng.random::<[u8; 32]>());
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(rng.random::<[u8; 8]>());
    }
    frame.extend(rng.random::<[u8; 20]>());
    frame
}

/// The frame with `dscp` as its code point, which is no part of its flow.
pub(crate) fn with_dscp(frame: &[u8], dscp: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    let class = dscp << 2;
    if frame[ip] >> 4 == 4 {
        frame[ip + 1] = class;
    } else {
        frame[ip] = 0x60 | class >> 4;
        frame[ip + 1] = class << 4;
    }
    frame
}
