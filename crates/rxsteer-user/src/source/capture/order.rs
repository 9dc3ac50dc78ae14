//! Byte order of a file or section.

/// The byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// The number at `offset`. The caller ensures that its bytes exist.
    #[inline(always)]
    pub(super) fn u32(self, bytes: &[u8], offset: usize) -> u32 {
        let four = [bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]];
        match self {
            Order::Little => u32::from_le_bytes(four),
            Order::Big => u32::from_be_bytes(four),
        }
    }

    /// The same for a number of two bytes.
    #[inline(always)]
    pub(super) fn u16(self, bytes: &[u8], offset: usize) -> u16 {
        let two = [bytes[offset], bytes[offset + 1]];
        match self {
            Order::Little => u16::from_le_bytes(two),
            Order::Big => u16::from_be_bytes(two),
        }
    }

    /// A signed number of eight bytes.
    pub(super) fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Order::Little => i64::from_le_bytes(bytes),
            Order::Big => i64::from_be_bytes(bytes),
        }
    }
}
