//! A small part of the search; `cargo xtask order` runs all of it.

use rxsteer_core::DropReason;
use rxsteer_order::{Fault, Guard, Options, Progress, Summary, Violation, run, search};
use std::sync::OnceLock;

const PACKETS: u64 = 2000;

fn options(guard: Guard) -> Options {
    Options { packets: PACKETS, guard, trace: 0 }
}

fn seeds(count: u64, guard: Guard) -> Result<Summary, Violation> {
    search(0..count, &options(guard), 2, &Progress::default())
}

/// The result of this part, which several tests use.
fn slice() -> &'static Result<Summary, Violation> {
    static SLICE: OnceLock<Result<Summary, Violation>> = OnceLock::new();
    SLICE.get_or_init(|| seeds(2000, Guard::On))
}

fn is_reordered(violation: &Violation) -> bool {
    matches!(violation.fault, Fault::Overtakes { .. } | Fault::Beside { .. })
}

#[test]
fn with_the_guard_nothing_is_reordered_or_lost() {
    let summary = slice().as_ref().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(summary.received, 2000 * PACKETS);
    assert_eq!(summary.received, summary.accepted + summary.drops.total());
    assert_eq!(summary.accepted, summary.completed + summary.lost);
}

/// The runs found nothing, and they covered what could fail.
#[test]
fn slice_has_everything_in_it() {
    let summary = slice().as_ref().unwrap_or_else(|violation| panic!("{violation}"));
    for (name, count) in summary.counts() {
        assert!(count > 1000, "{name} is {count}: {summary:?}");
    }
    for reason in [DropReason::BacklogFull, DropReason::FlowLimit] {
        assert!(summary.drops.get(reason) > 1000, "{summary:?}");
    }
}

#[test]
fn numbers_wrap_in_most_runs() {
    let summary = slice().as_ref().unwrap_or_else(|violation| panic!("{violation}"));
    assert!(summary.wrapped_runs * 4 > summary.runs * 3, "{summary:?}");
}

#[test]
fn without_the_guard_flows_are_reordered() {
    let found = (0..50).filter_map(|seed| run(seed, &options(Guard::Off)).err());
    let found: Vec<_> = found.collect();
    assert!(found.iter().all(is_reordered), "{found:?}");
    assert!(found.len() > 25, "in {} of 50 runs only", found.len());
}

#[test]
fn with_the_head_at_dequeue_flows_are_reordered() {
    let found = (0..50).filter_map(|seed| run(seed, &options(Guard::HeadAtDequeue)).err());
    let found: Vec<_> = found.collect();
    assert!(found.iter().all(is_reordered), "{found:?}");
    assert!(found.iter().any(|violation| matches!(violation.fault, Fault::Beside { .. })));
    assert!(found.len() > 10, "in {} of 50 runs only", found.len());
}

#[test]
fn seed_is_a_run() {
    for seed in 0..20 {
        let summary = run(seed, &options(Guard::On));
        assert_eq!(summary, run(seed, &options(Guard::On)));
        assert_ne!(summary, run(seed + 1, &options(Guard::On)), "seeds differ");
    }
}

#[test]
fn what_is_found_does_not_depend_on_threads() {
    let search = |guard, threads| search(3..60, &options(guard), threads, &Progress::default());
    assert_eq!(search(Guard::On, 1), search(Guard::On, 5));
    assert_eq!(search(Guard::Off, 1), search(Guard::Off, 5));
}

#[test]
fn violation_says_how_to_have_it_again() {
    let lowest = seeds(50, Guard::HeadAtDequeue).unwrap_err();
    let options = Options { trace: 10, ..options(Guard::HeadAtDequeue) };
    let again = run(lowest.seed, &options).unwrap_err();
    assert_eq!(again.fault, lowest.fault);
    assert!((1..=10).contains(&again.trace.len()), "{:?}", again.trace);
    let command = format!(
        "cargo xtask order --seed {} --packets {PACKETS} --guard head-at-dequeue",
        lowest.seed
    );
    assert!(lowest.to_string().ends_with(&command), "{lowest}");
}
