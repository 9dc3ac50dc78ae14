//! The only source of randomness in a run.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

#[derive(Debug)]
pub(crate) struct SeededRng(ChaCha8Rng);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> SeededRng {
        SeededRng(ChaCha8Rng::seed_from_u64(seed))
    }

    /// 64 bits, for several small choices at once.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`, which is above 0. The distribution is slightly uneven if `end` is not a power of two,
    /// which does not matter here.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.0.next_u32()) * u64::from(end)) >> 32) as u32
    }

    /// A number from `from` to `to`, inclusive.
    pub(crate) fn between(&mut self, from: u32, to: u32) -> u32 {
        from + self.below(to - from + 1)
    }

    /// True in `share` of 256 cases.
    pub(crate) fn chance(&mut self, share: u32) -> bool {
        self.0.next_u32() >> 24 < share
    }

    /// One of `choices`.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }

    /// A number below `end`. Small numbers are far more frequent: 0 is about as frequent as 1 to 2 together, 3 to 6
    /// together, and so on. (Zipf's law with exponent 1, in steps.)
    pub(crate) fn skewed(&mut self, end: u32) -> u32 {
        let bits = self.bits();
        let levels = end.ilog2() + 1;
        let level = ((bits & 0xffff) as u32 * levels) >> 16;
        let rank = (1 << level) - 1 + ((bits >> 32) as u32 & ((1 << level) - 1));
        rank.min(end - 1)
    }
}
