//! Checks whether memory is left before it is needed, since a failed allocation ends the process.

use std::hint::black_box;

/// Memory that must be left while frames are received: everything that grows between two checks fits into it. It
/// is more than the C library keeps for reuse, so each check asks the system.
pub(crate) const RESERVE: u64 = 40 << 20;

/// Blocks received between two checks.
pub(crate) const BLOCKS_BETWEEN_CHECKS: u64 = 64;

/// Whether this many bytes can be allocated now, in one piece. They are not kept.
pub(crate) fn is_available(bytes: u64) -> bool {
    let Ok(bytes) = usize::try_from(bytes) else { return false };
    let mut memory: Vec<u8> = Vec::new();
    let is_there = memory.try_reserve_exact(bytes).is_ok();
    // Without this, the compiler may remove the unused allocation and assume that it succeeded.
    black_box(&memory);
    is_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_beyond_any_machine_is_not_there() {
        assert!(is_available(RESERVE) && is_available(0));
        assert!(!is_available(1 << 60) && !is_available(u64::MAX));
    }
}
