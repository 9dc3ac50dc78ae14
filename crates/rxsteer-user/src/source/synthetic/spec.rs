//! The specification of synthetic traffic, and its text form.

use crate::block::MAX_TIME_NS;
use std::str::FromStr;

/// The smallest frame, in bytes without the checksum: Ethernet's minimum, with room for IPv6 with TCP.
pub(super) const MIN_SIZE: u16 = 60;
/// The largest frame.
pub(super) const MAX_SIZE: u16 = 9018;
/// A specification of traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticSpec {
    /// The total number of frames.
    pub packets: u64,
    /// Established flows.
    pub flows: u32,
    /// The distribution of the packets over these flows.
    pub share: Share,
    /// Frame sizes.
    pub size: Size,
    /// Transport protocols.
    pub protocol: Protocol,
    /// IP versions.
    pub ip: IpVersions,
    /// A flood in addition to the established flows.
    pub flood: Flood,
    /// Frames per second, for their timestamps.
    pub rate: f64,
    /// The seed of all random values.
    pub seed: u64,
}

/// The distribution of packets over flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Share {
    /// Every flow is as likely as any other.
    Equal,
    /// The `n`-th flow is `n^-exponent` times as likely as the first.
    Zipf(f64),
}

/// Frame sizes in bytes, without the frame checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// From the first to the last, equally likely.
    Range(u16, u16),
    /// The simple internet mix: 7 of 60, 4 of 590 and 1 of 1514 bytes.
    Imix,
}

/// Transport protocols of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Each flow is one or the other.
    Mixed,
}

/// IP versions of the flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersions {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Each flow is one or the other.
    Mixed,
}

/// Attack traffic in addition to the established flows. The number is its share of the packets, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Flood {
    /// No attack.
    None,
    /// Every packet is a separate flow.
    Spoofed(f64),
    /// 100,000 flows that all have the same hash.
    SameHash(f64),
}

impl Default for SyntheticSpec {
    fn default() -> Self {
        SyntheticSpec {
            packets: 1_000_000,
            flows: 1000,
            share: Share::Equal,
            size: Size::Range(MIN_SIZE, MIN_SIZE),
            protocol: Protocol::Tcp,
            ip: IpVersions::V4,
            flood: Flood::None,
            rate: 1e6,
            seed: 1,
        }
    }
}

/// Why a text is not a valid specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The key does not exist.
    #[error("there is no key '{0}' in a synthetic load")]
    UnknownKey(String),
    /// The value of a key is not valid; holds the key, the value, and the valid values.
    #[error("'{1}' is not a value of '{0}': expected {2}")]
    BadValue(&'static str, String, &'static str),
    /// An item is not `key=value`.
    #[error("'{0}' is not of the form key=value")]
    NoValue(String),
    /// A key is given twice.
    #[error("the key '{0}' is given twice")]
    Twice(String),
}

impl SyntheticSpec {
    /// Whether all its frames have times of [`MAX_TIME_NS`](crate::block::MAX_TIME_NS) at most.
    #[must_use]
    pub fn has_times(&self) -> bool {
        self.packets as f64 * 1e9 / self.rate < MAX_TIME_NS as f64
    }

    /// The keys a specification can have.
    pub const KEYS: [&'static str; 9] =
        ["packets", "flows", "share", "size", "protocol", "ip", "flood", "rate", "seed"];

    fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let bad = |key, fits| SpecError::BadValue(key, value.to_owned(), fits);
        match key {
            "packets" => {
                self.packets = whole(value).ok_or(bad("packets", "a whole number, 1e6 too"))?;
            }
            "flows" => {
                self.flows = whole(value)
                    .and_then(|n| u32::try_from(n).ok())
                    .filter(|n| (1..=1 << 24).contains(n))
                    .ok_or(bad("flows", "1 to 16777216"))?;
            }
            "share" => {
                self.share = parse_share(value).ok_or(bad("share", "equal, or zipf:1.1"))?;
            }
            "size" => {
                self.size = parse_size(value)
                    .ok_or(bad("size", "60 to 9018, a range like 60-1514, or imix"))?;
            }
            "protocol" => {
                self.protocol = match value {
                    "tcp" => Protocol::Tcp,
                    "udp" => Protocol::Udp,
                    "mixed" => Protocol::Mixed,
                    _ => return Err(bad("protocol", "tcp, udp or mixed")),
                };
            }
            "ip" => {
                self.ip = match value {
                    "4" => IpVersions::V4,
                    "6" => IpVersions::V6,
                    "mixed" => IpVersions::Mixed,
                    _ => return Err(bad("ip", "4, 6 or mixed")),
                };
            }
            "flood" => {
                self.flood =
                    parse_flood(value).ok_or(bad("flood", "none, spoofed:0.9 or same-hash:0.9"))?;
            }
            "rate" => {
                self.rate = value
                    .parse()
                    .ok()
                    .filter(|rate: &f64| (1e-3..=1e9).contains(rate))
                    .ok_or(bad("rate", "frames per second, 0.001 to 1e9"))?;
            }
            "seed" => self.seed = value.parse().map_err(|_| bad("seed", "a whole number"))?,
            _ => return Err(SpecError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }
}

/// A whole number, also written like 1e6.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        (number.fract() == 0.0 && (0.0..=1e15).contains(&number)).then_some(number as u64)
    })
}

fn parse_share(text: &str) -> Option<Share> {
    if text == "equal" {
        return Some(Share::Equal);
    }
    let exponent: f64 = text.strip_prefix("zipf:")?.parse().ok()?;
    (exponent > 0.0 && exponent <= 10.0).then_some(Share::Zipf(exponent))
}

fn parse_size(text: &str) -> Option<Size> {
    if text == "imix" {
        return Some(Size::Imix);
    }
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (MIN_SIZE <= from && from <= to && to <= MAX_SIZE).then_some(Size::Range(from, to))
}

fn parse_flood(text: &str) -> Option<Flood> {
    if text == "none" {
        return Some(Flood::None);
    }
    let (kind, share) = text.split_once(':')?;
    let share: f64 = share.parse().ok().filter(|share| (0.0..=1.0).contains(share))?;
    match kind {
        "spoofed" => Some(Flood::Spoofed(share)),
        "same-hash" => Some(Flood::SameHash(share)),
        _ => None,
    }
}

impl FromStr for SyntheticSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut spec = SyntheticSpec::default();
        let mut seen: Vec<&str> = Vec::new();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (key, value) =
                item.split_once('=').ok_or_else(|| SpecError::NoValue(item.to_owned()))?;
            let key = key.trim();
            if seen.contains(&key) {
                return Err(SpecError::Twice(key.to_owned()));
            }
            seen.push(key);
            spec.set(key, value.trim())?;
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_specifications_say_why() {
        let error = |text: &str| text.parse::<SyntheticSpec>().unwrap_err();
        assert_eq!(error("flow=3"), SpecError::UnknownKey("flow".into()));
        assert_eq!(error("flows"), SpecError::NoValue("flows".into()));
        assert_eq!(error("flows=1,flows=2"), SpecError::Twice("flows".into()));
        for bad in ["flows=0", "size=59", "size=9-8", "share=zipf:0", "flood=x:1", "rate=0"] {
            assert!(matches!(error(bad), SpecError::BadValue(..)), "{bad}");
        }
        assert_eq!("".parse(), Ok(SyntheticSpec::default()));
    }
}
