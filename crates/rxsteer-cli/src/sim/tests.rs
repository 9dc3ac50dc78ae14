//! What is derived from results: outcomes, advice, JSON and CSV.

use super::{outcome, results};
use crate::Outcome;
use rxsteer_report::sim::results::Results;
use rxsteer_report::sim::{advice, compared as side_by_side, csv, json, sensitivity, table};
use rxsteer_sim::compare::{Allowed, Difference, Paired};
use rxsteer_sim::metric::{METRICS, Metric, Subject};
use rxsteer_sim::scenario::Interrupts;
use std::io::Write;

/// A short comparison of three policies.
fn compared() -> Results {
    results(&["rpc-8", "--seconds", "0.002", "--seeds", "3", "--compare", "none,rps,rfs"])
}

#[test]
fn what_went_wrong_decides_the_outcome() {
    let mut results = results(&["router-one-queue", "--seconds", "0.001"]);
    assert_eq!((outcome(&results), results.notes().len()), (Outcome::Success, 0));
    results.interrupted = true;
    assert_eq!(outcome(&results), Outcome::Interrupted);
    results.cells[0].runs[0].reordered = 3;
    assert_eq!(outcome(&results), Outcome::Findings);
    assert!(
        results.notes()[0].starts_with("3 packets were processed out of order under rps (seed 1)")
    );
    // If interrupts are spread, order cannot be kept.
    let cpus = results.scenario().steering.cpus.clone();
    results.cells[0].scenario.nics[0].interrupts = Interrupts::Spread(cpus);
    assert_eq!(outcome(&results), Outcome::Interrupted);
    results.cells[0].runs[0].account.processed += 1;
    assert_eq!(outcome(&results), Outcome::Findings);
    assert!(results.notes()[0].contains("do not add up"), "{:?}", results.notes());
}

/// A difference of this share of a baseline of 100, with this corrected probability.
fn difference(cell: usize, metric: &str, share: f64, corrected: f64) -> Difference {
    let subject = if metric.starts_with("latency") { Subject::Traffic(0) } else { Subject::Run };
    let paired = Paired {
        count: 3,
        baseline: 100.0,
        difference: share * 100.0,
        interval: 1.0,
        p: corrected,
    };
    let metric = Metric::named(metric).expect("a metric");
    let allowed = Allowed { error: 1.0, numbering: 1.0 };
    Difference { cell, metric, subject, paired, corrected, allowed }
}

#[test]
fn advice_may_be_to_leave_it_alone() {
    let mut results = compared();
    let mut advised = |differences: Vec<Difference>| {
        results.differences = differences;
        advice::advice(&results).expect("several policies")
    };
    let goal = "transactions_per_second";
    let chance = advised(vec![difference(1, goal, 0.3, 0.2), difference(2, goal, 0.1, 0.9)]);
    assert_eq!(chance, "leave it alone: no policy is significantly better than none here");
    let small = advised(vec![difference(1, goal, 0.005, 0.001)]);
    assert!(small.starts_with("leave it alone") && small.contains("by 1 % or more"), "{small}");
    let allowed = Allowed { error: 1.1, numbering: 1.1 };
    let within = advised(vec![Difference { allowed, ..difference(1, goal, 0.2, 0.001) }]);
    assert_eq!(
        within,
        "leave it alone: no policy is significantly better than none beyond the allowed difference here"
    );
    let beyond = advised(vec![Difference { allowed, ..difference(1, goal, 0.22, 0.001) }]);
    assert!(beyond.starts_with("rps is better"), "{beyond}");
    let worse = advised(vec![difference(1, goal, -0.3, 0.001)]);
    assert!(worse.starts_with("leave it alone"), "{worse}");
    assert!(advised(Vec::new()).contains("at least two seeds"));
}

#[test]
fn advice_names_the_best_and_what_it_costs() {
    let mut results = compared();
    let goal = "transactions_per_second";
    results.differences = vec![
        difference(1, goal, 0.2, 0.001),
        difference(2, goal, 0.4, 0.01),
        difference(2, "latency_p99_ns", 0.5, 0.02),
    ];
    let advised = advice::advice(&results).unwrap();
    assert_eq!(
        advised,
        "rfs is better than none: transactions +40.0 % (p 0.010); it costs latency p99 +50.0 %"
    );
    // A policy that reorders is never advised.
    results.cells[2].runs[0].reordered = 1;
    assert!(
        advice::advice(&results)
            .unwrap()
            .starts_with("rps is better than none: transactions +20.0 %")
    );
    results.cells[2].runs[0].reordered = 0;
    // Of two policies with about the same gain, the one with less CPU time is advised.
    results.differences[1].paired.difference = 20.9;
    let cheapest = (1..3).min_by(|a, b| {
        let cost = |cell: &usize| results.cells[*cell].mean("cpu_per_packet_ns", Subject::Run);
        cost(a).total_cmp(&cost(b))
    });
    let expected = format!("{} is better", results.cells[cheapest.unwrap()].label);
    assert!(advice::advice(&results).unwrap().starts_with(&expected), "{expected}");
    results.cells[2].runs[0].reordered = 1;
    // A gain elsewhere is advised if it costs nothing in the main metric.
    results.differences =
        vec![difference(1, goal, 0.0, 1.0), difference(1, "cpu_per_packet_ns", -0.2, 0.01)];
    let advised = advice::advice(&results).unwrap();
    assert!(advised.starts_with("rps is better than none: CPU per packet -20.0 %"), "{advised}");
    assert!(advised.ends_with("with the transactions not significantly less"), "{advised}");
    results.differences[0] = difference(1, goal, -0.1, 0.01);
    assert!(advice::advice(&results).unwrap().starts_with("leave it alone"));
}

/// Both files have the same figures, and the first has each metric of the run.
#[test]
fn json_and_csv_hold_the_same() {
    let line = ["rpc-8", "--seconds", "0.002", "--seeds", "3", "--compare", "none,rps,rfs"];
    let results =
        results(&[&line[..], &["--set", "steering.rule=src-port 1024-1030 -> 1"]].concat());
    let object = json::all(&results);
    for metric in METRICS {
        let has = results.cells[1].summary(metric, Subject::Run);
        let shown = &object["cells"][1]["summary"]["run"][metric.name]["mean"];
        assert_eq!(shown.as_f64(), has.map(|it| it.mean), "{metric:?}");
    }
    let bytes = csv::all(&results).unwrap();
    let mut reader = ::csv::Reader::from_reader(bytes.as_slice());
    let mut rows = 0;
    for row in reader.records().map(|row| row.expect("a row")) {
        let policies = ["none", "rps", "rfs"];
        let cell = policies.iter().position(|policy| *policy == &row[1]).expect("a policy");
        let run = &object["cells"][cell]["runs"][row[2].parse::<usize>().unwrap() - 1];
        assert_eq!(run["seed"].to_string(), row[2]);
        let place = match &row[3] {
            "run" => &run["run"],
            "traffic" => &run["traffic"][0],
            "cpu" => &run["cpus"][row[4].parse::<usize>().unwrap()],
            "rule" => {
                assert_eq!(&run["rules"][0]["rule"], &row[4]);
                &run["rules"][0]
            }
            other => panic!("{other}"),
        };
        assert_eq!(place[&row[5]].as_f64(), row[7].parse().ok(), "{row:?}");
        rows += 1;
    }
    let figures = |value: &serde_json::Value| value.as_object().map_or(0, serde_json::Map::len);
    let run = &object["cells"][0]["runs"][0];
    assert!(rows > 9 * figures(&run["run"]), "{rows} rows");
}

#[test]
fn sensitivity_varies_what_was_not_measured() {
    let line =
        ["router-one-queue", "--seconds", "0.005", "--sensitivity", "--set", "costs.receive=150"];
    let results = results(&line);
    assert_eq!(results.seeds, 3);
    let costs: Vec<&str> = results.varied.iter().map(|varied| varied.cost.key).collect();
    // `receive` is the user's, though it has the value of the default; `steer` was measured.
    assert!(costs.len() == 2 * 12 && !costs.contains(&"receive") && !costs.contains(&"steer"));
    let object = json::all(&results);
    assert_eq!(object["assumed_costs"].as_array().map(Vec::len), Some(12));
    let varied = object["sensitivity"].as_array().expect("a list");
    let change = |cost: &str, value: f64, metric: &str| {
        let varied = varied.iter().find(|it| it["cost"] == cost && it["value"] == value);
        let changes = varied.and_then(|it| it["changes"].as_array()).expect("changes");
        changes.iter().find(|it| it["metric"] == metric).and_then(|it| it["relative"].as_f64())
    };
    assert!(change("protocol", 300.0, "cpu_per_packet_ns").is_some_and(|by| by < -0.1));
    assert!(change("protocol", 1200.0, "cpu_per_packet_ns").is_some_and(|by| by > 0.1));
    // No thread runs here.
    assert_eq!(change("thread_wake", 1600.0, "cpu_per_packet_ns"), Some(0.0));
    let text = sensitivity::all(&results);
    assert!(text.contains("protocol") && text.contains("Costs that matter less: "), "{text}");
    assert_eq!(json::all(&compared())["sensitivity"], serde_json::Value::Null);
}

/// Rules and what they matched are in all reports, and their cost is assumed where there are rules.
#[test]
fn rules_are_shown_with_what_they_matched() {
    let line = ["rpc-8", "--seconds", "0.002", "--seeds", "2"];
    let set = ["--set", "steering.rule=src-port 1024-1030 -> 1"];
    let with = results(&[&line[..], &set].concat());
    let object = json::all(&with);
    let cell = &object["cells"][0];
    let packets = |place: &serde_json::Value| {
        assert_eq!(place["rules"].as_array().map(Vec::len), Some(1), "{place}");
        assert_eq!(place["rules"][0]["rule"], "src-port 1024-1030 → 1");
        place["rules"][0]["packets"].clone()
    };
    let runs: Vec<f64> = (0..2).filter_map(|run| packets(&cell["runs"][run]).as_f64()).collect();
    assert!(runs.len() == 2 && runs.iter().all(|packets| *packets > 100.0), "{runs:?}");
    let summary = packets(&cell["summary"]);
    assert_eq!(summary["mean"].as_f64(), Some((runs[0] + runs[1]) / 2.0), "{summary}");
    for run in 0..2 {
        let unmatched = cell["runs"][run]["run"]["unmatched"].as_f64();
        assert!(unmatched > Some(runs[run]), "{unmatched:?}, {runs:?}");
    }
    let text = table::one(&with);
    for part in [" rule ", " src-port 1024-1030 → 1 ", " no rule ", " by a rule before the policy"]
    {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let costs = |results: &Results| results.assumed.iter().any(|cost| cost.key == "rules");
    let without = results(&line);
    let of_without = &json::all(&without)["cells"][0];
    assert_eq!(of_without["runs"][0]["rules"], serde_json::json!([]));
    assert!(of_without["runs"][0]["run"].get("unmatched").is_none(), "{of_without}");
    assert!(!table::one(&without).contains("no rule"));
    assert_eq!((costs(&with), costs(&without)), (true, false));

    let several = results(&[&line[..], &set, &["--compare", "none,rps"]].concat());
    let row = side_by_side::figures(&several).pop().unwrap_or_default();
    assert_eq!((row[0].as_str(), row.len()), ("rule src-port 1024-1030 → 1", 3));
    assert!(row.iter().all(|figure| figure != "-"), "{row:?}");
}

/// What rules cost is varied too, where there are rules.
#[test]
fn sensitivity_varies_the_cost_of_rules() {
    let line = ["router-one-queue", "--seconds", "0.005", "--sensitivity", "--seeds", "1"];
    let with = results(&[&line[..], &["--set", "steering.rule=any -> 0"]].concat());
    let values: Vec<f64> = with
        .varied
        .iter()
        .filter(|varied| varied.cost.key == "rules")
        .map(|varied| varied.value)
        .collect();
    assert_eq!(values, [30.0, 120.0]);
    let relative = |value: f64| {
        let varied = with.varied.iter().find(|it| it.cost.key == "rules" && it.value == value);
        let changes = varied.map(|varied| varied.changes.as_slice()).unwrap_or_default();
        changes.iter().find(|it| it.metric.name == "bits_per_second").map(|it| it.relative)
    };
    // One CPU must do everything.
    assert!(relative(30.0) > Some(0.01) && relative(120.0) < Some(-0.01));
}

#[test]
fn comparison_says_what_it_allows() {
    let object = json::all(&compared());
    let known = object["comparison"]["known_errors"].as_array().expect("a list");
    let factor = |metric: &str| {
        let of = known
            .iter()
            .find(|it| it["metrics"].as_array().is_some_and(|m| m.contains(&metric.into())));
        of.and_then(|it| it["factor"].as_f64()).unwrap_or(1.0)
    };
    let differences = object["comparison"]["differences"].as_array().expect("a list");
    let mut numbering = Vec::new();
    for it in differences {
        let metric = it["metric"].as_str().expect("a name");
        assert_eq!(it["allowed_error"].as_f64(), Some(factor(metric)), "{it}");
        numbering.extend(it["allowed_numbering"].as_f64());
    }
    assert_eq!(numbering.len(), differences.len());
    assert!(numbering.iter().all(|factor| (1.0..2.0).contains(factor)), "{numbering:?}");
    // The interrupts go to CPU 0, and backwards to the last one; chance differs then.
    assert!(numbering.iter().any(|factor| *factor > 1.0), "{numbering:?}");
}

#[test]
fn json_holds_nothing_of_the_host() {
    let line = ["irq-spread", "--seconds", "0.001", "--seeds", "4", "--faults", "3", "--threads"];
    let with = |threads: &str| json::all(&results(&[&line[..], &[threads]].concat())).to_string();
    assert_eq!(with("1"), with("2"));
    assert_ne!(with("1"), json::all(&results(&line[..5])).to_string(), "faults change it");
}

/// The tables in the documentation of the file formats must have every metric.
#[test]
fn every_metric_is_in_the_documentation() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sim.md");
    let Ok(text) = std::fs::read_to_string(path) else {
        let test = "sim::every_metric_is_in_the_documentation";
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: the package has no docs folder");
        return;
    };
    for metric in METRICS {
        let row = format!("| `{}` | {} |", metric.name, metric.unit.name());
        assert!(text.contains(&row), "docs/sim.md lacks {row}");
    }
}

#[test]
fn rfs_on_a_router_is_noted_and_elsewhere_it_is_not() {
    let notes = |scenario: &str, policy: &str| {
        let policy = format!("steering.policy={policy}");
        super::results(&[scenario, "--seconds", "0.001", "--set", &policy]).notes().join("\n")
    };
    let router = notes("router-one-queue", "rfs+sparse");
    assert!(router.contains("rfs+sparse decides as it would without RFS"), "{router}");
    assert_eq!(notes("router-one-queue", "sparse"), "");
    assert_eq!(notes("rpc-8", "rfs"), "");
}
