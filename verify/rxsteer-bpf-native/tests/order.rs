//! Frames that count as delivered (`steer_order.h`) are delivered, in a model of the kernel's thread and of GRO.
//!
//! The model follows `cpu_map_kthread_run` of Linux 6.15 and later. The thread takes up to 8 frames, runs the program
//! on each, ends the iteration, passes the frames to GRO, and flushes GRO when 64 frames have passed or the ring is
//! empty. If a tick is 1 ms or shorter and the ring is not empty, the flush takes only packets that GRO did not get in
//! this tick. Between any two steps the clock may advance, and any CPU may send.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::policy::RingThread;

const RX_CPUS: u32 = 3;
/// The capacity of a bulk queue and of the thread's batch; and the number of frames until a flush.
const BULK: usize = 8;
const FLUSH_AFTER: usize = 64;
/// The most packets that GRO holds.
const HELD: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Frame {
    rx_cpu: u32,
    number: u32,
    carries: bool,
}

struct Model {
    rng: ChaCha8Rng,
    thread: RingThread,
    /// Whether a second has 1000 ticks or more.
    ticks_are_short: bool,
    /// How often the clock advances: once in this many steps.
    tick_every: u32,
    /// How often a CPU sends: once in this many steps.
    send_every: u32,
    /// Whether the tracepoint that shows sleep is attached.
    shows_sleep: bool,
    room: usize,
    jiffies: u32,
    tails: [u32; RX_CPUS as usize],
    bulk: [Vec<Frame>; RX_CPUS as usize],
    ring: VecDeque<Frame>,
    /// Frames that the thread has taken out and not yet handed to GRO.
    batch: VecDeque<Frame>,
    /// Frames that GRO holds, and since when.
    held: Vec<(Frame, u32)>,
    since_flush: usize,
    /// How often a source's `delivered` advanced while its ring was never empty.
    went_on: u32,
    /// A number that counted as delivered and was not.
    violation: Option<String>,
}

impl Model {
    fn new(seed: u64, ticks_are_short: bool, rule_flushes_fully: bool) -> Model {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let first = if rng.random() { 0 } else { u32::MAX - 5000 };
        let mut model = Model {
            thread: RingThread::new(RX_CPUS, rule_flushes_fully),
            ticks_are_short,
            tick_every: [10, 100, 2000][rng.random_range(0..3)],
            send_every: [3, 20, 40][rng.random_range(0..3)],
            shows_sleep: rng.random(),
            room: [16, 64, 2048][rng.random_range(0..3)],
            jiffies: rng.random(),
            tails: [0; RX_CPUS as usize],
            bulk: Default::default(),
            ring: VecDeque::new(),
            batch: VecDeque::new(),
            held: Vec::new(),
            since_flush: 0,
            went_on: 0,
            violation: None,
            rng,
        };
        // The numbers wrap: they advance in steps to the first number, which passes through the range once.
        if first != 0 {
            for rx_cpu in 0..RX_CPUS {
                for number in [1 << 30, 1 << 31, 3 << 30, first] {
                    model.thread.passes(rx_cpu, Some(number));
                    model.thread.sleeps();
                }
                model.tails[rx_cpu as usize] = first;
            }
        }
        model
    }

    /// Time passes, and CPUs send.
    fn run_other_events(&mut self) {
        if self.rng.random_ratio(1, self.tick_every) {
            self.jiffies = self.jiffies.wrapping_add(1);
        }
        if !self.rng.random_ratio(1, self.send_every) {
            return;
        }
        let rx_cpu = self.rng.random_range(0..RX_CPUS);
        // Occasional bursts keep a nearly empty ring from being empty for long.
        let frames = if self.rng.random_ratio(1, 8) { 30..90 } else { 1..16 };
        for _ in 0..self.rng.random_range(frames) {
            let tail = &mut self.tails[rx_cpu as usize];
            *tail = tail.wrapping_add(1);
            // Every eighth frame carries its number, and so do frames that the guard defers. 0 stands for none.
            let carries = *tail != 0 && (tail.is_multiple_of(8) || self.rng.random_ratio(1, 40));
            let frame = Frame { rx_cpu, number: *tail, carries };
            if self.bulk[rx_cpu as usize].len() == BULK {
                self.empty_bulk(rx_cpu);
            }
            self.bulk[rx_cpu as usize].push(frame);
        }
        if self.rng.random() {
            self.empty_bulk(rx_cpu);
        }
    }

    /// A bulk queue is flushed at the end of a poll or when it is full; frames without room in the ring are lost.
    fn empty_bulk(&mut self, rx_cpu: u32) {
        for frame in std::mem::take(&mut self.bulk[rx_cpu as usize]) {
            if self.ring.len() < self.room {
                self.ring.push_back(frame);
            }
        }
    }

    /// Checks that all frames that count as delivered are delivered.
    fn check(&mut self) {
        let held = self.held.iter().map(|(frame, _)| frame);
        let bulk = self.bulk.iter().flatten();
        for frame in self.batch.iter().chain(&self.ring).chain(held).chain(bulk) {
            let delivered = self.thread.delivered(frame.rx_cpu);
            if delivered.wrapping_sub(frame.number) as i32 >= 0 {
                let text = format!("{frame:?} is under way, and {delivered} counts as delivered");
                self.violation.get_or_insert(text);
            }
        }
    }

    fn all_delivered(&self) -> [u32; RX_CPUS as usize] {
        std::array::from_fn(|rx_cpu| self.thread.delivered(rx_cpu as u32))
    }

    fn iterate(&mut self) {
        if self.ring.is_empty() {
            assert!(self.held.is_empty(), "a full flush came before");
            if self.shows_sleep {
                self.thread.sleeps();
                self.check();
            }
            self.run_other_events();
            return;
        }
        let count = self.ring.len().min(BULK);
        self.batch.extend(self.ring.drain(..count));
        self.run_other_events();
        for frame in self.batch.clone() {
            self.thread.passes(frame.rx_cpu, frame.carries.then_some(frame.number));
        }
        self.check();
        self.run_other_events();
        let before = self.all_delivered();
        self.thread.run_iteration(count as u32, self.jiffies);
        self.went_on += u32::from(before != self.all_delivered());
        self.check();
        while let Some(frame) = self.batch.pop_front() {
            self.run_other_events();
            // GRO holds the frame or hands it on. If GRO is full, its oldest frame goes first.
            if self.held.len() == HELD {
                self.held.remove(0);
            }
            if !self.rng.random_ratio(1, 4) {
                self.held.push((frame, self.jiffies));
            }
        }
        self.run_other_events();
        self.since_flush += count;
        let is_empty = self.ring.is_empty();
        if self.since_flush >= FLUSH_AFTER || is_empty {
            let now = self.jiffies;
            self.held.retain(|(_, since)| !is_empty && self.ticks_are_short && *since == now);
            self.since_flush = 0;
        }
    }
}

/// Runs the model for some thousand iterations.
fn run(seed: u64, ticks_are_short: bool, rule_flushes_fully: bool) -> Model {
    let mut model = Model::new(seed, ticks_are_short, rule_flushes_fully);
    for _ in 0..3000 {
        model.iterate();
    }
    model
}

#[test]
fn what_counts_as_delivered_is_where_ticks_are_long() {
    let mut went_on = 0;
    for seed in 0..100 {
        let model = run(seed, false, true);
        assert_eq!(model.violation, None, "seed {seed}");
        went_on += model.went_on;
    }
    assert!(went_on > 1000, "{went_on}");
}

#[test]
fn what_counts_as_delivered_is_where_ticks_are_short() {
    let mut went_on = 0;
    for seed in 0..100 {
        let model = run(seed, true, false);
        assert_eq!(model.violation, None, "seed {seed}");
        // The rule that is tested here needs a tick, and 64 frames after the tick. If a ring is never empty,
        // `delivered` must advance by this rule alone.
        let must_go_on = model.tick_every == 10 && model.send_every == 3;
        assert!(!must_go_on || model.went_on > 100, "seed {seed}: {}", model.went_on);
        went_on += model.went_on;
    }
    assert!(went_on > 1000, "{went_on}");
}

#[test]
fn rule_for_long_ticks_does_not_do_where_they_are_short() {
    let broken = (0..100).filter(|seed| run(*seed, true, true).violation.is_some()).count();
    assert!(broken > 50, "the model hardly distinguishes the rules: {broken} of 100");
}
