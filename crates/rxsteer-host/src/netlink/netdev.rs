//! The XDP features of a driver (Linux 6.3 and later), and the NAPI instances of an interface (6.7).

use super::generic::Family;
use super::{attribute, u32_of, uint_of};
use crate::rss::Napi;
use netlink_packet_core::DefaultNla;
use std::collections::BTreeMap;
use std::io;

// include/uapi/linux/netdev.h
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
const NETDEV_CMD_QSTATS_GET: u8 = 12;
const NETDEV_A_QSTATS_IFINDEX: u16 = 1;
const NETDEV_A_QSTATS_QUEUE_TYPE: u16 = 2;
const NETDEV_A_QSTATS_QUEUE_ID: u16 = 3;
const NETDEV_A_QSTATS_SCOPE: u16 = 4;
const NETDEV_A_QSTATS_RX_PACKETS: u16 = 8;
const NETDEV_QSTATS_SCOPE_QUEUE: u32 = 1;
const NETDEV_QUEUE_TYPE_RX: u32 = 0;
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_IRQ: u16 = 3;
const NETDEV_A_NAPI_PID: u16 = 4;
const NETDEV_A_NAPI_DEFER_HARD_IRQS: u16 = 5;
const NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NETDEV_A_NAPI_THREADED: u16 = 8;

/// The NAPI instances of an interface that is up.
pub(crate) fn napi(index: u32) -> io::Result<Vec<Napi>> {
    let device = DefaultNla::new(NETDEV_A_NAPI_IFINDEX, index.to_ne_bytes().to_vec());
    let answers = Family::open("netdev")?.list(NETDEV_CMD_NAPI_GET, &[device])?;
    let napi = |answer: &Vec<u8>| {
        let number = |kind| attribute(answer, kind).and_then(u32_of);
        let thread = number(NETDEV_A_NAPI_PID);
        // Linux 6.17 and later report this. Before, an instance that has a thread uses it.
        let threaded = number(NETDEV_A_NAPI_THREADED).map(|threaded| threaded != 0);
        Some(Napi {
            id: number(NETDEV_A_NAPI_ID)?,
            interrupt: number(NETDEV_A_NAPI_IRQ),
            threaded: threaded.unwrap_or(thread.is_some()),
            thread,
            defer_hard_irqs: number(NETDEV_A_NAPI_DEFER_HARD_IRQS),
            gro_flush_timeout_ns: attribute(answer, NETDEV_A_NAPI_GRO_FLUSH_TIMEOUT)
                .and_then(uint_of),
        })
    };
    Ok(answers.iter().filter_map(napi).collect())
}

/// Packets received by each RX queue, if the driver reports them to the kernel (Linux 6.9 and later).
pub(crate) fn rx_packets(index: u32) -> io::Result<BTreeMap<u32, u64>> {
    let word = |kind, value: u32| DefaultNla::new(kind, value.to_ne_bytes().to_vec());
    let asked = [
        word(NETDEV_A_QSTATS_IFINDEX, index),
        word(NETDEV_A_QSTATS_SCOPE, NETDEV_QSTATS_SCOPE_QUEUE),
    ];
    let answers = Family::open("netdev")?.list(NETDEV_CMD_QSTATS_GET, &asked)?;
    let queue = |answer: &Vec<u8>| {
        let number = |kind| attribute(answer, kind).and_then(u32_of);
        let receives = number(NETDEV_A_QSTATS_QUEUE_TYPE)? == NETDEV_QUEUE_TYPE_RX;
        let packets = attribute(answer, NETDEV_A_QSTATS_RX_PACKETS).and_then(uint_of)?;
        receives.then_some((number(NETDEV_A_QSTATS_QUEUE_ID)?, packets))
    };
    Ok(answers.iter().filter_map(queue).collect())
}

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
