//! Finds whether a change improves anything: alternates the old and the new settings, and compares what the CPUs did
//! under each.
//!
//! Load changes by itself, so two measurements one after the other prove nothing. So old and new settings alternate in
//! turns, and a figure counts as worse only if it is worse both by rank and by a margin. By rank means: of the 36 pairs
//! of a turn with the new settings and one with the old, at most 7 are not worse (the U of Mann and Whitney). By chance
//! alone this happens in 43 of 924 cases. A single turn with a different load, for example while a sender paused,
//! affects at most 6 of these pairs, so it does not decide.

use crate::load::Load;
use crate::root::Root;
use serde::Serialize;
use std::cmp::Ordering;
use std::time::Duration;

/// The order of turns, repeated. A load that rises or falls by itself affects both settings equally, and values change
/// half as often as with simple alternation.
const ORDER: [Turn; 4] = [Turn::New, Turn::Old, Turn::Old, Turn::New];
const REPEATED: usize = 3;
/// The number of turns of each.
pub const TURNS: usize = REPEATED * ORDER.len() / 2;
/// The share of all pairs of an old and a new turn that may contradict a difference.
const AGAINST: f64 = 7.0 / 36.0;
/// A turn with fewer packets is not conclusive.
const MIN_PACKETS: u64 = 1000;

/// What the CPUs did in one turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Packets that the interfaces received.
    pub packets: u64,
    /// Packets that a full backlog refused, per million.
    pub dropped_ppm: f64,
    /// How often a CPU stopped polling although work was left, per million packets.
    pub squeezed_ppm: f64,
    /// Time in softirqs per packet, in ns.
    pub softirq_ns: f64,
    /// The share of its time that the busiest CPU spent in softirqs.
    pub busiest: f64,
    /// That share divided by the mean of all CPUs; 1 means even.
    pub imbalance: f64,
}

/// The settings of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// The former settings.
    Old,
    /// The settings of the plan.
    New,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Some figure is better, and none worse.
    Better {
        /// Which figures.
        what: Vec<String>,
    },
    /// No figure is clearly better or worse.
    Same,
    /// Some figure is worse.
    Worse {
        /// Which figures.
        what: Vec<String>,
    },
    /// There were too few packets.
    TooQuiet {
        /// The number in the turn with the fewest.
        packets: u64,
    },
}

/// What the CPUs did between two readings, for these interfaces.
pub fn measured(done: &Load, interfaces: &[String]) -> Measured {
    let packets = interfaces.iter().filter_map(|name| done.received.get(name)).sum();
    let each = |count: u64| count as f64 / u64::max(packets, 1) as f64;
    let sum = |of: fn(&crate::CpuLoad) -> u64| done.cpus.iter().map(of).sum::<u64>();
    let softirq: u64 = sum(|cpu| cpu.ticks.softirq);
    // The kernel's unit here is USER_HZ, 100 a second on every architecture that has network cards.
    const TICK_NS: f64 = 1e7;
    let share = |cpu: &crate::CpuLoad| cpu.ticks.softirq as f64 / cpu.ticks.all.max(1) as f64;
    let busiest = done.cpus.iter().map(share).fold(0.0, f64::max);
    let mean = done.cpus.iter().map(share).sum::<f64>() / done.cpus.len().max(1) as f64;
    Measured {
        packets,
        dropped_ppm: each(sum(|cpu| cpu.dropped.into())) * 1e6,
        squeezed_ppm: each(sum(|cpu| cpu.squeezed.into())) * 1e6,
        softirq_ns: each(softirq) * TICK_NS,
        busiest,
        imbalance: if mean > 0.0 { busiest / mean } else { 1.0 },
    }
}

/// A figure: its name, the margins that count (as a factor, and as a minimum), and how to compute it.
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
    // Passing a packet to another CPU always costs time, so a figure is worse only if it costs more than half as much
    // again.
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
    if fewest < MIN_PACKETS {
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

/// Whether `new` is above `old` by rank, and their medians differ by more than the margin. Both are sorted.
fn is_more(old: &[f64], new: &[f64], figure: &Figure) -> bool {
    let pairs = old.iter().flat_map(|old| new.iter().map(move |new| new.total_cmp(old)));
    let against: f64 = pairs
        .map(|order| match order {
            Ordering::Greater => 0.0,
            Ordering::Equal => 0.5,
            Ordering::Less => 1.0,
        })
        .sum();
    against <= AGAINST * (old.len() * new.len()) as f64
        && median(new) > (median(old) * figure.factor).max(median(old) + figure.least)
}

/// The median of sorted figures.
fn median(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// Measures in turns, for `time` altogether. `put` activates the old or the new settings. `wait` waits for a duration,
/// and returns true if measuring should stop at once. At the end, the new settings are active; `None`: it was stopped,
/// with either settings active.
pub fn verify<E>(
    root: &Root,
    interfaces: &[String],
    time: Duration,
    mut put: impl FnMut(Turn) -> Result<(), E>,
    mut wait: impl FnMut(Duration) -> bool,
) -> Result<Option<Vec<(Turn, Measured)>>, E> {
    let each = time / (2 * TURNS) as u32;
    let mut turns = Vec::new();
    for turn in std::iter::repeat_n(ORDER, REPEATED).flatten() {
        put(turn)?;
        // Packets that are still under way were sent with the former settings.
        if wait(each / 10) {
            return Ok(None);
        }
        let before = Load::read_in(root);
        if wait(each * 9 / 10) {
            return Ok(None);
        }
        let done = Load::read_in(root).zip(before).map(|(after, before)| after.since(&before));
        turns.push((turn, measured(&done.unwrap_or_default(), interfaces)));
    }
    Ok(Some(turns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// The verdict for drops per million packets, in turns of this order.
    fn judged(order: impl IntoIterator<Item = Turn>, drops: [f64; 2 * TURNS]) -> Verdict {
        let measured =
            |dropped_ppm| Measured { packets: 100_000, dropped_ppm, ..Measured::default() };
        let turns: Vec<_> = order.into_iter().zip(drops.map(measured)).collect();
        assert_eq!(turns.len(), drops.len());
        judge(&turns)
    }

    fn in_turns() -> impl Iterator<Item = Turn> {
        std::iter::repeat_n(ORDER, REPEATED).flatten()
    }

    #[test]
    fn turn_in_which_the_sender_rested_does_not_decide() {
        // New, old, old, new, and so on; most drops happen with the new settings.
        let mut drops = [9e5, 0.0, 0.0, 8e5, 7e5, 0.0, 0.0, 9e5, 9e5, 0.0, 0.0, 8e5];
        assert!(matches!(judged(in_turns(), drops), Verdict::Worse { .. }));
        for rested in [0, 3, 4, 7, 8, 11] {
            let before = std::mem::take(&mut drops[rested]);
            assert!(matches!(judged(in_turns(), drops), Verdict::Worse { .. }), "turn {rested}");
            drops[rested] = before;
        }
        // Only half of the turns show it.
        let half = [9e5, 0.0, 0.0, 0.0, 7e5, 0.0, 0.0, 0.0, 9e5, 0.0, 0.0, 0.0];
        assert_eq!(judged(in_turns(), half), Verdict::Same);
    }

    #[test]
    fn load_that_rises_or_falls_by_itself_is_no_difference() {
        let rising = std::array::from_fn(|turn| 1e4 * turn as f64);
        let falling = std::array::from_fn(|turn| 1e6 / (1.0 + turn as f64));
        let once = std::array::from_fn(|turn| if turn < 5 { 0.0 } else { 1e5 });
        for drops in [rising, falling, once] {
            assert_eq!(judged(in_turns(), drops), Verdict::Same, "{drops:?}");
        }
    }

    #[test]
    fn chance_finds_a_difference_in_one_of_twenty_cases() {
        // Twelve different figures, far apart, in every possible division.
        let drops = std::array::from_fn(|turn| 100.0 * 4_f64.powi(turn as i32));
        let (mut cases, mut worse, mut better) = (0, 0, 0);
        for divided in (0..1_u32 << (2 * TURNS)).filter(|set| set.count_ones() as usize == TURNS) {
            let of =
                |turn: usize| if divided & (1_u32 << turn) == 0 { Turn::Old } else { Turn::New };
            cases += 1;
            match judged((0..2 * TURNS).map(of), drops) {
                Verdict::Worse { .. } => worse += 1,
                Verdict::Better { .. } => better += 1,
                _ => {}
            }
        }
        assert_eq!((cases, worse, better), (924, 43, 43));
    }

    #[test]
    fn both_have_as_many_turns_and_the_new_settings_are_in_force_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let root = crate::testing::MachineSpec::cpus(2).build(folder.path()).unwrap();
        let (mut now, mut changes) = (Turn::New, 0);
        let put = |turn| {
            changes += usize::from(turn != now);
            now = turn;
            Ok::<_, Infallible>(())
        };
        let time = Duration::from_secs(12);
        let mut waited = Duration::ZERO;
        let wait = |time| {
            waited += time;
            false
        };
        let turns = verify(&root, &["eth0".to_owned()], time, put, wait).unwrap().unwrap();
        assert_eq!(turns.iter().filter(|turn| turn.0 == Turn::Old).count(), TURNS);
        assert_eq!((turns.len(), now, changes, waited), (2 * TURNS, Turn::New, 6, time));
        assert_eq!(judge(&turns), Verdict::TooQuiet { packets: 0 });
    }
}
