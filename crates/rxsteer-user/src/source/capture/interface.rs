//! An interface of a capture, which determines how its frames are read.

use super::damage::Damage;
use crate::block::MAX_TIME_NS;
use crate::source::IssueKind;
use rxsteer_packet::LinkType;

/// An interface: of a pcapng section, or the only one of a pcap file.
#[derive(Debug)]
pub(super) struct Interface {
    /// The link type of its frames; `None` if it is not supported.
    pub(super) link: Option<LinkType>,
    /// The RX queue of its frames, if queues are assigned by interface.
    pub(super) rx_queue: u16,
    /// The snapshot length: the most bytes stored of a frame; 0 for no limit.
    pub(super) snap_len: u32,
    pub(super) ticks: Ticks,
    link_number: u32,
    /// The offset of its description.
    offset: u64,
    reported: bool,
}

impl Interface {
    pub(super) fn new(link_number: u32, rx_queue: u16, offset: u64) -> Interface {
        Interface {
            link: LinkType::from_dlt(link_number),
            rx_queue,
            snap_len: 0,
            ticks: Ticks::new(6, 0),
            link_number,
            offset,
            reported: false,
        }
    }

    /// The report about a frame with an unknown link type: only for the first such frame.
    pub(super) fn report_once(&mut self, name: &str) -> Option<Damage> {
        if std::mem::replace(&mut self.reported, true) {
            return None;
        }
        let known: Vec<&str> = LinkType::ALL.iter().map(|link| link.name()).collect();
        let what = format!(
            "link type {} of {name} is not supported: its packets are left out, everything else \
             is read; supported are {}",
            self.link_number,
            known.join(", "),
        );
        Some(Damage { offset: self.offset, what, kind: IssueKind::Unsupported })
    }
}

/// The time unit of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    unit: Unit,
    /// `None` if the offset alone is outside the range of valid times.
    offset_ns: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds in a tick.
    Nanoseconds(u64),
    /// Ticks in a nanosecond.
    PerNanosecond(u64),
    /// Ticks in a second, as a power of 2.
    PerSecondLog2(u8),
}

const NS_PER_S: u64 = 1_000_000_000;

impl Ticks {
    /// Creates it from `if_tsresol` (a negative power of 10 of a second, or of 2 if the top bit is set) and `if_tsoffset`
    /// (seconds to add).
    pub(super) fn new(resolution: u8, offset_s: i64) -> Ticks {
        let power = resolution & 0x7f;
        let unit = match u32::from(power) {
            _ if resolution & 0x80 != 0 => Unit::PerSecondLog2(power),
            power @ 0..=9 => Unit::Nanoseconds(10_u64.pow(9 - power)),
            // 10^n does not fit for ticks this short, and a full 64-bit count of them is less than a nanosecond.
            power => Unit::PerNanosecond(10_u64.checked_pow(power - 9).unwrap_or(u64::MAX)),
        };
        Ticks { unit, offset_ns: offset_s.checked_mul(NS_PER_S as i64) }
    }

    /// Nanoseconds since the epoch; `None` before it and after [`MAX_TIME_NS`].
    #[inline]
    pub(super) fn to_ns(self, ticks: u64) -> Option<u64> {
        let ns = match self.unit {
            Unit::Nanoseconds(ns) => ticks.checked_mul(ns)?,
            Unit::PerNanosecond(ticks_per_ns) => ticks / ticks_per_ns,
            Unit::PerSecondLog2(power) => {
                u64::try_from((u128::from(ticks) * u128::from(NS_PER_S)) >> power).ok()?
            }
        };
        ns.checked_add_signed(self.offset_ns?).filter(|ns| *ns <= MAX_TIME_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_every_size_become_nanoseconds() {
        let to_ns = |ticks: Ticks, count| ticks.to_ns(count).unwrap();
        assert_eq!(to_ns(Ticks::new(6, 0), 1_500_000), 1_500_000_000);
        assert_eq!(to_ns(Ticks::new(9, 0), 7), 7);
        assert_eq!(to_ns(Ticks::new(0, 0), 3), 3_000_000_000);
        assert_eq!(to_ns(Ticks::new(12, 0), 5_999), 5);
        assert_eq!(to_ns(Ticks::new(0x80, 0), 2), 2_000_000_000);
        assert_eq!(to_ns(Ticks::new(0x80 | 10, 0), 1024 + 512), 1_500_000_000);
        assert_eq!(to_ns(Ticks::new(0x80 | 32, 0), 1 << 31), 500_000_000);
        assert_eq!(to_ns(Ticks::new(6, 10), 1), 10_000_001_000);
        assert_eq!(to_ns(Ticks::new(6, -1), 2_000_000), 1_000_000_000);
    }

    #[test]
    fn times_before_1970_and_after_2262_are_none() {
        for resolution in 0..=u8::MAX {
            for offset in [i64::MIN, -1, 0, 1, i64::MAX] {
                for ticks in [0, 1, u64::MAX] {
                    let time = Ticks::new(resolution, offset).to_ns(ticks);
                    assert!(time.is_none_or(|ns| ns <= MAX_TIME_NS));
                }
            }
        }
        assert_eq!(Ticks::new(9, 0).to_ns(MAX_TIME_NS), Some(MAX_TIME_NS));
        assert_eq!(Ticks::new(9, 0).to_ns(MAX_TIME_NS + 1), None);
        assert_eq!(Ticks::new(0, i64::MAX).to_ns(u64::MAX), None);
        assert_eq!(Ticks::new(6, -1).to_ns(999_999), None);
        assert_eq!(Ticks::new(6, i64::MIN).to_ns(5), None);
        assert_eq!(Ticks::new(127, 0).to_ns(u64::MAX - 1), Some(0));
    }
}
