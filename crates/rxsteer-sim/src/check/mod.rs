//! Whether a scenario can be: what everything after it takes for granted.
//!
//! It looks at the [`Scenario`] alone, so that it holds for scenarios from files, from recordings and from
//! fault injection alike. A [`Problem`] names its place by the path of the key in a scenario file;
//! [`crate::file`] finds the line that goes with it.

mod events;
mod machine;
mod traffic;

use crate::Scenario;

/// The longest time anything can take: a day, in nanoseconds.
pub const MAX_TIME_NS: u64 = 86_400 * 1_000_000_000;
/// Most CPUs of a machine.
pub const MAX_CPUS: usize = 4096;
/// Most network cards of a machine.
pub const MAX_NICS: usize = 64;
/// Fastest card, in bits per second: at this speed the shortest frame still takes a nanosecond.
pub const MAX_RATE: f64 = 8e11;
/// Most slots of an RX queue's ring.
pub const MAX_RING: u32 = 1 << 20;
/// Highest single cost, in nanoseconds of a CPU of speed 1: a second.
pub const MAX_COST_NS: f64 = 1e9;
/// Slowest and fastest CPU, as a multiple of the one that costs are given for.
pub const SPEEDS: std::ops::RangeInclusive<f64> = 1e-6..=1e3;
/// Most packets of one poll.
pub const MAX_BUDGET: u32 = 1 << 16;
/// Most kinds of traffic.
pub const MAX_TRAFFIC: usize = 256;
/// Most flows of all traffic together.
pub const MAX_FLOWS: u64 = 1 << 20;
/// Most threads of all traffic together.
pub const MAX_THREADS: u64 = 1 << 16;
/// Shortest and longest frame, in bytes, without its checksum.
pub const FRAME_BYTES: std::ops::RangeInclusive<u32> = 60..=65_535;
/// Most packets per second of one kind of traffic.
pub const MAX_PACKET_RATE: f64 = 1e9;
/// Largest window of a stream, in packets.
pub const MAX_WINDOW: u32 = 1 << 20;
/// Most events.
pub const MAX_EVENTS: usize = 4096;
/// Most packets of one burst.
pub const MAX_BURST: u32 = 1 << 20;

/// Why a scenario can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {what}")]
pub struct Problem {
    /// The path of the key in a scenario file, e.g. `traffic.0.flows`.
    pub path: String,
    /// What is wrong there, why, and what to do.
    pub what: String,
}

type Checked = Result<(), Problem>;

impl Scenario {
    /// Whether it can be simulated.
    ///
    /// # Errors
    /// [`Problem`]: the first thing that can't be, or that is over its limit.
    pub fn check(&self) -> Result<(), Problem> {
        self.check_times()?;
        machine::check(self)?;
        machine::check_steering(self, &self.steering, "steering")?;
        traffic::check(self)?;
        events::check(self)
    }

    fn check_times(&self) -> Checked {
        if self.duration_ns == 0 {
            return refuse("duration", "it lasts no time; give it some, e.g. duration = \"10s\"");
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
        refuse(path, format!("{value} is too much: at most {most} {of}"))
    }
}

/// Refuses a number of things that is 0 or over its limit.
fn some(path: impl Into<String>, value: u64, most: u64) -> Checked {
    if (1..=most).contains(&value) {
        Ok(())
    } else {
        refuse(path, format!("it is {value}; it can be 1 to {most}"))
    }
}

/// Refuses a real number that is out of range or none at all.
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
    refuse(path, format!("it is {value}; it can be {low} to {high} {unit}"))
}

/// A time as people write it.
fn in_seconds(ns: u64) -> String {
    format!("{} s", ns as f64 / 1e9)
}

#[cfg(test)]
mod tests;
