//! The symmetric flow hash that steering goes by.
//!
//! A keyed universal hash: someone who does not know the secret cannot choose flows that meet in
//! one hash, table slot or CPU more often than chance has it. It costs four multiplications
//! for IPv4 and seven for IPv6, none wider than 64 bits, so a BPF program computes the same number.
//!
//! # Definition
//!
//! All fields are taken as integers, most significant byte first in the packet, so the definition
//! does not depend on a machine's byte order.
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
//! IPv4 and IPv6 have key words of their own. All of them come from the 128-bit secret: they are
//! the first 104 bytes of the ChaCha20 key stream whose key is the secret followed by
//! `DOMAIN`, counter and nonce 0, read as little-endian numbers in the order of [`HashWords`].
//!
//! # What it promises
//!
//! Over a random secret (and taking ChaCha20's output for random), for any two packets of
//! different flows that were fixed without knowledge of it:
//!
//! - They have equal hashes with probability at most 2⁻³² + 2⁻³² (step 6 adds less than 2⁻⁶²).
//! - They get the same one of n CPUs or slots, n up to 2³², by multiply-shift or by any fixed range
//!   of the hash's bits, with probability at most 1/n + 2⁻³², but for what step 6 (at most 2⁻³¹/n)
//!   and an n that does not divide 2³² (less than n/2⁶⁴) add.
//!
//! Sketch. Step 2 loses nothing, so different flows of one IP version have different messages. NH
//! gives two different messages of equal length the same s with probability at most 2⁻³²: let them
//! differ in word 2i, say; fix all key words but k₂ᵢ₊₁; the two sums are equal only if (k₂ᵢ₊₁ + m)
//! · c = (k₂ᵢ₊₁ + m') · c' + d mod 2⁶⁴, where c ≠ c' are less than 2³², and at most one value of
//! k₂ᵢ₊₁ does that. Step 4 keeps different sums different. If u ≠ u', step 5 is strongly universal:
//! (h, h') is uniform over all pairs, so the two fall into one of n ranges of sizes rⱼ with
//! probability Σ (rⱼ/2³²)², which is 1/n for equal ranges. For flows of different IP versions the
//! key words are independent, and so are h and h'.
//!
//! Step 4 adds nothing to that promise, and is there for what it leaves open: how *many* similar
//! flows spread. Steps 3 and 5 alone turn equal differences (hosts of one network, ports in a row)
//! into nearly equal differences of h, and some secrets then spread such flows far worse than
//! chance would: the test `similar_flows_spread_evenly` fails without step 4.
//!
//! # What it does not promise
//!
//! It is no MAC and no pseudo-random function. It is algebraically simple: whoever sees enough
//! hashes of packets of his choice (or, over a long time, which CPU each went to) can work out
//! the key words. So hashes are not to be shown to strangers, and each start takes a new secret
//! by default. And the promise is about pairs: how full the fullest of many slots gets
//! is bounded by pairwise independence only, though in practice it is as if flows were random.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rxsteer_core::{FlowHash, FlowKey};

/// Keeps the key stream apart from any other use of the same secret.
const DOMAIN: [u8; 16] = *b"rxsteer flow v1\0";

/// The odd number of step 4: 2⁶⁴ over the golden ratio. Any odd number is one-to-one; this one has
/// no short pattern that a regular set of sums could meet.
const STIR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key words of [`SymmetricHash`], laid out as the BPF side reads them: native byte order,
/// 104 bytes, no padding.
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

/// The symmetric keyed hash; see the [module](self) for what it is and what it promises.
#[derive(Clone)]
pub struct SymmetricHash {
    words: HashWords,
}

impl core::fmt::Debug for SymmetricHash {
    /// The key words stay out of logs: with them, flows can be aimed at one CPU.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SymmetricHash").finish_non_exhaustive()
    }
}

impl SymmetricHash {
    /// A hash keyed with 128 secret bits. Equal secrets give equal hashes on every machine.
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

    /// The hash of a flow, the same for both directions; none for the default key.
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

/// Stirs, then pair-multiply-shift from 64 bits to 32, of which 0 is kept free.
#[inline]
fn finish(a: &[u64; 3], sum: u64) -> FlowHash {
    let stirred = sum.wrapping_mul(STIR);
    let stirred = stirred ^ stirred >> 32;
    let first = a[0].wrapping_add(stirred & 0xffff_ffff);
    let second = a[1].wrapping_add(stirred >> 32);
    FlowHash::computed((first.wrapping_mul(second).wrapping_add(a[2]) >> 32) as u32)
}
