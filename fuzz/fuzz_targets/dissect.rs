//! Arbitrary bytes under any link type: the dissector must not panic or read outside the frame, and the fast path must
//! give the same result.
//!
//! The first byte selects the link type (low three bits), the tunnels whose number is a key (the next four), and whether
//! tunnels are entered (the top bit); the rest is the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rxsteer_packet::{
    DissectOptions, FrameClass, Hasher, LinkType, SymmetricHash, Toeplitz, TunnelKinds, dissect, dissect_by_walk,
    flow_of, tunnel_id,
};
use std::sync::LazyLock;

static HASHERS: LazyLock<[Hasher; 2]> = LazyLock::new(|| {
    [Hasher::Symmetric(SymmetricHash::new([0x5a; 16])), Hasher::Toeplitz(Toeplitz::default())]
});

fuzz_target!(|input: &[u8]| {
    let Some((&choice, frame)) = input.split_first() else { return };
    let link = LinkType::ALL[usize::from(choice) % LinkType::ALL.len()];
    let key_tunnels = TunnelKinds::from_bits(choice >> 3);
    let options = DissectOptions { inner: choice & 0x80 != 0, key_tunnels };

    let found = dissect_by_walk(link, frame, options);
    assert_eq!(dissect(link, frame, options), found);
    assert!(found.l3_offset as usize <= frame.len());
    assert!(found.l4_offset as usize <= frame.len());
    assert_eq!(found.key.ip_version == 0, found.class != FrameClass::Ip);
    assert!(!found.fragment || (found.key.src_port, found.key.dst_port) == (0, 0));
    assert_eq!(found.outer_flow().is_some(), found.transport);
    if options.inner && found.tunnels == 0 {
        assert_eq!(found, dissect_by_walk(link, frame, DissectOptions { inner: false, key_tunnels }));
    }

    let number = tunnel_id(link, frame);
    if found.tunnels == 0 && !number.is_some_and(|number| key_tunnels.contains(number.kind)) {
        let plain = dissect_by_walk(link, frame, DissectOptions { inner: options.inner, ..DissectOptions::default() });
        assert_eq!(found.key, plain.key);
    }

    let of = flow_of(link, frame, options);
    assert_eq!(of.map(|of| of.flow.key()), found.flow());
    let flags = found.tcp_flags(frame);
    assert_eq!(of.map_or(0, |of| of.tcp_flags), flags.unwrap_or(0));
    assert!(flags.is_none() || found.flow().is_some_and(|flow| flow.protocol == 6));

    for hasher in &*HASHERS {
        let fast = hasher.flow_hash(link, frame, options);
        assert_eq!(fast.hash, hasher.hash(&found.key));
        assert_eq!(fast.class, found.class);
        assert_eq!(fast.transport_truncated, found.transport_truncated);
        if matches!(hasher, Hasher::Symmetric(_)) {
            assert_eq!(fast.hash, hasher.hash(&found.key.reversed()));
        }
    }
});
