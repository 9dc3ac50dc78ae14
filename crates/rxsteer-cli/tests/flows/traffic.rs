//! Generated traffic, whose sums per flow are known.

use super::reading::{Counted, Key};
use etherparse::PacketBuilder;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A capture, and its expected contents.
#[derive(Default)]
pub(crate) struct Traffic {
    pcap: Vec<u8>,
    pub(crate) flows: HashMap<Key, Counted>,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) not_ip: u64,
    time_us: u64,
}

impl Traffic {
    pub(crate) fn new() -> Traffic {
        let mut traffic = Traffic::default();
        for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1] {
            traffic.pcap.extend_from_slice(&u32::to_le_bytes(word));
        }
        traffic.time_us = 1_700_000_000_000_000;
        traffic
    }

    /// Traffic of many kinds: TCP in both directions, UDP, protocols without ports, fragments, VLAN, ARP, and truncated
    /// frames. It is the same each time.
    pub(crate) fn mixed(packets: u64, flows: u64) -> Traffic {
        let mut traffic = Traffic::new();
        let mut state = 1u64;
        for _ in 0..packets {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let rng = state >> 33;
            traffic.time_us += rng % 50;
            let (flow, size) = (rng % flows, 1 + (rng % 997) as usize);
            let [a, b] = [[10, 0, (flow / 256) as u8, flow as u8], [192, 0, 2, 7]];
            let port = 1024 + (flow % 60_000) as u16;
            let v6 = |end: [u8; 4]| {
                let mut address = [0; 16];
                address[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
                address[12..].copy_from_slice(&end);
                address
            };
            let ethernet = PacketBuilder::ethernet2([2; 6], [4; 6]);
            match rng % 16 {
                0..5 => {
                    let up = rng & 16 == 0;
                    let (src, dst, sport, dport) =
                        if up { (a, b, port, 443) } else { (b, a, 443, port) };
                    let mut builder = ethernet.ipv4(src, dst, 64).tcp(sport, dport, 0, 1000);
                    let mut flags = 0;
                    if rng & 32 != 0 {
                        (builder, flags) = (builder.ack(0), 0x10);
                    }
                    if rng & 64 != 0 {
                        (builder, flags) = (builder.psh(), flags | 8);
                    }
                    let mut frame = Vec::new();
                    builder.write(&mut frame, &vec![0; size]).expect("a frame");
                    traffic.ip((src.into(), dst.into(), 6, sport, dport), flags, &frame, 0);
                }
                5..9 => {
                    let mut frame = Vec::new();
                    let builder = ethernet.ipv6(v6(a), v6(b), 64).udp(port, 53);
                    builder.write(&mut frame, &vec![0; size]).expect("a frame");
                    // The frame has fewer bytes in the capture than on the wire, as with a snapshot length.
                    traffic.ip(
                        (v6(a).into(), v6(b).into(), 17, port, 53),
                        0,
                        &frame,
                        size.min(100),
                    );
                }
                9..11 => {
                    let mut frame = Vec::new();
                    let builder = ethernet.single_vlan((flow as u16 % 100).try_into().expect("ID"));
                    let builder = builder.ipv4(a, b, 64).udp(port, 4000);
                    builder.write(&mut frame, &vec![0; size]).expect("a frame");
                    traffic.ip((a.into(), b.into(), 17, port, 4000), 0, &frame, 0);
                }
                11 | 12 => {
                    let mut frame = Vec::new();
                    let builder = ethernet.ipv4(a, b, 64).icmpv4_echo_request(flow as u16, 1);
                    builder.write(&mut frame, &vec![0; size]).expect("a frame");
                    traffic.ip((a.into(), b.into(), 1, 0, 0), 0, &frame, 0);
                }
                13 | 14 => {
                    let first = rng & 16 == 0;
                    let mut frame = Vec::new();
                    let builder = ethernet.ipv4(a, b, 64).udp(port, 5000);
                    builder.write(&mut frame, &vec![0; size]).expect("a frame");
                    // The first fragment has the flag for more fragments; the other one has an offset.
                    let field = if first { [0x20, 0] } else { [0, 0x10] };
                    frame[20..22].copy_from_slice(&field);
                    let (sport, dport) = if first { (port, 5000) } else { (0, 0) };
                    traffic.ip((a.into(), b.into(), 17, sport, dport), 0, &frame, 0);
                }
                _ => {
                    let mut arp = vec![0; 60];
                    arp[12..14].copy_from_slice(&[8, 6]);
                    traffic.not_ip += 1;
                    traffic.frame(&arp, 0);
                }
            }
        }
        traffic
    }

    /// Adds a frame of a flow; the last `cut` bytes of the frame are missing in the capture.
    fn ip(&mut self, key: Key, tcp_flags: u8, frame: &[u8], cut: usize) {
        let time_ns = self.time_us * 1000;
        let bytes = frame.len() as u64;
        let counted = Counted { packets: 1, bytes, tcp_flags, first_ns: time_ns, last_ns: time_ns };
        self.flows.entry(key).or_default().add(counted);
        self.frame(frame, cut);
    }

    fn frame(&mut self, frame: &[u8], cut: usize) {
        let kept = frame.len() - cut;
        let (seconds, micros) = (self.time_us / 1_000_000, self.time_us % 1_000_000);
        for word in [seconds as u32, micros as u32, kept as u32, frame.len() as u32] {
            self.pcap.extend_from_slice(&word.to_le_bytes());
        }
        self.pcap.extend_from_slice(&frame[..kept]);
        self.packets += 1;
        self.bytes += frame.len() as u64;
    }

    /// Adds one UDP packet from a port to a port, at this time after the packet before.
    pub(crate) fn udp(&mut self, src_port: u16, later_us: u64) {
        self.time_us += later_us;
        let (src, dst) = ([10, 1, 2, 3], [192, 0, 2, 200]);
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(src, dst, 64).udp(src_port, 9);
        builder.write(&mut frame, &[0; 30]).expect("a frame");
        let ends: [IpAddr; 2] = [src.into(), dst.into()];
        self.ip((ends[0], ends[1], 17, src_port, 9), 0, &frame, 0);
    }

    pub(crate) fn write(&self, dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, &self.pcap).expect("a file can be written");
        path
    }
}
