//! The measured kernels: the functions of this crate and the baselines they are compared with, each as a closure
//! over one list of inputs. The criterion bench runs them one after the other; `cargo xtask bench` interleaves
//! them to get ratios.

use rxsteer_bench::Case;
use rxsteer_packet::{DissectOptions, Hasher, LinkType, SymmetricHash, Toeplitz, dissect};
use siphasher::sip::SipHasher13;
use std::hash::Hasher as _;
use std::hint::black_box;

/// Frames in a list of packed frames: 16 KiB, which stays in the first-level cache.
const FRAMES: usize = 256;
/// Inputs in a Toeplitz list.
const LIST: usize = 32;

/// All kernels by group, each with its baselines.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    parse_and_hash(&mut cases, "parse+hash tcp/ipv4, packed", 64);
    parse_and_hash(&mut cases, "parse+hash tcp/ipv4, 2 KiB stride", 2048);
    toeplitz::<12>(&mut cases, "toeplitz 12 bytes");
    toeplitz::<36>(&mut cases, "toeplitz 36 bytes");
    cases
}

/// `count` frames of 64 bytes, TCP over IPv4, each of a different flow, one every `stride` bytes.
fn frames(count: usize, stride: usize) -> Vec<u8> {
    let mut memory = vec![0; count * stride];
    for (i, frame) in memory.chunks_exact_mut(stride).enumerate() {
        let i = i as u32;
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        frame[14..26].copy_from_slice(&[0x45, 0, 0, 50, 0, 1, 0x40, 0, 64, 6, 0, 0]);
        frame[26..30].copy_from_slice(&(0x0a00_0001 + i * 7).to_be_bytes());
        frame[30..34].copy_from_slice(&(0xc0a8_0001 + i % 16).to_be_bytes());
        frame[34..36].copy_from_slice(&(20_000 + i as u16).to_be_bytes());
        frame[36..38].copy_from_slice(&443_u16.to_be_bytes());
        frame[46] = 0x50;
        frame[47] = 0x10;
    }
    memory
}

/// A kernel that computes a number from each frame.
fn frame_case(
    group: &'static str,
    name: &'static str,
    stride: usize,
    mut each: impl FnMut(&[u8]) -> u64 + 'static,
) -> Case {
    let memory = frames(FRAMES, stride);
    let run = move || {
        let memory: &[u8] = black_box(&memory);
        memory.chunks_exact(stride).fold(0, |sum: u64, slot| sum.wrapping_add(each(&slot[..64])))
    };
    Case { group, name, baseline: false, per_iter: FRAMES as u64, run: Box::new(run) }
}

fn parse_and_hash(cases: &mut Vec<Case>, group: &'static str, stride: usize) {
    let options = black_box(DissectOptions { inner: false, ..DissectOptions::default() });
    let symmetric = Hasher::Symmetric(SymmetricHash::new([7; 16]));
    let toeplitz = Hasher::Toeplitz(Toeplitz::default());
    let slow = symmetric.clone();
    let baseline = frame_case(group, "etherparse sliced + SipHash-1-3", stride, etherparse_siphash);
    cases.extend([
        Case { baseline: true, ..baseline },
        frame_case(group, "smoltcp wire + jhash", stride, smoltcp_jhash),
        frame_case(group, "rxsteer flow_hash", stride, move |frame| {
            u64::from(symmetric.flow_hash(LinkType::Ethernet, frame, options).hash.get())
        }),
        frame_case(group, "rxsteer flow_hash, Toeplitz", stride, move |frame| {
            u64::from(toeplitz.flow_hash(LinkType::Ethernet, frame, options).hash.get())
        }),
        frame_case(group, "rxsteer dissect, then hash", stride, move |frame| {
            u64::from(slow.hash(&dissect(LinkType::Ethernet, frame, options).key).get())
        }),
    ]);
}

fn etherparse_siphash(frame: &[u8]) -> u64 {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return 0 };
    let Some(NetSlice::Ipv4(ip)) = packet.net else { return 0 };
    let ports = match packet.transport {
        Some(TransportSlice::Tcp(tcp)) => (tcp.source_port(), tcp.destination_port()),
        Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
        _ => (0, 0),
    };
    let header = ip.header();
    let mut hasher = SipHasher13::new_with_keys(1, 2);
    let mut tuple = [0; 13];
    tuple[..4].copy_from_slice(&header.source());
    tuple[4..8].copy_from_slice(&header.destination());
    tuple[8..10].copy_from_slice(&ports.0.to_be_bytes());
    tuple[10..12].copy_from_slice(&ports.1.to_be_bytes());
    tuple[12] = header.protocol().0;
    hasher.write(&tuple);
    hasher.finish()
}

fn smoltcp_jhash(frame: &[u8]) -> u64 {
    use smoltcp::wire::{
        EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, TcpPacket, UdpPacket,
    };
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else { return 0 };
    if ethernet.ethertype() != EthernetProtocol::Ipv4 {
        return 0;
    }
    let Ok(ip) = Ipv4Packet::new_checked(ethernet.payload()) else { return 0 };
    let ports = match ip.next_header() {
        _ if ip.more_frags() || ip.frag_offset() != 0 => (0, 0),
        IpProtocol::Tcp => match TcpPacket::new_checked(ip.payload()) {
            Ok(tcp) => (tcp.src_port(), tcp.dst_port()),
            Err(_) => (0, 0),
        },
        IpProtocol::Udp => match UdpPacket::new_checked(ip.payload()) {
            Ok(udp) => (udp.src_port(), udp.dst_port()),
            Err(_) => (0, 0),
        },
        _ => (0, 0),
    };
    let src = u32::from_be_bytes(ip.src_addr().octets());
    let dst = u32::from_be_bytes(ip.dst_addr().octets());
    u64::from(jhash_3words(src, dst, u32::from(ports.0) << 16 | u32::from(ports.1), 0x1234_5678))
}

/// Bob Jenkins' lookup3 for three words, as in the kernel's jhash_3words.
fn jhash_3words(a: u32, b: u32, c: u32, seed: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(3 << 2).wrapping_add(seed);
    let (mut a, mut b) = (a.wrapping_add(start), b.wrapping_add(start));
    let mut c = c.wrapping_add(start);
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// A kernel that turns a list of inputs into hashes.
fn list_case<const N: usize>(
    group: &'static str,
    name: &'static str,
    mut each_list: impl FnMut(&[[u8; N]], &mut [u32]) + 'static,
) -> Case {
    let inputs: Vec<[u8; N]> = (0..LIST)
        .map(|i| core::array::from_fn(|at| (i * 151 + at * 37 + (i ^ at) * 3) as u8))
        .collect();
    let mut hashes = vec![0; LIST];
    let run = move || {
        each_list(black_box(&inputs), &mut hashes);
        u64::from(black_box(&hashes)[LIST - 1])
    };
    Case { group, name, baseline: false, per_iter: LIST as u64, run: Box::new(run) }
}

fn toeplitz<const N: usize>(cases: &mut Vec<Case>, group: &'static str) {
    let one_by_one = Toeplitz::default();
    let list = Toeplitz::default();
    let baseline = list_case::<N>(group, "bit by bit", |inputs, hashes| {
        for (hash, input) in hashes.iter_mut().zip(inputs) {
            *hash = bitwise_toeplitz(&Toeplitz::DEFAULT_KEY, input);
        }
    });
    cases.extend([
        Case { baseline: true, ..baseline },
        list_case::<N>(group, "rxsteer one by one", move |inputs, hashes| {
            for (hash, input) in hashes.iter_mut().zip(inputs) {
                *hash = one_by_one.hash_bytes(input);
            }
        }),
        list_case::<N>(group, "rxsteer in lists of 32", move |inputs, hashes| {
            list.hash_list(inputs, hashes);
        }),
    ]);
}

/// The usual loop: a window over the key moves by one bit per input bit. The loop does not branch on the input,
/// since such branches would be mispredicted half of the time.
fn bitwise_toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (&byte, &next) in input.iter().zip(&key[4..]) {
        for bit in (0..8).rev() {
            hash ^= window & u32::from(byte >> bit & 1).wrapping_neg();
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    hash
}
