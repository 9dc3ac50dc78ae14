//! NICs: their wires, their rings, and when they interrupt.
//!
//! Frames are put on the wire with their times of arrival. Which of them found room is decided only when the ring
//! is examined. Between two such times no frame leaves the ring, so the result is exact, and frames need no events
//! of their own.

use super::packet::{Packet, float_ns, whole_ns};
use crate::scenario::{Interrupts, Nic};
use std::collections::VecDeque;

/// Preamble, start of frame, check sequence and gap: the bytes on the wire in addition to those of the frame.
const WIRE_OVERHEAD: f64 = 24.0;
/// The shortest frame on the wire, without that overhead: 60 bytes.
const MIN_FRAME: u32 = 60;
/// The most frames that wait for a wire, as a multiple of the time of one frame of the given size: the kernel's
/// default queue of a device (`txqueuelen`).
const TX_QUEUE: f64 = 1000.0;

/// Both directions of the wire at a NIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    ns_per_byte: f64,
    delay_ns: u64,
    free_in: f64,
    free_out: f64,
    /// The time until which accepted frames of scheduled traffic need the wire to this machine.
    clocked: f64,
}

impl Link {
    pub(crate) fn new(nic: &Nic, delay_ns: u64) -> Link {
        Link { ns_per_byte: 8e9 / nic.rate, delay_ns, free_in: 0.0, free_out: 0.0, clocked: 0.0 }
    }

    fn time_of(&self, bytes: u32) -> f64 {
        (f64::from(bytes.max(MIN_FRAME)) + WIRE_OVERHEAD) * self.ns_per_byte
    }

    /// Whether the far host's NIC has room for another frame of scheduled traffic; if so, the frame is accepted.
    pub(crate) fn takes(&mut self, at_ns: u64, bytes: u32) -> bool {
        let (each, begins) = (self.time_of(bytes), self.clocked.max(float_ns(at_ns)));
        let has_room = begins - float_ns(at_ns) <= TX_QUEUE * each;
        if has_room {
            self.clocked = begins + each;
        }
        has_room
    }

    /// Whether this machine's NIC has no room for another frame to send.
    pub(crate) fn is_full(&self, now: u64, bytes: u32) -> bool {
        self.free_out - float_ns(now) > TX_QUEUE * self.time_of(bytes)
    }

    /// When a frame that the far host passes to its NIC at `now` arrives at this machine's NIC.
    pub(crate) fn receive(&mut self, now: u64, bytes: u32) -> u64 {
        self.free_in = self.free_in.max(float_ns(now)) + self.time_of(bytes);
        whole_ns(self.free_in) + self.delay_ns
    }

    /// When a frame that this machine passes to its NIC at `now` arrives at the far host.
    pub(crate) fn send(&mut self, now: u64, bytes: u32) -> u64 {
        self.free_out = self.free_out.max(float_ns(now)) + self.time_of(bytes);
        whole_ns(self.free_out) + self.delay_ns
    }
}

/// How a queue is watched for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// By nothing, and no frame is on its way: the next frame on the wire notes an interrupt.
    Armed,
    /// An interrupt is noted.
    Noted,
    /// A CPU polls it, or will as soon as it can.
    Polled,
}

/// One RX queue of a NIC.
#[derive(Debug)]
pub(crate) struct RxQueue {
    /// The queue's number as the policy sees it; with spread interrupts, the first of its numbers.
    pub(crate) first_virtual: u16,
    /// The CPUs that the queue interrupts in turn: one, or those that interrupts are spread over.
    pub(crate) cpus: Box<[u16]>,
    pub(crate) spread: bool,
    turn: usize,
    size: usize,
    moderation_ns: u64,
    last_interrupt_ns: Option<u64>,
    pub(crate) watch: Watch,
    /// Frames on their way, in the order of their arrival.
    pub(crate) wire: VecDeque<Packet>,
    /// Frames in the ring.
    pub(crate) ring: VecDeque<Packet>,
    /// Frames that found the ring full when it was last advanced.
    pub(crate) refused: Vec<Packet>,
    /// Frames that arrived.
    pub(crate) arrived: u64,
}

impl RxQueue {
    pub(crate) fn new(nic: &Nic, queue: usize, first_virtual: u16) -> RxQueue {
        let (cpus, spread) = match &nic.interrupts {
            Interrupts::Fixed => (Box::from([nic.irq_cpus[queue].get()]), false),
            Interrupts::Spread(cpus) => (cpus.iter().map(|cpu| cpu.get()).collect(), true),
        };
        RxQueue {
            first_virtual,
            cpus,
            spread,
            turn: 0,
            size: nic.ring as usize,
            moderation_ns: nic.moderation_ns,
            last_interrupt_ns: None,
            watch: Watch::Armed,
            wire: VecDeque::new(),
            ring: VecDeque::new(),
            refused: Vec::new(),
            arrived: 0,
        }
    }

    /// Moves the frames that have arrived up to `now` into the ring, or into `refused`.
    pub(crate) fn advance(&mut self, now: u64) {
        while let Some(packet) = self.wire.front()
            && packet.arrived_ns <= now
        {
            self.arrived += 1;
            if self.ring.len() < self.size {
                self.ring.push_back(*packet);
            } else {
                self.refused.push(*packet);
            }
            self.wire.pop_front();
        }
    }

    /// The time of the next interrupt, as of `now`: when there is a frame, and the moderation time has passed.
    pub(crate) fn next_interrupt(&self, now: u64) -> Option<u64> {
        let frame = if self.ring.is_empty() { self.wire.front()?.arrived_ns } else { now };
        let soonest = self.last_interrupt_ns.map_or(0, |last| last + self.moderation_ns);
        Some(frame.max(soonest).max(now))
    }

    /// The queue's number as the policy sees it when `cpu` polls it. A CPU that polls for an offline CPU counts as
    /// the first.
    pub(crate) fn virtual_queue(&self, cpu: u16) -> u16 {
        let index = if self.spread { self.cpus.iter().position(|own| *own == cpu) } else { None };
        self.first_virtual + index.unwrap_or(0) as u16
    }

    /// Interrupts one of the queue's CPUs. Returns the index of that CPU.
    pub(crate) fn interrupt(&mut self, now: u64) -> usize {
        self.last_interrupt_ns = Some(now);
        self.watch = Watch::Polled;
        let index = self.turn;
        self.turn = (self.turn + 1) % self.cpus.len();
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rxsteer_core::CpuId;

    fn nic(rate: f64, ring: u32) -> Nic {
        Nic {
            name: "eth0".to_owned(),
            rate,
            irq_cpus: vec![CpuId::new(0).unwrap()],
            interrupts: Interrupts::Fixed,
            ring,
            moderation_ns: 0,
        }
    }

    fn packet(arrived_ns: u64) -> Packet {
        Packet { arrived_ns, flow: 0, number: 0, data: 0, more: 0, bytes: 60, cpu: 0, producer: 0 }
    }

    #[test]
    fn link_carries_its_rate() {
        let mut link = Link::new(&nic(1e9, 4), 1000);
        let mut last = 0;
        for _ in 0..1000 {
            last = link.receive(0, 60);
        }
        // 84 bytes on the wire take 672 ns: 1.488 million frames per second.
        assert_eq!(last, 672_000 + 1000);
    }

    #[test]
    fn full_ring_refuses_what_comes_later() {
        let mut queue = RxQueue::new(&nic(1e9, 2), 0, 0);
        queue.wire.extend([1, 2, 3, 9].map(packet));
        queue.advance(5);
        let times = |packets: &[Packet]| packets.iter().map(|p| p.arrived_ns).collect::<Vec<_>>();
        assert_eq!(times(queue.ring.make_contiguous()), [1, 2]);
        assert_eq!(times(&queue.refused), [3]);
        assert_eq!((queue.arrived, queue.wire.len()), (3, 1));
    }
}
