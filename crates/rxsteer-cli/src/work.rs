//! The handler of a replay: it takes the requested time per packet, and acts as the applications.

use rxsteer_user::core::{CpuId, CpuSet};
use rxsteer_user::packet::Dissection;
use rxsteer_user::sink::Sink;
use rxsteer_user::{FlowStats, Handler, Packet, PacketList, Report};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Spends a fixed time per packet, until the run is interrupted: what waits then is processed
/// at no cost.
pub(crate) struct Work {
    pub(crate) per_packet: Duration,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) apps: Option<Apps>,
    /// Counts each flow's packets, where records are asked for.
    pub(crate) flows: Option<FlowStats>,
    /// What becomes of packets then: they are sent on, or nothing.
    pub(crate) next: Option<Box<dyn Handler>>,
    /// Writes the packets, where that is asked for.
    pub(crate) out: Option<Sink>,
}

impl Handler for Work {
    fn handle(&mut self, list: &PacketList<'_>) {
        if let Some(flows) = &mut self.flows {
            flows.record(list);
        }
        if let Some(apps) = &mut self.apps {
            for packet in list.iter() {
                apps.consume(&packet, list);
            }
        }
        if !self.per_packet.is_zero() {
            self.spin(list);
        }
        if let Some(out) = &mut self.out {
            out.write(list);
        }
        if let Some(next) = &mut self.next {
            next.handle(list);
        }
    }

    fn tick(&mut self, cpu: CpuId) {
        if let Some(out) = &mut self.out {
            out.flush();
        }
        if let Some(next) = &mut self.next {
            next.tick(cpu);
        }
    }

    fn take_unsent(&mut self) -> u64 {
        self.next.as_mut().map_or(0, |next| next.take_unsent())
    }
}

impl Work {
    fn spin(&self, list: &PacketList<'_>) {
        let until = Instant::now() + self.per_packet * list.len() as u32;
        // ORDER: Relaxed; the flag is a request and carries no data.
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
}

/// Applications on these CPUs consume the flows' data: each flow's on one of them, and after every
/// interval of capture time on the next.
#[derive(Clone, Debug)]
pub(crate) struct Apps {
    pub(crate) cpus: Arc<[CpuId]>,
    pub(crate) migrate: Option<Duration>,
    /// Packets with data for an application, and how many of them were processed on its CPU.
    pub(crate) data: u64,
    pub(crate) at_home: u64,
}

/// Of the packets with data for an application, how many were processed on its CPU; `None` where no applications were
/// simulated.
pub(crate) fn at_home(report: &Report<Work>) -> Option<(u64, u64)> {
    let apps = report.handlers.iter().filter_map(|(_, work)| work.apps.as_ref());
    let sums = |(home, data): (u64, u64), apps: &Apps| (home + apps.at_home, data + apps.data);
    apps.fold(None, |all, apps| Some(sums(all.unwrap_or((0, 0)), apps)))
}

/// What a packet means to the application behind its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// There is data to be consumed.
    Data,
    /// The connection ends.
    End,
    /// It never sees the packet.
    Nothing,
}

impl Apps {
    /// Applications on `cpus`, each of which moves to the next of them after every `migrate`.
    pub(crate) fn on(cpus: &CpuSet, migrate: Option<Duration>) -> Apps {
        Apps { cpus: cpus.iter().collect(), migrate, data: 0, at_home: 0 }
    }

    /// As a socket: data is consumed and says where the application is, the end of the connection
    /// makes that forgotten, a packet without data does neither.
    fn consume(&mut self, packet: &Packet<'_>, list: &PacketList<'_>) {
        if packet.hash().is_none() {
            return;
        }
        match meaning(&packet.dissect(), packet.bytes()) {
            Meaning::Data => {
                let cpu = self.cpu(packet);
                self.data += 1;
                self.at_home += u64::from(cpu == list.cpu());
                list.record(packet.hash(), cpu);
            }
            Meaning::End => list.forget(packet.hash()),
            Meaning::Nothing => {}
        }
    }

    /// The CPU that the flow's application is on at the packet's time.
    fn cpu(&self, packet: &Packet<'_>) -> CpuId {
        let moves = self.migrate.map_or(0, |interval| {
            let interval = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX).max(1);
            packet.meta().timestamp_ns / interval
        });
        // Other bits than those that pick the CPU under `rps`, so that they differ mostly.
        let first = u64::from(packet.hash().get().wrapping_mul(0x9e37_79b1) >> 8);
        self.cpus[((first + moves) % self.cpus.len() as u64) as usize]
    }
}

fn meaning(dissection: &Dissection, frame: &[u8]) -> Meaning {
    const TCP: u8 = 6;
    const FIN_OR_RST: u8 = 0b101;
    let at = dissection.l4_offset as usize;
    let header = match frame.get(at..at + 20) {
        Some(header) if dissection.key.protocol == TCP && dissection.transport => header,
        // Datagrams are data; of a header that was cut off nothing is known.
        _ => return Meaning::Data,
    };
    if header[13] & FIN_OR_RST != 0 {
        return Meaning::End;
    }
    let l3 = dissection.l3_offset as usize;
    let end = match (dissection.key.ip_version, frame.get(l3..l3 + 6)) {
        (4, Some(ip)) => l3 + usize::from(u16::from_be_bytes([ip[2], ip[3]])),
        (6, Some(ip)) => l3 + 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]])),
        _ => return Meaning::Data,
    };
    let data = at + usize::from(header[12] >> 4) * 4;
    if end > data { Meaning::Data } else { Meaning::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_user::packet::{DissectOptions, LinkType, dissect};

    fn tcp(flags: u8, data: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[17] = 40 + data;
        (frame[22], frame[23]) = (64, 6);
        (frame[46], frame[47]) = (0x50, flags);
        frame
    }

    #[test]
    fn data_is_consumed_and_the_end_noticed() {
        let of = |frame: &[u8]| {
            let options = DissectOptions::default();
            meaning(&dissect(LinkType::Ethernet, frame, options), frame)
        };
        assert_eq!(of(&tcp(0x10, 6)), Meaning::Data);
        assert_eq!(of(&tcp(0x10, 0)), Meaning::Nothing, "an acknowledgement, padded to 60 bytes");
        assert_eq!(of(&tcp(0x11, 3)), Meaning::End);
        assert_eq!(of(&tcp(0x04, 0)), Meaning::End);
        let mut udp = tcp(0, 0);
        udp[23] = 17;
        assert_eq!(of(&udp), Meaning::Data);
    }
}
