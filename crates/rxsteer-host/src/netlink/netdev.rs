//! What a driver's XDP can do (Linux 6.3 and later).

use super::attribute;
use super::generic::Family;
use netlink_packet_core::DefaultNla;
use std::io;

// include/uapi/linux/netdev.h
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;

/// The bits of `xdp-features` and of `xdp-rx-metadata-features` (0 before Linux 6.8).
pub(crate) fn xdp_features(index: u32) -> io::Result<(u64, u64)> {
    let device = DefaultNla::new(NETDEV_A_DEV_IFINDEX, index.to_ne_bytes().to_vec());
    let answer = Family::open("netdev")?.query(NETDEV_CMD_DEV_GET, &[device])?;
    let bits = |number| {
        let value = attribute(&answer, number)?;
        Some(u64::from_ne_bytes(value.try_into().ok()?))
    };
    let features = bits(NETDEV_A_DEV_XDP_FEATURES);
    let features = features.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok((features, bits(NETDEV_A_DEV_XDP_RX_METADATA_FEATURES).unwrap_or(0)))
}
