//! Queues, CPUs and rings: the path of frames in steps, between which user space can act.
//!
//! The C code decides and numbers frames (`steer_policy.h`), and detects what is delivered
//! (`steer_order.h`). The rest is a model of the kernel: polls, bulk queues, CPUMAP rings, their threads, and GRO.

use super::oracle::{Oracle, goes_to, slot_of};
use super::settings::Settings;
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::abi::STEER_GENERATIONS;
use rxsteer_bpf_native::policy::{Decision, LastPacket, NativePolicy, Packet, Rules, Sizes};
use std::collections::VecDeque;

pub(crate) const CPUS: u32 = 4;
/// The RX CPUs are the first ones.
pub(crate) const RX_CPUS: u32 = 3;
pub(crate) const QUEUES: u32 = 3;
/// Few slots, so that flows share them.
pub(crate) const FLOW_LOG: u32 = 4;
/// A ring is `cpu * 2 + generation`.
pub(crate) const RINGS: u32 = CPUS * STEER_GENERATIONS;
const FLOWS: usize = 60;
const BULK: usize = 8;
const FLUSH_AFTER: usize = 64;

/// A ring and an RX CPU, like the pairs of the C code.
pub(crate) type Pair = (u32, u32);

#[derive(Clone, Copy, Debug)]
struct Frame {
    flow: usize,
    /// Its index among the frames of its flow.
    index: u64,
    rx_cpu: u32,
    seq: u32,
    carries: bool,
}

#[derive(Debug)]
struct Flow {
    queue: u32,
    hash: u32,
    sent: u64,
    /// The index after the last frame that came out; the next frame's index must not be lower.
    seen: u64,
}

/// A CPUMAP entry and its thread.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    pub(crate) exists: bool,
    fifo: VecDeque<Frame>,
    held: Vec<Frame>,
    since_flush: usize,
    /// The number of steps for which its thread gets no CPU time.
    pub(crate) stalled: u32,
    /// Frames that came out of it.
    pub(crate) passed: u64,
}

#[derive(Debug, Default)]
struct RxCpu {
    poll: Option<Poll>,
    /// By ring; flushed when full, and when the poll ends.
    bulk: [Vec<Frame>; RINGS as usize],
    /// Frames that passed and that GRO holds until the poll ends.
    held: Vec<Frame>,
    /// The number of polls that ended.
    polls: u64,
    /// The number of steps for which it receives nothing.
    rests: u32,
}

#[derive(Debug)]
struct Poll {
    queue: u32,
    left: u32,
    /// The configuration that the frame's program has read, while the program is running.
    began: Option<usize>,
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) frames: u64,
    /// Frames that came out after a later frame of their flow.
    pub(crate) late: u64,
    /// Frames refused by a full or missing ring.
    pub(crate) lost: u64,
    pub(crate) moved: u64,
    pub(crate) off_target: u64,
    pub(crate) unguarded: u64,
    /// Frames that were sent to a missing ring; the program would let them pass.
    pub(crate) without_ring: u64,
    /// Frames that were compared with the core's target and the order rule.
    pub(crate) checked: u64,
}

pub(crate) struct World {
    pub(crate) rng: ChaCha8Rng,
    pub(crate) policy: NativePolicy,
    /// Every configuration so far; the programs have two and the flushing one.
    configs: Vec<(Rules, Option<Settings>)>,
    oracle: Oracle,
    /// The configuration that the C code has loaded.
    loaded: usize,
    pub(crate) active: usize,
    /// The configuration of interfaces that flush, while they do.
    pub(crate) flushing: Option<usize>,
    flows: Vec<Flow>,
    /// By queue: the CPU that polls it.
    polled_by: Vec<u32>,
    pub(crate) rings: Vec<Ring>,
    /// The last number of each pair: [rx_cpu][ring].
    pub(crate) tails: [[u32; RINGS as usize]; RX_CPUS as usize],
    rx: Vec<RxCpu>,
    jiffies: u32,
    room: usize,
    longest_poll: u32,
    pub(crate) seen: Seen,
}

impl World {
    pub(crate) fn new(mut rng: ChaCha8Rng) -> World {
        let mut policy = NativePolicy::new(Sizes {
            cpus: CPUS,
            rx_cpus: RX_CPUS,
            tables: QUEUES,
            flow_log: FLOW_LOG,
            sock_entries: 1024,
            sock_cpu_mask: 7,
            chains_log: 4,
            limit_lines: 1,
        });
        policy.flushes_fully(true);
        let mut tails = [[0; RINGS as usize]; RX_CPUS as usize];
        for (rx_cpu, of_rx_cpu) in (0..).zip(&mut tails) {
            for (ring, tail) in (0..).zip(of_rx_cpu) {
                // Many numbers are about to wrap.
                *tail = if rng.random() { 0 } else { rng.random_range(0..400_u32).wrapping_neg() };
                policy.set_pair((rx_cpu, ring), [*tail; 3]);
            }
        }
        let flow = |rng: &mut ChaCha8Rng| Flow {
            queue: rng.random_range(0..QUEUES),
            hash: rng.random_range(1..=u32::MAX),
            sent: 0,
            seen: 0,
        };
        World {
            flows: (0..FLOWS).map(|_| flow(&mut rng)).collect(),
            polled_by: (0..QUEUES).map(|_| rng.random_range(0..RX_CPUS)).collect(),
            longest_poll: [12, 48][rng.random_range(0..2)],
            room: [16, 64, 256][rng.random_range(0..3)],
            rng,
            policy,
            configs: Vec::new(),
            oracle: Oracle::default(),
            loaded: usize::MAX,
            active: 0,
            flushing: None,
            rings: (0..RINGS).map(|_| Ring::default()).collect(),
            tails,
            rx: (0..RX_CPUS).map(|_| RxCpu::default()).collect(),
            jiffies: 0,
            seen: Seen::default(),
        }
    }

    /// Adds a configuration that can be activated, with its settings.
    pub(crate) fn add(&mut self, rules: Rules, settings: Option<&Settings>) -> usize {
        self.configs.push((rules, settings.cloned()));
        self.configs.len() - 1
    }

    fn load(&mut self, config: usize) {
        if self.loaded != config {
            self.loaded = config;
            self.policy.configure(&self.configs[config].0);
        }
    }

    /// Creates or deletes a ring.
    pub(crate) fn set_ring(&mut self, ring: u32, exists: bool) {
        self.rings[ring as usize].exists = exists;
        let missing = (0..).zip(&self.rings).filter(|(_, ring)| !ring.exists);
        self.policy.miss_rings(missing.map(|(ring, _)| 1 << ring).sum());
    }

    /// Runs some other events.
    pub(crate) fn run_other_events(&mut self) {
        for _ in 0..self.rng.random_range(0..40) {
            self.step();
        }
    }

    /// Waits until every poll that is under way has ended.
    pub(crate) fn grace(&mut self) {
        let before: Vec<Option<u64>> =
            self.rx.iter().map(|rx| rx.poll.is_some().then_some(rx.polls)).collect();
        let is_over = |rx: &[RxCpu]| {
            rx.iter().zip(&before).all(|(rx, before)| before.is_none_or(|polls| rx.polls != polls))
        };
        while !is_over(&self.rx) {
            self.step();
        }
        self.run_other_events();
    }

    pub(crate) fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..60 => {
                let rx_cpu = self.rng.random_range(0..RX_CPUS);
                self.receive(rx_cpu);
            }
            60..98 => {
                let ring = self.rng.random_range(0..RINGS);
                self.run_thread(ring);
            }
            98 => self.jiffies = self.jiffies.wrapping_add(1),
            _ => self.disturb(),
        }
    }

    /// Stalls threads, changes the CPU that polls a queue, and moves applications.
    fn disturb(&mut self) {
        match self.rng.random_range(0..4) {
            0 => {
                let ring = self.rng.random_range(0..RINGS) as usize;
                let most = if self.rng.random_ratio(1, 10) { 400 } else { 40 };
                self.rings[ring].stalled = self.rng.random_range(0..most);
            }
            1 => {
                let queue = self.rng.random_range(0..QUEUES);
                let polled = |rx: &RxCpu| rx.poll.as_ref().is_some_and(|poll| poll.queue == queue);
                if !self.rx.iter().any(polled) {
                    self.polled_by[queue as usize] = self.rng.random_range(0..RX_CPUS);
                }
            }
            _ => {
                let hash = self.flows.choose(&mut self.rng).map_or(1, |flow| flow.hash);
                let cpu = self.rng.random_range(0..CPUS);
                self.policy.record_desired(hash, cpu);
            }
        }
    }

    /// A step of an RX CPU: a poll begins, a program begins or ends, or a poll ends.
    fn receive(&mut self, rx_cpu: u32) {
        let Some(poll) = &mut self.rx[rx_cpu as usize].poll else {
            if self.rx[rx_cpu as usize].rests > 0 {
                self.rx[rx_cpu as usize].rests -= 1;
                return;
            }
            let queues = (0..QUEUES).filter(|queue| self.polled_by[*queue as usize] == rx_cpu);
            let queues: Vec<u32> = queues.collect();
            if let Some(queue) = queues.choose(&mut self.rng) {
                let left = self.rng.random_range(1..self.longest_poll);
                self.rx[rx_cpu as usize].poll = Some(Poll { queue: *queue, left, began: None });
            }
            return;
        };
        if poll.left == 0 {
            self.rx[rx_cpu as usize].poll = None;
            for ring in 0..RINGS as usize {
                self.empty_bulk(rx_cpu, ring);
            }
            for frame in std::mem::take(&mut self.rx[rx_cpu as usize].held) {
                self.check_output(frame);
            }
            let most = if self.rng.random_ratio(1, 50) { 1000 } else { 30 };
            self.rx[rx_cpu as usize].rests = self.rng.random_range(0..most);
            self.rx[rx_cpu as usize].polls += 1;
            return;
        }
        match poll.began {
            None => poll.began = Some(self.flushing.unwrap_or(self.active)),
            Some(config) => {
                let queue = poll.queue;
                (poll.left, poll.began) = (poll.left - 1, None);
                self.decide(rx_cpu, queue, config);
            }
        }
    }

    fn decide(&mut self, rx_cpu: u32, queue: u32, config: usize) {
        let of_queue = (0..FLOWS).filter(|flow| self.flows[*flow].queue == queue);
        let of_queue: Vec<usize> = of_queue.collect();
        let Some(&flow) = of_queue.choose(&mut self.rng) else { return };
        self.load(config);
        let hash = self.flows[flow].hash;
        let packet = Packet {
            rule: 0,
            hash,
            rx_cpu,
            queue,
            device: 0,
            sock_hash: hash,
            row: queue,
            now: self.jiffies.into(),
        };
        let last = self.policy.last_packet(queue, hash);
        // Some frames are tagged; a flow may contain both kinds.
        let is_tagged = self.rng.random_ratio(1, 10);
        let decision = self.policy.receive(&packet, queue, is_tagged);
        self.check(config, &packet, last, is_tagged, &decision);
        let index = self.flows[flow].sent;
        self.flows[flow].sent += 1;
        self.seen.frames += 1;
        self.seen.off_target += u64::from(decision.off_target);
        self.seen.unguarded += u64::from(self.configs[config].0.unguarded);
        let frame = Frame {
            flow,
            index,
            rx_cpu,
            seq: decision.seq,
            carries: decision.carries != 0 && decision.seq != 0,
        };
        self.seen.without_ring += u64::from(decision.without_ring);
        if decision.passes != 0 {
            self.rx[rx_cpu as usize].held.push(frame);
            return;
        }
        let ring = decision.ring();
        let now = self.policy.last_packet(queue, hash);
        let rings = [last, now].map(|last| last.map(|last| last.ring()));
        self.seen.moved += u64::from(last.is_some() && rings[0] != rings[1]);
        self.tails[rx_cpu as usize][ring as usize] = decision.seq;
        if self.rx[rx_cpu as usize].bulk[ring as usize].len() == BULK {
            self.empty_bulk(rx_cpu, ring as usize);
        }
        self.rx[rx_cpu as usize].bulk[ring as usize].push(frame);
    }

    /// Checks the decision.
    fn check(
        &mut self,
        config: usize,
        packet: &Packet,
        last: Option<LastPacket>,
        needs_metadata: bool,
        decision: &Decision,
    ) {
        let (rules, settings) = &self.configs[config];
        let Some(settings) = settings else { return };
        let has_target = self.oracle.check_target((config, settings), packet, decision);
        if !has_target || decision.without_ring != 0 {
            return;
        }
        self.seen.checked += 1;
        let is_boundary = settings.is_boundary_slot(packet.queue, slot_of(packet.hash));
        let right = goes_to(rules, &self.policy, last, is_boundary, needs_metadata, decision);
        let ring = (decision.passes == 0).then(|| decision.ring());
        assert_eq!(ring, right, "{settings:?} {packet:?} {last:?} {decision:?}");
    }

    fn empty_bulk(&mut self, rx_cpu: u32, ring: usize) {
        for frame in std::mem::take(&mut self.rx[rx_cpu as usize].bulk[ring]) {
            if self.rings[ring].fifo.len() < self.room {
                self.rings[ring].fifo.push_back(frame);
            } else {
                self.seen.lost += 1;
            }
        }
    }

    /// An iteration of a ring's thread, or its sleep. It cannot run during a poll on its CPU.
    fn run_thread(&mut self, number: u32) {
        let (cpu, ring) = (number / 2, &mut self.rings[number as usize]);
        if !ring.exists || self.rx.get(cpu as usize).is_some_and(|rx| rx.poll.is_some()) {
            return;
        }
        if ring.stalled > 0 {
            ring.stalled -= 1;
            return;
        }
        if ring.fifo.is_empty() {
            self.policy.sleeps(number);
            return;
        }
        let count = ring.fifo.len().min(BULK);
        let batch: Vec<Frame> = ring.fifo.drain(..count).collect();
        ring.passed += count as u64;
        for frame in &batch {
            self.policy.passes(number, frame.rx_cpu, frame.carries.then_some(frame.seq));
        }
        self.policy.run_iteration(number, count as u32, self.jiffies);
        ring.held.extend(batch);
        ring.since_flush += count;
        if ring.since_flush >= FLUSH_AFTER || ring.fifo.is_empty() {
            ring.since_flush = 0;
            for frame in std::mem::take(&mut ring.held) {
                self.check_output(frame);
            }
        }
    }

    fn check_output(&mut self, frame: Frame) {
        let flow = &mut self.flows[frame.flow];
        self.seen.late += u64::from(frame.index < flow.seen);
        flow.seen = flow.seen.max(frame.index + 1);
    }

    /// Whether the ring and its thread are empty, which is what the thread's sleep shows.
    pub(crate) fn sleeps(&self, ring: u32) -> bool {
        let ring = &self.rings[ring as usize];
        ring.fifo.is_empty() && ring.held.is_empty()
    }

    /// Advances a ring's numbers as if 2³¹ frames had passed, so that older numbers compare as later. Only for an empty
    /// ring.
    pub(crate) fn wrap(&mut self, number: u32) {
        let in_bulk = self.rx.iter().any(|rx| !rx.bulk[number as usize].is_empty());
        if in_bulk || !self.sleeps(number) {
            return;
        }
        for rx_cpu in 0..RX_CPUS {
            let tail = &mut self.tails[rx_cpu as usize][number as usize];
            *tail = tail.wrapping_add((1 << 31) - 50);
            self.policy.set_pair((rx_cpu, number), [*tail; 3]);
        }
        // The thread's snapshot from before is older than that.
        self.policy.sleeps(number);
    }

    /// The last packet of a slot.
    pub(crate) fn slot(&self, table: u32, slot: u32) -> Option<LastPacket> {
        self.policy.last_packet(table, slot << (32 - FLOW_LOG))
    }

    /// The slots in use of all tables: table, slot, and the last packet.
    pub(crate) fn slots(&self) -> Vec<(u32, u32, LastPacket)> {
        let all = (0..QUEUES).flat_map(|table| (0..1 << FLOW_LOG).map(move |slot| (table, slot)));
        all.filter_map(|(table, slot)| Some((table, slot, self.slot(table, slot)?))).collect()
    }
}
