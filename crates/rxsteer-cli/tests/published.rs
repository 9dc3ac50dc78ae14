//! `rxsteer sim --published` and `--fit` as users see them: JSON, text, refusals.

use crate::program::{errors, rxsteer};
use serde_json::Value;
use std::process::Output;

fn sim(arguments: &[&str]) -> Output {
    rxsteer(&[&["sim"], arguments].concat())
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn rows_are_published_and_simulated_and_the_error_is_their_mean() {
    let printed = text(&sim(&["--published", "hand-off", "--json"]));
    let object: Value = serde_json::from_str(&printed).expect("one JSON object");
    let rows = object["rows"].as_array().expect("an array");
    let number = |value: &Value| value.as_f64().expect("a number");
    let errors: Vec<f64> = rows
        .iter()
        .filter(|row| row["role"] == "reproduced")
        // Both are percentages.
        .map(|row| (number(&row["predicted"]) - number(&row["published"])).abs())
        .collect();
    assert_eq!(errors.len(), 2, "{rows:?}");
    let mean = errors.iter().sum::<f64>() / 2.0;
    assert!((number(&object["mean_absolute_error"]) - mean).abs() < 1e-9);
    assert!(rows.iter().any(|row| row["role"] == "fitted" && row["null"].is_null()));
    assert!(number(&object["null"]["mean_absolute_error"]) > 0.0);
    for row in rows {
        let (least, most) = (number(&row["range"][0]), number(&row["range"][1]));
        assert!((least..=most).contains(&number(&row["predicted"])), "{row}");
    }
    assert!(rows.iter().any(|row| row["range"][0] != row["range"][1]), "{rows:?}");
    let sources = object["constants"].as_array().expect("an array");
    assert!(sources.iter().any(|constant| constant["range"].is_array()), "{sources:?}");
    assert!(sources.iter().all(|constant| constant["source"] != ""));
    assert!(object["lacks"].as_array().is_some_and(|lacks| !lacks.is_empty()));
    assert_eq!(object["fit"]["command"], "rxsteer sim --fit hand-off");
}

#[test]
fn text_says_what_is_met_and_what_is_lacking() {
    let printed = text(&sim(&["--published", "hand-off"]));
    for part in [
        "gain by hand-off",
        "mean absolute error",
        "Null model:",
        "Ranges:",
        "What the model lacks:",
        "assumed",
    ] {
        assert!(printed.contains(part), "{part} is not in:\n{printed}");
    }
}

#[test]
fn fit_is_printed_or_written_as_it_is_built_in() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hand-off.toml");
    let name = path.to_str().expect("UTF-8");
    let printed = text(&sim(&["--fit", "hand-off", "--out", name]));
    assert!(printed.contains("the same as what is built in"), "{printed}");
    let written = std::fs::read_to_string(&path).expect("it is written");
    assert_eq!(written, text(&sim(&["--fit", "hand-off"])));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |arguments: &[&str], why: &str| {
        let output = sim(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(why), "{arguments:?}: {errors}");
    };
    refused(&["--published", "rsf"], "did you mean 'rfs'?");
    refused(&["--published", "rfs", "rpc-8"], "cannot be used with");
    refused(&["--published", "rfs", "--seeds", "3"], "cannot be used with");
    refused(&["--published", "rfs", "--sensitivity"], "cannot be used with");
    refused(&["--published", "rfs", "--from-speed", "2x"], "cannot be used with");
    refused(&["--published", "rfs", "--fit", "rfs"], "cannot be used with");
    refused(&["rpc-8", "--out", "x.toml"], "--out");
    refused(&["--published", "rfs", "--out", "x.toml"], "--out");
    refused(&["--out", "x.toml"], "--fit");
    refused(&["--fit", "hand-off", "--out", "/"], "--out");
}
