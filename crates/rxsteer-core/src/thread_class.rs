//! The scheduling class of the kernel threads that process packets, and its text form.

use core::fmt;
use core::str::FromStr;

/// The scheduling class of a thread (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadClass {
    /// `SCHED_OTHER` with nice value 0, as ordinary processes have.
    Other,
    /// `SCHED_OTHER` with this nice value, -20 (most CPU time) to 19.
    Nice(i8),
    /// `SCHED_FIFO` with this priority, 1 (lowest) to 99: before every ordinary process.
    Fifo(u8),
}

impl ThreadClass {
    /// The words that a class can begin with.
    pub const NAMES: [&'static str; 3] = ["fifo", "nice", "other"];

    /// The default class. Like softirqs, it takes precedence over every ordinary process; `docs/results/busy.md` has
    /// the measurements.
    pub const DEFAULT: ThreadClass = ThreadClass::Fifo(1);

    /// The lowest nice value that leaves an ordinary process 5 % of a CPU whose ring never empties. The kernel's
    /// weight is 18,705 for nice value -13 and 1,024 for nice value 0 (kernel/sched/core.c,
    /// `sched_prio_to_weight`).
    pub const FAIR_NICE: i8 = -13;

    /// The share of a CPU that an ordinary process keeps beside a thread of this class that never sleeps, by the
    /// scheduler's weights. `None` for a real-time class, which other limits bound.
    #[must_use]
    pub fn ordinary_share(self) -> Option<f64> {
        let nice = match self {
            ThreadClass::Other => 0,
            ThreadClass::Nice(nice) => nice,
            ThreadClass::Fifo(_) => return None,
        };
        // Each step of nice changes the weight by a factor of 1.25.
        let steps = u32::from(nice.unsigned_abs());
        let factor = (0..steps).fold(1.0, |factor, _| factor * 1.25);
        let weight = if nice < 0 { factor } else { 1.0 / factor };
        Some(1.0 / (1.0 + weight))
    }
}

impl fmt::Display for ThreadClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadClass::Other => f.write_str("other"),
            ThreadClass::Nice(nice) => write!(f, "nice:{nice}"),
            ThreadClass::Fifo(priority) => write!(f, "fifo:{priority}"),
        }
    }
}

/// Why a text is not a scheduling class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThreadClassError {
    /// The text has none of the three forms.
    Form,
    /// The nice value is out of range.
    Nice,
    /// The real-time priority is out of range.
    Priority,
}

impl fmt::Display for ThreadClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ThreadClassError::Form => {
                "a class is fifo:N (e.g. fifo:1), nice:N (e.g. nice:-10) or other"
            }
            ThreadClassError::Nice => "a nice value is -20 (most CPU time) to 19, e.g. nice:-10",
            ThreadClassError::Priority => "a real-time priority is 1 to 99, e.g. fifo:1",
        })
    }
}

impl core::error::Error for ThreadClassError {}

impl FromStr for ThreadClass {
    type Err = ThreadClassError;

    fn from_str(text: &str) -> Result<ThreadClass, ThreadClassError> {
        match text.split_once(':') {
            None if text == "other" => Ok(ThreadClass::Other),
            Some(("nice", nice)) => {
                let nice = nice.parse().ok().filter(|nice| (-20..=19).contains(nice));
                nice.map(ThreadClass::Nice).ok_or(ThreadClassError::Nice)
            }
            Some(("fifo", priority)) => {
                let priority = priority.parse().ok().filter(|priority| (1..=99).contains(priority));
                priority.map(ThreadClass::Fifo).ok_or(ThreadClassError::Priority)
            }
            _ => Err(ThreadClassError::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_as_they_are_written() {
        for text in ["other", "nice:-20", "nice:0", "nice:19", "fifo:1", "fifo:99"] {
            let class: ThreadClass = text.parse().unwrap();
            assert_eq!(alloc::string::ToString::to_string(&class), text);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, error) in [
            ("", ThreadClassError::Form),
            ("rr:1", ThreadClassError::Form),
            ("fifo", ThreadClassError::Form),
            ("other:1", ThreadClassError::Form),
            ("fifo:0", ThreadClassError::Priority),
            ("fifo:100", ThreadClassError::Priority),
            ("fifo:-1", ThreadClassError::Priority),
            ("nice:20", ThreadClassError::Nice),
            ("nice:-21", ThreadClassError::Nice),
            ("nice:x", ThreadClassError::Nice),
        ] {
            assert_eq!(text.parse::<ThreadClass>(), Err(error), "{text}");
        }
    }

    #[test]
    fn fair_nice_value_leaves_five_percent_and_the_next_does_not() {
        let share = |nice| ThreadClass::Nice(nice).ordinary_share().unwrap();
        assert!(share(ThreadClass::FAIR_NICE) >= 0.05);
        assert!(share(ThreadClass::FAIR_NICE - 1) < 0.05);
        assert!((share(0) - 0.5).abs() < 1e-9 && share(19) > 0.98);
        assert_eq!(ThreadClass::Fifo(1).ordinary_share(), None);
    }
}
