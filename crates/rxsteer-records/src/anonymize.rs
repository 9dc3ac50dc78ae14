//! `--anonymize`: masks addresses before any record leaves the process. The hash of a record is computed from the
//! masked addresses, so the hash reveals nothing about the original ones.

use ipcrypt_rs::IpcryptPfx;
use rxsteer_core::FlowKey;
use std::net::IpAddr;
use std::str::FromStr;

/// How addresses are masked, as the user sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each address keeps only a prefix of this many bits (IPv4, IPv6); the rest becomes 0.
    Prefix(u8, u8),
    /// A pseudonym replaces each address; addresses that share a prefix have pseudonyms that share a prefix.
    Pseudonym,
}

impl Mode {
    /// The words for the modes; the prefix is one example of many.
    pub const WORDS: [&str; 2] = ["24/48", "pseudonym"];
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "pseudonym" {
            return Ok(Mode::Pseudonym);
        }
        let bits = |bits: &str, most: u8| bits.parse().ok().filter(|bits| *bits <= most);
        text.split_once('/')
            .and_then(|(v4, v6)| Some(Mode::Prefix(bits(v4, 32)?, bits(v6, 128)?)))
            .ok_or_else(|| {
                format!(
                    "'{text}' is not a mask for addresses; give the bits to keep of IPv4 (up to 32) \
                     and of IPv6 (up to 128), like 24/48, or pseudonym"
                )
            })
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Mode::Prefix(v4, v6) => write!(f, "{v4}/{v6}"),
            Mode::Pseudonym => f.write_str("pseudonym"),
        }
    }
}

/// The key of pseudonyms: 256 bits in hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PseudonymKey([u8; 32]);

impl FromStr for PseudonymKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !digits {
            return Err("expected 64 hex digits (256 bits), e.g. from: openssl rand -hex 32".into());
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|error| error.to_string())?;
        }
        if key[..16] == key[16..] {
            return Err(
                "the two halves are the same, which makes pseudonyms weak; use another key".into(),
            );
        }
        Ok(PseudonymKey(key))
    }
}

/// Keeps the key out of logs.
impl std::fmt::Debug for PseudonymKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PseudonymKey")
    }
}

/// How addresses are masked.
pub enum Anonymize {
    /// Addresses stay as they are.
    Not,
    /// All bits after a prefix become 0.
    Prefix(u8, u8),
    /// Pseudonyms replace addresses, prefix by prefix (ipcrypt-pfx).
    Pseudonym(Box<IpcryptPfx>),
}

impl Anonymize {
    /// The masking for `mode`. Unless a key is given, the key of pseudonyms is new for each run.
    pub fn new(mode: Option<Mode>, key: Option<PseudonymKey>) -> anyhow::Result<Anonymize> {
        anyhow::ensure!(
            key.is_none() || mode == Some(Mode::Pseudonym),
            "--anonymize-key requires --anonymize=pseudonym"
        );
        Ok(match mode {
            None => Anonymize::Not,
            Some(Mode::Prefix(v4, v6)) => Anonymize::Prefix(v4, v6),
            Some(Mode::Pseudonym) => {
                let key = key.map_or_else(rand::random, |PseudonymKey(key)| key);
                Anonymize::Pseudonym(Box::new(IpcryptPfx::new(key)))
            }
        })
    }

    /// The key with masked addresses.
    pub fn key(&self, key: FlowKey) -> FlowKey {
        match self {
            Anonymize::Not => key,
            Anonymize::Prefix(v4, v6) => {
                let masked = |address| {
                    let bits = match key.ip_version {
                        4 => *v4,
                        _ => bits_of_v6(address, *v4, *v6),
                    };
                    prefix(address, bits)
                };
                FlowKey { src: masked(key.src), dst: masked(key.dst), ..key }
            }
            Anonymize::Pseudonym(cipher) => {
                let other = |address: Option<IpAddr>| address.map(|a| cipher.encrypt_ipaddr(a));
                let (src, dst) = (other(key.src_addr()), other(key.dst_addr()));
                FlowKey { src: src.map_or([0; 16], bytes), dst: dst.map_or([0; 16], bytes), ..key }
            }
        }
    }
}

/// IPv6 addresses that contain IPv4 addresses: their prefix, its length, and the bit where the IPv4 address
/// begins. A Teredo address contains two, the second one obfuscated. An operator's own NAT64 prefix can have the
/// IPv4 address at several places. Of these two kinds only the prefix is kept.
const WITH_IPV4: [(u128, u8, Option<u8>); 6] = [
    (0x2002 << 112, 16, Some(16)),      // 6to4
    (0x2001_0000 << 96, 32, None),      // Teredo
    (0xffff << 32, 96, Some(96)),       // ::ffff:0:0/96, mapped
    (0, 96, Some(96)),                  // ::/96, compatible
    (0x0064_ff9b << 96, 96, Some(96)),  // 64:ff9b::/96, NAT64
    (0x0064_ff9b_0001 << 80, 48, None), // 64:ff9b:1::/48, NAT64 of one's own
];

/// How many bits of an IPv6 address are kept when `v4` bits of IPv4 and `v6` bits of IPv6 addresses are kept: of a
/// contained IPv4 address not more than of any other IPv4 address.
fn bits_of_v6(address: [u8; 16], v4: u8, v6: u8) -> u8 {
    if v4 == 32 {
        return v6;
    }
    let begins = |&(begin, bits, _): &(u128, u8, _)| {
        u128::from_be_bytes(address) >> (128 - bits) == begin >> (128 - bits)
    };
    match WITH_IPV4.iter().find(|form| begins(form)) {
        Some((_, _, Some(at))) => v6.min(at + v4),
        Some((_, bits, None)) => v6.min(*bits),
        None => v6,
    }
}

/// The first `bits` of an address in network byte order; the rest is 0.
fn prefix(address: [u8; 16], bits: u8) -> [u8; 16] {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    (u128::from_be_bytes(address) & mask).to_be_bytes()
}

/// The bytes of an address in the format of a key.
fn bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(src: &str, dst: &str) -> FlowKey {
        let [src, dst]: [IpAddr; 2] = [src, dst].map(|text| text.parse().unwrap());
        let ip_version = if src.is_ipv4() { 4 } else { 6 };
        FlowKey { src: bytes(src), dst: bytes(dst), ip_version, ..FlowKey::default() }
    }

    fn shown(mode: &str, secret: Option<&str>, of: FlowKey) -> [String; 2] {
        let secret = secret.map(|text| text.parse().unwrap());
        let masked = Anonymize::new(Some(mode.parse().unwrap()), secret).unwrap().key(of);
        [masked.src_addr(), masked.dst_addr()].map(|address| address.unwrap().to_string())
    }

    #[test]
    fn prefixes_stay() {
        let v4 = key("10.1.2.3", "192.0.2.255");
        let v6 = key("2001:db8:1:2::3", "fe80::1");
        assert_eq!(shown("24/48", None, v4), ["10.1.2.0", "192.0.2.0"]);
        assert_eq!(shown("24/48", None, v6), ["2001:db8:1::", "fe80::"]);
        assert_eq!(shown("0/0", None, v4), ["0.0.0.0", "0.0.0.0"]);
        assert_eq!(shown("0/0", None, v6), ["::", "::"]);
        assert_eq!(shown("32/128", None, v6), ["2001:db8:1:2::3", "fe80::1"]);
    }

    #[test]
    fn ipv4_addresses_inside_ipv6_ones_are_masked_too() {
        let masked = |mode, address| {
            let [masked, _] = shown(mode, None, key(address, "::"));
            masked.parse::<std::net::Ipv6Addr>().unwrap()
        };
        for (address, by_default, all_of_v6) in [
            ("2002:c000:204:1::5", "2002:c000:200::", "2002:c000:200::"),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001::", "2001::"),
            ("::ffff:192.0.2.4", "::", "::ffff:192.0.2.0"),
            ("::192.0.2.4", "::", "::192.0.2.0"),
            ("64:ff9b::c000:204", "64:ff9b::", "64:ff9b::c000:200"),
            ("64:ff9b:1:c000:2:400::", "64:ff9b:1::", "64:ff9b:1::"),
            ("2001:db8:1:2::5", "2001:db8:1::", "2001:db8:1:2::5"),
        ] {
            let address_of = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
            assert_eq!(masked("24/48", address), address_of(by_default), "{address}");
            assert_eq!(masked("24/128", address), address_of(all_of_v6), "{address}");
            assert_eq!(masked("32/128", address), address_of(address), "nothing is to be masked");
        }
    }

    #[test]
    fn pseudonyms_keep_prefixes_together_and_depend_on_the_key() {
        let secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        let [a, b] = shown("pseudonym", Some(secret), key("10.1.2.3", "10.1.2.77"));
        assert_ne!(a, "10.1.2.3");
        assert_eq!(a.rsplit_once('.').unwrap().0, b.rsplit_once('.').unwrap().0);
        assert_eq!(shown("pseudonym", Some(secret), key("10.1.2.3", "10.1.2.77")), [a.clone(), b]);
        let other = secret.replace("00", "99");
        assert_ne!(shown("pseudonym", Some(&other), key("10.1.2.3", "10.1.2.77"))[0], a);
        assert_ne!(shown("pseudonym", None, key("10.1.2.3", "::"))[0], a, "a key per run");
    }

    #[test]
    fn mistakes_are_named() {
        for bad in ["33/48", "24", "24/129", "pseudonyms", "", "/"] {
            assert!(bad.parse::<Mode>().unwrap_err().contains("24/48"), "{bad}");
        }
        for bad in ["00", &"0".repeat(64), &"g".repeat(64)] {
            assert!(bad.parse::<PseudonymKey>().is_err(), "{bad}");
        }
        let secret = Some("0".repeat(63) + "1").map(|text| text.parse().unwrap());
        assert!(Anonymize::new(Some(Mode::Prefix(24, 48)), secret).is_err());
    }
}
