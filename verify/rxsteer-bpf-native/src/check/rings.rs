//! The rings between CPUs as the core uses them, and the test's own account of their numbers.

use crate::abi::STEER_GENERATIONS;
use crate::policy::Decision;
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_core::{Backlogs, CpuId, Refusal};
use std::collections::VecDeque;

/// Tail, dequeued and delivered number of the frames from one RX CPU to one ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pair {
    /// The numbers of the first generation begin after this one.
    start: u32,
    pub(crate) tail: u32,
    pub(crate) dequeued: u32,
    pub(crate) delivered: u32,
}

/// All pairs of an RX CPU and a ring (CPU and generation).
#[derive(Debug)]
pub(crate) struct Rings {
    pairs: Vec<Pair>,
    cpus: u32,
    pub(crate) rx_cpus: u32,
    pub(crate) size: u32,
}

/// The distance between the numbers of generation 1 and generation 0; no test sends that many packets.
const APART: u32 = 1 << 31;

impl Rings {
    /// Empty rings whose numbers begin anywhere; many are about to wrap.
    pub(crate) fn new(rng: &mut ChaCha8Rng, cpus: u32, rx_cpus: u32, size: u32) -> Rings {
        let mut pairs = Vec::new();
        for _ in 0..cpus * rx_cpus {
            let start = match rng.random_range(0..4) {
                0 => 0,
                1 => rng.random_range(0..200_u32).wrapping_neg(),
                2 => APART - rng.random_range(0..200),
                _ => rng.random(),
            };
            for at in [start, start.wrapping_add(APART)] {
                pairs.push(Pair { start, tail: at, dequeued: at, delivered: at });
            }
        }
        Rings { pairs, cpus, rx_cpus, size }
    }

    fn index(&self, rx_cpu: u32, ring: u32) -> usize {
        assert!(
            rx_cpu < self.rx_cpus && ring < self.cpus * STEER_GENERATIONS,
            "a pair: {rx_cpu} {ring}"
        );
        (rx_cpu * self.cpus * STEER_GENERATIONS + ring) as usize
    }

    pub(crate) fn pair(&self, rx_cpu: u32, ring: u32) -> &Pair {
        &self.pairs[self.index(rx_cpu, ring)]
    }

    /// Every pair: RX CPU, ring, and numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, u32, &Pair)> {
        let ring_count = self.cpus * STEER_GENERATIONS;
        (0..)
            .zip(&self.pairs)
            .map(move |(at, pair): (u32, _)| (at / ring_count, at % ring_count, pair))
    }

    /// Picks a pair with frames under way. Some of these frames are taken off the ring and some of those delivered, or
    /// all are.
    pub(crate) fn advance(&mut self, rng: &mut ChaCha8Rng) -> Option<(u32, u32, [u32; 3])> {
        let busy = (0..self.pairs.len()).filter(|at| {
            let pair = &self.pairs[*at];
            pair.tail != pair.delivered
        });
        let busy: Vec<usize> = busy.collect();
        let at = *busy.choose(rng)?;
        let pair = &mut self.pairs[at];
        let waiting = pair.tail.wrapping_sub(pair.dequeued);
        let all = rng.random_ratio(1, 3);
        let taken = if all { waiting } else { rng.random_range(0..=waiting) };
        pair.dequeued = pair.dequeued.wrapping_add(taken);
        let held = pair.dequeued.wrapping_sub(pair.delivered);
        let given = if all { held } else { rng.random_range(0..=held) };
        pair.delivered = pair.delivered.wrapping_add(given);
        let (at, ring_count) = (at as u32, self.cpus * STEER_GENERATIONS);
        Some((at / ring_count, at % ring_count, [pair.tail, pair.dequeued, pair.delivered]))
    }

    /// Whether the packet with number `seq` from `rx_cpu` to `cpu`, in either generation, is delivered.
    pub(crate) fn is_delivered(&self, rx_cpu: u32, cpu: u32, seq: u32) -> bool {
        let start = self.pair(rx_cpu, cpu * STEER_GENERATIONS).start;
        // A number from before the first one.
        if start.wrapping_sub(seq) < 2 {
            return true;
        }
        // Numbers begin after the start, and those of generation 1 begin half the range later.
        let generation = u32::from(seq.wrapping_sub(start.wrapping_add(1)) >= APART);
        let pair = self.pair(rx_cpu, cpu * STEER_GENERATIONS + generation);
        (pair.delivered.wrapping_sub(seq) as i32) >= 0
    }
}

/// One producer's view of the rings, for a burst that the other side has already decided on. The core does not
/// determine which of a CPU's rings a packet uses (the world checks that), nor whether it is numbered.
pub(crate) struct Producer<'a> {
    pub(crate) rings: &'a mut Rings,
    pub(crate) rx_cpu: u32,
    /// The other side's decisions for the packets to come; `None`: the packet passes.
    pub(crate) decided: VecDeque<Option<Decision>>,
    pub(crate) limited: bool,
    /// The packet being decided, once it has left `decided`.
    pub(crate) current: Option<Option<Decision>>,
}

impl Producer<'_> {
    fn advance(&mut self) {
        self.current = Some(self.decided.pop_front().expect("one decision for each packet"));
    }
}

impl Backlogs for Producer<'_> {
    fn reserve(&mut self, cpu: CpuId) -> Result<u32, Refusal> {
        if !self.limited {
            self.advance();
        }
        let Some(decision) = self.current.take().expect("each packet reserves once") else {
            return Ok(0);
        };
        let ring = u32::from(cpu.get()) * STEER_GENERATIONS + decision.generation;
        let index = self.rings.index(self.rx_cpu, ring);
        let tail = &mut self.rings.pairs[index].tail;
        *tail = tail.wrapping_add(1);
        Ok(*tail)
    }

    fn has_completed(&mut self, producer: u16, cpu: CpuId, position: u32) -> bool {
        self.rings.is_delivered(u32::from(producer), u32::from(cpu.get()), position)
    }

    fn tail(&self, cpu: CpuId) -> u32 {
        self.rings.pair(self.rx_cpu, u32::from(cpu.get()) * STEER_GENERATIONS).tail
    }

    fn waiting(&mut self, cpu: CpuId) -> (u32, u32) {
        self.advance();
        let Some(Some(decision)) = self.current else { return (0, u32::MAX) };
        let ring = u32::from(cpu.get()) * STEER_GENERATIONS + decision.generation;
        let waiting = (0..self.rings.rx_cpus).map(|rx_cpu| {
            let pair = self.rings.pair(rx_cpu, ring);
            (pair.tail.wrapping_sub(pair.dequeued) as i32).max(0) as u32
        });
        (waiting.sum(), self.rings.size)
    }

    fn producer(&self) -> u16 {
        self.rx_cpu as u16
    }
}
