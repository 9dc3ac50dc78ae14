//! The identity of a flow: the key read from a packet's headers, and the hash computed from the key.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The flow that a packet belongs to, by its headers: addresses, ports and protocol.
///
/// A key is *directed*: in the reply source and destination are exchanged. [`FlowKey::canonical`] gives the form
/// that both directions share. The symmetric flow hash is computed from that form.
///
/// `repr(C)`, 40 bytes, no padding: the BPF side reads and writes the same bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The source address in network byte order. IPv4 uses the first four bytes; the rest are 0.
    pub src: [u8; 16],
    /// The destination address, in the same form.
    pub dst: [u8; 16],
    /// The source port in host byte order; 0 when the packet is a fragment or its protocol has no ports.
    pub src_port: u16,
    /// The destination port, in the same form.
    pub dst_port: u16,
    /// The IP protocol number of the transport (6 TCP, 17 UDP, …). For IPv6, the number of the last header of the
    /// chain that was read.
    pub protocol: u8,
    /// 4 or 6; 0 means "no key", as in the default value.
    pub ip_version: u8,
    /// Always 0.
    pub reserved: [u8; 2],
}

const _: () = assert!(size_of::<FlowKey>() == 40 && align_of::<FlowKey>() == 2);

impl FlowKey {
    /// The source address; `None` for the default key.
    #[must_use]
    pub fn src_addr(&self) -> Option<IpAddr> {
        self.address(self.src)
    }

    /// The destination address; `None` for the default key.
    #[must_use]
    pub fn dst_addr(&self) -> Option<IpAddr> {
        self.address(self.dst)
    }

    fn address(&self, bytes: [u8; 16]) -> Option<IpAddr> {
        match self.ip_version {
            4 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
            6 => Some(Ipv6Addr::from(bytes).into()),
            _ => None,
        }
    }

    /// The same flow seen from the other end.
    #[must_use]
    pub const fn reversed(self) -> FlowKey {
        FlowKey {
            src: self.dst,
            dst: self.src,
            src_port: self.dst_port,
            dst_port: self.src_port,
            ..self
        }
    }

    /// The form that both directions share: the lower (address, port) *pair* comes first. Since pairs are ordered,
    /// not addresses and ports separately, A:x→B:y and A:y→B:x stay two flows.
    #[must_use]
    pub fn canonical(self) -> FlowKey {
        if (self.dst, self.dst_port) < (self.src, self.src_port) { self.reversed() } else { self }
    }
}

/// Writes `10.0.0.1:1024 -> 203.0.0.7:443 (protocol 6)`. IPv6 addresses are in brackets.
impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(src), Some(dst)) = (self.src_addr(), self.dst_addr()) else {
            return f.write_str("no flow");
        };
        let (src, dst) = (SocketAddr::new(src, self.src_port), SocketAddr::new(dst, self.dst_port));
        write!(f, "{src} -> {dst} (protocol {})", self.protocol)
    }
}

/// A [`FlowKey`] as five words. Flow tables mask, hash and compare keys in this form.
///
/// The words are built from fields in registers. A key that is written field by field and then read word by word
/// stalls the processor until the writes are done.
///
/// The first four words are the addresses, as little-endian numbers of their bytes, lower half first. The last
/// word holds the source port in the lowest 16 bits, then the destination port, the protocol and the IP version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowWords(pub [u64; 5]);

impl FlowWords {
    /// Builds the words from the fields of a key. The addresses are as [`u128::from_le_bytes`] reads them.
    #[inline(always)]
    #[must_use]
    pub const fn new(
        (src, src_port): (u128, u16),
        (dst, dst_port): (u128, u16),
        protocol: u8,
        ip_version: u8,
    ) -> FlowWords {
        let rest = src_port as u64
            | (dst_port as u64) << 16
            | (protocol as u64) << 32
            | (ip_version as u64) << 40;
        FlowWords([src as u64, (src >> 64) as u64, dst as u64, (dst >> 64) as u64, rest])
    }

    /// 4 or 6; 0 for the default key.
    #[inline(always)]
    #[must_use]
    pub const fn ip_version(&self) -> u8 {
        (self.0[4] >> 40) as u8
    }

    /// The key.
    #[must_use]
    pub const fn key(&self) -> FlowKey {
        let [a, b, c, d, rest] = self.0;
        FlowKey {
            src: (a as u128 | (b as u128) << 64).to_le_bytes(),
            dst: (c as u128 | (d as u128) << 64).to_le_bytes(),
            src_port: rest as u16,
            dst_port: (rest >> 16) as u16,
            protocol: (rest >> 32) as u8,
            ip_version: (rest >> 40) as u8,
            reserved: [0; 2],
        }
    }
}

impl From<FlowKey> for FlowWords {
    #[inline]
    fn from(key: FlowKey) -> FlowWords {
        FlowWords::new(
            (u128::from_le_bytes(key.src), key.src_port),
            (u128::from_le_bytes(key.dst), key.dst_port),
            key.protocol,
            key.ip_version,
        )
    }
}

/// The 32-bit flow hash; 0 means "no hash".
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowHash(u32);

impl FlowHash {
    /// "No hash": the packet has no flow and goes to its queue's default CPU.
    pub const NONE: FlowHash = FlowHash(0);

    /// A computed hash. As in the kernel, a computed 0 becomes 1, since 0 means "no hash".
    #[must_use]
    pub const fn computed(value: u32) -> FlowHash {
        FlowHash(if value == 0 { 1 } else { value })
    }

    /// A hash as it was stored or as a NIC supplied it, 0 included.
    #[must_use]
    pub const fn from_raw(value: u32) -> FlowHash {
        FlowHash(value)
    }

    /// The number; 0 is "no hash".
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether there is no hash.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_joins_directions_and_keeps_crossed_ports_apart() {
        let key = |src_port, dst_port| FlowKey {
            src: [1; 16],
            dst: [2; 16],
            src_port,
            dst_port,
            protocol: 6,
            ip_version: 6,
            reserved: [0; 2],
        };
        assert_eq!(key(1, 2).canonical(), key(1, 2).reversed().canonical());
        assert_ne!(key(1, 2).canonical(), key(2, 1).canonical());
    }

    #[test]
    fn words_hold_the_whole_key() {
        let key = FlowKey {
            src: core::array::from_fn(|byte| byte as u8 + 1),
            dst: core::array::from_fn(|byte| byte as u8 + 100),
            src_port: 0x1234,
            dst_port: 0xfedc,
            protocol: 132,
            ip_version: 6,
            reserved: [0; 2],
        };
        let words = FlowWords::from(key);
        assert_eq!((words.key(), words.ip_version()), (key, 6));
        assert_eq!(FlowWords::from(FlowKey::default()), FlowWords::default());
    }

    #[test]
    fn keys_are_shown_as_people_write_them() {
        use alloc::string::ToString;
        let mut key = FlowKey { src_port: 1, dst_port: 2, protocol: 6, ..FlowKey::default() };
        assert_eq!(key.to_string(), "no flow");
        key.ip_version = 4;
        key.src[..4].copy_from_slice(&[10, 0, 0, 1]);
        assert_eq!(key.to_string(), "10.0.0.1:1 -> 0.0.0.0:2 (protocol 6)");
        (key.ip_version, key.src) = (6, [0; 16]);
        assert_eq!(key.to_string(), "[::]:1 -> [::]:2 (protocol 6)");
    }

    #[test]
    fn computed_zero_becomes_one() {
        assert_eq!(FlowHash::computed(0), FlowHash::from_raw(1));
        assert!(FlowHash::from_raw(0).is_none());
    }
}
