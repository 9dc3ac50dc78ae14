//! Checks whether a scenario is valid. All later steps rely on these checks.
//!
//! They depend only on the [`Scenario`], so they apply to scenarios from files, from recordings and from fault
//! injection alike. A [`Problem`] gives its place as the path of the key in a scenario file. [`crate::file`] finds
//! the line of that key.

mod events;
mod machine;
mod traffic;

pub use crate::costs::MAX_COST_NS;

use crate::Scenario;

/// The longest duration of anything: a day, in nanoseconds.
pub const MAX_TIME_NS: u64 = 86_400 * 1_000_000_000;
/// The largest number of CPUs of a machine.
pub const MAX_CPUS: usize = 4096;
/// The largest number of NICs of a machine.
pub const MAX_NICS: usize = 64;
/// The rate of the fastest NIC, in bits per second: at this rate the shortest frame still takes a nanosecond.
pub const MAX_RATE: f64 = 8e11;
/// The largest number of slots of an RX queue's ring.
pub const MAX_RING: u32 = 1 << 20;
/// The speed of the slowest and the fastest CPU, as a multiple of the CPU that the costs are given for.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 1e-6..=1e3;
/// The largest number of packets of one poll.
pub const MAX_BUDGET: u32 = 1 << 16;
/// The largest number of kinds of traffic.
pub const MAX_TRAFFIC: usize = 256;
/// The largest number of flows of all traffic together.
pub const MAX_FLOWS: u64 = 1 << 20;
/// The largest number of threads of all traffic together.
pub const MAX_THREADS: u64 = 1 << 16;
/// The shortest and the longest frame, in bytes, without the frame check sequence.
pub const FRAME_BYTES: std::ops::RangeInclusive<u32> = 60..=65_535;
/// The highest packet rate of one kind of traffic, in packets per second.
pub const MAX_PACKET_RATE: f64 = 1e9;
/// The largest window of a stream, in packets.
pub const MAX_WINDOW: u32 = 1 << 20;
/// The largest number of events.
pub const MAX_EVENTS: usize = 4096;
/// The largest number of packets of one burst.
pub const MAX_BURST: u32 = 1 << 20;

/// Why a scenario is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {what}")]
pub struct Problem {
    /// The path of the key in a scenario file, e.g. `traffic.0.flows`.
    pub path: String,
    /// The problem, its reason, and what to do.
    pub what: String,
}

type Checked = Result<(), Problem>;

impl Scenario {
    /// Checks whether the scenario can be simulated.
    ///
    /// # Errors
    /// [`Problem`]: the first setting that is invalid or over its limit.
    pub fn check(&self) -> Result<(), Problem> {
        self.check_times()?;
        machine::check(self)?;
        machine::check_steering(self, &self.steering, "steering")?;
        traffic::check(self)?;
        events::check(self)
    }

    fn check_times(&self) -> Checked {
        if self.duration_ns == 0 {
            return refuse("duration", "the duration is 0; set one, e.g. duration = \"10s\"");
        }
        up_to("duration", self.duration_ns, MAX_TIME_NS, "nanoseconds (a day)")?;
        if self.warm_up_ns >= self.duration_ns {
            let (warm_up, all) = (in_seconds(self.warm_up_ns), in_seconds(self.duration_ns));
            return refuse(
                "warm_up",
                format!("a warm-up of {warm_up} leaves nothing of {all} to measure; shorten it"),
            );
        }
        up_to("wire", self.wire_ns, 10_000_000_000, "nanoseconds (10 s)")
    }
}

fn refuse<T>(path: impl Into<String>, what: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { path: path.into(), what: what.into() })
}

/// Refuses a number over its limit.
fn up_to(path: impl Into<String>, value: u64, most: u64, of: &str) -> Checked {
    if value <= most {
        Ok(())
    } else {
        refuse(path, format!("{value} is too much; the limit is {most} {of}"))
    }
}

/// Refuses a count that is 0 or over its limit.
fn some(path: impl Into<String>, value: u64, most: u64) -> Checked {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        refuse(path, format!("it is {value}; it must be 1 to {most}"))
    }
}

/// Refuses a real number that is out of range or not a number.
fn within(
    path: impl Into<String>,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
    unit: &str,
) -> Checked {
    if range.contains(&value) {
        return Ok(());
    }
    let (low, high) = range.into_inner();
    refuse(path, format!("it is {value}; it must be {low} to {high} {unit}"))
}

/// A time in seconds, for messages.
fn in_seconds(ns: u64) -> String {
    format!("{} s", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests;
