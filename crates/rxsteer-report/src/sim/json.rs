//! The machine-readable report (docs/sim.md, "JSON"). Nothing in it depends on the host: the same
//! scenario, settings and seeds give the same bytes.

use super::advice;
use super::results::{Cell, Results, Varied, rules};
use rxsteer_core::PacketRule;
use rxsteer_sim::compare::{Difference, LEVEL};
use rxsteer_sim::metric::{METRICS, Subject, subjects};
use rxsteer_sim::published::{KNOWN_ERRORS, KnownError};
use rxsteer_sim::sensitivity::Change;
use rxsteer_sim::summary::Summary;
use rxsteer_sim::{RunResult, Scenario};
use rxsteer_status::RuleShown;
use serde_json::{Map, Value, json};
use std::slice;

/// All results as one object.
pub fn all(results: &Results) -> Value {
    let scenario = results.scenario();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "scenario": results.short_name(),
        "title": scenario.title,
        "options": results.settings,
        "from": results.from.as_ref().map(|from| &from.about),
        "first_seed": results.first_seed,
        "seeds": results.seeds,
        "faults": results.faults,
        "measured_ns": scenario.measured_ns(),
        "interrupted": results.interrupted,
        "unfinished": results.is_unfinished(),
        "cells": results.cells.iter().map(cell).collect::<Value>(),
        "assumed_costs": results.assumed.iter().map(|cost| cost.key).collect::<Value>(),
        "sensitivity": sensitivity(results),
        "comparison": comparison(results),
    })
}

fn cell(cell: &Cell) -> Value {
    let mut figures = grouped(&cell.scenario, |metric, of| {
        cell.summary(&METRICS[metric], of).map(|results| summary(&results))
    });
    let rule = |rule: &PacketRule| {
        json!({
            "rule": rule.to_string(),
            "packets": cell.matched(rule).map(|results| summary(&results)),
        })
    };
    figures
        .insert("rules".to_owned(), rules(slice::from_ref(cell)).into_iter().map(rule).collect());
    json!({
        "policy": cell.label,
        "seeds_done": cell.done(),
        "order_holds": cell.order_holds(),
        "interrupts_spread": cell.is_spread(),
        "conservation_holds": cell.lost_count().is_empty(),
        "summary": figures,
        "runs": cell.runs.iter().map(|run| one(&cell.scenario, run)).collect::<Value>(),
    })
}

fn one(scenario: &Scenario, run: &RunResult) -> Value {
    let mut object = Map::new();
    object.insert("seed".to_owned(), json!(run.seed));
    object.insert("measured_ns".to_owned(), json!(run.measured_ns));
    let figures = grouped(scenario, |metric, of| {
        METRICS[metric].value(scenario, run, of).map(|value| json!(value))
    });
    object.extend(figures);
    let rules: Vec<RuleShown> = run.rules.iter().cloned().map(RuleShown::from).collect();
    object.insert("rules".to_owned(), json!(rules));
    Value::Object(object)
}

/// An object with `run`, `traffic` and `cpus`, each with the metrics for which `figure` returns a value. The arguments
/// of `figure` are the index of a metric, and a subject.
fn grouped(
    scenario: &Scenario,
    figure: impl Fn(usize, Subject) -> Option<Value>,
) -> Map<String, Value> {
    let (mut run, mut traffic, mut cpus) = (Value::Null, Vec::new(), Vec::new());
    for of in subjects(scenario) {
        let mut object = Map::new();
        match of {
            Subject::Run => {}
            Subject::Traffic(index) => {
                object.insert("traffic".to_owned(), json!(scenario.traffic[index].name));
            }
            Subject::Cpu(id) => {
                object.insert("cpu".to_owned(), json!(id));
            }
        }
        for (number, metric) in METRICS.iter().enumerate() {
            if let Some(value) = figure(number, of) {
                object.insert(metric.name.to_owned(), value);
            }
        }
        match of {
            Subject::Run => run = Value::Object(object),
            Subject::Traffic(_) => traffic.push(Value::Object(object)),
            Subject::Cpu(_) => cpus.push(Value::Object(object)),
        }
    }
    [("run", run), ("traffic", json!(traffic)), ("cpus", json!(cpus))]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect()
}

fn summary(results: &Summary) -> Value {
    json!({
        "count": results.count,
        "mean": results.mean,
        "std_dev": results.std_dev,
        "interval_95": results.interval,
        "minimum": results.least,
        "maximum": results.most,
    })
}

fn sensitivity(results: &Results) -> Value {
    if results.varied.is_empty() {
        return Value::Null;
    }
    let change = |change: &Change| {
        json!({
            "metric": change.metric.name,
            "traffic": traffic(results, change.subject),
            "relative": change.relative,
        })
    };
    let varied = |varied: &Varied| {
        json!({
            "cost": varied.cost.key,
            "unit": varied.cost.unit,
            "source": varied.cost.source,
            "value": varied.value,
            "changes": varied.changes.iter().map(change).collect::<Value>(),
        })
    };
    results.varied.iter().map(varied).collect()
}

/// The name of the traffic that a figure belongs to, if it belongs to one.
fn traffic(results: &Results, of: Subject) -> Option<&str> {
    match of {
        Subject::Traffic(index) => Some(&results.scenario().traffic[index].name),
        Subject::Run | Subject::Cpu(_) => None,
    }
}

fn comparison(results: &Results) -> Value {
    if results.cells.len() < 2 {
        return Value::Null;
    }
    json!({
        "baseline": results.cells[0].label,
        "level": LEVEL,
        "known_errors": KNOWN_ERRORS.iter().map(known_error).collect::<Value>(),
        "differences": results.differences.iter().map(|it| difference(results, it)).collect::<Value>(),
        "advice": advice::advice(results),
    })
}

fn known_error(known: &KnownError) -> Value {
    json!({ "metrics": known.metrics, "factor": known.factor, "source": known.source })
}

fn difference(results: &Results, it: &Difference) -> Value {
    json!({
        "policy": results.cells[it.cell].label,
        "metric": it.metric.name,
        "traffic": traffic(results, it.subject),
        "pairs": it.paired.count,
        "baseline": it.paired.baseline,
        "difference": it.paired.difference,
        "interval_95": it.paired.interval,
        "relative": it.relative(),
        "p": it.paired.p,
        "p_corrected": it.corrected,
        "allowed_error": it.allowed.error,
        "allowed_numbering": it.allowed.numbering,
        "finding": it.finding().words(),
    })
}
