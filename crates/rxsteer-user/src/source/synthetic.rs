//! Synthetic traffic. It is seeded: the same specification gives the same frames.
//!
//! ```text
//!  flows=1000,packets=1000000,share=zipf:1.1,size=64,protocol=tcp,ip=4,seed=1
//!  flows=100,flood=spoofed:0.9        nine of ten packets are new flows, each once
//!  flows=100,flood=same-hash:0.5      half the packets are 100000 flows of one hash
//! ```

use super::{Fill, Source};
use crate::block::{Block, FrameInfo, MAX_TIME_NS};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};
use rxsteer_packet::LinkType;
use std::fmt;

mod spec;

use spec::MAX_SIZE;
pub use spec::{Flood, IpVersions, Protocol, Share, Size, SpecError, SyntheticSpec};

/// Flows that share one hash in a same-hash flood.
const SAME_HASH_FLOWS: u32 = 100_000;
/// The hash they share, as a NIC would report it. It stands for the collisions that an attacker who knew the key could
/// produce; the keyed hash prevents finding such flows for a secret key.
const SAME_HASH: u32 = 0x5eed_5eed;

/// The source of one RX thread. It generates the whole load, and keeps the frames of its own queues.
pub struct SyntheticSource {
    spec: SyntheticSpec,
    rng: ChaCha8Rng,
    zipf: Option<Zipf<f64>>,
    made: u64,
    frame: Vec<u8>,
    rx_queues: u16,
    /// The number of this RX thread, and the number of RX threads.
    share: (u16, u16),
}

impl fmt::Debug for SyntheticSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyntheticSource").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// A flow of the traffic.
#[derive(Clone, Copy)]
struct Flow {
    /// Distinguishes addresses and ports.
    id: u64,
    nic_hash: Option<u32>,
}

impl SyntheticSource {
    /// Creates the load of `spec`, spread flow by flow over `rx_queues` RX queues. RX thread `share.0` of `share.1`
    /// receives every queue `q` with `q % share.1 == share.0`.
    ///
    /// If the times of a load exceed the valid range ([`SyntheticSpec::has_times`]), its last frames all have the same
    /// time.
    ///
    /// # Panics
    /// If there is no RX queue, or `share` is not valid.
    #[must_use]
    pub fn new(spec: SyntheticSpec, rx_queues: u16, share: (u16, u16)) -> SyntheticSource {
        assert!(rx_queues > 0 && share.0 < share.1, "at least one queue; a share below its whole");
        let zipf = match spec.share {
            Share::Equal => None,
            // Exponent and count were checked when the specification was parsed; an impossible exponent means equal
            // shares.
            Share::Zipf(exponent) => Zipf::new(f64::from(spec.flows), exponent).ok(),
        };
        SyntheticSource {
            rng: ChaCha8Rng::seed_from_u64(spec.seed),
            zipf,
            made: 0,
            frame: vec![0; usize::from(MAX_SIZE)],
            rx_queues,
            share,
            spec,
        }
    }

    fn next_flow(&mut self) -> Flow {
        let (Flood::Spoofed(share) | Flood::SameHash(share)) = self.spec.flood else {
            return self.established();
        };
        if !self.rng.random_bool(share) {
            return self.established();
        }
        match self.spec.flood {
            Flood::SameHash(_) => {
                let flow = self.rng.random_range(0..SAME_HASH_FLOWS);
                Flow { id: (1 << 40) + u64::from(flow), nic_hash: Some(SAME_HASH) }
            }
            _ => Flow { id: (1 << 41) + self.made, nic_hash: None },
        }
    }

    fn established(&mut self) -> Flow {
        let id = match &self.zipf {
            Some(zipf) => zipf.sample(&mut self.rng) as u64 - 1,
            None => u64::from(self.rng.random_range(0..self.spec.flows)),
        };
        Flow { id, nic_hash: None }
    }

    fn size(&mut self) -> usize {
        usize::from(match self.spec.size {
            Size::Range(from, to) if from == to => from,
            Size::Range(from, to) => self.rng.random_range(from..=to),
            Size::Imix => match self.rng.random_range(0..12) {
                0..7 => 60,
                7..11 => 590,
                _ => 1514,
            },
        })
    }
}

impl Source for SyntheticSource {
    fn fill(&mut self, block: &mut Block) -> Fill {
        while self.made < self.spec.packets {
            if block.is_full() {
                return Fill::More;
            }
            let flow = self.next_flow();
            let size = self.size();
            let time_ns = (self.made as f64 * 1e9 / self.spec.rate) as u64;
            let timestamp_ns = time_ns.min(MAX_TIME_NS);
            self.made += 1;
            let rx_queue = (mix(flow.id ^ self.spec.seed) % u64::from(self.rx_queues)) as u16;
            if rx_queue % self.share.1 != self.share.0 {
                continue;
            }
            let size = write_frame(&mut self.frame, &self.spec, flow.id, size);
            let info = FrameInfo {
                nic_hash: flow.nic_hash,
                ..FrameInfo::new(LinkType::Ethernet, timestamp_ns, size as u32)
                    .on_rx_queue(rx_queue)
            };
            let taken = block.push(&self.frame[..size], info);
            debug_assert!(taken, "the loop ends with a full block");
        }
        Fill::End
    }

    fn start_time_ns(&self) -> Option<u64> {
        Some(0)
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some((self.made, self.spec.packets))
    }
}

/// Spreads a counter over 64 bits (the finaliser of splitmix64).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Writes a frame of the flow `id`. Returns its length, which an IPv6 TCP header can increase. Transport checksums are 0:
/// the steering does not read them.
fn write_frame(frame: &mut [u8], spec: &SyntheticSpec, id: u64, size: usize) -> usize {
    let bits = mix(id ^ spec.seed.rotate_left(32));
    let v6 = match spec.ip {
        IpVersions::V4 => false,
        IpVersions::V6 => true,
        IpVersions::Mixed => bits & 1 == 1,
    };
    let tcp = match spec.protocol {
        Protocol::Tcp => true,
        Protocol::Udp => false,
        Protocol::Mixed => bits & 2 == 2,
    };
    let transport = if tcp { 20 } else { 8 };
    let ip = if v6 { 40 } else { 20 };
    let size = size.max(14 + ip + transport);
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&if v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    let header = &mut frame[14..];
    let protocol = if tcp { 6 } else { 17 };
    if v6 {
        write_ipv6(header, size - 14 - ip, protocol, id, bits);
    } else {
        write_ipv4(header, size - 14, protocol, id, bits);
    }
    let transport = &mut header[ip..];
    let port = 1024 + (bits >> 16) as u16 % 60_000;
    transport[..2].copy_from_slice(&port.to_be_bytes());
    transport[2..4].copy_from_slice(&443u16.to_be_bytes());
    if tcp {
        transport[4..20].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    } else {
        transport[4..6].copy_from_slice(&((size - 14 - ip) as u16).to_be_bytes());
        transport[6..8].copy_from_slice(&[0, 0]);
    }
    size
}

/// 10.0.0.0/8 and 198.18.0.0/15 to 203.0.113.0/24: the flow's number is in the source address
/// (and, beyond 24 bits, in the second byte pair of the destination), so flows are distinct.
fn write_ipv4(header: &mut [u8], length: usize, protocol: u8, id: u64, bits: u64) {
    header[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    let id_bytes = id.to_be_bytes();
    header[12..16].copy_from_slice(&[10, id_bytes[5], id_bytes[6], id_bytes[7]]);
    let (high, low) = (id_bytes[2] ^ id_bytes[3], id_bytes[4]);
    header[16..20].copy_from_slice(&[203, high, low, (bits >> 8) as u8]);
    let mut sum = 0u32;
    for pair in header[..20].chunks_exact(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
    }
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// 2001:db8::/32 (documentation); the flow's number is in the source address.
fn write_ipv6(header: &mut [u8], payload: usize, protocol: u8, id: u64, bits: u64) {
    header[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, protocol, 64]);
    header[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
    header[8..40].fill(0);
    header[8..12].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    header[16..24].copy_from_slice(&id.to_be_bytes());
    header[24..28].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    header[39] = (bits >> 8) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_packet::{DissectOptions, dissect};
    use std::collections::HashSet;

    fn frames_of(source: &mut SyntheticSource) -> Vec<(Vec<u8>, FrameInfo)> {
        let mut frames = Vec::new();
        loop {
            let mut block = Block::new();
            let fill = source.fill(&mut block);
            let frame = |frame| (block.bytes_of(frame).to_vec(), frame.info());
            frames.extend(block.frames().iter().map(frame));
            if fill == Fill::End {
                return frames;
            }
        }
    }

    fn frames(spec: &str) -> Vec<(Vec<u8>, FrameInfo)> {
        frames_of(&mut SyntheticSource::new(spec.parse().unwrap(), 1, (0, 1)))
    }

    fn distinct_flows(frames: &[(Vec<u8>, FrameInfo)]) -> usize {
        let flow = |frame: &[u8]| {
            dissect(LinkType::Ethernet, frame, DissectOptions::default()).outer_flow().unwrap()
        };
        frames.iter().map(|(bytes, _)| flow(bytes)).collect::<HashSet<_>>().len()
    }

    #[test]
    fn every_kind_of_frame_is_dissected_as_what_it_is() {
        for ip in ["4", "6", "mixed"] {
            for protocol in ["tcp", "udp", "mixed"] {
                for size in ["60", "60-1514", "imix", "9018"] {
                    let spec =
                        format!("ip={ip},protocol={protocol},size={size},packets=2000,flows=50");
                    assert_eq!(distinct_flows(&frames(&spec)), 50, "{spec}");
                }
            }
        }
    }

    #[test]
    fn same_seed_gives_the_same_frames() {
        let spec = "share=zipf:1.2,size=imix,flood=spoofed:0.1,packets=5000,seed=7";
        assert_eq!(frames(spec), frames(spec));
        assert_ne!(frames(spec), frames(&spec.replace("seed=7", "seed=8")));
    }

    #[test]
    fn zipf_load_has_elephants() {
        let count = |spec| {
            let mut counts = std::collections::HashMap::<Vec<u8>, u32>::new();
            for (bytes, _) in frames(spec) {
                *counts.entry(bytes[26..38].to_vec()).or_default() += 1;
            }
            *counts.values().max().unwrap()
        };
        assert!(count("share=zipf:1.5,packets=10000,flows=1000") > 3000);
        assert!(count("share=equal,packets=10000,flows=1000") < 100);
    }

    #[test]
    fn floods_are_what_they_say() {
        let spoofed = frames("flood=spoofed:0.5,packets=10000,flows=10");
        assert!(distinct_flows(&spoofed) > 4500);
        let same = frames("flood=same-hash:0.5,packets=10000,flows=10");
        let attack: Vec<_> = same.iter().filter(|(_, info)| info.nic_hash.is_some()).collect();
        assert!(attack.len() > 4500 && attack.iter().all(|(_, i)| i.nic_hash == Some(SAME_HASH)));
        assert!(distinct_flows(&same) > 4000, "one hash, many flows");
    }

    #[test]
    fn rx_threads_share_a_load_by_queue() {
        let spec: SyntheticSpec = "packets=3000,flows=100".parse().unwrap();
        let mut together = 0;
        for thread in 0..3 {
            let part = frames_of(&mut SyntheticSource::new(spec.clone(), 8, (thread, 3)));
            assert!(part.iter().all(|(_, info)| info.rx_queue % 3 == thread));
            together += part.len();
        }
        assert_eq!(together, 3000);
    }
}
