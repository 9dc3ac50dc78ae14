//! The links of this network namespace, and its numbers for other namespaces.

use super::{Netlink, Query, attribute, attributes, emitted, text_of, u32_of};
use crate::attached::{Attached, AttachedMode};
use crate::link::Link;
use netlink_packet_core::DefaultNla;
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

// include/uapi/linux/rtnetlink.h, if.h and if_link.h
const RTM_GETLINK: u16 = 18;
// include/uapi/linux/net_namespace.h
const RTM_GETNSID: u16 = 90;
const RTGENMSG: usize = 4;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
const IFINFOMSG: usize = 16;
const RTEXT_FILTER_SKIP_STATS: u32 = 1 << 3;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VLAN_PROTOCOL: u16 = 5;
const IFLA_EXT_MASK: u16 = 29;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_PARENT_DEV_NAME: u16 = 56;
const IFLA_PARENT_DEV_BUS_NAME: u16 = 57;

/// All links, in the kernel's order.
pub(crate) fn links() -> io::Result<Vec<Link>> {
    // Statistics are most of the answer, and are not needed here.
    let mask = DefaultNla::new(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS.to_ne_bytes().to_vec());
    let mut body = vec![0; IFINFOMSG];
    body.extend(emitted(&[mask]));
    let answers = Netlink::open(NETLINK_ROUTE)?.query(Query::All, RTM_GETLINK, &body)?;
    Ok(answers.iter().filter_map(|answer| link(answer)).collect())
}

/// This network namespace's number for another one, if it has one.
pub(crate) fn namespace_number(of: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let file = of.as_raw_fd().to_ne_bytes().to_vec();
    let mut body = vec![0; RTGENMSG];
    body.extend(emitted(&[DefaultNla::new(NETNSA_FD, file)]));
    let answers = Netlink::open(NETLINK_ROUTE)?.query(Query::One, RTM_GETNSID, &body)?;
    let number = answers.iter().find_map(|answer| attribute(answer.get(RTGENMSG..)?, NETNSA_NSID));
    // -1 means that it has none.
    Ok(number.and_then(u32_of).filter(|number| *number <= i32::MAX as u32))
}

fn link(answer: &[u8]) -> Option<Link> {
    let header = answer.get(..IFINFOMSG)?;
    let rest = &answer[IFINFOMSG..];
    let number = |kind| attribute(rest, kind).and_then(u32_of);
    let text = |kind| attribute(rest, kind).map(text_of);
    let info = attribute(rest, IFLA_LINKINFO).unwrap_or_default();
    let kind = attribute(info, IFLA_INFO_KIND).map(text_of);
    Some(Link {
        index: u32_of(&header[4..8])?,
        name: text(IFLA_IFNAME)?,
        alternative_names: alternative_names(rest),
        hardware_type: u16::from_ne_bytes(header[2..4].try_into().ok()?),
        up: u32_of(&header[8..12])? & IFF_UP != 0,
        mtu: number(IFLA_MTU),
        address: attribute(rest, IFLA_ADDRESS).unwrap_or_default().to_vec(),
        lower: number(IFLA_LINK),
        lower_is_elsewhere: attribute(rest, IFLA_LINK_NETNSID).is_some(),
        lower_namespace: number(IFLA_LINK_NETNSID),
        master: number(IFLA_MASTER),
        vlan_protocol: (kind.as_deref() == Some("vlan")).then(|| vlan_protocol(info)).flatten(),
        max_rx_queues: number(IFLA_NUM_RX_QUEUES),
        max_tx_queues: number(IFLA_NUM_TX_QUEUES),
        parent: text(IFLA_PARENT_DEV_BUS_NAME).zip(text(IFLA_PARENT_DEV_NAME)),
        attached: attribute(rest, IFLA_XDP).and_then(attached),
        driver: None,
        is_wifi: false,
        kind,
    })
}

fn alternative_names(rest: &[u8]) -> Vec<String> {
    let properties = attributes(attribute(rest, IFLA_PROP_LIST).unwrap_or_default());
    properties.filter(|(kind, _)| *kind == IFLA_ALT_IFNAME).map(|(_, name)| text_of(name)).collect()
}

fn vlan_protocol(info: &[u8]) -> Option<u16> {
    let value = attribute(attribute(info, IFLA_INFO_DATA)?, IFLA_VLAN_PROTOCOL)?;
    Some(u16::from_be_bytes(value.try_into().ok()?))
}

fn attached(xdp: &[u8]) -> Option<Attached> {
    let mode = match attribute(xdp, IFLA_XDP_ATTACHED)?.first()? {
        0 => return None,
        1 => AttachedMode::Native,
        2 => AttachedMode::Generic,
        3 => AttachedMode::Offloaded,
        _ => AttachedMode::Several,
    };
    Some(Attached { mode, id: attribute(xdp, IFLA_XDP_PROG_ID).and_then(u32_of), holder: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: u16, text: &str) -> DefaultNla {
        DefaultNla::new(number, [text.as_bytes(), &[0]].concat())
    }

    fn word(number: u16, value: u32) -> DefaultNla {
        DefaultNla::new(number, value.to_ne_bytes().to_vec())
    }

    /// A VLAN interface with a program. A kernel without the 8021q module cannot show one.
    fn answer() -> Vec<u8> {
        let mut answer = vec![0; IFINFOMSG];
        answer[2..4].copy_from_slice(&1u16.to_ne_bytes());
        answer[4..8].copy_from_slice(&7u32.to_ne_bytes());
        answer[8..12].copy_from_slice(&IFF_UP.to_ne_bytes());
        let data = emitted(&[DefaultNla::new(IFLA_VLAN_PROTOCOL, vec![0x88, 0xa8])]);
        let info = [text(IFLA_INFO_KIND, "vlan"), DefaultNla::new(IFLA_INFO_DATA, data)];
        let xdp = [DefaultNla::new(IFLA_XDP_ATTACHED, vec![2]), word(IFLA_XDP_PROG_ID, 12)];
        answer.extend(emitted(&[
            text(IFLA_IFNAME, "eth0.5"),
            word(IFLA_LINK, 2),
            // An unknown attribute.
            word(4000, 1),
            DefaultNla::new(IFLA_LINKINFO, emitted(&info)),
            DefaultNla::new(IFLA_XDP, emitted(&xdp)),
            DefaultNla::new(IFLA_PROP_LIST, emitted(&[text(IFLA_ALT_IFNAME, "office")])),
            text(IFLA_PARENT_DEV_NAME, "0000:01:00.0"),
            text(IFLA_PARENT_DEV_BUS_NAME, "pci"),
        ]));
        answer
    }

    #[test]
    fn link_is_read() {
        let link = link(&answer()).unwrap();
        assert_eq!((link.index, link.name.as_str(), link.up), (7, "eth0.5", true));
        assert_eq!((link.lower, link.lower_is_elsewhere), (Some(2), false));
        assert_eq!((link.kind.as_deref(), link.vlan_protocol), (Some("vlan"), Some(0x88a8)));
        let attached = Attached { mode: AttachedMode::Generic, id: Some(12), holder: None };
        assert_eq!(link.attached, Some(attached));
        assert_eq!(link.alternative_names, ["office"]);
        assert_eq!(link.parent, Some(("pci".to_owned(), "0000:01:00.0".to_owned())));
    }

    #[test]
    fn what_is_cut_off_is_read_as_far_as_it_goes() {
        let answer = answer();
        for length in 0..answer.len() {
            // A link without a name is invalid.
            assert_eq!(
                link(&answer[..length]).is_some(),
                length >= IFINFOMSG + 4 + 7,
                "{length} bytes"
            );
        }
    }
}
