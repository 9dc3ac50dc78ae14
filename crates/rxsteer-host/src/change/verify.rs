//! Was it for the better? The old and the new settings in turns, and what the CPUs did under each.
//!
//! Load changes by itself, so two measurements one after the other prove nothing. Old and new take turns, and a figure is
//! worse only where it is worse in every turn with the new settings than in any with the old ones, and by more than a
//! margin. By chance alone that is so in one of twenty cases with three turns each.

use crate::load::Load;
use crate::root::Root;
use rxsteer_core::CpuSet;
use serde::Serialize;
use std::time::Duration;

/// Turns of each: old, new, old, new, old, new.
const TURNS: u32 = 3;
/// Fewer packets in a turn say nothing.
const FEWEST: u64 = 1000;

/// What the CPUs did in one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Packets that the interface received.
    pub packets: u64,
    /// Packets that a full backlog refused, of a million.
    pub dropped_ppm: f64,
    /// How often a CPU stopped with work left over, for a million packets.
    pub squeezed_ppm: f64,
    /// Time in softirqs for each packet, in ns.
    pub softirq_ns: f64,
    /// Share of its time that the busiest CPU spent in softirqs.
    pub busiest: f64,
    /// That over the mean of the CPUs of the plan.
    pub imbalance: f64,
}

/// Which settings a turn had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// Those of before.
    Old,
    /// Those of the plan.
    New,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Some figure is better, and none worse.
    Better {
        /// Which.
        what: Vec<String>,
    },
    /// No figure is clearly better or worse.
    Same,
    /// Some figure is worse.
    Worse {
        /// Which.
        what: Vec<String>,
    },
    /// Too few packets came.
    TooQuiet {
        /// In the turn with the fewest.
        packets: u64,
    },
}

/// What was done between two looks at an interface and the CPUs it is steered to.
pub fn measured(done: &Load, interface: &str, cpus: &CpuSet) -> Measured {
    let packets = done.received.get(interface).copied().unwrap_or(0);
    let each = |count: u64| count as f64 / packets.max(1) as f64;
    let sum = |of: fn(&crate::CpuLoad) -> u64| done.cpus.iter().map(of).sum::<u64>();
    let softirq: u64 = sum(|cpu| cpu.ticks.softirq);
    // The kernel's unit here is USER_HZ, 100 a second on every architecture that has network cards.
    const TICK_NS: f64 = 1e7;
    let share = |cpu: &crate::CpuLoad| cpu.ticks.softirq as f64 / cpu.ticks.all.max(1) as f64;
    let busiest = done.cpus.iter().map(share).fold(0.0, f64::max);
    let is_of_plan = |cpu: &&crate::CpuLoad| {
        u16::try_from(cpu.cpu)
            .ok()
            .and_then(rxsteer_core::CpuId::new)
            .is_some_and(|id| cpus.contains(id))
    };
    let of_plan: Vec<f64> = done.cpus.iter().filter(is_of_plan).map(share).collect();
    let mean = of_plan.iter().sum::<f64>() / of_plan.len().max(1) as f64;
    Measured {
        packets,
        dropped_ppm: each(sum(|cpu| cpu.dropped.into())) * 1e6,
        squeezed_ppm: each(sum(|cpu| cpu.squeezed.into())) * 1e6,
        softirq_ns: each(softirq) * TICK_NS,
        busiest,
        imbalance: if mean > 0.0 { busiest / mean } else { 1.0 },
    }
}

/// A figure: what it is called, how much more counts (as a factor, and at least), and how it is read.
struct Figure {
    name: &'static str,
    factor: f64,
    least: f64,
    of: fn(&Measured) -> f64,
}

const FIGURES: [Figure; 4] = [
    Figure {
        name: "drops for a million packets",
        factor: 1.2,
        least: 10.0,
        of: |turn| turn.dropped_ppm,
    },
    Figure {
        name: "squeezes for a million packets",
        factor: 1.5,
        least: 50.0,
        of: |turn| turn.squeezed_ppm,
    },
    // Handing a packet to another CPU costs time by itself: what is compared is whether it costs more than half as much.
    Figure {
        name: "softirq time for a packet (ns)",
        factor: 1.5,
        least: 200.0,
        of: |turn| turn.softirq_ns,
    },
    Figure {
        name: "the busiest CPU's time in softirqs (%)",
        factor: 1.1,
        least: 5.0,
        of: |turn| turn.busiest * 100.0,
    },
];

/// Compares the turns.
pub fn judge(turns: &[(Turn, Measured)]) -> Verdict {
    let fewest = turns.iter().map(|(_, turn)| turn.packets).min().unwrap_or(0);
    if fewest < FEWEST {
        return Verdict::TooQuiet { packets: fewest };
    }
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for figure in &FIGURES {
        let of = |which: Turn| {
            let mut all: Vec<f64> = turns
                .iter()
                .filter(|turn| turn.0 == which)
                .map(|turn| (figure.of)(&turn.1))
                .collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let (old, new) = (of(Turn::Old), of(Turn::New));
        let text =
            || format!("{}: {:.0} before, {:.0} now", figure.name, median(&old), median(&new));
        if is_more(&old, &new, figure) {
            worse.push(text());
        } else if is_more(&new, &old, figure) {
            better.push(text());
        }
    }
    match (worse.is_empty(), better.is_empty()) {
        (false, _) => Verdict::Worse { what: worse },
        (true, false) => Verdict::Better { what: better },
        (true, true) => Verdict::Same,
    }
}

/// Whether all of `new` are above all of `old`, and their medians further apart than the margin. Both are sorted.
fn is_more(old: &[f64], new: &[f64], figure: &Figure) -> bool {
    let apart = old.last().zip(new.first()).is_some_and(|(old, new)| new > old);
    apart && median(new) > (median(old) * figure.factor).max(median(old) + figure.least)
}

/// Of sorted figures.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// Measures in turns for `time` altogether. `put` sets the old or the new settings; `wait` lasts that long, or returns true
/// where it is to end at once. The new settings are in force at the end; `None`: it was ended, with whichever.
pub fn verify<E>(
    root: &Root,
    interface: &str,
    cpus: &CpuSet,
    time: Duration,
    mut put: impl FnMut(Turn) -> Result<(), E>,
    mut wait: impl FnMut(Duration) -> bool,
) -> Result<Option<Vec<(Turn, Measured)>>, E> {
    let each = time / (2 * TURNS);
    let mut turns = Vec::new();
    for turn in std::iter::repeat_n([Turn::Old, Turn::New], TURNS as usize).flatten() {
        put(turn)?;
        // What is under way was sent by the former settings.
        if wait(each / 10) {
            return Ok(None);
        }
        let before = Load::look_in(root);
        if wait(each * 9 / 10) {
            return Ok(None);
        }
        let done = Load::look_in(root).zip(before).map(|(after, before)| after.since(&before));
        turns.push((turn, measured(&done.unwrap_or_default(), interface, cpus)));
    }
    Ok(Some(turns))
}
