//! A reader of captures and headers for these tests: slow, short, and without code of rxsteer.

use super::reading::{Counted, Key};
use pcap_parser::traits::PcapNGPacketBlock;
use pcap_parser::{Block, Capture, Linktype, PcapCapture, PcapNGCapture};
use std::collections::HashMap;
use std::net::IpAddr;

/// Packets, bytes and TCP flags of each flow, without times. `None` for files with link types, or with headers between
/// link and IP, that this does not read.
pub(crate) fn flows(file: &[u8]) -> Option<HashMap<Key, Counted>> {
    let mut flows: HashMap<Key, Counted> = HashMap::new();
    let mut unreadable = false;
    let mut count = |frame: &[u8], wire_len: u32| {
        unreadable |= ethertype(frame).is_some_and(|(of, _)| UNREAD.contains(&of));
        if let Some((key, tcp_flags)) = flow(frame) {
            let bytes = u64::from(wire_len);
            let counted = Counted { packets: 1, bytes, tcp_flags, ..Counted::default() };
            flows.entry(key).or_default().add(counted);
        }
    };
    if let Ok(capture) = PcapCapture::from_file(file) {
        if capture.get_datalink() != Linktype::ETHERNET || capture.header.is_modified_format() {
            return None;
        }
        for block in &capture.blocks {
            count(block.data.get(..block.caplen as usize)?, block.origlen);
        }
    } else {
        let capture = PcapNGCapture::from_file(file).ok()?;
        for section in &capture.sections {
            let links: Vec<Linktype> = section.iter_interfaces().map(|i| i.linktype).collect();
            for block in &section.blocks {
                match block {
                    Block::EnhancedPacket(packet) => {
                        if *links.get(packet.if_id as usize)? != Linktype::ETHERNET {
                            return None;
                        }
                        count(packet.packet_data(), packet.origlen);
                    }
                    Block::SimplePacket(_) => return None,
                    _ => {}
                }
            }
        }
    }
    (!unreadable).then_some(flows)
}

/// The ethertypes of MPLS, PPPoE and VN-Tag.
const UNREAD: [u16; 4] = [0x8847, 0x8848, 0x8864, 0x8926];

/// The ethertype of a frame after its VLAN tags, and the bytes that follow it.
fn ethertype(frame: &[u8]) -> Option<(u16, &[u8])> {
    let mut at = 12;
    while [0x8100, 0x88a8, 0x9100].contains(&u16_at(frame, at)?) {
        at += 4;
    }
    Some((u16_at(frame, at)?, &frame[at + 2..]))
}

/// The flow of an Ethernet frame, and its TCP flags.
fn flow(frame: &[u8]) -> Option<(Key, u8)> {
    match ethertype(frame)? {
        (0x0800, packet) => ipv4(packet),
        (0x86dd, packet) => ipv6(packet),
        _ => None,
    }
}

fn ipv4(packet: &[u8]) -> Option<(Key, u8)> {
    let header = packet.get(..20)?;
    let header_len = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16_at(header, 2)?);
    if header[0] >> 4 != 4 || header_len < 20 || (total != 0 && total < header_len) {
        return None;
    }
    let ends = [12, 16].map(|at| <[u8; 4]>::try_from(&header[at..at + 4]).expect("4 bytes"));
    let later = u16_at(header, 6)? & 0x1fff != 0;
    let total = if total == 0 { packet.len() } else { total.min(packet.len()) };
    let mut payload = packet.get(header_len..total).unwrap_or_default();
    let mut protocol = header[9];
    // The content after an authentication header can be read.
    while protocol == 51 && !later && payload.len() >= 12 {
        protocol = payload[0];
        payload = payload.get((usize::from(payload[1]) + 2) * 4..).unwrap_or_default();
    }
    let (ports, flags) = if later { ([0, 0], 0) } else { transport(protocol, payload) };
    Some(((ends[0].into(), ends[1].into(), protocol, ports[0], ports[1]), flags))
}

fn ipv6(packet: &[u8]) -> Option<(Key, u8)> {
    let header = packet.get(..40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let ends = [8, 24].map(|at| <[u8; 16]>::try_from(&header[at..at + 16]).expect("16 bytes"));
    let length = usize::from(u16_at(header, 4)?);
    let end = if length == 0 { packet.len() } else { packet.len().min(40 + length) };
    let packet = &packet[..end];
    let key = |protocol, ports: [u16; 2]| -> Key {
        (IpAddr::from(ends[0]), IpAddr::from(ends[1]), protocol, ports[0], ports[1])
    };
    let (mut next, mut at) = (header[6], 40);
    // Hop-by-hop, routing, fragment, authentication, destination, mobility, HIP, shim6.
    while [0, 43, 44, 51, 60, 135, 139, 140].contains(&next) {
        let Some(extension) = packet.get(at..at + 8) else { break };
        if next == 44 && u16_at(extension, 2)? & 0xfff8 != 0 {
            return Some((key(extension[0], [0, 0]), 0));
        }
        at += match next {
            44 => 8,
            51 => (usize::from(extension[1]) + 2) * 4,
            _ => (usize::from(extension[1]) + 1) * 8,
        };
        next = extension[0];
    }
    let (ports, flags) = transport(next, packet.get(at..).unwrap_or_default());
    Some((key(next, ports), flags))
}

/// The ports, if they are present, and the flags of a complete TCP header.
fn transport(protocol: u8, payload: &[u8]) -> ([u16; 2], u8) {
    let ports = match (protocol, u16_at(payload, 0), u16_at(payload, 2)) {
        (6 | 17 | 33 | 132, Some(src), Some(dst)) => [src, dst],
        _ => [0, 0],
    };
    (ports, if protocol == 6 && payload.len() >= 20 { payload[13] } else { 0 })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}
