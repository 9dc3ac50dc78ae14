//! The symmetric flow hash for steering.
//!
//! The hash is a keyed universal hash. Without the secret, an attacker cannot choose flows that share a hash,
//! table slot or CPU more often than by chance. The hash costs four multiplications for IPv4 and seven for IPv6.
//! None is wider than 64 bits, so a BPF program computes the same hash.
//!
//! # Definition
//!
//! All fields are integers, with the most significant byte first in the packet, so the definition does not depend
//! on a machine's byte order.
//!
//! 1. Order the two endpoints by (address, port), compared as one number: `lo` and `hi`. Both
//!    directions of a connection give the same; A:x→B:y and A:y→B:x do not.
//! 2. Write the message as 32-bit words: IPv4 `lo.addr, hi.addr, ports, protocol`; IPv6
//!    `lo.addr[0], hi.addr[0], … lo.addr[3], hi.addr[3], ports, protocol`, most significant word
//!    of an address first; `ports = lo.port << 16 | hi.port`.
//! 3. NH (Black, Halevi, Krawczyk, Krovetz, Rogaway, "UMAC", CRYPTO '99), with 32-bit key words
//!    k: s = Σ (m₂ᵢ + k₂ᵢ mod 2³²) · (m₂ᵢ₊₁ + k₂ᵢ₊₁ mod 2³²) mod 2⁶⁴.
//! 4. Stir: t = s · `STIR` mod 2⁶⁴, u = t xor ⌊t / 2³²⌋. Both are one-to-one.
//! 5. Pair-multiply-shift (Thorup, "High Speed Hashing for Integers and Strings", section 3.5),
//!    with 64-bit key words a: h = ((a₀ + (u mod 2³²)) · (a₁ + ⌊u / 2³²⌋) + a₂ mod 2⁶⁴) ≫ 32.
//! 6. A 0 becomes 1, since 0 means "no hash".
//!
//! IPv4 and IPv6 have separate key words. All of them come from the 128-bit secret. They are the first 104 bytes of the
//! ChaCha20 key stream whose key is the secret followed by `DOMAIN`, with counter and nonce 0, read as little-endian
//! numbers in the order of [`HashWords`].
//!
//! # What it guarantees
//!
//! The probabilities are over a random secret, with ChaCha20's output taken as random, and for any two packets of
//! different flows that were chosen without knowledge of the secret:
//!
//! - They have equal hashes with probability at most 2⁻³² + 2⁻³² (step 6 adds less than 2⁻⁶²).
//! - They get the same one of n CPUs or slots, n up to 2³², by multiply-shift or by any fixed range of the hash's
//!   bits, with probability at most 1/n + 2⁻³². Step 6 adds at most 2⁻³¹/n, and an n that does not divide 2³² adds
//!   less than n/2⁶⁴.
//!
//! Sketch. Step 2 loses no information, so different flows of one IP version have different messages. NH gives two
//! different messages of equal length the same s with probability at most 2⁻³²: suppose that they differ in word
//! 2i, and fix all key words except k₂ᵢ₊₁. The two sums are equal only if (k₂ᵢ₊₁ + m) · c = (k₂ᵢ₊₁ + m') · c' + d
//! mod 2⁶⁴, where c ≠ c' are less than 2³², and at most one value of k₂ᵢ₊₁ satisfies this. Step 4 keeps different
//! sums different. If u ≠ u', step 5 is strongly universal: (h, h') is uniform over all pairs, so the two fall
//! into the same one of n ranges of sizes rⱼ with probability Σ (rⱼ/2³²)², which is 1/n for equal ranges. For
//! flows of different IP versions the key words are independent, and so are h and h'.
//!
//! Step 4 does not improve this guarantee. It improves the spread of *many* similar flows, which the guarantee
//! does not cover. Steps 3 and 5 alone turn equal differences (hosts of one network, consecutive ports) into
//! nearly equal differences of h. Some secrets then spread such flows far worse than chance: the test
//! `similar_flows_spread_evenly` fails without step 4.
//!
//! # What it does not guarantee
//!
//! The hash is neither a MAC nor a pseudo-random function. It is algebraically simple: an attacker who sees enough
//! hashes of chosen packets (or, over a long time, the CPU of each packet) can compute the key words. So hashes
//! must not be visible to others, and each start uses a new secret by default. The guarantee is about pairs: only
//! pairwise independence limits the load of the fullest of many slots, though in practice the load is that of
//! random flows.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rxsteer_core::{FlowHash, FlowKey};

/// Separates the key stream from any other use of the same secret.
const DOMAIN: [u8; 16] = *b"rxsteer flow v1\0";

/// The odd number of step 4: 2⁶⁴ over the golden ratio. Any odd number makes the step one-to-one. This one has no
/// short pattern that could coincide with a regular set of sums.
const STIR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key words of [`SymmetricHash`], in the layout that the BPF side reads: native byte order, 104 bytes, no
/// padding.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashWords {
    /// NH key words for IPv4.
    pub nh_ipv4: [u32; 4],
    /// NH key words for IPv6.
    pub nh_ipv6: [u32; 10],
    /// a₀, a₁, a₂ for IPv4.
    pub finish_ipv4: [u64; 3],
    /// a₀, a₁, a₂ for IPv6.
    pub finish_ipv6: [u64; 3],
}

const _: () = assert!(size_of::<HashWords>() == 104 && align_of::<HashWords>() == 8);

/// The symmetric keyed hash; the [module](self) has its definition and guarantees.
#[derive(Clone)]
pub struct SymmetricHash {
    words: HashWords,
}

impl core::fmt::Debug for SymmetricHash {
    /// Keeps the key words out of logs: with them, an attacker can aim flows at one CPU.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SymmetricHash").finish_non_exhaustive()
    }
}

impl SymmetricHash {
    /// A hash keyed with a secret of 128 bits. Equal secrets give equal hashes on every machine.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> SymmetricHash {
        let mut seed = [0; 32];
        seed[..16].copy_from_slice(&secret);
        seed[16..].copy_from_slice(&DOMAIN);
        let mut stream = ChaCha20Rng::from_seed(seed);
        let mut u32_word = || {
            let mut bytes = [0; 4];
            stream.fill_bytes(&mut bytes);
            u32::from_le_bytes(bytes)
        };
        let nh_ipv4 = core::array::from_fn(|_| u32_word());
        let nh_ipv6 = core::array::from_fn(|_| u32_word());
        let mut u64_word = || u64::from(u32_word()) | u64::from(u32_word()) << 32;
        let finish_ipv4 = core::array::from_fn(|_| u64_word());
        let finish_ipv6 = core::array::from_fn(|_| u64_word());
        SymmetricHash { words: HashWords { nh_ipv4, nh_ipv6, finish_ipv4, finish_ipv6 } }
    }

    /// The key words, for a BPF program that computes the same hash.
    #[must_use]
    pub const fn words(&self) -> &HashWords {
        &self.words
    }

    /// The hash of a flow, equal for both directions; "no hash" for the default key.
    #[must_use]
    pub fn hash(&self, key: &FlowKey) -> FlowHash {
        match key.ip_version {
            4 => {
                let [a, b, c, d, ..] = key.src;
                let src = u32::from_be_bytes([a, b, c, d]);
                let [a, b, c, d, ..] = key.dst;
                let dst = u32::from_be_bytes([a, b, c, d]);
                self.ipv4((src, key.src_port), (dst, key.dst_port), key.protocol)
            }
            6 => self.ipv6((&key.src, key.src_port), (&key.dst, key.dst_port), key.protocol),
            _ => FlowHash::NONE,
        }
    }

    /// The hash of a flow between two IPv4 endpoints.
    #[inline]
    pub(crate) fn ipv4(&self, src: (u32, u16), dst: (u32, u16), protocol: u8) -> FlowHash {
        let endpoint = |(addr, port): (u32, u16)| u64::from(addr) << 16 | u64::from(port);
        let (src, dst) = (endpoint(src), endpoint(dst));
        let (lo, hi) = (src.min(dst), src.max(dst));
        let ports = (lo << 16) as u32 | (hi & 0xffff) as u32;
        let k = &self.words.nh_ipv4;
        let sum = nh((k[0], k[1]), (lo >> 16) as u32, (hi >> 16) as u32).wrapping_add(nh(
            (k[2], k[3]),
            ports,
            u32::from(protocol),
        ));
        finish(&self.words.finish_ipv4, sum)
    }

    /// The hash of a flow between two IPv6 endpoints.
    #[inline]
    pub(crate) fn ipv6(
        &self,
        src: (&[u8; 16], u16),
        dst: (&[u8; 16], u16),
        protocol: u8,
    ) -> FlowHash {
        let src = (u128::from_be_bytes(*src.0), src.1);
        let dst = (u128::from_be_bytes(*dst.0), dst.1);
        let (lo, hi) = if dst < src { (dst, src) } else { (src, dst) };
        let ports = u32::from(lo.1) << 16 | u32::from(hi.1);
        let k = &self.words.nh_ipv6;
        let mut sum = nh((k[8], k[9]), ports, u32::from(protocol));
        for i in 0..4 {
            let shift = 96 - 32 * i;
            let pair = nh((k[2 * i], k[2 * i + 1]), (lo.0 >> shift) as u32, (hi.0 >> shift) as u32);
            sum = sum.wrapping_add(pair);
        }
        finish(&self.words.finish_ipv6, sum)
    }
}

/// One term of NH.
#[inline]
fn nh(key: (u32, u32), first: u32, second: u32) -> u64 {
    u64::from(first.wrapping_add(key.0)) * u64::from(second.wrapping_add(key.1))
}

/// Stirs, then maps 64 bits to 32 by pair-multiply-shift. The result is never 0.
#[inline]
fn finish(a: &[u64; 3], sum: u64) -> FlowHash {
    let stirred = sum.wrapping_mul(STIR);
    let stirred = stirred ^ stirred >> 32;
    let first = a[0].wrapping_add(stirred & 0xffff_ffff);
    let second = a[1].wrapping_add(stirred >> 32);
    FlowHash::computed((first.wrapping_mul(second).wrapping_add(a[2]) >> 32) as u32)
}
