//! Comparisons checked against manually computed values.

use super::*;
use crate::sample::{result, scenario};

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() < 1e-4
}

/// Differences 1, 2, 3, 4: mean 2.5, standard deviation √(5/3) = 1.29099, standard error 0.645497,
/// t = 3.87298 with 3 degrees of freedom. The distribution of t with 3 degrees is
/// 1/2 + (atan(t/√3) + (t/√3)/(1 + t²/3)) / π, so p = 0.030466.
#[test]
fn paired_t_test_by_hand() {
    let summary = paired(&[(10.0, 11.0), (20.0, 22.0), (15.0, 18.0), (5.0, 9.0)]).unwrap();
    assert_eq!((summary.count, summary.difference, summary.baseline), (4, 2.5, 12.5));
    let root = 3.872_983 / 3f64.sqrt();
    let by_hand = 1.0 - 2.0 / std::f64::consts::PI * (root.atan() + root / (1.0 + root * root));
    assert!(near(summary.p, by_hand) && near(summary.p, 0.030_466), "{} {by_hand}", summary.p);
    assert!(near(summary.interval, 3.182_446 * 0.645_497), "{}", summary.interval);
}

#[test]
fn pairs_without_chance_and_too_few_pairs() {
    assert_eq!(paired(&[(1.0, 1.0), (5.0, 5.0)]).unwrap().p, 1.0);
    assert_eq!(paired(&[(1.0, 2.0), (5.0, 6.0)]).unwrap().p, 0.0);
    assert_eq!(paired(&[(1.0, 2.0)]), None);
    assert_eq!(paired(&[]), None);
}

/// Sorted: 0.005 × 4, 0.01 × 3, 0.03 × 2, 0.04 × 1. The last one is below the previous one, so the previous one
/// applies.
#[test]
fn holms_correction_of_a_worked_example() {
    let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
    for (summary, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
        assert!(near(*summary, expected), "{corrected:?}");
    }
    assert_eq!(holm(&[0.6, 0.9]), [1.0, 1.0]);
    assert!(holm(&[]).is_empty());
}

#[test]
fn gain_is_found_and_chance_is_not() {
    let scenario = scenario();
    let baseline: Vec<RunResult> = (0..10).map(result).collect();
    let mut faster = baseline.clone();
    for run in &mut faster {
        run.traffic[0].bits_per_second *= 1.6 + run.seed as f64 / 1000.0;
    }
    // A little more as often as a little less.
    let mut noise = baseline.clone();
    for run in &mut noise {
        run.traffic[0].bits_per_second *= 1.0 + if run.seed % 2 == 0 { 0.05 } else { -0.05 };
    }
    let summary = compare(&scenario, &[baseline, faster, noise], &[]);
    let throughput = |cell| {
        summary.iter().find(|it| it.cell == cell && it.metric.name == "bits_per_second").unwrap()
    };
    assert_eq!(throughput(1).finding(), Finding::Better);
    assert!(throughput(1).is_worth_it());
    assert_eq!(throughput(2).finding(), Finding::NotSignificant);
    // A metric that adds up is compared as a whole, any other traffic by traffic, each once.
    assert_eq!(throughput(1).subject, Subject::Run);
    let fairness: Vec<Subject> = summary
        .iter()
        .filter(|it| it.cell == 1 && it.metric.name == "fairness")
        .map(|it| it.subject)
        .collect();
    assert_eq!(fairness, [Subject::Traffic(0), Subject::Traffic(1)]);
    assert!(summary.iter().all(|it| it.corrected >= it.paired.p));
}

#[test]
fn less_latency_is_better_and_small_gains_are_not_worth_it() {
    let scenario = scenario();
    let baseline: Vec<RunResult> = (0..5).map(result).collect();
    let mut other = baseline.clone();
    for run in &mut other {
        run.traffic[1].latency.p99 /= 2;
        run.traffic[1].bits_per_second *= 1.001;
    }
    let summary = compare(&scenario, &[baseline, other], &[]);
    let of = |name| summary.iter().find(|it| it.metric.name == name).unwrap();
    assert_eq!(of("latency_p99_ns").within_model(), Finding::Better);
    assert_eq!(of("bits_per_second").within_model(), Finding::Better);
    assert!(!of("bits_per_second").is_worth_it());
}

#[test]
fn only_seeds_of_both_cells_are_paired() {
    let scenario = scenario();
    let baseline: Vec<RunResult> = (0..5).map(result).collect();
    let stopped: Vec<RunResult> = [0, 2, 3].map(result).into();
    let summary = compare(&scenario, &[baseline.clone(), stopped], &[]);
    assert!(summary.iter().all(|it| it.paired.count == 3 && it.paired.difference == 0.0));
    assert!(compare(&scenario, &[baseline, vec![result(1)]], &[]).is_empty());
}

/// Throughput is off by up to 18 % from published tables, so 10 % more are no finding, and 20 % are one unless the numbers
/// of CPUs change it as much.
#[test]
fn difference_within_what_is_allowed_is_not_significant() {
    let scenario = scenario();
    let baseline: Vec<RunResult> = (0..5).map(result).collect();
    let times = |factor: f64| {
        let mut runs = baseline.clone();
        for run in &mut runs {
            run.traffic.iter_mut().for_each(|traffic| traffic.bits_per_second *= factor);
        }
        runs
    };
    let finding = |factor: f64, renumbered: &[RunResult]| {
        let all = compare(&scenario, &[baseline.clone(), times(factor)], renumbered);
        all.into_iter().find(|it| it.metric.name == "bits_per_second").unwrap()
    };
    for (factor, expected) in [
        (1.1, Finding::WithinError),
        (1.2, Finding::Better),
        (0.9, Finding::WithinError),
        (0.8, Finding::Worse),
    ] {
        assert_eq!(finding(factor, &[]).finding(), expected, "{factor}");
        assert_eq!(finding(factor, &baseline).finding(), expected, "{factor}");
    }
    let other = finding(1.2, &times(0.9));
    assert_eq!((other.finding(), other.within_model()), (Finding::WithinError, Finding::Better));
    assert!(near(other.allowed.numbering, 1.0 / 0.9) && near(other.allowed.error, 1.181));
    // What was never compared with a published figure has no known error.
    let all = compare(&scenario, &[baseline.clone(), baseline.clone()], &[]);
    let fairness = all.iter().find(|it| it.metric.name == "fairness").unwrap();
    assert_eq!(fairness.allowed, Allowed { error: 1.0, numbering: 1.0 });
}
