//! The Toeplitz hash of receive-side scaling, as NICs compute it.
//!
//! Input bits are processed most significant bit first. Each set bit adds (by exclusive or) the 32 key bits that
//! begin at its position (Microsoft, "RSS hashing types"; Intel 82599 datasheet, section 7.1.2.8). The hash is
//! linear in the input, so a byte's contribution depends only on its value and its position. The implementation
//! uses one table of 256 numbers per position and one look-up per byte.
//!
//! Lists of inputs of equal length use the CPU's Galois-field instructions where available
//! ([`Toeplitz::hash_list`]). The tables take 1 KiB per byte of the key.

use rxsteer_core::{FlowHash, FlowKey};

#[cfg(target_arch = "x86_64")]
#[path = "toeplitz_gfni.rs"]
mod gfni;

/// The shortest key: 36 bytes of input (two IPv6 endpoints) plus the 4 bytes of the last window.
const MIN_KEY: usize = 40;
/// The longest key that NICs accept.
const MAX_KEY: usize = 52;
/// The longest input of a list: the windows of the longest key end there.
const MAX_INPUT: usize = MAX_KEY - 4;

/// Why a Toeplitz key is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToeplitzError {
    /// The key is too short or too long.
    #[error("a Toeplitz key has {MIN_KEY} to {MAX_KEY} bytes, this one has {0}")]
    KeyLength(usize),
}

/// The Toeplitz hash with one key, ready to use.
#[derive(Clone)]
pub struct Toeplitz {
    /// For each byte position, the contribution of each byte value. There are as many positions as bytes in the
    /// key.
    tables: Box<[[u32; 256]]>,
    #[cfg(target_arch = "x86_64")]
    gfni: Option<Box<gfni::Gfni>>,
}

impl core::fmt::Debug for Toeplitz {
    /// Omits the tables, which contain the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Toeplitz").field("key_bytes", &self.tables.len()).finish_non_exhaustive()
    }
}

impl Default for Toeplitz {
    /// The hash with [`Toeplitz::DEFAULT_KEY`].
    fn default() -> Toeplitz {
        Toeplitz::with_key(&Toeplitz::DEFAULT_KEY)
    }
}

impl Toeplitz {
    /// The key of Microsoft's RSS verification suite, which many drivers use unchanged.
    pub const DEFAULT_KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    /// A hash with a key of 40 to 52 bytes, the lengths that NICs accept.
    ///
    /// # Errors
    /// [`ToeplitzError::KeyLength`] for any other length.
    pub fn new(key: &[u8]) -> Result<Toeplitz, ToeplitzError> {
        if !(MIN_KEY..=MAX_KEY).contains(&key.len()) {
            return Err(ToeplitzError::KeyLength(key.len()));
        }
        Ok(Toeplitz::with_key(key))
    }

    fn with_key(key: &[u8]) -> Toeplitz {
        let tables = (0..key.len()).map(|position| byte_table(key, position)).collect();
        Toeplitz {
            tables,
            #[cfg(target_arch = "x86_64")]
            gfni: gfni::Gfni::detect(key).map(Box::new),
        }
    }

    /// The hash of any input. The key is treated as followed by zero bits, so input beyond its end adds nothing.
    /// The windows of the first `key length − 4` bytes lie within the key.
    #[inline]
    #[must_use]
    pub fn hash_bytes(&self, input: &[u8]) -> u32 {
        input
            .iter()
            .zip(&self.tables)
            .fold(0, |hash, (&byte, table)| hash ^ table[usize::from(byte)])
    }

    /// The hashes of a list of inputs of equal length: 12 bytes for IPv4 with ports, 36 for IPv6, at most 48.
    /// `hashes` and `inputs` are processed in pairs; extra elements of the longer one are ignored.
    ///
    /// The results are those of [`Toeplitz::hash_bytes`]. A CPU with GFNI and AVX-512 (BW and VBMI) computes them
    /// in a fraction of the time, and without tables.
    pub fn hash_list<const N: usize>(&self, inputs: &[[u8; N]], hashes: &mut [u32]) {
        const { assert!(N <= MAX_INPUT, "no key has windows for an input this long") };
        #[cfg(target_arch = "x86_64")]
        if let Some(gfni) = &self.gfni {
            gfni.hash_list(inputs, hashes);
            return;
        }
        for (hash, input) in hashes.iter_mut().zip(inputs) {
            *hash = self.hash_bytes(input);
        }
    }

    /// The hash of a flow as in RSS: source, destination, then the ports if there are any. Zero bits add nothing,
    /// so absent ports need no separate case. "No hash" for the default key.
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> FlowHash {
        match key.ip_version {
            4 => {
                let [a, b, c, d, ..] = key.src;
                let src = u32::from_be_bytes([a, b, c, d]);
                let [a, b, c, d, ..] = key.dst;
                let dst = u32::from_be_bytes([a, b, c, d]);
                self.ipv4((src, key.src_port), (dst, key.dst_port))
            }
            6 => self.ipv6((&key.src, key.src_port), (&key.dst, key.dst_port)),
            _ => FlowHash::NONE,
        }
    }

    /// The hash of a flow between two IPv4 endpoints.
    #[inline]
    pub(crate) fn ipv4(&self, src: (u32, u16), dst: (u32, u16)) -> FlowHash {
        let mut input = [0; 12];
        input[..4].copy_from_slice(&src.0.to_be_bytes());
        input[4..8].copy_from_slice(&dst.0.to_be_bytes());
        input[8..10].copy_from_slice(&src.1.to_be_bytes());
        input[10..].copy_from_slice(&dst.1.to_be_bytes());
        FlowHash::computed(self.hash_bytes(&input))
    }

    /// The hash of a flow between two IPv6 endpoints.
    #[inline]
    pub(crate) fn ipv6(&self, src: (&[u8; 16], u16), dst: (&[u8; 16], u16)) -> FlowHash {
        let mut input = [0; 36];
        input[..16].copy_from_slice(src.0);
        input[16..32].copy_from_slice(dst.0);
        input[32..34].copy_from_slice(&src.1.to_be_bytes());
        input[34..].copy_from_slice(&dst.1.to_be_bytes());
        FlowHash::computed(self.hash_bytes(&input))
    }
}

/// Eight key bits from bit `bit` on; bits past the end are zero.
fn key_bits(key: &[u8], bit: usize) -> u8 {
    let byte = |index: usize| u16::from(key.get(index).copied().unwrap_or(0));
    let two = byte(bit / 8) << 8 | byte(bit / 8 + 1);
    (two << (bit % 8) >> 8) as u8
}

/// The contribution of each value of the input byte at `position` to the hash.
fn byte_table(key: &[u8], position: usize) -> [u32; 256] {
    let window =
        |bit: usize| u32::from_be_bytes(core::array::from_fn(|byte| key_bits(key, bit + 8 * byte)));
    core::array::from_fn(|value| {
        (0..8)
            .filter(|bit| value & (0x80 >> bit) != 0)
            .fold(0, |share, bit| share ^ window(8 * position + bit))
    })
}
