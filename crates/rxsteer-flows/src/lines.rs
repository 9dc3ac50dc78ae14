//! Memory in cache lines: eight words each, shared between threads, initially zero.

use crate::sync::AtomicU64;
use std::collections::TryReserveError;

/// Words of a line.
pub(crate) const WORDS: usize = 8;

/// One cache line.
pub(crate) type Line = [AtomicU64; WORDS];

/// An array of cache lines. The system provides its memory page by page as lines are written, so lines that are
/// never used cost only address space.
#[derive(Debug)]
pub(crate) struct Lines {
    words: Vec<AtomicU64>,
    /// Words before the first one that begins a cache line.
    skip: usize,
}

impl Lines {
    /// Allocates `lines` lines.
    ///
    /// # Errors
    /// When the memory cannot be allocated.
    pub(crate) fn new(lines: usize) -> Result<Lines, TryReserveError> {
        let words = lines * WORDS + WORDS - 1;
        // `try_reserve_exact` comes first, since `vec!` would abort the program. The system supplies an array of
        // numbers zeroed. The array of atomics uses the same memory: the compiler removes the loop.
        Vec::<u64>::new().try_reserve_exact(words)?;
        let words: Vec<AtomicU64> = vec![0u64; words].into_iter().map(AtomicU64::new).collect();
        let skip = match words.as_ptr().cast::<u8>().align_offset(64) {
            // This never happens in practice. Lines would then share cache lines, which is slower but not wrong.
            usize::MAX => 0,
            bytes => bytes / size_of::<u64>(),
        };
        Ok(Lines { words, skip: skip.min(WORDS - 1) })
    }

    /// The line `index`.
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
