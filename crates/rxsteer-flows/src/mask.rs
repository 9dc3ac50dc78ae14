//! Which fields of a packet's key make a flow.

use rxsteer_core::{FlowKey, FlowWords};
use std::fmt;
use std::str::FromStr;

/// The fields that flows are told apart by: all five, or a chosen subset, as an OVS megaflow's mask.
/// Packets that differ in other fields only are one flow, in whose record those fields are 0. The IP
/// version always counts.
///
/// It is written as its fields, separated by commas: `src,dst,protocol,src-port,dst-port`.
/// Addresses can be networks: `src/24` is the first 24 bits of IPv4 addresses, and those of IPv6
/// addresses whole; `src/24/56` gives both prefix lengths.
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
            ip_version: 0xff,
            reserved: [0; 2],
        };
        FlowMask { ipv4: none, ipv6: none }
    };

    /// The names of the fields, as masks are written.
    pub const FIELDS: [&'static str; 5] = ["src", "dst", "protocol", "src-port", "dst-port"];

    /// The key without the other fields.
    #[must_use]
    pub fn apply(&self, key: &FlowKey) -> FlowKey {
        WordMask::from(*self).apply(&(*key).into()).key()
    }
}

/// A mask as it is applied to packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordMask {
    /// Of IPv4 and of all else.
    by_version: [FlowWords; 2],
    /// Whether it leaves nothing out, as it mostly does.
    is_all: bool,
}

impl From<FlowMask> for WordMask {
    fn from(mask: FlowMask) -> WordMask {
        let by_version = [mask.ipv4.into(), mask.ipv6.into()];
        WordMask { by_version, is_all: mask == FlowMask::ALL }
    }
}

impl WordMask {
    /// The fields of a key that make a flow.
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

/// Why a text is no mask.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowMaskError {
    /// It names a field that there isn't.
    #[error("there is no field '{0}'; the fields are src, dst, protocol, src-port and dst-port")]
    Field(String),
    /// A prefix length is no number, too long, or not one of an address.
    #[error(
        "'{0}' is no network: addresses alone have prefix lengths, up to 32 for IPv4 and then up to \
         128 for IPv6, as in src/24 or src/24/56"
    )]
    Prefix(String),
}

impl FromStr for FlowMask {
    type Err = FlowMaskError;

    fn from_str(text: &str) -> Result<FlowMask, FlowMaskError> {
        let mut mask = FlowMask::NONE;
        for field in text.split(',').map(str::trim) {
            let mut parts = field.split('/');
            let name = parts.next().unwrap_or_default();
            let wrong = || FlowMaskError::Prefix(field.to_owned());
            let mut prefix = |most: u32| match parts.next().map(str::parse::<u32>) {
                None => Ok(most),
                Some(Ok(bits)) if bits <= most => Ok(bits),
                Some(_) => Err(wrong()),
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
        }
        Ok(mask)
    }
}

/// An address of so many one bits.
fn bits(prefix: u32) -> [u8; 16] {
    (!u128::MAX.checked_shr(prefix).unwrap_or(0)).to_be_bytes()
}

impl fmt::Debug for FlowMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowMask({self})")
    }
}

/// Writes what [`FlowMask::from_str`] reads.
impl fmt::Display for FlowMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |address: &[u8; 16]| u128::from_be_bytes(*address).leading_ones();
        let mut separator = "";
        for (name, of) in
            [("src", [self.ipv4.src, self.ipv6.src]), ("dst", [self.ipv4.dst, self.ipv6.dst])]
        {
            let prefixes = (length(&of[0]).min(32), length(&of[1]));
            match prefixes {
                (0, 0) => continue,
                (32, 128) => write!(f, "{separator}{name}")?,
                (v4, 128) => write!(f, "{separator}{name}/{v4}")?,
                (v4, v6) => write!(f, "{separator}{name}/{v4}/{v6}")?,
            }
            separator = ",";
        }
        for (name, there) in [
            ("protocol", self.ipv4.protocol != 0),
            ("src-port", self.ipv4.src_port != 0),
            ("dst-port", self.ipv4.dst_port != 0),
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

    #[test]
    fn masks_are_shown_as_they_are_written() {
        for text in
            ["src,dst,protocol,src-port,dst-port", "src/24", "src/24/56,dst-port", "dst/0/48"]
        {
            assert_eq!(text.parse::<FlowMask>().unwrap().to_string(), text);
        }
        assert_eq!(FlowMask::ALL.to_string(), FlowMask::FIELDS.join(","));
        for bad in ["", "source", "src/33", "src/24/129", "src/24/56/1", "protocol/8", "src,,dst"] {
            assert!(bad.parse::<FlowMask>().is_err(), "{bad}");
        }
    }
}
