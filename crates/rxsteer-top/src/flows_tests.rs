//! Flows across readings.

use super::*;
use rxsteer_status::ShareShown;
use rxsteer_status::testing::sample;

const SECOND: u64 = 1_000_000_000;

/// A flow with these numbers of packets on CPUs.
fn flow(name: &str, on: &[(u16, u64)], moves: u32) -> FlowShown {
    let packets: u64 = on.iter().map(|(_, packets)| packets).sum();
    let share = |&(cpu, packets)| ShareShown { cpu, packets, bytes: packets * 100 };
    let mut shown: FlowShown = serde_json::from_value(serde_json::json!({
        "flow": name, "packets": packets, "bytes": packets * 100, "moves": moves, "idle_s": 0.5, "tcp_flags": 0, "cpus": [],
    }))
    .unwrap();
    shown.cpus = on.iter().map(share).collect();
    shown
}

/// A reading after this many seconds.
fn status_at(seconds: u64, flows: Vec<FlowShown>) -> Status {
    let mut status = sample();
    status.running_ns = seconds * SECOND;
    status.largest_flows = flows;
    status
}

/// Computes the rows of several readings in turn, and returns the last ones.
fn rows_of(statuses: &[Status]) -> Vec<FlowRow> {
    let mut tracker = Tracker::default();
    let mut rows = tracker.rows(&statuses[0], None);
    for pair in statuses.windows(2) {
        rows = tracker.rows(&pair[1], Rates::between(&pair[0], &pair[1]).as_ref());
    }
    rows
}

#[test]
fn first_reading_has_no_rates() {
    let rows = rows_of(&[status_at(1, vec![flow("a", &[(3, 10), (5, 30)], 1)])]);
    let row = &rows[0];
    assert_eq!((row.rate, row.moved, row.cpu), (None, None, Some(5)));
    assert_eq!((row.shares.clone(), row.idle_ns), (vec![(5, 0.75), (3, 0.25)], SECOND / 2));
}

#[test]
fn move_is_seen_and_remembered() {
    let statuses = [
        status_at(1, vec![flow("a", &[(3, 100)], 0)]),
        status_at(3, vec![flow("a", &[(3, 101), (5, 9)], 1)]),
        status_at(4, vec![flow("a", &[(3, 101), (5, 9)], 1)]),
    ];
    let row = &rows_of(&statuses[..2])[0];
    let moved = Some(Move { cpus: Some((3, 5)), count: 1, at_ns: 3 * SECOND });
    assert_eq!((row.rate, row.cpu, row.moved), (Some(5.0), Some(5), moved));
    let row = &rows_of(&statuses)[0];
    assert_eq!((row.rate, row.cpu, row.moved), (Some(0.0), Some(5), moved), "it stands still");
}

#[test]
fn move_that_is_not_counted_is_seen_by_the_cpus() {
    let statuses = [
        status_at(1, vec![flow("a", &[(3, 100)], 0)]),
        status_at(2, vec![flow("a", &[(3, 100), (5, 9)], 0)]),
    ];
    let moved = rows_of(&statuses)[0].moved;
    assert_eq!(moved, Some(Move { cpus: Some((3, 5)), count: 1, at_ns: 2 * SECOND }));
}

#[test]
fn several_moves_between_readings_are_counted() {
    let statuses = [
        status_at(1, vec![flow("a", &[(3, 100)], 0)]),
        status_at(2, vec![flow("a", &[(3, 130), (5, 10)], 2)]),
    ];
    let moved = rows_of(&statuses)[0].moved;
    assert_eq!(moved, Some(Move { cpus: None, count: 2, at_ns: 2 * SECOND }));
}

#[test]
fn counts_that_go_back_are_of_another_flow() {
    let statuses = [
        status_at(1, vec![flow("a", &[(3, 100)], 7)]),
        status_at(2, vec![flow("a", &[(5, 10)], 0), flow("b", &[(1, 5)], 0)]),
    ];
    let rows = rows_of(&statuses);
    assert_eq!((rows[0].rate, rows[0].moved, rows[0].cpu), (None, None, Some(5)));
    assert_eq!(rows[1].rate, None);
}

#[test]
fn another_run_forgets() {
    let mut other = status_at(2, vec![flow("a", &[(3, 200)], 0)]);
    other.pid += 1;
    let rows = rows_of(&[status_at(1, vec![flow("a", &[(3, 100)], 0)]), other]);
    assert_eq!(rows[0].rate, None);
}

#[test]
fn rows_are_sorted_by_what_is_asked() {
    let statuses = [
        status_at(
            1,
            vec![flow("a", &[(0, 100)], 5), flow("b", &[(0, 10)], 0), flow("c", &[(0, 10)], 0)],
        ),
        status_at(
            2,
            vec![flow("a", &[(0, 101)], 5), flow("b", &[(0, 60)], 0), flow("c", &[(0, 60)], 0)],
        ),
    ];
    let mut rows = rows_of(&statuses);
    rows.reverse();
    let mut order = |sort: Sort| {
        rows.sort_by(|one, other| sort.compare(one, other));
        rows.iter().map(|row| row.flow.as_str()).collect::<String>()
    };
    assert_eq!(Sort::ALL.map(&mut order), ["bca", "abc", "abc", "abc"]);
    assert_eq!(Sort::ALL.map(Sort::next), [Sort::Packets, Sort::Bytes, Sort::Moves, Sort::Rate]);
}

#[test]
fn hostile_names_are_escaped() {
    let rows = rows_of(&[status_at(1, vec![flow("\x1b[2Ja\nb", &[(0, 1)], 0)])]);
    assert_eq!(rows[0].flow, r"\u001b[2Ja\u000ab");
}
