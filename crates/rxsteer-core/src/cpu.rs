//! CPU ids and sets of CPU ids.
//!
//! Ids can be sparse: a host may have CPUs 0, 3 and 4095. Tables are therefore sized by the highest id plus one,
//! never by the number of CPUs.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// The id of one CPU, as the kernel numbers CPUs.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuId(u16);

impl CpuId {
    /// Highest id accepted: the kernel's largest `NR_CPUS` (8192) minus one.
    pub const MAX: CpuId = CpuId(8191);
    /// "No CPU", the kernel's `RPS_NO_CPU`.
    pub const NONE: CpuId = CpuId(0xffff);

    /// The id `id`, or `None` above [`CpuId::MAX`].
    #[must_use]
    pub const fn new(id: u16) -> Option<CpuId> {
        if id <= Self::MAX.0 { Some(CpuId(id)) } else { None }
    }

    /// The CPU of an id that was stored before, [`CpuId::NONE`] included.
    #[inline(always)]
    #[must_use]
    pub(crate) const fn from_raw(id: u16) -> CpuId {
        CpuId(id)
    }

    /// The id as a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The id as an index into a table sized by the highest id plus one.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { f.write_str("none") } else { write!(f, "{}", self.0) }
    }
}

impl fmt::Debug for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu{self}")
    }
}

/// A non-empty set of CPUs, in ascending order, without repeats.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CpuSet(Vec<CpuId>);

/// Why a text is not a CPU set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuSetError {
    /// The text names no CPU.
    Empty,
    /// A part is neither a number nor a range; holds the position of the part, counted from 1.
    Syntax(usize),
    /// A range runs backwards; holds the ends of the range.
    Backwards(u16, u16),
    /// An id lies above [`CpuId::MAX`].
    TooHigh(u64),
}

impl fmt::Display for CpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the CPU list is empty; name at least one CPU, e.g. 0-3,8"),
            Self::Syntax(part) => {
                write!(f, "part {part} of the CPU list is neither a number nor a range like 0-3")
            }
            Self::Backwards(a, b) => {
                write!(f, "the range {a}-{b} runs backwards; write {b}-{a}")
            }
            Self::TooHigh(id) => {
                match *id {
                    u64::MAX => f.write_str("a number in the CPU list is too high")?,
                    id => write!(f, "CPU {id} is too high")?,
                }
                write!(f, "; the highest id is {}", CpuId::MAX)
            }
        }
    }
}

impl core::error::Error for CpuSetError {}

impl CpuSet {
    /// The set of `cpus`; `None` when `cpus` is empty.
    pub fn new(cpus: impl IntoIterator<Item = CpuId>) -> Option<CpuSet> {
        let mut ids: Vec<CpuId> = cpus.into_iter().filter(|cpu| *cpu != CpuId::NONE).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() { None } else { Some(CpuSet(ids)) }
    }

    /// CPUs 0 to `count` − 1; `None` when `count` is 0 or exceeds the number of possible CPU ids.
    #[must_use]
    pub fn first(count: u16) -> Option<CpuSet> {
        if count == 0 || count > CpuId::MAX.0 + 1 { None } else { Self::new((0..count).map(CpuId)) }
    }

    /// The CPUs, ascending.
    #[must_use]
    pub fn as_slice(&self) -> &[CpuId] {
        &self.0
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + Clone + '_ {
        self.0.iter().copied()
    }

    /// How many CPUs the set holds; at least 1.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a CpuSet is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The lowest CPU.
    #[must_use]
    pub fn lowest(&self) -> CpuId {
        self.0[0]
    }

    /// The highest CPU: a table indexed by CPU id needs `highest().index() + 1` rows.
    #[must_use]
    pub fn highest(&self) -> CpuId {
        self.0[self.0.len() - 1]
    }

    /// The set in the form that the option `--cpus` accepts. A single number would be a count there, so CPU 4 alone is
    /// `4-4`.
    #[must_use]
    pub fn as_option(&self) -> String {
        if self.len() == 1 { format!("{0}-{0}", self.lowest()) } else { self.to_string() }
    }

    /// Whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }
}

/// Reads the kernel's list format: `0-3,8`.
impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err(CpuSetError::Empty);
        }
        let number = |text: &str, part: usize| -> Result<u16, CpuSetError> {
            let text = text.trim();
            if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(CpuSetError::Syntax(part));
            }
            // A number that does not fit is too high in any case.
            let id: u64 = text.parse().unwrap_or(u64::MAX);
            u16::try_from(id).ok().filter(|id| *id <= CpuId::MAX.0).ok_or(CpuSetError::TooHigh(id))
        };
        let mut ids = Vec::new();
        for (part, item) in (1..).zip(text.split(',')) {
            match item.split_once('-') {
                None => ids.push(CpuId(number(item, part)?)),
                Some((from, to)) => {
                    let (from, to) = (number(from, part)?, number(to, part)?);
                    if from > to {
                        return Err(CpuSetError::Backwards(from, to));
                    }
                    ids.extend((from..=to).map(CpuId));
                }
            }
        }
        CpuSet::new(ids).ok_or(CpuSetError::Empty)
    }
}

/// Writes the kernel's list format.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.as_slice();
        let mut separator = "";
        while let Some(&start) = rest.first() {
            let run = (1..rest.len())
                .find(|&i| rest[i].index() != start.index() + i)
                .unwrap_or(rest.len());
            write!(f, "{separator}{start}")?;
            if run > 1 {
                write!(f, "-{}", rest[run - 1])?;
            }
            rest = &rest[run..];
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CpuSet, CpuSetError> {
        text.parse()
    }

    #[test]
    fn lists_round_trip_and_are_normalised() {
        for (text, shown) in
            [("0", "0"), ("0-3,8", "0-3,8"), ("3,1,2,2", "1-3"), ("4095,0,3", "0,3,4095")]
        {
            assert_eq!(parse(text).unwrap().to_string(), shown);
        }
        let option = |text| parse(text).unwrap().as_option();
        assert_eq!((option("8"), option("0-3,8")), ("8-8".to_string(), "0-3,8".to_string()));
        assert_eq!(parse("0-8191").unwrap().len(), 8192);
    }

    #[test]
    fn bad_lists_say_why() {
        assert_eq!(parse(""), Err(CpuSetError::Empty));
        assert_eq!(parse(" "), Err(CpuSetError::Empty));
        assert_eq!(parse("0,"), Err(CpuSetError::Syntax(2)));
        assert_eq!(parse("0,x"), Err(CpuSetError::Syntax(2)));
        assert_eq!(parse("-1"), Err(CpuSetError::Syntax(1)));
        assert_eq!(parse("+1"), Err(CpuSetError::Syntax(1)));
        assert_eq!(parse("3-1"), Err(CpuSetError::Backwards(3, 1)));
        assert_eq!(parse("8192"), Err(CpuSetError::TooHigh(8192)));
        assert_eq!(parse("65535"), Err(CpuSetError::TooHigh(65535)));
        assert_eq!(parse("99999999999999999999999"), Err(CpuSetError::TooHigh(u64::MAX)));
    }

    #[test]
    fn no_cpu_is_in_no_set() {
        assert_eq!(CpuSet::new([CpuId::NONE]), None);
        assert_eq!(CpuSet::first(0), None);
        assert_eq!(CpuSet::first(2).unwrap().highest(), CpuId(1));
    }
}
