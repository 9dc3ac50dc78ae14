//! The command line of `rxsteer lab`.

use clap::{Args, Subcommand};

/// Repeat published experiments on this machine, with real packets
///
/// Each experiment sets methods of steering beside each other: no steering, the kernel's RPS and RFS, threaded NAPI, and the
/// policies of rxsteer. It makes network namespaces of its own, which are removed at the end, and touches no interface of
/// yours. It needs root.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer lab list\n  \
    sudo rxsteer lab run forward --quick\n  \
    sudo rxsteer lab run sparse forward order --repeat 15 --report results/\n\n\
    Exit status: 0 it ran; 1 a check of a load failed; 2 it could not run; 130 interrupted.")]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    List(ListArgs),
    Run(RunArgs),
}

/// List the experiments, their sources, and what is missing here to run them
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  rxsteer lab list --json | jq -r '.experiments[].name'")]
pub(crate) struct ListArgs {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run experiments
///
/// Methods take turns in random order, round after round. The report has medians with confidence intervals, the use of each CPU,
/// what was checked about the load, and a verdict, or the reason why the figures allow none. No steering is measured twice:
/// the difference of the two is noise.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sudo rxsteer lab run order --quick --json\n  \
    sudo rxsteer lab run forward --repeat 15 --report results/\n\n\
    An interrupt ends it after the present measurement; the report then says partial.")]
pub(crate) struct RunArgs {
    /// Experiments; rxsteer lab list has their names
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,

    /// Rounds: how often each method is measured with each load
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeat: Option<u16>,

    /// A short run of few methods and loads, which shows that everything works; its figures decide nothing
    #[arg(long)]
    pub(crate) quick: bool,

    /// Also write DIR/NAME.json and DIR/NAME.md of each experiment
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) report: Option<std::path::PathBuf>,

    /// Print one JSON object per experiment, each on one line, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
