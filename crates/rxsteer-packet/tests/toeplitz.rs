//! Toeplitz: the published values, and every implementation compared with the bit-by-bit definition.

use proptest::prelude::*;
use rxsteer_core::FlowKey;
use rxsteer_packet::{Toeplitz, ToeplitzError};
use std::net::IpAddr;

/// Microsoft's RSS verification suite (also in the Intel 82599 datasheet, section 7.1.2.8.3):
/// source, its port, destination, its port, hash of the addresses, hash with the ports.
#[rustfmt::skip]
const VERIFICATION_SUITE: [(&str, u16, &str, u16, u32, u32); 8] = [
    ("66.9.149.187", 2794, "161.142.100.80", 1766, 0x323e_8fc2, 0x51cc_c178),
    ("199.92.111.2", 14230, "65.69.140.83", 4739, 0xd718_262a, 0xc626_b0ea),
    ("24.19.198.95", 12898, "12.22.207.184", 38024, 0xd2d0_a5de, 0x5c2b_394a),
    ("38.27.205.30", 48228, "209.142.163.6", 2217, 0x8298_9176, 0xafc7_327f),
    ("153.39.163.191", 44251, "202.188.127.2", 1303, 0x5d18_09c5, 0x10e8_28a2),
    ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2cc1_8cd5, 0x4020_7d3d),
    ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0f0c_461c, 0xdde5_1bbf),
    ("3ffe:1900:4545:3:200:f8ff:fe21:67cf", 44251, "fe80::200:f8ff:fe21:67cf", 38024,
     0x4b61_e985, 0x02d1_feef),
];

fn octets(address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The definition: each input bit that is set adds the 32 key bits from its position on.
fn bitwise(key: &[u8], input: &[u8]) -> u32 {
    let key_bit = |at: usize| key.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0);
    let window = |at: usize| (at..at + 32).fold(0, |w: u32, at| w << 1 | u32::from(key_bit(at)));
    (0..8 * input.len())
        .filter(|at| input[at / 8] & (0x80 >> (at % 8)) != 0)
        .fold(0, |hash, at| hash ^ window(at))
}

#[test]
fn all_sixteen_values_of_the_verification_suite() {
    let toeplitz = Toeplitz::new(&Toeplitz::DEFAULT_KEY).unwrap();
    for (src, src_port, dst, dst_port, addresses_only, with_ports) in VERIFICATION_SUITE {
        let (src, dst) = (octets(src), octets(dst));
        let addresses = [&src[..], &dst].concat();
        let ports = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
        let whole = [addresses.clone(), ports].concat();
        assert_eq!(toeplitz.hash_bytes(&addresses), addresses_only);
        assert_eq!(toeplitz.hash_bytes(&whole), with_ports);

        let mut key = FlowKey { src_port, dst_port, protocol: 6, ..FlowKey::default() };
        key.ip_version = if src.len() == 4 { 4 } else { 6 };
        key.src[..src.len()].copy_from_slice(&src);
        key.dst[..dst.len()].copy_from_slice(&dst);
        assert_eq!(toeplitz.hash(&key).get(), with_ports);
        (key.src_port, key.dst_port) = (0, 0);
        assert_eq!(toeplitz.hash(&key).get(), addresses_only);

        let mut listed = [0; 3];
        match whole.len() {
            12 => toeplitz.hash_list(&[<[u8; 12]>::try_from(whole).unwrap(); 3], &mut listed),
            _ => toeplitz.hash_list(&[<[u8; 36]>::try_from(whole).unwrap(); 3], &mut listed),
        }
        assert_eq!(listed, [with_ports; 3]);
    }
}

#[test]
fn key_lengths_that_no_nic_takes_are_refused() {
    for length in [0, 39, 53, 64] {
        assert_eq!(Toeplitz::new(&vec![1; length]).err(), Some(ToeplitzError::KeyLength(length)));
    }
    assert!(Toeplitz::new(&[1; 40]).is_ok() && Toeplitz::new(&[1; 52]).is_ok());
}

#[test]
fn no_key_has_no_hash_and_a_computed_zero_is_one() {
    let toeplitz = Toeplitz::default();
    assert!(toeplitz.hash(&FlowKey::default()).is_none());
    let zeros = FlowKey { ip_version: 4, ..FlowKey::default() };
    assert_eq!((toeplitz.hash_bytes(&[0; 12]), toeplitz.hash(&zeros).get()), (0, 1));
}

/// Lists of every length up to three groups of eight, and pairs of lists with different lengths.
fn check_lists<const N: usize>(toeplitz: &Toeplitz, key: &[u8], bytes: &[u8]) {
    let inputs: Vec<[u8; N]> = bytes.windows(N).step_by(5).map(|w| w.try_into().unwrap()).collect();
    let expected: Vec<u32> = inputs.iter().map(|input| bitwise(key, input)).collect();
    for length in 0..=inputs.len().min(25) {
        let mut hashes = vec![7; length];
        toeplitz.hash_list(&inputs[..length], &mut hashes);
        assert_eq!(hashes, expected[..length]);
        let mut longer = vec![7; length + 3];
        toeplitz.hash_list(&inputs[..length], &mut longer);
        assert_eq!((&longer[..length], &longer[length..]), (&expected[..length], &[7; 3][..]));
        let mut shorter = vec![7; length.saturating_sub(1)];
        toeplitz.hash_list(&inputs[..length], &mut shorter);
        assert_eq!(shorter, expected[..length.saturating_sub(1)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn all_ways_to_compute_it_agree(
        key in prop::collection::vec(any::<u8>(), 40..=52),
        bytes in prop::collection::vec(any::<u8>(), 170),
    ) {
        let toeplitz = Toeplitz::new(&key).unwrap();
        for length in (0..60).chain([170]) {
            prop_assert_eq!(toeplitz.hash_bytes(&bytes[..length]), bitwise(&key, &bytes[..length]));
        }
        check_lists::<1>(&toeplitz, &key, &bytes);
        check_lists::<8>(&toeplitz, &key, &bytes);
        check_lists::<12>(&toeplitz, &key, &bytes);
        check_lists::<32>(&toeplitz, &key, &bytes);
        check_lists::<36>(&toeplitz, &key, &bytes);
        check_lists::<48>(&toeplitz, &key, &bytes);
    }
}
