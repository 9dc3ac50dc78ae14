//! Progress bars on standard error, only on a terminal.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use rxsteer_status::figures::grouped;
use rxsteer_user::RxProgress;
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shows the progress of the receivers until it is dropped.
pub(crate) struct Watch {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// A progress bar for `receivers`; none if `quiet` or if standard error is not a terminal.
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
        // ORDER: Relaxed; the flag is a request and carries no data.
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// The progress of all receivers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    packets: u64,
    done: u64,
    /// 0 if the length of the input is unknown: a pipe.
    total: u64,
}

impl Progress {
    fn of(receivers: &[Arc<RxProgress>]) -> Progress {
        let sum = |figure: fn(&RxProgress) -> u64| receivers.iter().map(|r| figure(r)).sum::<u64>();
        Progress {
            packets: sum(|r| r.packets.get()),
            done: sum(|r| r.done.get()),
            total: sum(|r| r.total.get()),
        }
    }

    /// The bar and the text next to it. If the whole is unknown, it has neither a share nor the remaining time.
    fn template(self) -> &'static str {
        if self.total == 0 { "{msg}" } else { "{wide_bar} {percent:>3} %  {msg}" }
    }

    /// The message `elapsed` after the start.
    fn message(self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(1e-3);
        let rate = self.packets as f64 / seconds / 1e6;
        let mut text = format!("{} packets, {rate:.2} M/s", grouped(self.packets));
        if self.total > 0 && self.done > 0 {
            let left = seconds * self.total.saturating_sub(self.done) as f64 / self.done as f64;
            text.push_str(&format!(", {left:.0} s left"));
        }
        text
    }
}

/// A progress bar for this many runs; hidden if `quiet` or if standard error is not a terminal.
pub(crate) fn runs(count: u64, quiet: bool) -> ProgressBar {
    let shown = !quiet && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(count), target);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs{left}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.with_key("left", |state: &ProgressState, text: &mut dyn Write| {
        // Drawing cannot fail.
        let _ = text.write_str(&left(state.pos(), state.eta()));
    }));
    if shown {
        // Runs can take long, and the remaining time should count down meanwhile.
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

/// A progress bar for the time of a measurement, in milliseconds; hidden if `quiet` or if standard error is not a
/// terminal.
pub(crate) fn time(time: Duration, quiet: bool) -> ProgressBar {
    let shown = !quiet && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let length = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let bar = ProgressBar::with_draw_target(Some(length), target);
    let style = ProgressStyle::with_template("{wide_bar} {msg}; ctrl-c: the answer so far");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// The remaining time, once a run has shown how long one takes.
fn left(done: u64, left: Duration) -> String {
    if done == 0 { String::new() } else { format!(", {:#} left", HumanDuration(left)) }
}

fn show(receivers: &[Arc<RxProgress>], done: &AtomicBool) {
    let bar = ProgressBar::new(0);
    let mut template = "";
    // ORDER: Relaxed; the flag is a request and carries no data.
    while !done.load(Ordering::Relaxed) {
        let progress = Progress::of(receivers);
        if progress.template() != template {
            template = progress.template();
            let style = ProgressStyle::with_template(template);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        }
        bar.set_length(progress.total.max(1));
        bar.set_position(progress.done);
        bar.set_message(progress.message(bar.elapsed()));
        std::thread::park_timeout(Duration::from_millis(100));
    }
    bar.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_unknown_until_a_run_is_done() {
        assert_eq!(left(0, Duration::ZERO), "");
        assert_eq!(left(1, Duration::from_secs(7)), ", 7s left");
        assert_eq!(left(10, Duration::ZERO), ", 0s left");
    }

    #[test]
    fn progress_of_a_pipe_has_no_whole() {
        let progress = Progress { packets: 2_000_000, done: 0, total: 0 };
        assert!(!progress.template().contains("percent"));
        assert_eq!(progress.message(Duration::from_secs(2)), "2 000 000 packets, 1.00 M/s");
    }

    #[test]
    fn progress_of_a_file_says_what_is_left() {
        let progress = Progress { packets: 1000, done: 25, total: 100 };
        assert!(progress.template().contains("percent"));
        let message = progress.message(Duration::from_secs(10));
        assert_eq!(message, "1 000 packets, 0.00 M/s, 30 s left");
        let started = Progress { done: 0, ..progress }.message(Duration::from_secs(1));
        assert_eq!(started, "1 000 packets, 0.00 M/s");
    }

    #[test]
    fn progress_is_the_sum_over_receivers() {
        let receiver = |done: u64| {
            let mut progress = RxProgress::default();
            (progress.done, progress.total) = (done.into(), 10.into());
            Arc::new(progress)
        };
        let sum = Progress::of(&[receiver(3), receiver(4)]);
        assert_eq!(sum, Progress { packets: 0, done: 7, total: 20 });
    }
}
