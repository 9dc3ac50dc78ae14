//! What drivers report to ethtool: offloads by their names in `ethtool -k`, RSS (`ethtool -x`), channels (`ethtool
//! -l`).

use super::generic::Family;
use super::{attribute, attributes, emitted, text_of, u32_of, uint_of};
use crate::rss::{Channels, Rss};
use netlink_packet_core::{DefaultNla, NLA_F_NESTED};
use std::collections::BTreeSet;
use std::io;

// include/uapi/linux/ethtool_netlink.h
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_MSG_RSS_GET: u8 = 38;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
/// In every request: ETHTOOL_A_FEATURES_HEADER, ETHTOOL_A_RSS_HEADER and so on.
const HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;
const ETHTOOL_A_CHANNELS_RX_MAX: u16 = 2;
const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;
const ETHTOOL_A_RSS_HFUNC: u16 = 3;
const ETHTOOL_A_RSS_INDIR: u16 = 4;
const ETHTOOL_A_RSS_FLOW_HASH: u16 = 8;
/// ETHTOOL_A_FLOW_…: the first ones.
const FLOW_TYPES: [&str; 16] = [
    "", "ether", "ip4", "ip6", "tcp4", "tcp6", "udp4", "udp6", "sctp4", "sctp6", "ah4", "ah6",
    "esp4", "esp6", "ah-esp4", "ah-esp6",
];
/// RXH_… of include/uapi/linux/ethtool.h: the bits and their names.
const HASH_FIELDS: [(u64, &str); 9] = [
    (1 << 1, "destination MAC"),
    (1 << 2, "VLAN"),
    (1 << 3, "protocol"),
    (1 << 4, "source address"),
    (1 << 5, "destination address"),
    (1 << 6, "source port"),
    (1 << 7, "destination port"),
    (1 << 8, "GTP TEID"),
    (1 << 9, "IPv6 flow label"),
];
/// ETH_RSS_HASH_…: bits of the hash function.
const HASH_FUNCTIONS: [(u32, &str); 3] = [(1, "toeplitz"), (2, "xor"), (4, "crc32")];

/// Sends a request about the interface with that index; returns the attributes of the answer.
fn query(message: u8, index: u32) -> io::Result<Vec<u8>> {
    Family::open("ethtool")?.query(message, &[header(index)])
}

fn header(index: u32) -> DefaultNla {
    let device = DefaultNla::new(ETHTOOL_A_HEADER_DEV_INDEX, index.to_ne_bytes().to_vec());
    nested(HEADER, &[device])
}

fn nested(kind: u16, with: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind | NLA_F_NESTED, emitted(with))
}

/// Requests that the features with these names be on or off, and leaves the others. The caller must read back whether
/// the kernel did so.
pub(crate) fn set_features(index: u32, names: &[String], on: bool) -> io::Result<()> {
    let bit = |name: &String| {
        let mut name = name.clone().into_bytes();
        name.push(0);
        let mut bit = vec![DefaultNla::new(ETHTOOL_A_BITSET_BIT_NAME, name)];
        bit.extend(on.then(|| DefaultNla::new(ETHTOOL_A_BITSET_BIT_VALUE, Vec::new())));
        nested(ETHTOOL_A_BITSET_BITS_BIT, &bit)
    };
    let bits: Vec<DefaultNla> = names.iter().map(bit).collect();
    let wanted = nested(ETHTOOL_A_FEATURES_WANTED, &[nested(ETHTOOL_A_BITSET_BITS, &bits)]);
    Family::open("ethtool")?.query(ETHTOOL_MSG_FEATURES_SET, &[header(index), wanted]).map(drop)
}

/// The names of the features that are on.
pub(crate) fn active_features(index: u32) -> io::Result<BTreeSet<String>> {
    Ok(names(&query(ETHTOOL_MSG_FEATURES_GET, index)?).unwrap_or_default())
}

/// How the NIC spreads flows; an error if the driver does not report it. Since Linux 6.17 this includes hash fields.
pub(crate) fn rss(index: u32) -> io::Result<Rss> {
    Ok(rss_of(&query(ETHTOOL_MSG_RSS_GET, index)?))
}

fn rss_of(answer: &[u8]) -> Rss {
    let table = attribute(answer, ETHTOOL_A_RSS_INDIR).unwrap_or_default();
    let functions = attribute(answer, ETHTOOL_A_RSS_HFUNC).and_then(u32_of).unwrap_or(0);
    let fields = attribute(answer, ETHTOOL_A_RSS_FLOW_HASH).unwrap_or_default();
    let fields = attributes(fields).filter_map(|(kind, bits)| {
        let bits = uint_of(bits)?;
        let named = HASH_FIELDS.iter().filter(|(bit, _)| bits & bit != 0);
        let named = named.map(|(_, name)| (*name).to_owned()).collect();
        Some(((*FLOW_TYPES.get(usize::from(kind))?).to_owned(), named))
    });
    Rss {
        function: HASH_FUNCTIONS
            .into_iter()
            .find(|(bit, _)| functions & bit != 0)
            .map(|(_, name)| name.to_owned()),
        table: table.chunks_exact(4).filter_map(u32_of).collect(),
        fields: fields.collect(),
    }
}

/// The channels that receive, and the most that could.
pub(crate) fn channels(index: u32) -> io::Result<Channels> {
    let answer = query(ETHTOOL_MSG_CHANNELS_GET, index)?;
    let sum = |kinds: [u16; 2]| {
        kinds.into_iter().filter_map(|kind| attribute(&answer, kind).and_then(u32_of)).sum()
    };
    Ok(Channels {
        used: sum([ETHTOOL_A_CHANNELS_RX_COUNT, ETHTOOL_A_CHANNELS_COMBINED_COUNT]),
        most: sum([ETHTOOL_A_CHANNELS_RX_MAX, ETHTOOL_A_CHANNELS_COMBINED_MAX]),
    })
}

/// The kernel sends the set of active features as a list of the set bits.
fn names(answer: &[u8]) -> Option<BTreeSet<String>> {
    let active = attribute(answer, ETHTOOL_A_FEATURES_ACTIVE)?;
    let bits = attributes(attribute(active, ETHTOOL_A_BITSET_BITS)?);
    let bits = bits.filter(|(kind, _)| *kind == ETHTOOL_A_BITSET_BITS_BIT);
    Some(
        bits.filter_map(|(_, bit)| attribute(bit, ETHTOOL_A_BITSET_BIT_NAME))
            .map(text_of)
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rss_is_read() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let fields = emitted(&[
            DefaultNla::new(4, 0xf0_u32.to_ne_bytes().to_vec()),
            DefaultNla::new(6, 0x30_u64.to_ne_bytes().to_vec()),
            DefaultNla::new(99, 0x30_u32.to_ne_bytes().to_vec()),
        ]);
        let answer = emitted(&[
            DefaultNla::new(ETHTOOL_A_RSS_HFUNC, words(&[1])),
            DefaultNla::new(ETHTOOL_A_RSS_INDIR, words(&[0, 1, 0, 3])),
            DefaultNla::new(ETHTOOL_A_RSS_FLOW_HASH | NLA_F_NESTED, fields),
        ]);
        let rss = rss_of(&answer);
        assert_eq!(rss.function.as_deref(), Some("toeplitz"));
        assert_eq!((rss.table.as_slice(), rss.queues()), (&[0, 1, 0, 3][..], 3));
        assert_eq!(rss.fields["udp4"], ["source address", "destination address"]);
        assert_eq!((rss.fields["tcp4"].len(), rss.fields.len()), (4, 2));
        assert_eq!(rss_of(&[]), Rss::default());
    }
}
