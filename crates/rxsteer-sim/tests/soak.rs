//! A sample of `cargo xtask sim-soak`: every built-in scenario, shortened, with faults.

use rxsteer_sim::faults;
use rxsteer_sim::file::builtin::builtin;
use rxsteer_sim::soak::{Covered, one, shorten};

const SEEDS: u64 = 24;
const FAULTS: u32 = 12;
const PACKETS: u64 = 1500;

#[test]
fn order_holds_and_packets_add_up_whatever_goes_wrong() {
    for subject in builtin() {
        let name = subject.name;
        let scenario = subject.scenario(&[]).expect("a built-in scenario reads");
        let scenario = shorten(&scenario, PACKETS).unwrap_or_else(|why| panic!("{name}: {why}"));
        let mut sum = Covered::default();
        for seed in 0..SEEDS {
            match one(&scenario, seed, FAULTS) {
                Ok(covered) => sum.add(covered),
                Err(what) => panic!(
                    "{name}, seed {seed}: {what}; again: cargo xtask sim-soak --scenario {name} \
                     --seed {seed} --faults {FAULTS} --packets {PACKETS}"
                ),
            }
        }
        // A soak in which no packet arrives would pass as well.
        assert!(sum.arrived > SEEDS * PACKETS / 2, "{name}: {sum:?}");
        assert!(sum.processed > sum.arrived / 20, "{name}: {sum:?}");
        assert!(sum.refused > 0, "{name}: no fault filled a ring or a backlog: {sum:?}");
    }
}

/// A scenario file could contain every event that is drawn.
#[test]
fn built_in_scenario_with_faults_passes_its_own_check() {
    for subject in builtin() {
        let scenario = subject.scenario(&[]).expect("a built-in scenario reads");
        for seed in 0..200 {
            let checked = faults::add(&scenario, seed, 20).check();
            assert!(checked.is_ok(), "{}, seed {seed}: {checked:?}", subject.name);
        }
    }
}
