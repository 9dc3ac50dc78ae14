//! The published experiments: the predictions, and that fits use none of the predicted rows.

use rxsteer_core::Policy;
use rxsteer_sim::fit::{self, FitError};
use rxsteer_sim::published::machine::forwarder::{self, Pairs};
use rxsteer_sim::published::machine::server::{
    self, RECEIVING_SHARE_BY_RFS, RECEIVING_SHARE_BY_SLIDES, Values,
};
use rxsteer_sim::published::{
    Experiment, KNOWN_ERROR, Report, Role, fitted_rows, predicted_rows, report,
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
    files.extend(["measured.rs", "figures.rs", "fitted_rows.rs"].map(|name| source.join(name)));
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

/// Checks of every report, whatever it predicts.
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
        assert!(row.unit != "/s" || row.error().abs() <= 100.0 * KNOWN_ERROR, "{row:?}");
    }
    assert!(report.rows.iter().any(|row| row.role.has_target()));
    assert!(report.rows.iter().all(|row| row.role.has_target() == row.null.is_some()));
    assert!(report.constants.iter().all(|constant| !constant.source.is_empty()));
    assert!(report.lacks.len() >= 3);
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
    assert!(row(&report, "gain on the older machine (published: less than)") < 30.0);
}

#[test]
fn rps_is_reproduced() {
    let report = report(Experiment::Rps, &AtomicBool::new(false)).unwrap();
    check(&report);
    assert_eq!(missed(&report), [""; 0]);
    assert!(report.mean_absolute_error() < 12.0, "{}", report.mean_absolute_error());
    assert!((report.null_error() - 9.1).abs() < 0.05, "{}", report.null_error());
    let rates = report.rows.iter().filter(|row| row.role.has_target());
    let worst = rates.map(|row| row.error().abs()).fold(0.0, f64::max);
    assert!((worst - 100.0 * KNOWN_ERROR).abs() < 0.1, "KNOWN_ERROR, {worst}");
    assert!(report.lacks[0].contains("153 to 224 %"));
    let gains = fitted_rows::RPS_CARDS.iter().zip(predicted_rows::RPS_CARDS_WITH_RPS);
    let gains: Vec<f64> = gains.map(|(without, with)| with.tps / without.tps - 1.0).collect();
    let least = gains.iter().copied().fold(f64::MAX, f64::min);
    let most = gains.iter().copied().fold(0.0, f64::max);
    assert!((least - 1.53).abs() < 0.005 && (most - 2.24).abs() < 0.005, "{gains:?}");
}

#[test]
fn sparse_is_predicted() {
    let report = report(Experiment::Sparse, &AtomicBool::new(false)).unwrap();
    assert_eq!(report.rows.len(), 3 * 12 + 2);
    assert!(report.rows.iter().all(|row| row.predicted.is_finite()));
    assert_eq!(
        missed(&report),
        ["by hash within 5 % in every row", "spread of runs of the same order, in slots"]
    );
    assert!(report.mean_absolute_error() < 5.0, "{}", report.mean_absolute_error());
    assert!((report.null_error() - 4.6).abs() < 0.05, "{}", report.null_error());
    let fitted = report.rows.iter().filter(|row| row.role == Role::Fitted);
    assert!(fitted.clone().count() == 12 && fitted.clone().all(|row| row.error().abs() < 8.0));
    // The report's statements about its misses.
    let error = |what| report.rows.iter().find(|row| row.what == what).unwrap().error();
    assert!(error("4x gain") > 12.0 && error("8x gain") < -5.0 && error("12x gain") < -8.0);
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
