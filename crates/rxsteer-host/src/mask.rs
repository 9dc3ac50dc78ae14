//! Bit masks as the kernel writes them: groups of 32 bits in hexadecimal, the highest first, separated by commas
//! (`lib/vsprintf.c`, `bitmap_string`; read by `lib/bitmap-str.c`, `bitmap_parse`).

use rxsteer_core::{CpuId, CpuSet};
use serde::{Serialize, Serializer};
use std::fmt::{self, Write};

/// The number of bits in a group.
const GROUP: usize = 32;

/// The numbers of the set bits, ascending; `None` if the text is not a mask.
pub fn bits(text: &str) -> Option<Vec<usize>> {
    let text = text.trim();
    let mut bits = Vec::new();
    for (group, digits) in text.rsplit(',').enumerate() {
        // from_str_radix accepts a sign, too.
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let is_whole = matches!(digits.len(), 1..=8) && is_hex;
        let word = u32::from_str_radix(digits, 16).ok().filter(|_| is_whole)?;
        let set = (0..GROUP).filter(|bit| word & (1 << bit) != 0);
        bits.extend(set.map(|bit| group * GROUP + bit));
    }
    Some(bits)
}

/// A mask of `width` bits, as the kernel writes it. Bits beyond the width make it wider.
pub fn hex(bits: impl IntoIterator<Item = usize>, width: usize) -> String {
    let mut words = vec![0_u32; width.div_ceil(GROUP).max(1)];
    let mut width = width.max(1);
    for bit in bits {
        width = width.max(bit + 1);
        if words.len() <= bit / GROUP {
            words.resize(bit / GROUP + 1, 0);
        }
        words[bit / GROUP] |= 1 << (bit % GROUP);
    }
    // The highest group has the digits that its bits need.
    let first = (width - (words.len() - 1) * GROUP).div_ceil(4);
    let mut text = String::with_capacity(words.len() * 9);
    for (place, word) in words.iter().rev().enumerate() {
        // Writing to a String does not fail.
        let _ = match place {
            0 => write!(text, "{word:0first$x}"),
            _ => write!(text, ",{word:08x}"),
        };
    }
    text
}

/// A set of CPUs that may be empty, as a mask represents it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuMask(pub Option<CpuSet>);

impl CpuMask {
    /// Parses a mask of the kernel; `None` if the text is not a mask, or names a CPU above [`CpuId::MAX`].
    pub fn read(text: &str) -> Option<CpuMask> {
        let cpu = |bit: usize| CpuId::new(u16::try_from(bit).ok()?);
        let cpus: Option<Vec<CpuId>> = bits(text)?.into_iter().map(cpu).collect();
        Some(CpuMask(CpuSet::new(cpus?)))
    }

    /// The mask as the kernel writes it on a host whose CPU ids are below `ids` (`nr_cpu_ids`).
    pub fn hex(&self, ids: usize) -> String {
        hex(self.iter().map(CpuId::index), ids)
    }

    /// Whether it has no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether it has `cpu`.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.as_ref().is_some_and(|set| set.contains(cpu))
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + '_ {
        self.0.iter().flat_map(CpuSet::iter)
    }
}

/// In words: `cpus 1-3`, `cpu 1`, `none`.
impl fmt::Display for CpuMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("none"),
            Some(set) if set.len() == 1 => write!(f, "cpu {set}"),
            Some(set) => write!(f, "cpus {set}"),
        }
    }
}

/// As a list, `"1-3"`; an empty text if it has no CPU.
impl Serialize for CpuMask {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(set) => to.collect_str(set),
            None => to.serialize_str(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_are_the_kernels() {
        let hex = |list: &str, ids| CpuMask(list.parse().ok()).hex(ids);
        // As hosts with 2, 16, 72 and 96 CPUs show them.
        assert_eq!(hex("0-1", 2), "3");
        assert_eq!(hex("1-3", 16), "000e");
        assert_eq!(hex("", 72), "00,00000000,00000000");
        assert_eq!(hex("0,36,71", 72), "80,00000010,00000001");
        assert_eq!(hex("95", 96), "80000000,00000000,00000000");
        assert_eq!(hex("33", 2), "2,00000000", "wider than the host");
        assert_eq!(CpuMask::read("00,00000000,0000000e\n").unwrap().to_string(), "cpus 1-3");
        assert_eq!(CpuMask::read("8").unwrap().to_string(), "cpu 3");
        assert_eq!(CpuMask::read("0,00000000").unwrap().to_string(), "none");
        for bad in ["", "x", "1,", ",1", "+1", "000000001", "1 2", "0x3", "1,,2"] {
            assert_eq!(CpuMask::read(bad), None, "{bad:?}");
        }
        let beyond = format!("1{}", ",00000000".repeat(256));
        assert_eq!(CpuMask::read(&beyond), None, "CPU 8192");
    }

    proptest! {
        #[test]
        fn masks_round_trip(ids in prop::collection::btree_set(0_u16..8192, 0..40), above in 0_usize..70) {
            let mask = CpuMask(CpuSet::new(ids.iter().filter_map(|id| CpuId::new(*id))));
            let width = ids.last().map_or(1, |id| usize::from(*id) + 1) + above;
            let text = mask.hex(width);
            prop_assert_eq!(CpuMask::read(&text), Some(mask.clone()));
            // Every group but the first has eight digits, and all digits together have exactly `width` bits.
            let digits: Vec<usize> = text.split(',').map(str::len).collect();
            prop_assert!(digits[1..].iter().all(|digits| *digits == 8));
            prop_assert_eq!(digits.len(), width.div_ceil(32));
            prop_assert_eq!(digits[0], (width - (digits.len() - 1) * 32).div_ceil(4));
            // Masks without leading zeroes, as people write them, are equal.
            let short = text.trim_start_matches(['0', ',']);
            prop_assert_eq!(CpuMask::read(if short.is_empty() { "0" } else { short }), Some(mask));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = CpuMask::read(&text);
        }
    }
}
