//! Changes of rules keep the order of flows: in the present phases, and in a prototype (`src/previous.h`) that keeps
//! the previous rules beside the present ones. The C code decides, and each decision is compared with `rxsteer-core`
//! with the same settings. The policies have the settings of `run`: unguarded at times, with boundary slots. Each rule
//! of user space is left out once, and the model must then find frames out of order.

mod control;
mod oracle;
mod settings;
mod world;

use control::{Control, Machine, Rule};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use settings::Settings;
use world::{Seen, World};

/// Runs of each procedure, and changes in each run.
const RUNS: u64 = 120;
const CHANGES: u64 = 30;

/// The most ticks of a change, or until frames go unguarded.
const PATIENT: u32 = 400;

fn run(machine: Machine, without: Option<Rule>, seed: u64) -> Control {
    let rng = ChaCha8Rng::seed_from_u64(seed);
    let mut control = Control::new(World::new(rng), machine, without);
    while control.changes < CHANGES {
        // Changes begin in every phase: while frames are unguarded, while a change still drains, and in between.
        let wanted = control.world.rng.random_range(0..3);
        for _ in 0..PATIENT {
            control.tick();
            if wanted == 0 || (wanted == 1 && control.world.rng.random_ratio(1, 8)) {
                break;
            }
            if control.is_unguarded || !control.settings.can_be_unguarded() {
                break;
            }
        }
        for _ in 0..control.world.rng.random_range(0..10) {
            control.world.meanwhile();
        }
        for _ in 0..4 {
            control.wrap();
        }
        control.world.meanwhile();
        let next = Settings::random(&mut control.world.rng);
        control.apply(next);
        let before = control.changes;
        for _ in 0..PATIENT {
            control.tick();
            if control.is_changed() {
                break;
            }
        }
        assert!(control.changes > before, "seed {seed}: the change is never made: {control:?}");
    }
    control
}

/// The result of all runs of a procedure, and how many ticks its changes away from unguarded frames waited.
fn all(machine: Machine) -> (Seen, Vec<u64>, u64) {
    let (mut all, mut waited, mut second) = (Seen::default(), Vec::new(), 0);
    for seed in 0..RUNS {
        let control = run(machine, None, seed);
        let seen = control.world.seen;
        assert_eq!(seen.late, 0, "{machine:?}, seed {seed}: {seen:?}");
        all.without_ring += seen.without_ring;
        all.frames += seen.frames;
        all.lost += seen.lost;
        all.checked += seen.checked;
        all.moved += seen.moved;
        all.off_target += seen.off_target;
        all.unguarded += seen.unguarded;
        second += control.second_changes;
        waited.extend(control.waited);
    }
    waited.sort_unstable();
    (all, waited, second)
}

#[test]
fn phases_keep_order() {
    let (seen, waited, _) = all(Machine::Phases);
    println!("{seen:?} {}", summary(&waited));
    assert!(seen.checked > seen.frames / 2, "{seen:?}");
    assert!(seen.moved > 10_000 && seen.unguarded > 30_000 && seen.lost > 1_000, "{seen:?}");
}

#[test]
fn previous_rules_keep_order() {
    let (seen, waited, second) = all(Machine::Previous);
    println!("{seen:?} {} {second}", summary(&waited));
    assert!(seen.moved > 10_000 && seen.unguarded > 30_000 && seen.lost > 1_000, "{seen:?}");
    assert!(second > 100, "changes while one drained: {second}");
}

fn summary(waited: &[u64]) -> String {
    let share = |percent: usize| waited.get(waited.len() * percent / 100).copied().unwrap_or(0);
    format!(
        "ticks waited: {} changes, median {}, 90 % {}, 99 % {}",
        waited.len(),
        share(50),
        share(90),
        share(99)
    )
}

/// Asserts that without the rule, a frame is out of order or finds no ring in some run.
fn needs(machine: Machine, rule: Rule) {
    let broken = (0..20 * RUNS).find(|seed| {
        let seen = run(machine, Some(rule), *seed).world.seen;
        seen.late > 0
    });
    assert!(broken.is_some(), "{machine:?} without {rule:?}: nothing is late");
}

/// One test for each rule.
macro_rules! needs {
    ($($name:ident: $machine:ident $rule:ident;)*) => {
        $(#[test] fn $name() { needs(Machine::$machine, Rule::$rule); })*
    };
}

needs! {
    phases_need_flushing: Phases Flush;
    phases_need_retired_rings_to_drain: Phases RetiredDrains;
    phases_need_a_snapshot_to_bypass_the_guard: Phases UnguardedAfterSnapshot;
    phases_need_all_on_target_to_bypass_the_guard: Phases UnguardedOnTarget;
    phases_need_slots_unset: Phases SlotsUnset;
    phases_need_a_long_snapshot: Phases LongSnapshot;
    phases_need_a_later_frame: Phases LaterFrame;
    phases_need_the_guard_first: Phases GuardFirst;
    phases_need_rings_to_drain: Phases RingsDrain;
    previous_needs_flushing: Previous Flush;
    previous_needs_retired_rings_to_drain: Previous RetiredDrains;
    previous_needs_a_snapshot_to_bypass_the_guard: Previous UnguardedAfterSnapshot;
    previous_needs_all_on_target_to_bypass_the_guard: Previous UnguardedOnTarget;
    previous_needs_slots_unset: Previous SlotsUnset;
    previous_needs_a_long_snapshot: Previous LongSnapshot;
    previous_needs_a_later_frame: Previous LaterFrame;
    previous_needs_the_previous_rules: Previous PreviousDecides;
    previous_needs_the_snapshot_after_the_change: Previous SnapshotAfterChange;
    previous_needs_boundary_slots_guarded: Previous BoundarySlots;
    previous_needs_to_survive_a_second_change: Previous SecondChange;
    previous_needs_the_old_generation: Previous OldGeneration;
    previous_needs_held_rings_to_stay: Previous HeldRingStays;
}
