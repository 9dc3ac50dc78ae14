//! `--anonymize`: addresses made unrecognizable before anything leaves the process. The hash of a
//! record is computed from the masked addresses, so it gives nothing away either.

use ipcrypt_rs::IpcryptPfx;
use rxsteer_user::core::FlowKey;
use std::net::IpAddr;
use std::str::FromStr;

/// How addresses are to be masked, as the user says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Of each address only a prefix of so many bits stays (IPv4, IPv6); the rest becomes 0.
    Prefix(u8, u8),
    /// Each address becomes another; addresses that share a prefix share one afterwards.
    Pseudonym,
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
                    "'{text}' says not how addresses are masked; write the bits that stay, of IPv4 \
                     up to 32 and of IPv6 up to 128, like 24/48, or pseudonym"
                )
            })
    }
}

/// The key of pseudonyms: 256 bits, as hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PseudonymKey([u8; 32]);

impl FromStr for PseudonymKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() == 64 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !digits {
            return Err("it takes 64 hex digits (256 bits), e.g. from: openssl rand -hex 32".into());
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|error| error.to_string())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|error| error.to_string())?;
        }
        if key[..16] == key[16..] {
            return Err(
                "its two halves are the same, which makes pseudonyms weak; take another".into()
            );
        }
        Ok(PseudonymKey(key))
    }
}

/// Nobody should find the key in a log.
impl std::fmt::Debug for PseudonymKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PseudonymKey")
    }
}

/// What is done to addresses.
pub(crate) enum Anonymize {
    /// Nothing.
    Not,
    /// All but a prefix becomes 0.
    Prefix(u8, u8),
    /// They become others, prefix by prefix (ipcrypt-pfx).
    Pseudonym(Box<IpcryptPfx>),
}

impl Anonymize {
    /// By `mode`; pseudonyms under a key of this run only, unless one is given.
    pub(crate) fn new(mode: Option<Mode>, key: Option<PseudonymKey>) -> anyhow::Result<Anonymize> {
        anyhow::ensure!(
            key.is_none() || mode == Some(Mode::Pseudonym),
            "--anonymize-key is the key of pseudonyms; it goes with --anonymize=pseudonym"
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

    /// The key with its addresses masked.
    pub(crate) fn key(&self, key: FlowKey) -> FlowKey {
        let bits = |v4, v6| if key.ip_version == 4 { v4 } else { v6 };
        match self {
            Anonymize::Not => key,
            Anonymize::Prefix(v4, v6) => {
                let bits = bits(*v4, *v6);
                FlowKey { src: prefix(key.src, bits), dst: prefix(key.dst, bits), ..key }
            }
            Anonymize::Pseudonym(cipher) => {
                let other = |address: Option<IpAddr>| address.map(|a| cipher.encrypt_ipaddr(a));
                let (src, dst) = (other(key.src_addr()), other(key.dst_addr()));
                FlowKey { src: src.map_or([0; 16], bytes), dst: dst.map_or([0; 16], bytes), ..key }
            }
        }
    }
}

/// The first `bits` of an address in network byte order; the rest is 0.
fn prefix(address: [u8; 16], bits: u8) -> [u8; 16] {
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    (u128::from_be_bytes(address) & mask).to_be_bytes()
}

/// An address as a key has it.
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
