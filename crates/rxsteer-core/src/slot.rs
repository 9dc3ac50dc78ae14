//! The mapping from a flow's hash to a slot of a table.

/// A multiplicative hash to `log` bits: the kernel's `hash_32`. 0 bits give 0.
#[inline(always)]
#[must_use]
pub const fn hash_32(value: u32, log: u32) -> u32 {
    upper_bits(value.wrapping_mul(GOLDEN_RATIO_32), log)
}

/// The factor of [`hash_32`]: the kernel's `GOLDEN_RATIO_32` (include/linux/hash.h).
pub const GOLDEN_RATIO_32: u32 = 0x61c8_8647;

/// The upper `log` bits of a hash: the flow's slot in a table of `1 << log` slots. 0 bits give 0.
#[inline(always)]
#[must_use]
pub const fn upper_bits(value: u32, log: u32) -> u32 {
    (((value as u64) << log) >> 32) as u32
}

/// How a flow's slot of a flow table is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotOrder {
    /// By a multiplicative hash, `hash_32`, as in the kernel since Linux 6.15. The hashes of one RX queue may
    /// share their lower bits, since NICs choose queues by those bits.
    #[default]
    Scattered,
    /// By the upper bits. Flows that share a slot then have the same target by `rps`, except in slots that cross a
    /// boundary between two CPUs. The in-kernel path does the same, with a different hash.
    Ascending,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_32_is_the_kernels() {
        assert_eq!(hash_32(1, 0), 0);
        assert_eq!(hash_32(1, 8), 0x61);
        assert_eq!(hash_32(0xffff_ffff, 16), 0x9e37);
        assert_eq!(hash_32(3, 32), 3u32.wrapping_mul(0x61c8_8647));
    }
}
