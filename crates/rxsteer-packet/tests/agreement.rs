//! No input makes the dissector panic or read past the frame, and the fast path always agrees with the dissector.

use crate::frames::samples;
use proptest::prelude::*;
use rxsteer_packet::{
    DissectOptions, FrameClass, Hasher, LinkType, SymmetricHash, Toeplitz, TunnelKinds, dissect,
    dissect_by_walk, flow_of,
};

fn check(link: LinkType, frame: &[u8]) {
    let hashers = [
        Hasher::Symmetric(SymmetricHash::new(*b"a secret of ours")),
        Hasher::Toeplitz(Toeplitz::default()),
    ];
    for (inner, keys) in
        [(false, 0), (true, 0), (false, 15), (true, 15), (false, frame.len() as u8)]
    {
        let key_tunnels = TunnelKinds::from_bits(keys);
        let options = DissectOptions { inner, key_tunnels };
        let slow = dissect_by_walk(link, frame, options);
        assert_eq!(dissect(link, frame, options), slow);
        let fast = flow_of(link, frame, options);
        assert_eq!(fast.map(|of| of.flow.key()), slow.flow());
        let flags = fast.map(|of| of.tcp_flags);
        assert_eq!(flags.unwrap_or(0), slow.tcp_flags(frame).unwrap_or(0));
        assert_eq!(slow.flow().is_some(), slow.class == FrameClass::Ip);
        assert!(slow.outer_flow().is_none() || inner || slow.flow() == slow.outer_flow());
        for hasher in &hashers {
            let fast = hasher.flow_hash(link, frame, options);
            assert_eq!(fast.hash, hasher.hash(&slow.key), "{link:?} {inner} {frame:02x?}");
            assert_eq!(fast.class, slow.class);
            assert_eq!(fast.transport_truncated, slow.transport_truncated);
            assert_eq!(fast.hash.is_none(), slow.class != FrameClass::Ip);
        }
        assert!(slow.l3_offset as usize <= frame.len() && slow.l4_offset as usize <= frame.len());
        assert!(slow.transport || slow.transport_ports == [0, 0]);
        assert!(!slow.fragment || (slow.key.src_port, slow.key.dst_port) == (0, 0));
    }
}

#[test]
fn every_sample_cut_at_every_length_under_every_link_type() {
    for (link, frame) in samples() {
        for length in 0..=frame.len() {
            check(link, &frame[..length]);
        }
        for link in LinkType::ALL {
            check(link, &frame);
        }
    }
}

/// A read past the cut would give the result of the whole frame. So a cut frame must give the same result whatever
/// bytes follow it in memory.
#[test]
fn what_follows_the_frame_in_memory_is_of_no_influence() {
    for (link, frame) in samples() {
        for length in 0..=frame.len() {
            let mut other = frame.clone();
            other[length..].fill(0xa5);
            let options = DissectOptions { inner: true, ..DissectOptions::default() };
            assert_eq!(
                dissect(link, &frame[..length], options),
                dissect(link, &other[..length], options)
            );
        }
    }
}

fn any_link() -> impl Strategy<Value = LinkType> {
    prop::sample::select(LinkType::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_bytes(link in any_link(), frame in prop::collection::vec(any::<u8>(), 0..200)) {
        check(link, &frame);
    }

    #[test]
    fn mutated_samples(
        sample in prop::sample::select(samples()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
        padding in 0..30_usize,
    ) {
        let (link, mut frame) = sample;
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        match cut {
            Some(at) => frame.truncate(at.index(frame.len() + 1)),
            None => frame.resize(frame.len() + padding, 0xee),
        }
        check(link, &frame);
    }
}
