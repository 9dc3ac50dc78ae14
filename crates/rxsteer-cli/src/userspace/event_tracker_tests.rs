//! Tests the events of two invented readings.

use super::*;
use crate::events_out::EventsOut;
use rxsteer_status::{Counts, ThreadShown};
use serde_json::json;
use std::time::Duration;

/// One CPU that received and delivered so many packets, and an interface.
fn found(packets: u64) -> Found {
    let settings = json!({
        "policy": "rps", "mode": "packet", "cpus": "0-1", "rps_maps": [], "else": "hash", "queue_size": 1000,
        "flow_limit": null, "threads": "other", "shadow": false, "flow_cnt": 1024, "sock_flow_entries": 32768,
        "inner": false, "flow_stats": false, "order_guard": true
    });
    let mut counts = Counts { delivered: packets, ..Counts::default() };
    counts.rx.add(|counter| if counter == LiveCounter::Received { packets } else { 0 });
    let thread = ThreadShown::default();
    Found {
        cpus: vec![CpuStatus { cpu: 1, counts, thread, delay: None, would: None }],
        received_from: vec![ReceivedFrom {
            name: "eth0".to_owned(),
            state: State::Steered,
            received: packets,
            kernel_drops: 0,
            queues_left_out: 0,
        }],
        settings: serde_json::from_value(settings).unwrap(),
        is_changing: false,
    }
}

struct Watched {
    tracker: EventTracker,
    now: Instant,
}

impl Watched {
    fn begin() -> Watched {
        let now = Instant::now();
        Watched {
            tracker: EventTracker::new(now, &found(0), Events::new(now, EventsOut::nowhere())),
            now,
        }
    }

    /// Updates a second later; the events that this adds.
    fn update(&mut self, found: &Found) -> Vec<(EventKind, String)> {
        let before = self.tracker.latest().last().map_or(0, |last| last.number);
        self.now += Duration::from_secs(1);
        self.tracker.update(self.now, found);
        let latest = self.tracker.latest();
        let added = latest.iter().filter(|event| event.number > before);
        added.map(|event| (event.known_kind().unwrap(), event.text.clone())).collect()
    }
}

#[test]
fn nothing_happens_while_packets_flow() {
    let mut watched = Watched::begin();
    for second in 1..200 {
        assert_eq!(watched.update(&found(second * 1000)), []);
    }
}

#[test]
fn rx_queues_that_are_left_out_are_named_once() {
    let mut watched = Watched::begin();
    let mut update = |left_out| {
        let mut now = found(0);
        now.received_from[0].queues_left_out = left_out;
        watched.update(&now)
    };
    assert_eq!(update(0), []);
    let text = "eth0 uses 2 RX queues more than at the start, and this host receives their frames instead of \
                rxsteer; restart rxsteer to receive them";
    assert_eq!(update(2), [(EventKind::InterfaceWarning, text.to_owned())]);
    assert_eq!(update(2), []);
    assert_eq!(update(0), []);
}

#[test]
fn interfaces_are_followed() {
    let mut watched = Watched::begin();
    let mut now = found(0);
    let mut becomes = |name: &str, state| {
        (now.received_from[0].name, now.received_from[0].state) = (name.to_owned(), state);
        watched.update(&now)
    };
    let [down, up, renamed, gone] = [
        becomes("eth0", State::Down),
        becomes("eth0", State::Steered),
        becomes("lan0", State::Steered),
        becomes("lan0", State::Deleted),
    ];
    let changed = |text: &str| vec![(EventKind::InterfaceChanged, text.to_owned())];
    assert_eq!(down, changed("eth0 is down: no packets come from it"));
    assert_eq!(up, changed("eth0 is up"));
    assert_eq!(renamed, changed("eth0 was renamed to lan0"));
    assert_eq!(
        gone,
        [(EventKind::InterfaceGone, "lan0 is gone: no packets come from it".to_owned())]
    );
    assert_eq!(becomes("lan0", State::Deleted), [], "it is said once");
}

#[test]
fn change_is_done_when_nothing_of_former_settings_is_under_way() {
    let mut watched = Watched::begin();
    let mut now = found(0);
    now.settings.policy = "sparse".to_owned();
    now.is_changing = true;
    assert_eq!(watched.update(&now), []);
    now.is_changing = false;
    let done = (EventKind::ChangeDone, "policy=sparse (was rps)".to_owned());
    assert_eq!(watched.update(&now), [done]);
    now.settings.offline = Some("1".to_owned());
    let events = watched.update(&now);
    assert!(events[0].1.starts_with("CPUs without a worker: 1 (were none)"), "{events:?}");
}

#[test]
fn many_drops_are_reported_with_their_reasons() {
    let mut watched = Watched::begin();
    let mut now = found(10_000);
    now.cpus[0].counts.drops.ring_full = 9;
    assert_eq!(watched.update(&now), [], "few");
    now.cpus[0].counts.drops.ring_full += 30;
    now.cpus[0].counts.drops.tx_full += 12;
    let events = watched.update(&now);
    let text = "in the last 1 second: CPU 1 dropped 42 packets: 30 since the CPU's backlog was full; steer to more CPUs, or raise \
                --max-backlog; 12 since the interface that forwards them had no room";
    assert_eq!(events, [(EventKind::Drops, text.to_owned())]);
    now.received_from[0].received += 10_000;
    now.received_from[0].kernel_drops = 5_000;
    let events = watched.update(&now);
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].1.contains("the kernel dropped 5000 packets of eth0 (33.3 %)"), "{events:?}");
}

#[test]
fn end_reports_what_no_reading_has_reported() {
    let Watched { mut tracker, now } = Watched::begin();
    let mut last = found(1000);
    last.cpus[0].counts.rx.add(|counter| if counter == LiveCounter::Moves { 7 } else { 0 });
    tracker.update(now + Duration::from_secs(1), &last);
    assert_eq!(tracker.latest().len(), 0, "moves are summed up over a minute");
    let end = now + Duration::from_secs(2);
    let events = tracker.packets.rest(end, &by_cpu(&last), dropped);
    assert_eq!(events[0].text, "7 moves and 0 packets deferred among 1 000 in the last 2 s");
    tracker.end(end, &last);
}

#[test]
fn end_without_an_interface_is_an_event() {
    let end = |states: &[State]| {
        let Watched { mut tracker, .. } = Watched::begin();
        let mut last = found(0);
        last.received_from = (0..)
            .zip(states)
            .map(|(index, state)| ReceivedFrom {
                name: format!("eth{index}"),
                state: *state,
                received: 0,
                kernel_drops: 0,
                queues_left_out: 0,
            })
            .collect();
        tracker.changes(&last);
        tracker.ended().map(|event| event.kind)
    };
    assert_eq!(end(&[State::Deleted, State::Deleted]), Some(EventKind::Ended));
    assert_eq!(end(&[State::Deleted, State::Down]), None);
    assert_eq!(end(&[]), None, "there was none");
}
