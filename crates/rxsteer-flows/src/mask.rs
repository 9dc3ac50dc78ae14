//! Which fields of a packet's key identify a flow.

use rxsteer_core::{FlowKey, FlowWords};
use std::fmt;
use std::str::FromStr;

/// The fields that distinguish flows: all five, or a chosen subset, like the mask of an OVS megaflow. Packets that
/// differ only in other fields belong to one flow, in whose record those fields are 0. The IP version
/// distinguishes flows only if an address does: with port 443 alone, IPv4 and IPv6 are one flow, in whose record
/// the version is 0.
///
/// The text form is a list of fields, separated by commas: `src,dst,protocol,src-port,dst-port`. Addresses can be
/// networks: `src/24` is the first 24 bits of IPv4 addresses and whole IPv6 addresses; `src/24/56` gives both
/// prefix lengths.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FlowMask {
    ipv4: FlowKey,
    ipv6: FlowKey,
}

impl FlowMask {
    /// All fields: the directed 5-tuple.
    pub const ALL: FlowMask = {
        let all = FlowKey {
            src: [0xff; 16],
            dst: [0xff; 16],
            src_port: 0xffff,
            dst_port: 0xffff,
            protocol: 0xff,
            ip_version: 0xff,
            reserved: [0; 2],
        };
        FlowMask { ipv4: all, ipv6: all }
    };

    const NONE: FlowMask = {
        let none = FlowKey {
            src: [0; 16],
            dst: [0; 16],
            src_port: 0,
            dst_port: 0,
            protocol: 0,
            ip_version: 0,
            reserved: [0; 2],
        };
        FlowMask { ipv4: none, ipv6: none }
    };

    /// The names of the fields in the text form.
    pub const FIELDS: [&'static str; 5] = ["src", "dst", "protocol", "src-port", "dst-port"];

    /// The key with all other fields set to 0.
    #[must_use]
    pub fn apply(&self, key: &FlowKey) -> FlowKey {
        WordMask::from(*self).apply(&(*key).into()).key()
    }

    /// How many bits of the source address distinguish flows of this IP version; 0 if the address does not.
    #[must_use]
    pub fn src_prefix(&self, ip_version: u8) -> u32 {
        prefix(self.of(ip_version).src, ip_version)
    }

    /// How many bits of the destination address distinguish flows of this IP version; 0 if the address does not.
    #[must_use]
    pub fn dst_prefix(&self, ip_version: u8) -> u32 {
        prefix(self.of(ip_version).dst, ip_version)
    }

    /// Whether the protocol distinguishes flows.
    #[must_use]
    pub fn has_protocol(&self) -> bool {
        self.ipv4.protocol != 0
    }

    /// Whether the source port distinguishes flows.
    #[must_use]
    pub fn has_src_port(&self) -> bool {
        self.ipv4.src_port != 0
    }

    /// Whether the destination port distinguishes flows.
    #[must_use]
    pub fn has_dst_port(&self) -> bool {
        self.ipv4.dst_port != 0
    }

    fn of(&self, ip_version: u8) -> &FlowKey {
        if ip_version == 4 { &self.ipv4 } else { &self.ipv6 }
    }
}

/// The number of one bits of an address's mask, limited to the length of the address.
fn prefix(address: [u8; 16], ip_version: u8) -> u32 {
    let most = if ip_version == 4 { 32 } else { 128 };
    u128::from_be_bytes(address).leading_ones().min(most)
}

/// A mask in the form that is applied to packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordMask {
    /// For IPv4, and for all other packets.
    by_version: [FlowWords; 2],
    /// Whether the mask keeps all fields, which is the usual case.
    is_all: bool,
}

impl From<FlowMask> for WordMask {
    fn from(mask: FlowMask) -> WordMask {
        let by_version = [mask.ipv4.into(), mask.ipv6.into()];
        WordMask { by_version, is_all: mask == FlowMask::ALL }
    }
}

impl WordMask {
    /// The fields of a key that identify its flow.
    #[inline(always)]
    pub(crate) fn apply(&self, key: &FlowWords) -> FlowWords {
        if self.is_all {
            return *key;
        }
        let mask = &self.by_version[usize::from(key.ip_version() != 4)];
        FlowWords(std::array::from_fn(|word| key.0[word] & mask.0[word]))
    }
}

impl Default for FlowMask {
    fn default() -> FlowMask {
        FlowMask::ALL
    }
}

/// Why a text is not a mask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowMaskError {
    /// A field does not exist.
    #[error("there is no field '{0}'")]
    Field(String),
    /// A field is named twice.
    #[error("the field '{0}' is named twice")]
    Twice(String),
    /// A prefix length is not a number, is too long, or does not belong to an address.
    #[error(
        "'{0}' is not a network: addresses alone have prefix lengths, up to 32 for IPv4 and then up to \
         128 for IPv6, as in src/24 or src/24/56"
    )]
    Prefix(String),
    /// All networks have no bits, so that all packets would be one flow.
    #[error("'{0}' leaves nothing to distinguish flows by; name a field, or a longer prefix")]
    Nothing(String),
}

impl FromStr for FlowMask {
    type Err = FlowMaskError;

    fn from_str(text: &str) -> Result<FlowMask, FlowMaskError> {
        let mut mask = FlowMask::NONE;
        let mut seen = Vec::new();
        for field in text.split(',').map(str::trim) {
            let mut parts = field.split('/');
            let name = parts.next().unwrap_or_default();
            let wrong = || FlowMaskError::Prefix(field.to_owned());
            let mut prefix = |most: u32| match parts.next() {
                None => Ok(most),
                // A sign is not a digit, although `parse` accepts it in a number.
                Some(text) if !text.bytes().all(|byte| byte.is_ascii_digit()) => Err(wrong()),
                Some(text) => text.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong),
            };
            match name {
                "src" => (mask.ipv4.src, mask.ipv6.src) = (bits(prefix(32)?), bits(prefix(128)?)),
                "dst" => (mask.ipv4.dst, mask.ipv6.dst) = (bits(prefix(32)?), bits(prefix(128)?)),
                "protocol" => (mask.ipv4.protocol, mask.ipv6.protocol) = (0xff, 0xff),
                "src-port" => (mask.ipv4.src_port, mask.ipv6.src_port) = (0xffff, 0xffff),
                "dst-port" => (mask.ipv4.dst_port, mask.ipv6.dst_port) = (0xffff, 0xffff),
                _ => return Err(FlowMaskError::Field(name.to_owned())),
            }
            if parts.next().is_some() {
                return Err(wrong());
            }
            if seen.contains(&name) {
                return Err(FlowMaskError::Twice(name.to_owned()));
            }
            seen.push(name);
        }
        for of_version in [&mut mask.ipv4, &mut mask.ipv6] {
            let is_address = of_version.src != [0; 16] || of_version.dst != [0; 16];
            of_version.ip_version = if is_address { 0xff } else { 0 };
        }
        if mask == FlowMask::NONE {
            return Err(FlowMaskError::Nothing(text.to_owned()));
        }
        Ok(mask)
    }
}

/// An address whose first `prefix` bits are one.
fn bits(prefix: u32) -> [u8; 16] {
    (!u128::MAX.checked_shr(prefix).unwrap_or(0)).to_be_bytes()
}

impl fmt::Debug for FlowMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowMask({self})")
    }
}

/// Writes the text form that [`FlowMask::from_str`] reads.
impl fmt::Display for FlowMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, prefixes) in [
            ("src", (self.src_prefix(4), self.src_prefix(6))),
            ("dst", (self.dst_prefix(4), self.dst_prefix(6))),
        ] {
            match prefixes {
                (0, 0) => continue,
                (32, 128) => write!(f, "{separator}{name}")?,
                (v4, 128) => write!(f, "{separator}{name}/{v4}")?,
                (v4, v6) => write!(f, "{separator}{name}/{v4}/{v6}")?,
            }
            separator = ",";
        }
        for (name, there) in [
            ("protocol", self.has_protocol()),
            ("src-port", self.has_src_port()),
            ("dst-port", self.has_dst_port()),
        ] {
            if there {
                write!(f, "{separator}{name}")?;
                separator = ",";
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn key(ip_version: u8) -> FlowKey {
        let mut key = FlowKey {
            src_port: 0x1234,
            dst_port: 0x5678,
            protocol: 6,
            ip_version,
            ..FlowKey::default()
        };
        let length = if ip_version == 4 { 4 } else { 16 };
        for byte in 0..length {
            (key.src[byte], key.dst[byte]) = (0x10 + byte as u8, 0xf0 + byte as u8);
        }
        key
    }

    #[test]
    fn all_fields_are_the_key_itself() {
        for key in [key(4), key(6), FlowKey::default()] {
            assert_eq!(FlowMask::ALL.apply(&key), key);
        }
    }

    #[test]
    fn other_fields_are_left_out() {
        let mask: FlowMask = "src/20/12,protocol".parse().unwrap();
        let (v4, v6) = (mask.apply(&key(4)), mask.apply(&key(6)));
        assert_eq!(v4.src[..4], [0x10, 0x11, 0x10, 0]);
        assert_eq!(v6.src[..3], [0x10, 0x10, 0]);
        for masked in [v4, v6] {
            assert_eq!((masked.dst, masked.src_port, masked.dst_port), ([0; 16], 0, 0));
            assert_eq!(masked.protocol, 6);
        }
        assert_ne!(v4.ip_version, v6.ip_version);
    }

    /// Otherwise there would be two records that could not be distinguished.
    #[test]
    fn ip_version_counts_where_an_address_does() {
        let mask: FlowMask = "dst-port,protocol".parse().unwrap();
        assert_eq!(mask.apply(&key(4)), mask.apply(&key(6)));
        let one: FlowMask = "src/0/48,dst-port".parse().unwrap();
        assert_eq!([4, 6].map(|version| one.apply(&key(version)).ip_version), [0, 6]);
        for mask in [mask, one] {
            for masked in [mask.apply(&key(4)), mask.apply(&key(6))] {
                assert_eq!(mask.apply(&masked), masked, "{mask} of what is masked");
            }
        }
    }

    #[test]
    fn mask_says_which_fields_count() {
        let mask: FlowMask = "src/24,dst/0/56,dst-port".parse().unwrap();
        assert_eq!([4, 6].map(|version| mask.src_prefix(version)), [24, 128]);
        assert_eq!([4, 6].map(|version| mask.dst_prefix(version)), [0, 56]);
        assert_eq!([mask.has_protocol(), mask.has_src_port()], [false; 2]);
        assert!(mask.has_dst_port());
        let all = FlowMask::ALL;
        assert_eq!((all.src_prefix(4), all.dst_prefix(6)), (32, 128));
        assert_eq!([all.has_protocol(), all.has_src_port(), all.has_dst_port()], [true; 3]);
    }

    #[test]
    fn masks_are_shown_as_they_are_written() {
        for text in
            ["src,dst,protocol,src-port,dst-port", "src/24", "src/24/56,dst-port", "dst/0/48"]
        {
            assert_eq!(text.parse::<FlowMask>().unwrap().to_string(), text);
        }
        assert_eq!(FlowMask::ALL.to_string(), FlowMask::FIELDS.join(","));
        for bad in [
            "",
            "source",
            "src/33",
            "src/24/129",
            "src/24/56/1",
            "protocol/8",
            "src,,dst",
            "src,src/8",
            "src/+8",
            "src/0/0,dst/0/0",
        ] {
            assert!(bad.parse::<FlowMask>().is_err(), "{bad}");
        }
    }
}
