//! How many runs are done, on standard error, on a terminal only.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;

/// A bar of `runs`; hidden when `quiet` or when standard error is no terminal.
pub(crate) fn bar(runs: u64, quiet: bool) -> ProgressBar {
    let shown = !quiet && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(runs), target);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs{left}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style.with_key("left", |state: &ProgressState, text: &mut dyn Write| {
        // What is drawn can't fail.
        let _ = text.write_str(&left(state.pos(), state.eta()));
    }));
    if shown {
        // Runs can take long, and the time that is left goes on meanwhile.
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

/// The time left, once a run has shown how long one takes.
fn left(done: u64, left: Duration) -> String {
    if done == 0 { String::new() } else { format!(", {:#} left", HumanDuration(left)) }
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
}
