//! After a frame carried a number, the frame is unchanged, and the number is the one that was written.

use proptest::prelude::*;
use rxsteer_bpf_native::Frames;
use rxsteer_bpf_native::abi::{STEER_ADDRESSES, STEER_GENERATIONS, STEER_MAX_CPUS};
use rxsteer_bpf_native::seq::{Addresses, Number};

/// Rings: CPU and generation.
const RINGS: u32 = STEER_MAX_CPUS * STEER_GENERATIONS;

/// Writes `number` into a copy of `frame` and reads it back, if the frame can carry one.
fn round_trips(addresses: &mut Addresses, frame: &[u8], number: Number) -> bool {
    let mut carrying = frame.to_vec();
    if !addresses.encode_seq(&mut carrying, number) {
        assert_eq!(carrying, frame, "a frame that can't carry a number is left alone");
        return false;
    }
    assert_ne!(carrying, frame);
    assert_eq!(addresses.decode_seq(&mut carrying), Some(number));
    assert_eq!(carrying, frame);
    true
}

#[test]
fn random_frames_come_back() {
    let mut addresses = Addresses::default();
    let mut frames = Frames::new(5, true);
    let mut carried = 0;
    for seq in 0..200_000_u32 {
        let frame = frames.next_frame();
        let number = Number {
            seq: seq.wrapping_mul(0x9e37_79b9),
            rx_cpu: seq % STEER_MAX_CPUS,
            ring: seq % RINGS,
        };
        carried += u32::from(round_trips(&mut addresses, &frame, number));
    }
    assert!(carried > 1000, "only {carried} frames carried a number");
}

/// An IPv4 or IPv6 frame to `to`.
fn frame(to: [u8; 6], is_ipv6: bool) -> Vec<u8> {
    let mut frame = to.to_vec();
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(if is_ipv6 { [0x86, 0xdd, 0x6b] } else { [8, 0, 0x46] });
    frame.extend([0x5a; 45]);
    frame
}

#[test]
fn what_is_under_way_survives_any_address_that_comes_later() {
    let mut addresses = Addresses::default();
    let first = frame([2, 0, 0, 0, 0, 1], false);
    let number = Number { seq: u32::MAX, rx_cpu: STEER_MAX_CPUS - 1, ring: RINGS - 1 };
    let mut under_way = first.clone();
    assert!(addresses.encode_seq(&mut under_way, number));
    let mut refused = 0;
    for other in 0..5000_u32 {
        let [.., a, b] = other.to_be_bytes();
        refused +=
            u32::from(!round_trips(&mut addresses, &frame([6, 1, 2, 3, a, b], true), number));
    }
    assert!(refused >= 5000 - STEER_ADDRESSES, "two addresses never share an entry");
    assert_eq!(addresses.decode_seq(&mut under_way), Some(number));
    assert_eq!(under_way, first);
}

#[test]
fn frames_without_a_plain_type_get_no_sequence_number() {
    let mut addresses = Addresses::default();
    let plain = frame([0; 6], false);
    for (at, byte) in [(12, 0x81), (13, 6), (14, 0x66), (14, 0x05)] {
        let mut other = plain.clone();
        other[at] = byte;
        assert!(!round_trips(&mut addresses, &other, Number::default()), "{other:x?}");
    }
    assert!(!round_trips(&mut addresses, &plain[..15], Number::default()), "it is cut");
    assert!(round_trips(&mut addresses, &plain, Number::default()));
    assert_eq!(addresses.decode_seq(&mut plain.clone()), None);
}

proptest! {
    #[test]
    fn frame_without_a_number_is_taken_for_none(to: [u8; 6], is_ipv6: bool) {
        let plain = frame(to, is_ipv6);
        let mut arrived = plain.clone();
        prop_assert_eq!(Addresses::default().decode_seq(&mut arrived), None);
        prop_assert_eq!(arrived, plain);
    }

    #[test]
    fn any_number_comes_back(to: [u8; 6], is_ipv6: bool, seq: u32, rx_cpu in 0..STEER_MAX_CPUS, ring in 0..RINGS) {
        let mut addresses = Addresses::default();
        let carried = round_trips(&mut addresses, &frame(to, is_ipv6), Number { seq, rx_cpu, ring });
        prop_assert!(carried);
    }
}
