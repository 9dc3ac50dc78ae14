//! Delays of sampled frames (`steer_delay.h`): which frames are sampled, and that each delay belongs to its frame.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::abi::{STEER_DELAY_BUCKETS, STEER_SENT_WORDS, STEER_SEQ_EACH};
use rxsteer_bpf_native::delay::{Sent, bucket, is_sampled};
use rxsteer_status::Delay;

/// Numbers of which one is sampled.
const BLOCK: u32 = 256;

#[test]
fn one_number_of_each_block_is_sampled() {
    let mut places = [0; (BLOCK / STEER_SEQ_EACH) as usize];
    for block in (0..4000).chain((1 << 24) - 4000..1 << 24) {
        let first: u32 = block * BLOCK;
        let sampled: Vec<u32> = (0..BLOCK).filter(|place| is_sampled(first + place)).collect();
        assert_eq!(sampled.len(), 1, "block {block}");
        assert_eq!(sampled[0] % STEER_SEQ_EACH, 0, "only such frames always carry their number");
        places[(sampled[0] / STEER_SEQ_EACH) as usize] += 1;
    }
    assert!(places.iter().all(|times| (200..300).contains(times)), "evenly: {places:?}");
}

#[test]
fn buckets_are_those_that_readers_use() {
    let last = STEER_DELAY_BUCKETS as usize - 1;
    let powers = (0..64).flat_map(|log| [1 << log, (1u64 << log).wrapping_sub(1), 3 << log >> 1]);
    for delay in (0..5000).chain(powers) {
        assert_eq!(bucket(delay) as usize, Delay::bucket_of(delay).min(last), "{delay} ns");
    }
    assert!(Delay::lower(last) > 10_000_000_000, "delays of ten seconds have buckets of their own");
}

/// A ring that CPU sends to, and whose thread stalls at times.
struct Model {
    rng: ChaCha8Rng,
    sent: Sent,
    room: usize,
    now: u64,
    tail: u32,
    dequeued: u32,
    /// Frames in the ring: number and time.
    ring: VecDeque<(u32, u64)>,
    /// Sampled frames that arrived, and those of them whose delay was found.
    arrived: u32,
    found: u32,
}

impl Model {
    fn new(seed: u64, room: usize, first: u32) -> Model {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Model {
            rng,
            sent: Sent::default(),
            room,
            now: 1 << 41,
            tail: first,
            dequeued: first,
            ring: VecDeque::new(),
            arrived: 0,
            found: 0,
        }
    }

    fn send(&mut self) {
        self.now += self.rng.random_range(1..500);
        self.tail = self.tail.wrapping_add(1);
        if is_sampled(self.tail) {
            self.sent.note(self.dequeued, self.tail, self.now);
        }
        // A full ring refuses the frame, which keeps its number.
        if self.ring.len() < self.room {
            self.ring.push_back((self.tail, self.now));
        }
    }

    fn arrive(&mut self) {
        self.now += self.rng.random_range(1..500);
        let Some((number, sent_at)) = self.ring.pop_front() else { return };
        if number % STEER_SEQ_EACH != 0 {
            return;
        }
        self.dequeued = number;
        if is_sampled(number) {
            self.arrived += 1;
            if let Some(delay) = self.sent.delay_of(number, self.now) {
                assert_eq!(delay, self.now - sent_at, "of frame {number}");
                self.found += 1;
            }
        }
    }
}

#[test]
fn each_delay_is_that_of_its_frame() {
    for seed in 0..60 {
        // The second run of the numbers wraps.
        for first in [0, u32::MAX - 40_000] {
            let room = [64, 500, (STEER_SENT_WORDS * BLOCK) as usize][(seed % 3) as usize];
            let mut model = Model::new(seed, room, first);
            for _ in 0..400 {
                // The thread runs for a while, and stalls for a while.
                let (sends, arrives) =
                    (model.rng.random_range(0..800), model.rng.random_range(0..900));
                (0..sends).for_each(|_| model.send());
                (0..arrives).for_each(|_| model.arrive());
            }
            assert!(model.arrived > 50, "seed {seed}: {} sampled frames", model.arrived);
            let least = if room < 1000 { 0.9 } else { 0.75 };
            let share = f64::from(model.found) / f64::from(model.arrived);
            assert!(share > least, "seed {seed}, room {room}: {share} of the samples were found");
        }
    }
}

#[test]
fn full_ring_has_all_its_samples() {
    let room = (STEER_SENT_WORDS * BLOCK) as usize;
    let mut model = Model::new(7, room, 0);
    for _ in 0..50 {
        (0..room).for_each(|_| model.send());
        (0..room).for_each(|_| model.arrive());
    }
    // Numbers begin at 1, so a round has one number of a ninth block.
    assert!(model.arrived > 300, "{}", model.arrived);
    assert!(model.found + 4 >= model.arrived, "{} of {}", model.found, model.arrived);
}

#[test]
fn overloaded_ring_still_has_samples() {
    // The thread takes one frame while the CPU sends some ten, so nine of ten frames are refused.
    let mut model = Model::new(3, 2048, 0);
    for _ in 0..200_000 {
        (0..model.rng.random_range(1..20)).for_each(|_| model.send());
        model.arrive();
    }
    assert!(model.found > 50, "{} of {}", model.found, model.arrived);
}
