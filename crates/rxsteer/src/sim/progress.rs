//! How many runs are done, on standard error, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar of `runs`; hidden when `quiet` or when standard error is no terminal.
pub(crate) fn bar(runs: u64, quiet: bool) -> ProgressBar {
    let shown = !quiet && std::io::stderr().is_terminal();
    let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(runs), target);
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    if shown {
        // Runs can take long, and the time that is left goes on meanwhile.
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}
