use super::*;
use crate::reading::Seen;
use rxsteer_core::counters::LiveCounter;
use rxsteer_status::Status;
use rxsteer_status::control::{Control, Server};
use rxsteer_status::protocol::{Answer, Request};
use rxsteer_status::testing::sample;
use std::os::unix::net::UnixListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A reading of these instances that began `ms` after another one.
pub(crate) fn reading(statuses: Vec<Status>, since: Instant, ms: u64) -> Reading {
    let seen = statuses.into_iter().map(|status| Seen { status, rates: None });
    Reading {
        at: since + Duration::from_millis(ms),
        time_ms: 1_000_000 + ms,
        has_flows: true,
        seen: seen.collect(),
        silent: Vec::new(),
        load: None,
        host: None,
        json: OnceLock::new(),
    }
}

/// The sample status, after it received this many packets in this time.
fn after(ms: u64, packets: u64) -> Status {
    let mut status = sample();
    status.running_ns += ms * 1_000_000;
    status.totals.rx.add(|counter| if counter == LiveCounter::Received { packets } else { 0 });
    status
}

#[test]
fn rates_are_of_the_last_second_and_only_of_watched_times() {
    let (mut state, start) = (State::default(), Instant::now());
    let mut rate = |ms, packets| {
        let reading = state.add(reading(vec![after(ms, packets)], start, ms));
        reading.seen[0].rates.as_ref().map(|rates| rates.totals.received.packets.round())
    };
    assert_eq!(rate(0, 0), None);
    assert_eq!(rate(500, 50), None, "too short");
    assert_eq!(rate(1000, 100), Some(100.0), "since the first");
    assert_eq!(rate(1500, 250), Some(200.0), "since the second");
    assert_eq!(rate(7000, 1000), None, "there was no viewer");
    assert_eq!(rate(8000, 1010), Some(10.0));
    let mut other = after(9000, 0);
    other.pid += 1;
    let restarted = state.add(reading(vec![other], start, 9000));
    assert!(restarted.seen[0].rates.is_none(), "of another run");
}

#[test]
fn history_has_a_point_a_second_for_15_minutes() {
    let (mut state, start) = (State::default(), Instant::now());
    let minutes = 20;
    for ms in (0..minutes * 60 * 1000).step_by(500) {
        state.add(reading(vec![after(ms, ms)], start, ms));
    }
    let history: serde_json::Value = serde_json::from_str(&state.history.json()).unwrap();
    let instance = &history["instances"][0];
    let times = instance["time_ms"].as_array().unwrap();
    assert!((899..=901).contains(&times.len()), "{}", times.len());
    for column in ["packets", "bits", "delivered", "dropped", "moves", "deferred", "delay_p99_ns"] {
        assert_eq!(instance[column].as_array().unwrap().len(), times.len(), "{column}");
    }
    assert_eq!(instance["packets"][5], 1000.0);
    assert_eq!(instance["cpus"][1]["delivered"].as_array().unwrap().len(), times.len());
    state.add(reading(vec![], start, (minutes + 16) * 60 * 1000));
    assert_eq!(state.history.json(), r#"{"instances":[]}"#, "nothing is kept longer");
}

/// Counts how often it is asked.
struct Asked(Arc<AtomicU32>);

impl Server for Asked {
    fn serve(&mut self, _: &Request) -> Option<Answer> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(Answer::Status(Box::new(sample())))
    }
    fn changed(&mut self) -> (bool, Answer) {
        unreachable!("nothing is changed")
    }
    fn give_up(&mut self) -> Answer {
        unreachable!("nothing is changed")
    }
}

#[test]
fn viewers_share_a_reading_and_without_one_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    let mut control = Control::new(UnixListener::bind(&socket).unwrap()).unwrap();
    let (count, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (mut asked, stopped) = (Asked(Arc::clone(&count)), Arc::clone(&stop));
    let instance = std::thread::spawn(move || {
        while stopped.load(Ordering::Relaxed) == 0 {
            control.serve(Instant::now(), &mut asked);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let readings = Readings::new(Source::Instance(socket.clone()));
    assert_eq!(count.load(Ordering::Relaxed), 0);
    let began = Instant::now();
    let seen = runtime.block_on(async {
        let viewers: Vec<_> = (0..100u64)
            .map(|viewer| {
                let readings = readings.clone();
                tokio::spawn(async move {
                    let reading = if viewer % 2 == 0 {
                        readings.at_flows().await
                    } else {
                        readings.at_counters().await
                    };
                    reading.seen.len()
                })
            })
            .collect();
        // A viewer that disconnects must not end a reading that other viewers wait for.
        drop(tokio::spawn(readings.clone().reading(true)).abort_handle());
        let mut seen = 0;
        for viewer in viewers {
            seen += viewer.await.unwrap();
        }
        seen
    });
    let most = 1 + began.elapsed().as_millis() as u32 / SHARED.as_millis() as u32;
    assert_eq!(seen, 100);
    assert!(
        count.load(Ordering::Relaxed) <= most + 1,
        "{} readings, {most}",
        count.load(Ordering::Relaxed)
    );
    stop.store(1, Ordering::Relaxed);
    instance.join().unwrap();
    let gone = runtime.block_on(readings.at_flows());
    // It may be the last reading, which is shared.
    let gone = if gone.silent.is_empty() {
        std::thread::sleep(SHARED);
        runtime.block_on(readings.at_flows())
    } else {
        gone
    };
    assert!(gone.seen.is_empty() && gone.silent.len() == 1);
}
