//! The result that the C parser must give for a frame, according to `rxsteer-packet`.

use crate::{Class, Packet, abi, hash, parse, parse_options};
use rxsteer_core::matching::TunnelNumber;
use rxsteer_packet::{
    DissectOptions, FrameClass, HashWords, LinkType, SymmetricHash, TunnelKinds, dissect_by_walk,
    facts, vlan,
};

/// Compares the C parser with `rxsteer-packet`, for the hash with one secret.
#[derive(Debug)]
pub struct Oracle {
    hash: SymmetricHash,
}

impl Oracle {
    /// An oracle that hashes with `secret`.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Oracle {
        Oracle { hash: SymmetricHash::new(secret) }
    }

    /// The hash's key words, for the C side.
    #[must_use]
    pub fn words(&self) -> &HashWords {
        self.hash.words()
    }

    /// Asserts that `packet` is the right result for `frame`; with `numbers`, the number of its tunnel was requested.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn check(&self, frame: &[u8], options: DissectOptions, packet: &Packet, numbers: bool) {
        let right = dissect_by_walk(LinkType::Ethernet, frame, options);
        let class = match right.class {
            FrameClass::Ip => Class::Ip,
            FrameClass::NotIp => Class::NotIp,
            FrameClass::Malformed(_) => Class::Malformed,
        };
        assert_eq!(packet.class(), Some(class), "{options:?} {packet:?} {frame:02x?}");
        assert_eq!(packet.flow(), right.flow(), "{options:?} {packet:?} {frame:02x?}");
        let hash = self.hash.hash(&right.key).get();
        assert_eq!(packet.hash, hash, "{options:?} {packet:?} {frame:02x?}");
        let flags = right.tcp_flags(frame).unwrap_or(0);
        assert_eq!(packet.tcp_flags, flags, "{options:?} {packet:?} {frame:02x?}");
        let vlan = right.flow().and_then(|_| vlan(frame));
        let vlan = vlan.map_or(0, |vlan| vlan | abi::STEER_TAGGED as u16);
        assert_eq!(packet.vlan, vlan, "{options:?} {packet:?} {frame:02x?}");
        Oracle::check_facts(frame, options, packet, numbers);
    }

    /// Asserts that `packet` has the fields that rules before the policy match.
    fn check_facts(frame: &[u8], options: DissectOptions, packet: &Packet, numbers: bool) {
        let Some(right) = facts(LinkType::Ethernet, frame, options, numbers) else { return };
        let context = || format!("{options:?} {numbers} {packet:?} {right:?} {frame:02x?}");
        let has_ports = u32::from(packet.found) & abi::STEER_FOUND_PORTS != 0;
        assert_eq!(has_ports, right.ports.is_some(), "{}", context());
        if let (Some(flow), Some(ports)) = (packet.flow(), right.ports) {
            assert_eq!([flow.src_port, flow.dst_port], ports, "{}", context());
        }
        let header = frame.get(usize::from(packet.ip_offset)..).unwrap_or_default();
        let dscp = match header {
            [first, second, ..] if first >> 4 == 6 => (first << 2 | second >> 6) & 63,
            [_, second, ..] => second >> 2,
            _ => 0,
        };
        assert_eq!(dscp, right.dscp, "{}", context());
        let kind = u32::from(packet.found) >> abi::STEER_FOUND_TUNNEL_SHIFT;
        let tunnel = match kind {
            abi::STEER_KEY_ESP => Some((TunnelNumber::Spi, packet.tunnel)),
            abi::STEER_KEY_GTP => Some((TunnelNumber::Teid, packet.tunnel)),
            abi::STEER_KIND_VXLAN => Some((TunnelNumber::Vni, packet.tunnel)),
            _ => None,
        };
        assert_eq!(tunnel, right.tunnel, "{}", context());
    }

    /// Parses `frame` natively, with tunnels entered and not entered, in place and by the walk alone, and asserts that
    /// all results are right.
    ///
    /// # Panics
    ///
    /// If anything is not.
    pub fn check_native(&self, frame: &[u8]) {
        self.check_native_in_part(frame, frame.len());
    }

    /// Does the same if at most `linear` bytes of the frame can be read in place.
    ///
    /// # Panics
    ///
    /// If anything is not right.
    pub fn check_native_in_part(&self, frame: &[u8], linear: usize) {
        // Each option alone, and some together.
        for (inner, keys) in
            [(false, 0), (true, 0), (false, 15), (true, 15), (false, frame.len() as u8)]
        {
            let key_tunnels = TunnelKinds::from_bits(keys);
            let options = DissectOptions { inner, key_tunnels };
            let numbers = frame.len().is_multiple_of(2);
            let in_c = parse_options(options, numbers);
            let packet = parse(frame, linear, in_c, self.words());
            self.check(frame, options, &packet, numbers);
            let walked = parse(frame, 0, in_c, self.words());
            self.check(frame, options, &walked, numbers);
            for packet in [&packet, &walked] {
                let Some(flow) = packet.flow() else { continue };
                let reversed = flow.src > flow.dst;
                assert_eq!(packet.is_reversed(), reversed, "{packet:?} {frame:02x?}");
            }
            // An IPv4 frame that is read in place has no key; after the walk it has one.
            let same = (packet.addresses, packet.rest) == (walked.addresses, walked.rest);
            assert!(same, "{options:?} {packet:?} {walked:?} {frame:02x?}");
            let key = dissect_by_walk(LinkType::Ethernet, frame, options).key;
            assert_eq!(hash(&key, self.words()), packet.hash, "{key}");
        }
    }
}
