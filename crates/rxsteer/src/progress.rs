//! A progress bar on standard error, on a terminal only.

use crate::output::table;
use indicatif::{ProgressBar, ProgressStyle};
use rxsteer_user::RxProgress;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shows how far the receivers are until it is dropped.
pub(crate) struct Watch {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// A bar for `receivers`; nothing when `quiet` or when standard error is no terminal.
    pub(crate) fn start(receivers: Vec<Arc<RxProgress>>, quiet: bool) -> Watch {
        let done = Arc::new(AtomicBool::new(false));
        let shown = !quiet && std::io::stderr().is_terminal();
        let thread = shown.then(|| {
            let done = done.clone();
            std::thread::spawn(move || show(&receivers, &done))
        });
        Watch { done, thread }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // ORDER: Relaxed; a request without data.
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn show(receivers: &[Arc<RxProgress>], done: &AtomicBool) {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // ORDER: Relaxed throughout; figures to look at.
    while !done.load(Ordering::Relaxed) {
        let sum = |figure: fn(&RxProgress) -> u64| receivers.iter().map(|r| figure(r)).sum::<u64>();
        bar.set_length(sum(|r| r.total.load(Ordering::Relaxed)).max(1));
        bar.set_position(sum(|r| r.done.load(Ordering::Relaxed)));
        let packets = sum(|r| r.packets.load(Ordering::Relaxed));
        let rate = packets as f64 / bar.elapsed().as_secs_f64().max(1e-3) / 1e6;
        let left = match bar.position() {
            0 => "-".to_owned(),
            _ => format!("{} s", bar.eta().as_secs()),
        };
        bar.set_message(format!("{} packets, {rate:.2} M/s, {left} left", table::grouped(packets)));
        std::thread::park_timeout(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}
