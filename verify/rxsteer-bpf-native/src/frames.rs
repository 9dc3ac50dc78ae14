//! Random frames of every kind that the parser supports, valid and damaged.

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The deepest nesting of packets: one more than the parser enters.
const MAX_DEPTH: usize = 5;

/// An endless series of random Ethernet frames; the same seed gives the same series.
///
/// About half of the frames are valid. Of the others, some are truncated, some have changed bytes, and some have
/// padding. Addresses and ports often agree in their first bytes or completely, so that every part of them is decisive
/// for which endpoint is the lower one.
#[derive(Debug)]
pub struct Frames {
    rng: ChaCha8Rng,
    tunnels: bool,
}

impl Frames {
    /// The series for a seed; with `tunnels`, half of all packets contain another packet.
    #[must_use]
    pub fn new(seed: u64, tunnels: bool) -> Frames {
        Frames { rng: ChaCha8Rng::seed_from_u64(seed), tunnels }
    }

    /// The next frame.
    pub fn next_frame(&mut self) -> Vec<u8> {
        let mut frame = self.ethernet(0);
        match self.rng.random_range(0..10) {
            0 | 1 => frame.truncate(self.rng.random_range(0..=frame.len())),
            2 | 3 => {
                for _ in 0..self.rng.random_range(1..5) {
                    let at = self.rng.random_range(0..frame.len());
                    frame[at] = self.rng.random();
                }
            }
            4 => {
                let padding = self.rng.random_range(1..40);
                frame.resize(frame.len() + padding, 0xee);
            }
            _ => {}
        }
        frame
    }

    fn ethernet(&mut self, depth: usize) -> Vec<u8> {
        let (kind, payload) = self.network(depth);
        let addresses: [u8; 12] = self.rng.random();
        [&addresses[..], &kind.to_be_bytes(), &payload].concat()
    }

    /// An ethertype and the packet that it announces.
    fn network(&mut self, depth: usize) -> (u16, Vec<u8>) {
        match self.rng.random_range(0..20) {
            0..9 => (0x0800, self.ipv4(depth)),
            9..14 => (0x86dd, self.ipv6(depth)),
            14..16 => {
                let (kind, payload) = self.network(depth);
                let tag = *[0x8100, 0x88a8, 0x9100].choose(&mut self.rng).unwrap_or(&0x8100);
                let id: [u8; 2] = self.rng.random();
                (tag, [&id[..], &kind.to_be_bytes(), &payload].concat())
            }
            16 => {
                let (kind, payload) = self.network(depth);
                let id: [u8; 4] = self.rng.random();
                (0x8926, [&id[..], &kind.to_be_bytes(), &payload].concat())
            }
            17 => {
                let kind = if self.one_in(2) { 0x8847 } else { 0x8848 };
                (kind, self.labels(depth))
            }
            18 => {
                let payload = self.ppp(depth);
                (0x8864, [&[0x11, 0, 0, 7, 0, 0], &payload[..]].concat())
            }
            _ => (self.rng.random(), self.bytes(60)),
        }
    }

    fn labels(&mut self, depth: usize) -> Vec<u8> {
        let labels = if self.one_in(3) { self.rng.random_range(1..19) } else { 1 };
        let mut stack: Vec<u8> =
            (1..=labels).flat_map(|i| [0, 1, u8::from(i == labels), 64]).collect();
        stack.extend(self.ip(depth));
        stack
    }

    fn ppp(&mut self, depth: usize) -> Vec<u8> {
        let protocol = if self.one_in(2) { 0x21 } else { 0x57 };
        let mut out = Vec::new();
        if self.one_in(3) {
            out.extend([0xff, 0x03]);
        }
        if !self.one_in(3) {
            out.push(0);
        }
        out.push(protocol);
        out.extend(if protocol == 0x21 { self.ipv4(depth) } else { self.ipv6(depth) });
        out
    }

    fn ip(&mut self, depth: usize) -> Vec<u8> {
        if self.one_in(2) { self.ipv4(depth) } else { self.ipv6(depth) }
    }

    fn ipv4(&mut self, depth: usize) -> Vec<u8> {
        let (protocol, payload) = self.transport(depth, 4);
        let options = if self.one_in(6) { self.rng.random_range(0..11) } else { 0 };
        let fragment = self.fragment();
        let (src, dst) = self.addresses::<4>();
        let mut header = vec![0x45 + options, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0];
        header[6..8].copy_from_slice(&fragment.to_be_bytes());
        header.extend(src);
        header.extend(dst);
        header.resize(20 + usize::from(options) * 4, 1);
        let length = self.length(header.len() + payload.len());
        header[2..4].copy_from_slice(&length.to_be_bytes());
        header.extend(payload);
        header
    }

    fn ipv6(&mut self, depth: usize) -> Vec<u8> {
        let (mut next, mut payload) = self.transport(depth, 6);
        let extensions = match self.rng.random_range(0..8) {
            0..5 => 0,
            5 | 6 => self.rng.random_range(1..4),
            _ => self.rng.random_range(4..12),
        };
        for _ in 0..extensions {
            (next, payload) = self.extension(next, &payload);
        }
        let (src, dst) = self.addresses::<16>();
        let length = self.length(payload.len()).to_be_bytes();
        let start = [0x60, 0, 0, 0, length[0], length[1], next, 64];
        [&start[..], &src, &dst, &payload].concat()
    }

    /// An extension header in front of `payload`, and the header's own protocol number.
    fn extension(&mut self, next: u8, payload: &[u8]) -> (u8, Vec<u8>) {
        let number = *[0, 43, 60, 135, 139, 140, 44, 51].choose(&mut self.rng).unwrap_or(&0);
        let units: u8 = self.rng.random_range(0..3);
        let mut header = vec![next, units];
        match number {
            44 => {
                let raw = self.fragment();
                let raw = raw << 3 | u16::from(raw & 0x2000 != 0);
                header.extend(raw.to_be_bytes());
                header.extend([0, 0, 0, 9]);
            }
            51 => header.resize(8 + usize::from(units) * 4, 3),
            _ => header.resize(8 + usize::from(units) * 8, 2),
        }
        header.extend(payload);
        (number, header)
    }

    /// A protocol and its packet.
    fn transport(&mut self, depth: usize, ip_version: u8) -> (u8, Vec<u8>) {
        if depth < MAX_DEPTH && self.tunnels && self.one_in(2) {
            return self.tunnel(depth + 1);
        }
        let ports: u32 = match self.rng.random_range(0..3) {
            0 => self.rng.random_range(0..4) * 0x0001_0001,
            _ => self.rng.random(),
        };
        let mut payload = ports.to_be_bytes().to_vec();
        let rest = if self.one_in(4) { self.bytes(30) } else { self.bytes_of(40) };
        payload.extend(rest);
        if ip_version == 4 && self.one_in(20) {
            let header = [6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
            return (51, [&header[..], &payload].concat());
        }
        let protocol = match self.rng.random_range(0..10) {
            0..4 => 6,
            4..7 => 17,
            7 => *[132, 33].choose(&mut self.rng).unwrap_or(&33),
            8 => *[1, 58, 50, 59].choose(&mut self.rng).unwrap_or(&1),
            _ => self.rng.random(),
        };
        (protocol, payload)
    }

    fn tunnel(&mut self, depth: usize) -> (u8, Vec<u8>) {
        match self.rng.random_range(0..8) {
            7 => self.numbered(),
            0 => (4, self.ipv4(depth)),
            1 => (41, self.ipv6(depth)),
            2 => (47, self.gre(depth)),
            3 => (47, self.pptp(depth)),
            4 => {
                let flags = if self.one_in(10) { 0 } else { 8 };
                let frame = self.ethernet(depth);
                let port = if self.one_in(2) { 4789 } else { 8472 };
                self.udp(port, &[&[flags, 0, 0, 0, 0, 0, 7, 0], &frame[..]].concat())
            }
            5 => {
                let (kind, payload) = self.inner(depth);
                let options: u8 = if self.one_in(3) { self.rng.random_range(0..64) } else { 0 };
                let [high, low] = kind.to_be_bytes();
                let start = [options, u8::from(self.one_in(12)) << 7, high, low, 0, 0, 7, 0];
                let options = vec![0x5a; usize::from(options) * 4];
                self.udp(6081, &[&start[..], &options, &payload].concat())
            }
            _ => {
                let packet = self.gtp(depth);
                self.udp(2152, &packet)
            }
        }
    }

    fn udp(&mut self, port: u16, payload: &[u8]) -> (u8, Vec<u8>) {
        let start: [u8; 2] = self.rng.random();
        (17, [&start[..], &port.to_be_bytes(), &[0; 4], payload].concat())
    }

    /// A packet of a tunnel that the parser does not enter, mostly with a number; sometimes cut short.
    fn numbered(&mut self) -> (u8, Vec<u8>) {
        let number: [u8; 4] = if self.one_in(8) { [0; 4] } else { self.rng.random() };
        let (port, start) = match self.rng.random_range(0..5) {
            0 => (0, number.to_vec()),
            1 => (4500, number.to_vec()),
            2 => {
                let flags = [
                    self.rng.random::<u8>() & 0x80,
                    *[2, 3, 3].choose(&mut self.rng).unwrap_or(&3),
                ];
                (1701, [&flags[..], &[0, 0], &number].concat())
            }
            _ => {
                let kind = self.rng.random_range(1..7).min(4);
                let reserved = u8::from(self.one_in(12));
                (51820, [&[kind, reserved, 0, 0][..], &number].concat())
            }
        };
        let mut payload = [start, self.bytes(40)].concat();
        if self.one_in(10) {
            payload.truncate(self.rng.random_range(0..9));
        }
        if port == 0 {
            return (if self.one_in(2) { 50 } else { 115 }, payload);
        }
        let (protocol, mut packet) = self.udp(port, &payload);
        if self.one_in(2) {
            // From the port instead.
            let (src, dst) = packet.split_at_mut(2);
            src.swap_with_slice(&mut dst[..2]);
        }
        (protocol, packet)
    }

    fn inner(&mut self, depth: usize) -> (u16, Vec<u8>) {
        if self.one_in(3) { (0x6558, self.ethernet(depth)) } else { self.network(depth) }
    }

    fn gre(&mut self, depth: usize) -> Vec<u8> {
        let flags = self.rng.random::<u16>() & 0xb080 | u16::from(self.one_in(16)) << 14;
        let fields = (flags & 0xb000).count_ones() as usize * 4;
        let (kind, payload) = self.inner(depth);
        [&flags.to_be_bytes()[..], &kind.to_be_bytes(), &vec![1; fields], &payload].concat()
    }

    fn pptp(&mut self, depth: usize) -> Vec<u8> {
        let flags = 0x2001 | self.rng.random::<u16>() & 0x0080 | u16::from(!self.one_in(8)) << 12;
        let fields = 8 + usize::from(flags & 0x80 != 0) * 4;
        let payload = self.ppp(depth);
        [&flags.to_be_bytes()[..], &[0x88, 0x0b], &vec![1; fields], &payload].concat()
    }

    fn gtp(&mut self, depth: usize) -> Vec<u8> {
        let flags = 0x30 | self.rng.random_range(0..8_u8);
        let message =
            if self.one_in(6) { *[1, 26, 254].choose(&mut self.rng).unwrap_or(&1) } else { 255 };
        let mut packet = vec![flags, message, 0, 0, 0, 0, 0, u8::from(!self.one_in(12))];
        if flags & 7 != 0 {
            let extensions = if self.one_in(2) { self.rng.random_range(0..6) } else { 0 };
            packet.extend([0, 1, 0, u8::from(extensions > 0) * 0x85]);
            for left in (0..extensions).rev() {
                let units = self.rng.random_range(1..4_u8) - u8::from(self.one_in(30));
                let mut extension = vec![0; usize::from(units.max(1)) * 4];
                extension[0] = units;
                *extension.last_mut().unwrap_or(&mut 0) = u8::from(left > 0) * 0x85;
                packet.extend(extension);
            }
        }
        packet.extend(self.ip(depth));
        packet
    }

    /// The fragment field of an IPv4 header; mostly no fragment, with or without the don't-fragment bit.
    fn fragment(&mut self) -> u16 {
        match self.rng.random_range(0..20) {
            0 => 0x2000,
            1 => self.rng.random_range(1..0x4000),
            2..10 => 0x4000,
            _ => 0,
        }
    }

    /// A length field; mostly the right one.
    fn length(&mut self, right: usize) -> u16 {
        let right = u16::try_from(right).unwrap_or(0);
        match self.rng.random_range(0..20) {
            0 => 0,
            1 => right.saturating_sub(self.rng.random_range(1..60)),
            2 => right.saturating_add(self.rng.random_range(1..60)),
            3 => self.rng.random_range(0..60),
            _ => right,
        }
    }

    fn addresses<const N: usize>(&mut self) -> ([u8; N], [u8; N]) {
        let src: [u8; N] = self.rng.random();
        let mut dst: [u8; N] = self.rng.random();
        if self.one_in(2) {
            let same = self.rng.random_range(0..=N);
            dst[..same].copy_from_slice(&src[..same]);
        }
        (src, dst)
    }

    fn bytes(&mut self, below: usize) -> Vec<u8> {
        let length = self.rng.random_range(0..below);
        self.bytes_of(length)
    }

    fn bytes_of(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.rng.fill(&mut bytes[..]);
        bytes
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.rng.random_ratio(1, times)
    }
}
