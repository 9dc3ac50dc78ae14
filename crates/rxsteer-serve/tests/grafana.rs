//! Checks that the dashboard in packaging/grafana uses existing metrics, and that its panels do not overlap.

use crate::common::dashboard;
use crate::common::skipped;
use rxsteer_serve::names;
use std::collections::BTreeSet;

#[test]
fn dashboard_asks_for_metrics_that_there_are() {
    let Some(dashboard) = dashboard::read() else {
        return skipped(
            "grafana::dashboard_asks_for_metrics_that_there_are",
            "packages are without the dashboard",
        );
    };
    let known: BTreeSet<String> = names().into_iter().collect();
    let expressions = dashboard::expressions(&dashboard);
    assert!(expressions.len() > 10);
    for expression in expressions {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("rxsteer_")).collect();
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            assert!(known.contains(metric), "there is no {metric}, which is in {expression}");
        }
    }
}

#[test]
fn panels_have_titles_numbers_and_room_of_their_own() {
    let Some(dashboard) = dashboard::read() else {
        return skipped(
            "grafana::panels_have_titles_numbers_and_room_of_their_own",
            "packages are without the dashboard",
        );
    };
    assert!(dashboard["schemaVersion"].as_u64() >= Some(36) && dashboard["uid"] == "rxsteer");
    let (mut ids, mut titles, mut taken) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()));
        assert!(titles.insert(panel["title"].as_str().unwrap()));
        assert!(["stat", "timeseries"].contains(&panel["type"].as_str().unwrap()));
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{} overlaps another", panel["title"]);
        }
        let names: BTreeSet<String> = panel["targets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|target| target["refId"].to_string())
            .collect();
        assert_eq!(names.len(), panel["targets"].as_array().unwrap().len());
    }
}
