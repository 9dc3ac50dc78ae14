//! Toeplitz for lists of inputs, with the Galois-field instructions of AVX-512.
//!
//! Byte j of the hash is the sum (exclusive or) over all input bytes p of T(p+j) · input(p), where T(i) is the 8 ×
//! 8 bit matrix whose row c holds the eight key bits from bit 8i + c on. `gf2p8affineqb` multiplies eight bytes by
//! one such matrix. For two inputs a and b, T(i) multiplies exactly eight bytes: a(i−j) and b(i−j) for j = 0…3.
//! One register holds eight matrices:
//!
//! ```text
//!  matrices        T(0)                T(1)          …  T(7)      one quadword each
//!  bytes     a₋₃a₋₂a₋₁a₀ b₋₃…b₀ │ a₋₂a₋₁a₀a₁ b₋₂…b₁ │ …           a₋₁, b₋₁, … are 0
//!  the sum of all quadwords is the hash of a in its lower, that of b in its upper half
//! ```
//!
//! So for two inputs, 12 bytes take two such products and 36 bytes take five. (DPDK's `rte_thash_gfni` uses the
//! same idea.) Eight inputs are processed together, since their four sums can then be computed at once.
//!
//! Only this file of the crate has unsafe code: vector loads and stores use pointers, and a function with these
//! instructions may run only on a CPU that has them.
#![allow(unsafe_code)]

use core::arch::x86_64::{
    __m512i, _mm256_storeu_si256, _mm512_castsi512_si256, _mm512_gf2p8affine_epi64_epi8,
    _mm512_loadu_si512, _mm512_maskz_loadu_epi8, _mm512_permutex2var_epi8, _mm512_permutexvar_epi8,
    _mm512_setzero_si512, _mm512_shuffle_i64x2, _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
    _mm512_xor_si512,
};

use super::MAX_INPUT;

/// The number of blocks of eight matrices for the longest input.
const BLOCKS: usize = (MAX_INPUT + 3).div_ceil(8);
/// The number of inputs processed together.
const TOGETHER: usize = 8;

/// The matrices of one key. Only [`Gfni::detect`] creates a value, so a value proves that this CPU has the
/// instructions.
#[derive(Clone)]
pub(super) struct Gfni {
    matrices: [[u64; 8]; BLOCKS],
}

impl Gfni {
    /// The matrices of `key`, if this CPU can use them.
    pub(super) fn detect(key: &[u8]) -> Option<Gfni> {
        let has_instructions = std::arch::is_x86_feature_detected!("gfni")
            && std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vbmi");
        has_instructions.then(|| Gfni {
            matrices: core::array::from_fn(|block| {
                core::array::from_fn(|i| matrix(key, 8 * block + i))
            }),
        })
    }

    /// See [`super::Toeplitz::hash_list`]. `N` is at most [`MAX_INPUT`].
    pub(super) fn hash_list<const N: usize>(&self, inputs: &[[u8; N]], hashes: &mut [u32]) {
        // SAFETY: `self` was made by `detect`, so the CPU has the four features.
        unsafe { self.hash_list_with_features(inputs, hashes) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
    fn hash_list_with_features<const N: usize>(&self, inputs: &[[u8; N]], hashes: &mut [u32]) {
        let length = inputs.len().min(hashes.len());
        let (inputs, hashes) = (&inputs[..length], &mut hashes[..length]);
        let (rounds, _) = inputs.as_chunks::<2>().0.as_chunks::<{ TOGETHER / 2 }>();
        let (round_hashes, rest_hashes) = hashes.as_chunks_mut::<TOGETHER>();
        for (round, hashes) in rounds.iter().zip(round_hashes) {
            *hashes = self.hash_eight(round);
        }
        if !rest_hashes.is_empty() {
            let mut round = [[[0; N]; 2]; TOGETHER / 2];
            let rest = &inputs[rounds.len() * TOGETHER..];
            round.as_flattened_mut().iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            rest_hashes.iter_mut().zip(self.hash_eight(&round)).for_each(|(to, from)| *to = from);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
    fn hash_eight<const N: usize>(&self, inputs: &[[[u8; N]; 2]; TOGETHER / 2]) -> [u32; TOGETHER] {
        let [ab, cd, ef, gh] = inputs;
        let (ab, cd) = (self.sum_pair(ab), self.sum_pair(cd));
        let (ef, gh) = (self.sum_pair(ef), self.sum_pair(gh));
        // Add the eight quadwords of each of the four sums. Each of the three steps halves their number.
        let abcd = add(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
        let efgh = add(_mm512_unpacklo_epi64(ef, gh), _mm512_unpackhi_epi64(ef, gh));
        let halves = add(
            _mm512_shuffle_i64x2::<0b10_00_10_00>(abcd, efgh),
            _mm512_shuffle_i64x2::<0b11_01_11_01>(abcd, efgh),
        );
        let sums = add(
            _mm512_shuffle_i64x2::<0b10_00_10_00>(halves, halves),
            _mm512_shuffle_i64x2::<0b11_01_11_01>(halves, halves),
        );
        let mut hashes = [0; TOGETHER];
        // SAFETY: `hashes` has room for the 32 bytes that are stored; no alignment is needed.
        unsafe { _mm256_storeu_si256(hashes.as_mut_ptr().cast(), _mm512_castsi512_si256(sums)) };
        hashes
    }

    /// Eight quadwords whose sum holds the hash of the first input in its lower 32 bits and that of the second in
    /// its upper 32 bits.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
    fn sum_pair<const N: usize>(&self, pair: &[[u8; N]; 2]) -> __m512i {
        let blocks = const { (N + 3).div_ceil(8) };
        let windows = const { &windows::<N>() };
        let mut sum = _mm512_setzero_si512();
        if const { fits_one_register(N) } {
            let both = load(pair.as_flattened());
            for (matrices, windows) in self.matrices.iter().zip(windows).take(blocks) {
                let bytes = _mm512_permutexvar_epi8(whole(windows), both);
                sum = add(sum, multiply(bytes, matrices));
            }
        } else {
            let (first, second) = (load(&pair[0]), load(&pair[1]));
            for (matrices, windows) in self.matrices.iter().zip(windows).take(blocks) {
                let bytes = _mm512_permutex2var_epi8(first, whole(windows), second);
                sum = add(sum, multiply(bytes, matrices));
            }
        }
        sum
    }
}

/// Whether two inputs and a zero after them fit one register. One load and a cheaper permutation then serve both
/// inputs.
const fn fits_one_register(length: usize) -> bool {
    2 * length < 64
}

/// For each block of matrices, the place of each byte of the two inputs: T(i) multiplies the four bytes of each
/// input up to its byte i. If the inputs share one register, bytes are numbered through both; otherwise those of
/// the second start at 64. Byte 63 is always 0.
const fn windows<const N: usize>() -> [[u8; 64]; BLOCKS] {
    let second = if fits_one_register(N) { N } else { 64 };
    let mut windows = [[63; 64]; BLOCKS];
    let mut at = 0;
    while at < BLOCKS * 64 {
        let (i, byte) = (at / 8, at % 8);
        let source = i + byte % 4;
        // Three more than the source index, so that bytes before the first one do not wrap.
        if source >= 3 && source < N + 3 {
            windows[at / 64][at % 64] = (byte / 4 * second + source - 3) as u8;
        }
        at += 1;
    }
    windows
}

/// Loads up to 64 bytes, followed by zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(bytes: &[u8]) -> __m512i {
    let mask = u64::MAX.unbounded_shr(64_u32.saturating_sub(bytes.len() as u32));
    // SAFETY: bytes outside the mask are not read, and the mask is no longer than the slice.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

/// Loads the 64 bytes of an array.
#[inline]
#[target_feature(enable = "avx512f")]
fn whole<T, const LENGTH: usize>(array: &[T; LENGTH]) -> __m512i {
    const { assert!(size_of::<[T; LENGTH]>() == 64) };
    // SAFETY: the array is 64 bytes long, and all of it is initialised; no alignment is needed.
    unsafe { _mm512_loadu_si512(array.as_ptr().cast()) }
}

/// The product of each byte with the matrix of its quadword.
#[inline]
#[target_feature(enable = "avx512f,gfni")]
fn multiply(bytes: __m512i, matrices: &[u64; 8]) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(bytes, whole(matrices))
}

/// Addition in the field is exclusive or.
#[inline]
#[target_feature(enable = "avx512f")]
fn add(a: __m512i, b: __m512i) -> __m512i {
    _mm512_xor_si512(a, b)
}

/// T(i) in the instruction's format: row c, which gives bit 7 − c of the product, is byte c.
fn matrix(key: &[u8], i: usize) -> u64 {
    u64::from_le_bytes(core::array::from_fn(|row| super::key_bits(key, 8 * i + row)))
}
