//! The CPU time that is left for an ordinary process of a CPU whose ring is never empty.
//!
//! CPU 0 sends as fast as it can to the ring of CPU 1, which processes less than that. CPU 1 has one busy process, and
//! a thread that sleeps for 20 ms at a time, as `ssh` would, and notes how late it wakes up.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rxsteer_lab::{
    BusyProcesses, LinkOptions, LiveFrames, Steering, Testbed, Traffic, pin, ring_threads,
};
use serde_json::{Value, json};

const CLASSES: [&str; 5] = ["other", "nice:-13", "nice:-20", "fifo:1", "fifo:50"];
/// Some periods of the deadline server and of real-time throttling, which are one second each.
const TIME: Duration = Duration::from_secs(6);

/// The result of one class.
pub(crate) struct Row {
    class: &'static str,
    /// The lowest share of one CPU in all rounds.
    share: f64,
    latest_ms: f64,
    /// How often the ring's thread slept meanwhile.
    slept: u64,
}

impl Row {
    pub(crate) fn json(&self) -> Value {
        json!({
            "threads": self.class,
            "share_of_the_cpu": (self.share * 1e4).round() / 1e4,
            "latest_wake_up_ms": self.latest_ms.round(),
            "ring_thread_slept": self.slept,
        })
    }
}

/// Measures all classes in turns.
pub(crate) fn measure(rounds: u32) -> Result<Vec<Row>> {
    let testbed = Testbed::hosts(LinkOptions::default())?;
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..rounds {
        for class in CLASSES {
            let now = turn(&testbed, class)?;
            match rows.iter_mut().find(|row| row.class == class) {
                None => rows.push(now),
                Some(row) => {
                    row.share = row.share.min(now.share);
                    row.latest_ms = row.latest_ms.max(now.latest_ms);
                    row.slept = row.slept.max(now.slept);
                }
            }
        }
    }
    Ok(rows)
}

fn turn(testbed: &Testbed, class: &'static str) -> Result<Row> {
    let arguments = ["in0", "--policy", "rps", "--cpus", "1-1", "--threads", class];
    let steering = Steering::start(testbed.receiver(), &arguments)?;
    let traffic = Traffic { flows: 64, length: 64, ..Traffic::default() };
    let source = LiveFrames::new(testbed.link(), &traffic)?;
    let busy = BusyProcesses::start(&[1], 1)?;
    let threads = ring_threads(steering.id())?;
    let thread = threads.iter().find(|thread| thread.cpu == 1);
    let stop = AtomicBool::new(false);
    let (share, latest_ms, slept) = std::thread::scope(|scope| -> Result<_> {
        let sending = scope.spawn(|| source.send_until(testbed.sender(), 0, 4_000_000, &stop));
        let sleeping = scope.spawn(|| latest_wake_up(&stop));
        sleep(Duration::from_millis(500));
        let sleeps = || thread.map_or(Ok(0), rxsteer_lab::RingThread::sleeps);
        let sample = || Ok::<_, anyhow::Error>((Instant::now(), busy.cpu_times()?, sleeps()?));
        let before = sample();
        sleep(TIME);
        let after = sample();
        stop.store(true, Ordering::Relaxed);
        sending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let latest = sleeping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let ((then, times_then, slept_then), (now, times, slept)) = (before?, after?);
        let used = times[0].saturating_sub(times_then[0]);
        let share = used.as_secs_f64() / now.duration_since(then).as_secs_f64();
        Ok((share, latest.as_secs_f64() * 1e3, slept - slept_then))
    })?;
    drop(busy);
    let totals = steering.totals()?;
    ensure!(totals.dropped() > 0, "the ring was never full, so this shows nothing: {totals:?}");
    Ok(Row { class, share, latest_ms, slept })
}

/// The longest delay of a wake-up of an ordinary thread on CPU 1.
fn latest_wake_up(stop: &AtomicBool) -> Result<Duration> {
    const PAUSE: Duration = Duration::from_millis(20);
    pin(1)?;
    let mut latest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        sleep(PAUSE);
        latest = latest.max(started.elapsed().saturating_sub(PAUSE));
    }
    Ok(latest)
}

pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "## An ordinary process beside a ring that never empties\n\nAll frames go to CPU 1, more than it can process; one \
         ordinary busy process is there, too. Beside it an ordinary thread sleeps for 20 ms at a time.\n\n\
         | threads | CPU time of the process, least | latest wake-up |\n|---|---|---|\n",
    );
    for row in rows {
        // Writing to a String does not fail.
        let _ = writeln!(
            text,
            "| {} | {:.1} % | {:.0} ms |",
            row.class,
            row.share * 100.0,
            row.latest_ms
        );
    }
    text
}
