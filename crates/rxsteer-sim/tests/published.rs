//! The published experiments: the predictions, and that fits use none of the predicted rows.

use rxsteer_core::Policy;
use rxsteer_sim::fit::{self, FitError};
use rxsteer_sim::published::machine::forwarder::{self, Pairs, SENT_PPS};
use rxsteer_sim::published::machine::server::{
    self, RECEIVING_SHARE_BY_RFS, RECEIVING_SHARE_BY_SLIDES, Values,
};
use rxsteer_sim::published::{
    Experiment, Report, Role, Row, fitted_rows, known_error, predicted_rows, report,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// All Rust files in a folder of `src`, and below it.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files.push(path);
            }
        }
    }
    files
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn fits_and_machines_do_not_see_predicted_rows() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/published");
    let rows = text(&source.join("predicted_rows.rs"));
    let names: Vec<&str> = rows
        .lines()
        .filter_map(|line| line.strip_prefix("pub const "))
        .filter_map(|line| line.split(':').next())
        .collect();
    assert!(names.len() >= 10, "{names:?}");
    let mut files = [sources("fit"), sources("published/machine")].concat();
    assert!(files.len() >= 8, "{files:?}");
    files.extend(
        ["experiment.rs", "measured.rs", "figures.rs", "fitted_rows.rs"]
            .map(|name| source.join(name)),
    );
    for file in files {
        let text = text(&file);
        // A glob import would make them available without a name.
        for way in ["predicted_rows", "published::*", "super::super"] {
            assert!(!text.contains(way), "{} has {way}", file.display());
        }
        for name in &names {
            assert!(!text.contains(name), "{} names {name}", file.display());
        }
    }
    // They are not re-exported under another name either.
    for file in sources("published") {
        for line in text(&file).lines().filter(|line| line.contains("predicted_rows")) {
            assert!(!line.trim_start().starts_with("pub use"), "{}: {line}", file.display());
        }
    }
}

#[test]
fn machines_are_what_a_scenario_can_be() {
    let values = Values::netperf(9_000.0, 9_000.0);
    for policy in [Policy::None, Policy::Rps, Policy::Rfs] {
        for per_cpu in [false, true] {
            server::RFS_RPC.scenario(values, policy.clone(), per_cpu).check().unwrap();
            server::RPS_CARDS[3].1.scenario(values, policy.clone(), per_cpu).check().unwrap();
        }
    }
    for pairs in [Pairs::Socket, Pairs::Siblings, Pairs::Apart] {
        for hand_off in [false, true] {
            let scenario = forwarder::scenario(2_000.0, 0.3, 5e6, hand_off, pairs);
            scenario.check().unwrap();
        }
    }
}

#[test]
fn receiving_shares_are_of_the_other_table() {
    let cards = fitted_rows::RPS_CARDS.iter().zip(predicted_rows::RPS_CARDS_WITH_RPS);
    let mean = cards.map(|(without, with)| without.tps / with.tps).sum::<f64>() / 4.0;
    assert!((mean - RECEIVING_SHARE_BY_SLIDES.value).abs() < 1e-4, "{mean}");
    let rfs = fitted_rows::RFS_NETPERF.tps / predicted_rows::RFS_NETPERF_WITH_RPS.tps;
    assert!((rfs - RECEIVING_SHARE_BY_RFS.value).abs() < 1e-4, "{rfs}");
}

/// A value that comes from predicted figures has the range that these figures allow.
#[test]
fn constants_from_predicted_rows_have_their_ranges() {
    let range = |figures: &[f64]| {
        let least = figures.iter().copied().fold(f64::MAX, f64::min);
        (least, figures.iter().copied().fold(0.0, f64::max))
    };
    let cards = fitted_rows::RPS_CARDS.iter().zip(predicted_rows::RPS_CARDS_WITH_RPS);
    let slides: Vec<f64> = cards.map(|(without, with)| without.tps / with.tps).collect();
    let (netperf, rpc) = (fitted_rows::RFS_NETPERF.tps, fitted_rows::RFS_RPC.tps);
    let rfs = [
        netperf / predicted_rows::RFS_NETPERF_WITH_RPS.tps,
        netperf / predicted_rows::RFS_NETPERF_WITH_RFS.tps,
        rpc / predicted_rows::RFS_RPC_WITH_RPS.tps,
        rpc / predicted_rows::RFS_RPC_WITH_RFS.tps,
    ];
    // Two cards carry frames of 60 bytes, with 24 more on the wire.
    let line_rate = 2.0 * 10e9 / 8.0 / 84.0;
    for (constant, range) in [
        (RECEIVING_SHARE_BY_SLIDES, range(&slides)),
        (RECEIVING_SHARE_BY_RFS, range(&rfs)),
        (SENT_PPS, (predicted_rows::HAND_OFF_PPS, line_rate)),
    ] {
        let (least, most) = constant.range.unwrap();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 5e-4;
        assert!(near(least, range.0) && near(most, range.1), "{constant:?} {range:?}");
        assert!((least..most).contains(&constant.value), "{constant:?}");
        assert!(constant.source.contains("predicted"), "{constant:?}");
    }
    let mut others = forwarder::CONSTANTS.iter().chain(&server::CONSTANTS);
    assert!(others.all(|it| it.range.is_some() == it.source.contains("predicted")));
}

/// Checks that apply to every report.
fn check(report: &Report) {
    for row in &report.rows {
        assert!(row.predicted.is_finite() && row.published > 0.0, "{row:?}");
        if row.role == Role::Fitted {
            // About fifty losses determine the deviation of the latency, so it is fitted to a tenth. The 90 % and
            // 99 % of a fitted row are not fitted.
            let most = if row.what.ends_with('σ') { 15.0 } else { 2.0 };
            assert!(row.error().abs() < most, "{row:?}");
        }
    }
    for row in report.rows.iter().filter(|row| row.role.has_target()) {
        assert_eq!(row.role, Role::Reproduced, "a constant of these tables is a predicted figure");
    }
    for (metric, factor) in factors(report) {
        let known = known_error(metric).unwrap();
        assert!(factor < known.factor + 5e-4, "{metric} is off by {factor}: {known:?}");
    }
    assert!(report.rows.iter().any(|row| row.role.has_target()));
    assert!(report.rows.iter().all(|row| row.role.has_target() == row.null.is_some()));
    for row in &report.rows {
        let (least, most) = row.range.unwrap();
        assert!((least..=most).contains(&row.predicted), "{row:?}");
        // A fitted row is the same on all machines that the fits allow.
        assert!(
            row.role != Role::Fitted || row.what.contains("latency") || most < 1.03 * least,
            "{row:?}"
        );
    }
    assert!(report.constants.iter().all(|constant| !constant.source.is_empty()));
    assert!(report.lacks.len() >= 3);
}

/// By metric, the factor between the predicted and the published ratio of each row with a target to the row without
/// steering; also for the p99 that belongs to such rows.
fn factors(report: &Report) -> Vec<(&'static str, f64)> {
    let find = |what: &str| report.rows.iter().find(|row| row.what == what);
    let off = |own: f64, published: f64| (own / published).max(published / own);
    let ratio = |figure: fn(&Row) -> f64, of: &Row, to: &Row| figure(of) / figure(to);
    let mut factors = Vec::new();
    for row in &report.rows {
        let (load, _) = row.what.split_once(", ").unwrap_or((&row.what, ""));
        let fitted = |suffix: &str| {
            let without = |it: &&Row| {
                it.what.starts_with(&format!("{load}, no")) && it.what.ends_with(suffix)
            };
            report.rows.iter().find(without)
        };
        let both = |figure: &str| {
            let base = fitted(figure)?;
            Some(off(ratio(|it| it.predicted, row, base), ratio(|it| it.published, row, base)))
        };
        if row.role.has_target() && row.what.ends_with("tps") {
            let rate = both("tps").unwrap();
            let cpu = find(&row.what.replace("tps", "CPU")).unwrap();
            let (rate_without, cpu_without) = (fitted("tps").unwrap(), fitted("CPU").unwrap());
            let each = |figure: fn(&Row) -> f64| {
                ratio(figure, cpu, cpu_without) / ratio(figure, row, rate_without)
            };
            factors.push(("transactions_per_second", rate));
            let cost = off(each(|it| it.predicted), each(|it| it.published));
            factors.push(("cpu_per_packet_ns", cost));
        } else if row.role.has_target() && row.what.contains("gain") {
            let rate = off(100.0 + row.predicted, 100.0 + row.published);
            factors.push(("bits_per_second", rate));
        } else if row.role == Role::Beside && row.what.ends_with("latency p99") {
            factors.extend(both("latency p99").map(|factor| ("latency_p99_ns", factor)));
        }
    }
    factors
}

/// Checks that the known error of a metric is that of this report, for the report that is its source.
fn is_the_worst(report: &Report, metric: &str) {
    let of_metric = factors(report).into_iter().filter(|(of, _)| *of == metric);
    let worst = of_metric.map(|(_, factor)| factor).fold(1.0, f64::max);
    let known = known_error(metric).unwrap();
    assert!((worst - known.factor).abs() < 1e-3, "{worst} {known:?}");
}

/// The targets that are missed. If this list changes, the texts about them must change too.
fn missed(report: &Report) -> Vec<&str> {
    let missed = report.targets.iter().filter(|target| !target.is_met);
    missed.map(|target| target.what).collect()
}

fn row(report: &Report, what: &str) -> f64 {
    report.rows.iter().find(|row| row.what == what).unwrap().predicted
}

#[test]
fn rfs_is_reproduced() {
    let report = report(Experiment::Rfs, &AtomicBool::new(false)).unwrap();
    check(&report);
    assert_eq!(
        missed(&report),
        ["order of latency p90", "order of latency p99", "order of latency σ"]
    );
    assert!(report.mean_absolute_error() < 8.0, "{}", report.mean_absolute_error());
    assert!((report.null_error() - 7.1).abs() < 0.05, "{}", report.null_error());
    is_the_worst(&report, "latency_p99_ns");
    // The report's statements about its misses.
    for row in report.rows.iter().filter(|row| row.unit == "%" && row.role == Role::Beside) {
        assert!((18.5..31.5).contains(&row.error()), "{row:?}");
    }
    let gain = row(&report, "RPC test, RFS: tps") / row(&report, "RPC test, RPS: tps");
    assert!((gain - 1.02).abs() < 0.01, "{gain}");
}

#[test]
fn hand_off_is_reproduced() {
    let report = report(Experiment::HandOff, &AtomicBool::new(false)).unwrap();
    check(&report);
    assert_eq!(missed(&report), [""; 0]);
    assert!(report.mean_absolute_error() < 5.0, "{}", report.mean_absolute_error());
    // The simulator adds little to the identity.
    for row in report.rows.iter().filter(|row| row.role.has_target()) {
        assert!(row.null.is_some_and(|null| (null - row.predicted).abs() < 3.0), "{row:?}");
    }
    assert!(row(&report, "gain, each pair of CPUs SMT siblings") < 10.0);
    let gain = report.rows.iter().find(|row| row.what == "gain by hand-off").unwrap();
    let (least, most) = gain.range.unwrap();
    assert!((-7.9..-6.5).contains(&least) && (49.0..50.5).contains(&most), "{least} {most}");
    assert!(row(&report, "gain on the older machine (published: less than)") < 30.0);
}

#[test]
fn rps_is_reproduced() {
    let report = report(Experiment::Rps, &AtomicBool::new(false)).unwrap();
    check(&report);
    assert_eq!(missed(&report), [""; 0]);
    assert!(report.mean_absolute_error() < 12.0, "{}", report.mean_absolute_error());
    assert!((report.null_error() - 9.1).abs() < 0.05, "{}", report.null_error());
    is_the_worst(&report, "cpu_per_packet_ns");
    assert!(report.lacks[0].contains("153 to 224 %"));
    let gains = fitted_rows::RPS_CARDS.iter().zip(predicted_rows::RPS_CARDS_WITH_RPS);
    let gains: Vec<f64> = gains.map(|(without, with)| with.tps / without.tps - 1.0).collect();
    let least = gains.iter().copied().fold(f64::MAX, f64::min);
    let most = gains.iter().copied().fold(0.0, f64::max);
    assert!((least - 1.53).abs() < 0.005 && (most - 2.24).abs() < 0.005, "{gains:?}");
}

#[test]
#[ignore = "takes half a minute: cargo xtask sim-fits --all"]
fn sparse_is_predicted() {
    let report = report(Experiment::Sparse, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.rows.len(), 3 * 12 + 2);
    assert!(report.rows.iter().all(|row| row.predicted.is_finite()));
    assert_eq!(
        missed(&report),
        [
            "mean absolute error of the gain at most 5 points",
            "by hash within 5 % in every row",
            "spread of runs of the same order, in slots"
        ]
    );
    is_the_worst(&report, "bits_per_second");
    assert!((report.mean_absolute_error() - 5.2).abs() < 0.05, "{}", report.mean_absolute_error());
    assert!((report.null_error() - 4.6).abs() < 0.05, "{}", report.null_error());
    let fitted = report.rows.iter().filter(|row| row.what.ends_with("by hash"));
    assert!(fitted.clone().count() == 12 && fitted.clone().all(|row| row.error().abs() < 8.0));
    assert!(fitted.clone().all(|row| row.role == Role::Fitted));
    // The report's statements about its misses.
    let error = |what| report.rows.iter().find(|row| row.what == what).unwrap().error();
    assert!(error("4x gain") > 9.5 && error("8x gain") < -5.0 && error("12x gain") < -7.5);
    let (least, most) =
        report.rows.iter().find(|row| row.what == "1x gain").unwrap().range.unwrap();
    assert!((-0.5..1.0).contains(&least) && (32.5..34.0).contains(&most), "{least} {most}");
    assert!(report.ranges.starts_with("over the 5 of 10 searches"), "{}", report.ranges);
    assert!(row(&report, "1x in slots, spread") < 0.01);
}

/// Makes the fit again and compares it with the committed one.
fn fits_again(experiment: Experiment) {
    let fit = fit::make(experiment).unwrap();
    let committed = fit::committed_text(experiment);
    assert_eq!(fit.to_toml(), committed, "rxsteer sim --fit {experiment} gives another file");
    assert_eq!(fit, fit::committed(experiment).unwrap());
}

#[test]
fn fit_of_the_hand_off_is_the_committed_one() {
    fits_again(Experiment::HandOff);
}

#[test]
#[ignore = "takes half a minute: cargo xtask sim-fits"]
fn fit_of_rfs_is_the_committed_one() {
    fits_again(Experiment::Rfs);
}

#[test]
#[ignore = "takes half a minute: cargo xtask sim-fits"]
fn fit_of_rps_is_the_committed_one() {
    fits_again(Experiment::Rps);
}

#[test]
#[ignore = "takes some minutes: cargo xtask sim-fits --all"]
fn fit_of_sparse_is_the_committed_one() {
    fits_again(Experiment::Sparse);
}

#[test]
fn stopped_reports_say_so_and_have_no_half_rows() {
    for experiment in Experiment::ALL {
        let stopped = report(experiment, &AtomicBool::new(true));
        assert!(matches!(stopped, Err(FitError::Stopped)), "{experiment}");
    }
}
