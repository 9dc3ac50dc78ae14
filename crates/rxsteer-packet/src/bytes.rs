//! Reads at an offset that return `None` past the end. Every read of the dissector that is not of a fixed-size
//! array uses these three functions, so no read can leave the frame or panic.

/// The byte at `offset`.
#[inline]
pub(crate) fn byte(bytes: &[u8], offset: usize) -> Option<u8> {
    bytes.get(offset).copied()
}

/// The 16-bit number in network byte order at `offset`.
#[inline]
pub(crate) fn be16(bytes: &[u8], offset: usize) -> Option<u16> {
    array(bytes, offset).map(|two| u16::from_be_bytes(*two))
}

/// The `N` bytes from `offset` on.
#[inline]
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<&[u8; N]> {
    bytes.get(offset..)?.first_chunk()
}

/// A 32-bit number in network byte order.
#[inline(always)]
pub(crate) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(|bytes| u32::from_be_bytes(*bytes))
}
