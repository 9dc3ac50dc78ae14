//! Memory in cache lines: eight words each, shared between threads, all zero at first.

use crate::sync::AtomicU64;
use std::collections::TryReserveError;

/// Words of a line.
pub(crate) const WORDS: usize = 8;

/// One cache line.
pub(crate) type Line = [AtomicU64; WORDS];

/// An array of cache lines. The system hands its memory out page by page as lines are written, so
/// lines that are never used cost nothing but addresses.
#[derive(Debug)]
pub(crate) struct Lines {
    words: Vec<AtomicU64>,
    /// Words before the first one that begins a cache line.
    skip: usize,
}

impl Lines {
    /// As many lines as that.
    ///
    /// # Errors
    /// When there isn't the memory.
    pub(crate) fn new(lines: usize) -> Result<Lines, TryReserveError> {
        let words = lines * WORDS + WORDS - 1;
        // Asking first, since `vec!` would end the program. An array of numbers comes zeroed from the
        // system, and as atomics it is the same memory: the compiler leaves the loop out.
        Vec::<u64>::new().try_reserve_exact(words)?;
        let words: Vec<AtomicU64> = vec![0u64; words].into_iter().map(AtomicU64::new).collect();
        let skip = match words.as_ptr().cast::<u8>().align_offset(64) {
            // Never so in practice; lines then share cache lines and are slower, not wrong.
            usize::MAX => 0,
            bytes => bytes / size_of::<u64>(),
        };
        Ok(Lines { words, skip: skip.min(WORDS - 1) })
    }

    /// A line.
    #[inline(always)]
    pub(crate) fn line(&self, index: usize) -> &Line {
        &self.in_groups_of()[index]
    }

    /// All lines, or pairs of lines, or more: `N` words each.
    #[inline(always)]
    pub(crate) fn in_groups_of<const N: usize>(&self) -> &[[AtomicU64; N]] {
        self.words[self.skip..].as_chunks().0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn lines_begin_cache_lines_and_are_zero() {
        for count in [1, 2, 1000] {
            let lines = Lines::new(count).unwrap();
            for index in 0..count {
                let line = lines.line(index);
                assert_eq!(line.as_ptr() as usize % 64, 0);
                assert!(line.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            }
        }
    }

    #[test]
    fn more_memory_than_there_is_is_an_error() {
        assert!(Lines::new(usize::MAX / 1024).is_err());
    }
}
