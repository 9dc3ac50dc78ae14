use super::*;
use std::time::Instant;

fn load(connections: usize, rate: u32) -> RrLoad {
    let time = Duration::from_millis(400);
    RrLoad { connections, rate, work: Duration::ZERO, server_threads: 1, time }
}

#[test]
fn replies_are_as_many_as_requests() {
    for (connections, threads) in [(1, 0), (20, 0), (20, 7)] {
        let load = RrLoad { server_threads: threads, ..load(connections, 0) };
        let report = request_response(None, None, &load).unwrap();
        assert!(report.requests >= connections as u64, "{report:?}");
        assert_eq!((report.requests, report.requests), (report.replies, report.served));
        assert_eq!(report.answered, connections);
        assert!(!report.cpus.is_empty() && !report.client_cpus.is_empty(), "{report:?}");
    }
}

#[test]
fn open_loop_sends_no_more_than_is_due() {
    let report = request_response(None, None, &load(10, 1000)).unwrap();
    // 400 ms at 1000 a second, and not as many as the loop could send. A busy machine may send fewer.
    assert!((1..=410).contains(&report.requests), "{}", report.requests);
}

#[test]
fn one_stall_of_the_server_shows_in_all_requests_that_were_due_meanwhile() {
    const STALL: Duration = Duration::from_millis(100);
    // 1000 a second are due on 10 connections, and the server sleeps once, after 20 replies.
    let work = |served| {
        if served == 20 {
            std::thread::sleep(STALL);
        }
    };
    let open = exchange(None, None, &load(10, 1000), work).unwrap();
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    // The histogram has three digits. At least the next request of each connection waits for 90 ms: 10 of 400.
    assert!(ms(open.latency.max()) >= 99.9, "{} ms", ms(open.latency.max()));
    let p99 = ms(open.latency.value_at_quantile(0.99));
    assert!(p99 >= 89.9, "{p99} ms");
    // With one latency per connection and stall there would be 10. What was due in the first half of the stall waits for the second.
    let late = open.latency.count_between(49_000_000, u64::MAX);
    assert!(late >= 40, "{late} of {}", open.requests);
}

#[test]
fn server_that_stalls_shows_in_an_open_loop_only() {
    // Each request takes 2 ms, and 1000 a second are due: the queue grows all the time.
    let slow = |rate| RrLoad { work: Duration::from_millis(2), ..load(1, rate) };
    let open = request_response(None, None, &slow(1000)).unwrap();
    let started = Instant::now();
    let closed = request_response(None, None, &slow(0)).unwrap();
    let elapsed = started.elapsed();
    let median_ms = |report: &RrReport| report.latency.value_at_quantile(0.5) as f64 / 1e6;
    // Half of what was due in 400 ms is answered by then, so the median request is at least 50 ms late.
    assert!(median_ms(&open) > 50.0, "{} ms", median_ms(&open));
    // A closed loop never sees what was not sent: on its one connection requests follow each other. (The histogram has three
    // digits.)
    let all_ms = closed.latency.mean() * closed.latency.len() as f64 / 1e6;
    assert!(all_ms <= elapsed.as_secs_f64() * 1e3 * 1.001, "{all_ms} ms of {elapsed:?}");
}
