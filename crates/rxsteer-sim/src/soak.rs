//! Checks that order holds and that every packet is accounted for, whatever the faults: one run with random
//! [`faults`], and the checks of its result.
//!
//! `cargo xtask sim-soak` does thousands of such runs; a sample of them is a test of this crate.

use crate::result::PacketAccount;
use crate::scenario::Interrupts;
use crate::{RunResult, Scenario, faults};
use rxsteer_core::ConfigError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The shortest run that [`shorten`] tries, in nanoseconds.
const SHORTEST_NS: u64 = 1_000_000;

/// The coverage of runs with faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// The number of runs.
    pub runs: u64,
    /// Events: faults, and the scenario's own.
    pub events: u64,
    /// Frames that arrived at NICs.
    pub arrived: u64,
    /// Packets that were processed.
    pub processed: u64,
    /// Packets that a ring or a backlog refused.
    pub refused: u64,
    /// Packets that were processed on a CPU other than that of their flow's previous packet.
    pub moves: u64,
    /// Packets out of order in runs with spread interrupts, for which order is not guaranteed.
    pub reordered_by_spread: u64,
}

impl Covered {
    /// Adds the numbers of other runs.
    pub fn add(&mut self, more: Covered) {
        self.runs += more.runs;
        self.events += more.events;
        self.arrived += more.arrived;
        self.processed += more.processed;
        self.refused += more.refused;
        self.moves += more.moves;
        self.reordered_by_spread += more.reordered_by_spread;
    }
}

/// An error that must never occur.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// The core refused steering settings that the faults produced.
    #[error("the core refuses the steering: {0}")]
    Refused(#[from] ConfigError),
    /// Packets were reordered although order is guaranteed.
    #[error("{0} packets were processed out of order")]
    Reordered(u64),
    /// Packets were lost uncounted or counted twice.
    #[error("packets do not add up: {0:?}")]
    DoesNotAddUp(PacketAccount),
    /// The same scenario and seed gave a different result.
    #[error("a second run with the same seed gave another result")]
    NotRepeatable,
    /// The simulator panicked.
    #[error("the simulator panicked: {0}")]
    Panicked(String),
}

/// Checks the invariants of a result.
///
/// # Errors
/// [`Violation`] when one of them does not hold.
pub fn check(scenario: &Scenario, result: &RunResult) -> Result<(), Violation> {
    if result.reordered > 0 && !spreads(scenario) {
        return Err(Violation::Reordered(result.reordered));
    }
    if !result.account.adds_up() {
        return Err(Violation::DoesNotAddUp(result.account));
    }
    Ok(())
}

/// Whether the interrupts of any NIC are spread over CPUs.
fn spreads(scenario: &Scenario) -> bool {
    scenario.nics.iter().any(|nic| matches!(nic.interrupts, Interrupts::Spread(_)))
}

/// Runs `scenario` with `seed` and with `count` faults of the same seed, and checks the result. Every 16th seed
/// runs twice, and both results must be equal.
///
/// # Errors
/// [`Violation`], with the check that failed.
pub fn one(scenario: &Scenario, seed: u64, count: u32) -> Result<Covered, Violation> {
    let faulty = faults::add(scenario, seed, count);
    let result = run(&faulty, seed)?;
    check(&faulty, &result)?;
    if seed.is_multiple_of(16) && run(&faulty, seed)? != result {
        return Err(Violation::NotRepeatable);
    }
    let reordered_by_spread = result.reordered;
    Ok(Covered {
        runs: 1,
        events: faulty.events.len() as u64,
        arrived: result.account.arrived,
        processed: result.account.processed,
        refused: result.account.ring_full + result.account.dropped(),
        moves: result.moves,
        reordered_by_spread,
    })
}

/// A run whose panic is reported as a finding, with its scenario and seed.
fn run(scenario: &Scenario, seed: u64) -> Result<RunResult, Violation> {
    let caught = catch_unwind(AssertUnwindSafe(|| crate::run(scenario, seed)));
    let result = caught.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Violation::Panicked(text.unwrap_or("without a message").to_owned())
    })?;
    Ok(result?)
}

/// `scenario`, shortened so that about `packets` arrive at its NICs; a scenario with fewer packets keeps its
/// length. Times within it are scaled. This costs a few short runs.
///
/// # Errors
/// [`Violation`] when the scenario can't be run.
pub fn shorten(scenario: &Scenario, packets: u64) -> Result<Scenario, Violation> {
    let mut duration_ns = SHORTEST_NS.min(scenario.duration_ns);
    loop {
        let short = scaled(scenario, duration_ns);
        let arrived = run(&short, 0)?.account.arrived;
        if arrived >= packets || duration_ns >= scenario.duration_ns {
            return Ok(short);
        }
        duration_ns = duration_ns.saturating_mul(2).min(scenario.duration_ns);
    }
}

/// `scenario` with another duration; starts, ramps and events keep their relative times.
fn scaled(scenario: &Scenario, duration_ns: u64) -> Scenario {
    let mut short = scenario.clone();
    let whole = u128::from(scenario.duration_ns.max(1));
    let scale = |at_ns: &mut u64| {
        *at_ns = (u128::from(*at_ns) * u128::from(duration_ns) / whole) as u64;
    };
    short.duration_ns = duration_ns;
    scale(&mut short.warm_up_ns);
    for traffic in &mut short.traffic {
        scale(&mut traffic.start_ns);
        scale(&mut traffic.ramp_ns);
    }
    for event in &mut short.events {
        scale(&mut event.at_ns);
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;
    use rxsteer_core::{Drops, SteerCounts};

    fn result() -> RunResult {
        RunResult {
            seed: 1,
            measured_ns: 1,
            traffic: Vec::new(),
            cpus: Vec::new(),
            account: PacketAccount {
                arrived: 10,
                ring_full: 1,
                drops: Drops::default(),
                processed: 7,
                under_way: 2,
                ended: 7,
                no_room: 0,
                with_application: 0,
            },
            steered: SteerCounts::default(),
            rules: Vec::new(),
            unmatched: 0,
            moves: 0,
            reordered: 0,
            kicks: 0,
            interrupts: 0,
            tx_full: 0,
            socket_full: 0,
        }
    }

    #[test]
    fn packet_out_of_order_or_unaccounted_for_is_found() {
        let fixed = scenario();
        assert!(check(&fixed, &result()).is_ok());
        let overtaken = RunResult { reordered: 3, ..result() };
        assert!(matches!(check(&fixed, &overtaken), Err(Violation::Reordered(3))));
        let mut spread = scenario();
        spread.nics[0].interrupts = Interrupts::Spread("0-1".parse().unwrap());
        assert!(check(&spread, &overtaken).is_ok(), "no order is promised there");
        // Each number separately: those before the processing, and those after it.
        let numbers: [fn(&mut PacketAccount) -> &mut u64; 7] = [
            |account| &mut account.arrived,
            |account| &mut account.ring_full,
            |account| &mut account.under_way,
            |account| &mut account.processed,
            |account| &mut account.ended,
            |account| &mut account.no_room,
            |account| &mut account.with_application,
        ];
        for (index, number) in numbers.iter().enumerate() {
            let mut wrong = result();
            *number(&mut wrong.account) += 1;
            let found = check(&spread, &wrong);
            assert!(matches!(found, Err(Violation::DoesNotAddUp(_))), "number {index}: {found:?}");
        }
    }

    #[test]
    fn small_machine_keeps_order_whatever_goes_wrong() {
        let scenario = shorten(&scenario(), 2000).unwrap();
        let mut sum = Covered::default();
        for seed in 0..64 {
            let covered = one(&scenario, seed, 12);
            sum.add(covered.unwrap_or_else(|what| panic!("seed {seed}: {what}")));
        }
        assert!(sum.arrived > 64 * 1000 && sum.moves > 0 && sum.refused > 0, "{sum:?}");
    }

    #[test]
    fn all_times_are_shortened_alike() {
        let mut long = scenario();
        (long.traffic[0].start_ns, long.traffic[0].ramp_ns) = (500_000_000, 100_000_000);
        let short = scaled(&long, 1_000_000);
        assert_eq!((short.duration_ns, short.warm_up_ns), (1_000_000, 1000));
        assert_eq!((short.traffic[0].start_ns, short.traffic[0].ramp_ns), (500_000, 100_000));
        assert_eq!(short.events[2].at_ns, 999_000);
        assert_eq!(scaled(&long, long.duration_ns), long);
    }
}
