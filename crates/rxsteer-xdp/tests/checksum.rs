//! Frames whose checksum the sender left to a device are distinguished from complete ones, even where the two are equal
//! by chance.
//!
//! Needs root (CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON); prints SKIPPED without it.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_packet::SymmetricHash;
use rxsteer_xdp::testing::{self, KernelPolicy, TestDevice, TestSizes};

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

/// The loaded programs; otherwise prints why they are missing, and returns `None`.
fn loaded(test: &str) -> Option<KernelPolicy> {
    crate::quiet();
    let sizes = TestSizes {
        cpus: 4,
        rx_cpus: 4,
        tables: 1,
        flow_log: 4,
        sock_entries: 16,
        sock_cpu_mask: 7,
        chains_log: 4,
        limit_lines: 1,
    };
    let hash = SymmetricHash::new([7; 16]);
    let devices = [TestDevice { queues: 1, first_table: 0 }];
    testing::loaded(&format!("checksum::{test}"), KernelPolicy::load(sizes, hash.words(), &devices))
}

/// RFC 1071: the folded sum of 16-bit words, not inverted.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A frame, the offset of its transport header, and the offset of the checksum in it.
struct Made {
    frame: Vec<u8>,
    transport: usize,
    field: usize,
    /// The sum of the pseudo-header.
    pseudo: u16,
}

impl Made {
    fn set(&mut self, value: u16) {
        self.frame[self.field..][..2].copy_from_slice(&value.to_be_bytes());
    }

    /// The sum of the pseudo-header and everything after the IP header, with 0 in the checksum field.
    fn whole(&mut self) -> u16 {
        self.set(0);
        sum(&[&self.pseudo.to_be_bytes(), &self.frame[self.transport..]].concat())
    }

    fn complete(&mut self) {
        let whole = self.whole();
        self.set(if whole == 0xffff { 0xffff } else { !whole });
    }
}

/// A frame with this protocol and payload length.
fn made(rng: &mut ChaCha8Rng, protocol: u8, v6: bool, tagged: bool, payload: usize) -> Made {
    let mut frame: Vec<u8> = rng.random::<[u8; 12]>().to_vec();
    if tagged {
        frame.extend([0x81, 0, 0, 7]);
    }
    let header = if protocol == TCP { 20 } else { 8 };
    let length = (header + payload) as u16;
    let addresses: Vec<u8>;
    if v6 {
        addresses = rng.random::<[u8; 32]>().to_vec();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([protocol, 64]);
        frame.extend(&addresses);
    } else {
        addresses = rng.random::<[u8; 8]>().to_vec();
        // Some frames have IP options.
        let options = if rng.random_ratio(1, 4) { 4 } else { 0 };
        frame.extend([8, 0, 0x45 + options / 4, 0]);
        frame.extend((length + 20 + u16::from(options)).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend(&addresses);
        frame.extend(vec![1; options.into()]);
    }
    let transport = frame.len();
    frame.extend((0..header + payload).map(|_| rng.random::<u8>()));
    let pseudo =
        sum(&[&addresses[..], &u16::from(protocol).to_be_bytes(), &length.to_be_bytes()].concat());
    Made { frame, transport, field: transport + if protocol == TCP { 16 } else { 6 }, pseudo }
}

#[test]
fn partial_checksums_are_distinguished_from_complete_ones() {
    let Some(policy) = loaded("partial_checksums_are_distinguished_from_complete_ones") else {
        return;
    };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for round in 0..4000 {
        let protocol = if rng.random() { TCP } else { UDP };
        let (v6, tagged) = (rng.random(), rng.random());
        let payload = rng.random_range(0..1460);
        let mut made = made(&mut rng, protocol, v6, tagged, payload);
        let description = format!(
            "round {round}, protocol {protocol}, IPv6 {v6}, tagged {tagged}, {payload} bytes"
        );
        // Ethernet padding does not belong to the packet.
        if rng.random_ratio(1, 4) {
            made.frame.extend([9; 7]);
        }
        let end = made.frame.len() - if made.frame.ends_with(&[9; 7]) { 7 } else { 0 };
        let padding = made.frame.split_off(end);
        made.complete();
        let with = |made: &Made| [&made.frame[..], &padding].concat();
        assert!(!policy.is_partial(&with(&made)), "complete: {description}");
        let complete = made.frame.clone();
        made.set(made.pseudo);
        if made.frame != complete {
            assert!(policy.is_partial(&with(&made)), "partial: {description}");
        }
    }
}

#[test]
fn complete_checksum_that_looks_partial_is_complete() {
    let Some(policy) = loaded("complete_checksum_that_looks_partial_is_complete") else { return };
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut tried = 0;
    for _ in 0..1000 {
        let protocol = if rng.random() { TCP } else { UDP };
        let payload = rng.random_range(1..700) * 2;
        let (v6, tagged) = (rng.random(), rng.random());
        let mut made = made(&mut rng, protocol, v6, tagged, payload);
        // The last two bytes are chosen so that the complete checksum is the pseudo-header's sum.
        let last = made.frame.len() - 2;
        made.frame[last..].fill(0);
        let modulus = 0xffff_u32;
        let rest = u32::from(made.whole());
        let wanted = modulus - u32::from(made.pseudo);
        let choice = (wanted + modulus - rest % modulus) % modulus;
        made.frame[last..].copy_from_slice(&(choice as u16).to_be_bytes());
        made.complete();
        let field = u16::from_be_bytes([made.frame[made.field], made.frame[made.field + 1]]);
        if field == made.pseudo {
            tried += 1;
            assert!(
                !policy.is_partial(&made.frame),
                "protocol {protocol}, IPv6 {v6}, tagged {tagged}"
            );
            // After a change of one bit in the data, the checksum can only be partial.
            made.frame[last] ^= 1;
            assert!(
                policy.is_partial(&made.frame),
                "protocol {protocol}, IPv6 {v6}, tagged {tagged}"
            );
        }
    }
    assert!(tried > 900, "{tried}");
}

#[test]
fn what_has_no_checksum_or_another_is_not_partial() {
    let Some(policy) = loaded("what_has_no_checksum_or_another_is_not_partial") else { return };
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for v6 in [false, true] {
        // UDP without a checksum, and fragments.
        let mut udp = made(&mut rng, UDP, v6, false, 100);
        udp.set(0);
        assert!(!policy.is_partial(&udp.frame));
        let mut icmp = made(&mut rng, 1, v6, false, 100);
        icmp.set(icmp.pseudo);
        assert!(!policy.is_partial(&icmp.frame));
        let mut sctp = made(&mut rng, SCTP, v6, false, 100);
        sctp.frame[sctp.transport + 8..][..4].fill(0);
        assert!(policy.is_partial(&sctp.frame), "its checksum is 0 while it is partial");
        sctp.frame[sctp.transport + 8] = 1;
        assert!(!policy.is_partial(&sctp.frame));
        let mut cut = made(&mut rng, TCP, v6, false, 100);
        cut.frame.truncate(cut.transport + 10);
        assert!(!policy.is_partial(&cut.frame));
    }
    let mut fragment = made(&mut rng, TCP, false, false, 100);
    fragment.set(fragment.pseudo);
    fragment.frame[20] = 0x20;
    assert!(!policy.is_partial(&fragment.frame));
}
