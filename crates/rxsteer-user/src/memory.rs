//! Whether there is memory, asked before it is needed: an allocation that fails ends the process.

use std::hint::black_box;

/// What is to be left while frames are received: everything that grows between two looks fits into it. Larger than
/// what the C library keeps for reuse, so that the system is asked each time.
pub(crate) const RESERVE: u64 = 40 << 20;

/// Blocks received between two looks.
pub(crate) const BLOCKS_BETWEEN_LOOKS: u64 = 64;

/// Whether so many bytes can be had now, in one piece; they are not kept.
pub(crate) fn is_left(bytes: u64) -> bool {
    let Ok(bytes) = usize::try_from(bytes) else { return false };
    let mut memory: Vec<u8> = Vec::new();
    let is_there = memory.try_reserve_exact(bytes).is_ok();
    // Else a compiler may leave out memory that nothing is done with, and say it is there.
    black_box(&memory);
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_beyond_any_machine_is_not_there() {
        assert!(is_left(RESERVE) && is_left(0));
        assert!(!is_left(1 << 60) && !is_left(u64::MAX));
    }
}
