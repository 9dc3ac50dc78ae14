//! The options of `cargo xtask bench`. `cargo xtask` checks them, and the table uses them.

use clap::Args;

const EXAMPLES: &str = "Examples:
  cargo xtask bench
  cargo xtask bench --filter toeplitz --rounds 9 --json";

/// Prints one table of ratios: every case against the baselines of its group, in one process.
///
/// The cases of a group take turns in random order, round after round. A ratio is the median of the
/// ratios within a round, with its quartiles; below 1 the case is faster than the baseline. A slice
/// counts only if a cache line went between two CPUs quickly enough before and after it.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Only groups and cases whose name contains this, with the baselines of their groups.
    #[arg(long, value_name = "TEXT")]
    pub(crate) filter: Option<String>,
    /// How many turns each case has.
    #[arg(long, value_name = "N", default_value_t = 7)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// How long a turn is, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 250)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(crate) slice_ms: u32,
    /// The longest time for a cache line to reach the other CPU, for a slice to count; 0 counts all slices.
    #[arg(long, value_name = "NS", default_value_t = 70)]
    pub(crate) gate_ns: u32,
    /// Fixes the order of the turns; by default the order is random.
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Prints one JSON object instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// What cargo passes to every bench target.
    #[arg(long, hide = true)]
    pub(crate) bench: bool,
}
