//! Offloads of an interface, as `ethtool -k` names them.

use super::generic::Family;
use super::{attribute, attributes, emitted, text_of};
use netlink_packet_core::{DefaultNla, NLA_F_NESTED};
use std::collections::BTreeSet;
use std::io;

// include/uapi/linux/ethtool_netlink.h
const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_FEATURES_HEADER: u16 = 1;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;

/// The names of the features that are on.
pub(crate) fn active_features(index: u32) -> io::Result<BTreeSet<String>> {
    let device = DefaultNla::new(ETHTOOL_A_HEADER_DEV_INDEX, index.to_ne_bytes().to_vec());
    let header = DefaultNla::new(ETHTOOL_A_FEATURES_HEADER | NLA_F_NESTED, emitted(&[device]));
    let answer = Family::open("ethtool")?.query(ETHTOOL_MSG_FEATURES_GET, &[header])?;
    Ok(names(&answer).unwrap_or_default())
}

/// The set of active features is sent as the list of the bits that are set.
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
