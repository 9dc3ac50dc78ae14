//! Changes of rules keep the order of flows. The C code decides, and each decision is compared with `rxsteer-core`
//! with the same settings. The policies have the settings of `run`: unguarded at times, with boundary slots. Each rule
//! of user space is left out once, and the model must then find frames out of order.

mod control;
mod oracle;
mod settings;
mod world;

use control::{Control, Rule};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rxsteer_bpf_native::check::packets;
use settings::Settings;
use world::{Seen, World};

/// Runs (ten times as many by `cargo xtask live --full`), and changes in each run.
const RUNS: u64 = 100;
const CHANGES: u64 = 30;

/// The most ticks of a change, or until frames are unguarded.
const MAX_TICKS: u32 = 2000;

fn run(without: Option<Rule>, seed: u64) -> Control {
    let rng = ChaCha8Rng::seed_from_u64(seed);
    let mut control = Control::new(World::new(rng), without);
    while control.changes < CHANGES {
        // Changes begin in every phase: while frames are unguarded, while a change still drains, and in between.
        let wanted = control.world.rng.random_range(0..3);
        for _ in 0..MAX_TICKS {
            control.tick();
            if wanted == 0 || (wanted == 1 && control.world.rng.random_ratio(1, 8)) {
                break;
            }
            if control.is_unguarded || !control.settings.can_be_unguarded() {
                break;
            }
        }
        for _ in 0..control.world.rng.random_range(0..10) {
            control.world.run_other_events();
        }
        for _ in 0..4 {
            control.wrap();
        }
        control.world.run_other_events();
        let next = Settings::random(&mut control.world.rng);
        control.apply(next);
        let before = control.changes;
        for _ in 0..MAX_TICKS {
            control.tick();
            if control.is_changed() {
                break;
            }
        }
        assert!(control.changes > before, "seed {seed}: the change is never made: {control:?}");
    }
    control
}

/// The result of all runs, and how many ticks the changes away from unguarded frames waited.
fn all() -> (Seen, Vec<u64>) {
    let (mut all, mut waited) = (Seen::default(), Vec::new());
    for seed in 0..packets(RUNS) {
        let control = run(None, seed);
        let seen = control.world.seen;
        assert_eq!(seen.late, 0, "seed {seed}: {seen:?}");
        all.without_ring += seen.without_ring;
        all.frames += seen.frames;
        all.lost += seen.lost;
        all.checked += seen.checked;
        all.moved += seen.moved;
        all.off_target += seen.off_target;
        all.unguarded += seen.unguarded;
        waited.extend(control.waited);
    }
    waited.sort_unstable();
    (all, waited)
}

#[test]
fn changes_keep_order() {
    let (seen, waited) = all();
    println!("{seen:?} {}", summary(&waited));
    assert!(seen.checked > seen.frames / 2, "{seen:?}");
    assert!(seen.moved > 3_000 && seen.unguarded > 10_000 && seen.lost > 300, "{seen:?}");
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

/// Asserts that without the rule, a frame is out of order in some run from this seed on.
fn needs(rule: Rule, first: u64) {
    let broken = (first..first + 3000).find(|seed| run(Some(rule), *seed).world.seen.late > 0);
    assert!(broken.is_some(), "without {rule:?}: nothing is late");
}

/// One test for each rule. If a rule's absence shows only in few seeds, the search begins near one of them.
macro_rules! needs {
    ($($name:ident: $rule:ident from $first:literal;)*) => {
        $(#[test] fn $name() { needs(Rule::$rule, $first); })*
    };
}

needs! {
    changes_need_flushing: Flush from 0;
    changes_need_retired_rings_to_drain: RetiredDrains from 0;
    changes_need_a_snapshot_to_bypass_the_guard: UnguardedAfterSnapshot from 0;
    changes_need_all_on_target_to_bypass_the_guard: UnguardedOnTarget from 0;
    changes_need_slots_unset: SlotsUnset from 0;
    changes_need_slots_of_deleted_rings_unset: DeletedRingsUnset from 100;
    changes_need_old_slots_unset: OldSlotsUnset from 2600;
    changes_need_a_long_snapshot: LongSnapshot from 8400;
    changes_need_a_later_frame: LaterFrame from 0;
    changes_need_the_guard_first: GuardFirst from 0;
    changes_need_rings_to_drain: RingsDrain from 0;
}
