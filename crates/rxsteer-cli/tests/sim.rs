//! `rxsteer sim` as users see it: output, exit status, messages.

use crate::program::running::{INT, ended, send, wait_until, waits_for};
use crate::program::{errors, rxsteer};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn sim(arguments: &[&str]) -> Output {
    rxsteer(&[&["sim"], arguments].concat())
}

fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SHORT: [&str; 2] = ["--seconds", "0.005"];

#[test]
fn threads_change_no_byte() {
    let line =
        ["router-one-queue", "--seeds", "5", "--compare", "none,rps", "--faults", "1", "--json"];
    let with = |threads| text(&sim(&[&line[..], &SHORT, &["--threads", threads]].concat()));
    let one = with("1");
    assert_eq!(one, with("2"));
    assert_eq!(one, with("7"));
    let object: Value = serde_json::from_str(&one).expect("one JSON object");
    assert_eq!(object["cells"][1]["policy"], "rps");
    assert_eq!(object["cells"][1]["seeds_done"], 5);
    assert_eq!(object["comparison"]["baseline"], "none");
}

#[test]
fn steering_pays_where_one_queue_is_too_much_for_a_core() {
    let line = ["router-one-queue", "--seeds", "5", "--compare", "none,rps", "--json"];
    let object: Value =
        serde_json::from_str(&text(&sim(&[&line[..], &SHORT].concat()))).expect("one JSON object");
    let differences = object["comparison"]["differences"].as_array().expect("an array");
    let throughput = differences.iter().find(|it| it["metric"] == "bits_per_second");
    let throughput = throughput.expect("throughput is compared");
    assert_eq!(throughput["finding"], "better", "{throughput}");
    assert!(throughput["relative"].as_f64() > Some(0.2), "{throughput}");
    for cell in object["cells"].as_array().expect("an array") {
        assert_eq!(
            (&cell["order_holds"], &cell["conservation_holds"]),
            (&true.into(), &true.into())
        );
    }
}

#[test]
fn spread_interrupts_reorder_and_that_is_no_failure() {
    let object: Value =
        serde_json::from_str(&text(&sim(&[&["irq-spread", "--json"][..], &SHORT].concat())))
            .expect("one JSON object");
    let cell = &object["cells"][0];
    assert!(cell["runs"][0]["run"]["reordered"].as_f64() > Some(0.0), "{cell}");
    assert_eq!((&cell["order_holds"], &cell["interrupts_spread"]), (&false.into(), &true.into()));
}

#[test]
fn tables_are_for_people() {
    let one = text(&sim(&[&["rpc-8"][..], &SHORT].concat()));
    for part in ["traffic", "latency", "CPU", "imbalance", "0 reordered", "seed 1"] {
        assert!(one.contains(part), "{part} in\n{one}");
    }
    assert!(!one.contains('±'), "one seed has no interval");
    let line = ["rpc-8", "--seeds", "3", "--compare", "rps,bound:0=1,rfs"];
    let several = text(&sim(&[&line[..], &SHORT].concat()));
    for part in ["bound:0=1", "± ", "against rps", "advice", "Holm"] {
        assert!(several.contains(part), "{part} in\n{several}");
    }
    assert!(text(&sim(&["--list"])).contains("irq-spread"));
    let list: Value = serde_json::from_str(&text(&sim(&["--list", "--json"]))).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(text(&sim(&["--list"])).lines().count() - 1));
}

#[test]
fn files_are_written_whole_and_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let (csv, page) = (dir.path().join("a.csv"), dir.path().join("deep/report"));
    let (csv, page) = (csv.to_str().expect("plain"), page.to_str().expect("plain"));
    let line = ["rpc-8", "--seeds", "2", "--csv", csv, "--report", page];
    for _ in 0..2 {
        text(&sim(&[&line[..], &SHORT].concat()));
    }
    let rows = std::fs::read_to_string(csv).expect("rows");
    assert!(
        rows.starts_with("scenario,policy,seed,subject,name,metric,unit,value\nrpc-8,rfs,1,run,,")
    );
    let html = std::fs::read_to_string(format!("{page}/index.html")).expect("a page");
    assert!(html.starts_with("<!DOCTYPE html>") && html.ends_with("</html>\n"));
    let left = std::fs::read_dir(dir.path()).expect("a folder").count();
    assert_eq!((left, std::fs::read_dir(page).expect("a folder").count()), (2, 1));
}

#[test]
fn file_is_a_scenario_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mine.toml");
    let builtin = include_str!("../../rxsteer-sim/scenarios/rpc-8.toml");
    std::fs::write(&path, builtin).expect("a file");
    let path = path.to_str().expect("plain");
    let object = |name| -> Value {
        let output = sim(&[&[name, "--json"][..], &SHORT].concat());
        serde_json::from_str(&text(&output)).expect("one JSON object")
    };
    let (mine, theirs) = (object(path), object("rpc-8"));
    assert_eq!((&mine["scenario"], &mine["cells"]), (&"mine".into(), &theirs["cells"]));
}

#[test]
fn mistakes_are_named_before_anything_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, [0xff, 0xfe]).expect("a file");
    let file = file.to_str().expect("plain");
    let below = format!("{file}/below");
    for (arguments, part) in [
        (&["routr-one-queue"][..], "did you mean 'router-one-queue'?"),
        (&["router"], "did you mean 'router-one-queue'?"),
        (&["zzz"], "built in are 'router-4-slow-cores'"),
        (&["missing/mine.toml"], "can't read the scenario missing/mine.toml"),
        (&[file], "is not text"),
        (&[], "SCENARIO"),
        (&["rpc-8", "--set", "traffic.0.flow=8"], "'flows'"),
        (&["rpc-8", "--set", "flows"], "KEY=VALUE"),
        (&["rpc-8", "--seconds", "0"], "simulated time"),
        (&["rpc-8", "--seeds", "0"], "whole number"),
        (&["rpc-8", "--compare", "rps"], "two or more"),
        (&["rpc-8", "--compare", "rps,sprase"], "did you mean 'sparse'"),
        (&["rpc-8", "--compare", "rps,bound:7=0"], "bound:7=0 can't run in rpc-8"),
        (&["rpc-8", "--report", &below], "can't make the folder"),
        (&["rpc-8", "--csv", &below], "name another place with --csv"),
        (&["rpc-8", "--csv", "/"], "it is a folder"),
        (&["rpc-8", "--policy", "rps"], "not of rxsteer sim"),
        (&["rpc-8", "--list"], "cannot be used with"),
        (&["rpc-8", "--sensitivity", "--compare", "none,rps"], "cannot be used with"),
    ] {
        let output = sim(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(errors(&output).contains(part), "{arguments:?}: {}", errors(&output));
    }
}

/// The output of a run of several hours, which is interrupted this long after it begins to wait for signals.
fn interrupted_after(pause: Duration) -> Value {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rxsteer"))
        .args(["sim", "router-one-queue", "--seconds", "3600", "--seeds", "3", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rxsteer can be started");
    wait_until(&mut child, "wait for signals", |it| waits_for(it, INT));
    std::thread::sleep(pause);
    send(&child, "-INT");
    let output = ended(child);
    assert_eq!(output.status.code(), Some(130), "{}", errors(&output));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// The run of the first seed would take hours, and is stopped; the report has the measurements so far.
#[test]
fn interrupt_shows_what_is_done() {
    // The warm-up, in which nothing is measured, ends after some milliseconds; on a busy host it takes longer.
    let pauses = [0, 1, 4, 16].map(Duration::from_secs).into_iter();
    let measured = |object: &Value| object["cells"][0]["runs"][0]["measured_ns"].as_u64();
    let object = pauses.map(interrupted_after).find(|object| measured(object).is_some());
    let object = object.expect("something is measured within seconds");
    assert!(measured(&object) < Some(3_600_000_000_000), "{object}");
    assert_eq!((&object["interrupted"], &object["unfinished"]), (&true.into(), &true.into()));
    let cell = &object["cells"][0];
    assert_eq!((&cell["seeds_done"], &cell["conservation_holds"]), (&0.into(), &true.into()));
}
