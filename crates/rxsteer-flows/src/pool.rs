//! Numbers that threads take and give back: slots of flows, and lines for blocks.

use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// The numbers below a limit that are not in use. The last one given back is taken first: its memory is in the
/// cache, and memory that was never used stays untouched as long as possible.
#[derive(Debug)]
pub(crate) struct FreeNumbers {
    returned: Vec<u32>,
    /// Numbers from here up to `limit` were never taken.
    fresh: u32,
    limit: u32,
}

impl FreeNumbers {
    pub(crate) fn below(limit: u32) -> FreeNumbers {
        FreeNumbers { returned: Vec::new(), fresh: 0, limit }
    }

    pub(crate) fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.returned.pop() {
            return Some(number);
        }
        let number = self.fresh;
        (number < self.limit).then(|| {
            self.fresh += 1;
            number
        })
    }

    pub(crate) fn give_back(&mut self, numbers: impl IntoIterator<Item = u32>) {
        self.returned.extend(numbers);
    }

    /// How many numbers can be taken.
    pub(crate) fn len(&self) -> usize {
        self.returned.len() + (self.limit - self.fresh) as usize
    }

    /// A bound above all numbers that were ever taken.
    pub(crate) fn fresh(&self) -> u32 {
        self.fresh
    }
}

/// A pool that several threads take from.
#[derive(Debug)]
pub(crate) struct Pool {
    numbers: Mutex<FreeNumbers>,
    /// Whether the pool is empty, so that a thread can check this without the lock. The value is a hint and may be
    /// slightly out of date.
    is_empty: AtomicBool,
}

impl Pool {
    pub(crate) fn below(limit: u32) -> Pool {
        let numbers = FreeNumbers::below(limit);
        Pool { is_empty: AtomicBool::new(numbers.len() == 0), numbers: Mutex::new(numbers) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        // ORDER: Relaxed, here and below; the value is a hint.
        self.is_empty.load(Ordering::Relaxed)
    }

    /// Runs `f` with the numbers, under the lock.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut FreeNumbers) -> T) -> T {
        let numbers = &mut *lock(&self.numbers);
        let value = f(numbers);
        self.is_empty.store(numbers.len() == 0, Ordering::Relaxed);
        value
    }
}

/// The largest number of lines that a CPU takes from the pool at once.
const REFILL: usize = 16;

/// Lines reserved for one CPU, so that the pool's lock is taken only for every sixteenth block.
#[derive(Debug, Default)]
pub(crate) struct Magazine {
    lines: Vec<u32>,
}

impl Magazine {
    pub(crate) fn new() -> Magazine {
        Magazine { lines: Vec::with_capacity(REFILL * 2) }
    }

    /// A line that no other thread has; `None` when the pool is empty.
    pub(crate) fn take(&mut self, pool: &Pool) -> Option<u32> {
        if self.lines.is_empty() && !pool.is_empty() {
            pool.with(|numbers| {
                // A small pool is not emptied: the other CPUs cannot use lines that are reserved here.
                let count = REFILL.min(numbers.len().div_ceil(8));
                self.lines.extend(std::iter::from_fn(|| numbers.take()).take(count));
            });
        }
        self.lines.pop()
    }

    pub(crate) fn give_back(&mut self, line: u32, pool: &Pool) {
        if self.lines.len() == REFILL * 2 {
            pool.with(|numbers| numbers.give_back(self.lines.drain(REFILL..)));
        }
        self.lines.push(line);
    }

    /// Gives all lines back.
    pub(crate) fn empty(&mut self, pool: &Pool) {
        pool.with(|numbers| numbers.give_back(self.lines.drain(..)));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_number_is_out_once_and_the_warm_ones_go_first() {
        let mut numbers = FreeNumbers::below(3);
        let out: Vec<_> = std::iter::from_fn(|| numbers.take()).collect();
        assert_eq!((out, numbers.len()), (vec![0, 1, 2], 0));
        numbers.give_back([2, 0]);
        assert_eq!((numbers.take(), numbers.len(), numbers.fresh()), (Some(0), 1, 3));
    }

    /// Two CPUs use one pool: no line is with both, and in the end all lines are back.
    #[test]
    fn line_is_in_one_hand() {
        for limit in [0, 1, 7, 100, 1000] {
            let pool = Pool::below(limit);
            let mut hands = [Magazine::new(), Magazine::new()];
            let mut out = BTreeSet::new();
            let mut at = 0;
            // The two take turns until neither gets a line.
            while let Some(line) = hands[at].take(&pool).or_else(|| hands[1 - at].take(&pool)) {
                assert!(out.insert(line), "line {line} was taken twice");
                at = 1 - at;
            }
            assert!(out.iter().copied().eq(0..limit), "all of a small pool can be had");
            for line in out {
                hands[0].give_back(line, &pool);
                assert!(hands[0].lines.len() <= 2 * REFILL, "the rest is for the others");
            }
            hands.iter_mut().for_each(|hand| hand.empty(&pool));
            assert_eq!(pool.with(|numbers| numbers.len()), limit as usize);
            assert_eq!(pool.is_empty(), limit == 0);
        }
    }
}
