//! The command line of `rxsteer lab`.

use clap::{Args, Subcommand};

/// Repeat published experiments on this machine, with real packets
///
/// Each experiment compares steering methods: no steering, the kernel's RPS and RFS, threaded NAPI, and the policies
/// of rxsteer. It makes its own network namespaces, and removes them at the end. It uses no interface of yours unless
/// run --iface names it. Most experiments require root.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer lab list\n  \
    sudo rxsteer lab run forward --quick\n  \
    sudo rxsteer lab run sparse forward order --repeat 15 --report results/\n\n\
    Exit status: 0 it ran; 1 a check of a load failed, one of several experiments ended with an error, or a \
    report could not be written; 2 it could not run; 130 interrupted.")]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    List(ListArgs),
    Run(RunArgs),
    Compare(CompareArgs),
    Calibrate(CalibrateArgs),
    Validate(ValidateArgs),
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
/// Methods take turns in random order, round after round. The report has medians with confidence intervals, the use
/// of each CPU, what was checked about the load, and a verdict, or the reason why the figures allow none. The method
/// without steering is measured twice: the difference between the two is noise.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sudo rxsteer lab run order --quick --json\n  \
    sudo rxsteer lab run forward --repeat 15 --report results/\n  \
    sudo rxsteer lab run rr rpc --iface eth1 --peer eth2\n\n\
    Ctrl-C ends it after the current measurement; the report is then marked partial.")]
pub(crate) struct RunArgs {
    /// Experiments; rxsteer lab list has their names
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,

    /// Rounds: how often each method is measured with each load [default: 9; with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeat: Option<u16>,

    /// A short run of few methods and loads, to check that everything works; its figures prove nothing
    #[arg(long)]
    pub(crate) quick: bool,

    /// Also write DIR/report.html, and NAME.json, NAME.md and NAME.svg of each experiment
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) report: Option<std::path::PathBuf>,

    /// Steer this interface instead of one end of a veth pair; it receives what --peer sends
    ///
    /// The experiments take over both interfaces, and then restore their names, addresses, routes, GRO, and the
    /// kernel's own steering. A cable must join the two.
    #[arg(long, value_name = "IFACE", requires = "peer")]
    pub(crate) iface: Option<String>,

    /// The interface that sends, joined to --iface
    #[arg(long, value_name = "IFACE", requires = "iface")]
    pub(crate) peer: Option<String>,

    /// Use --iface and --peer even if they are in use: connections over them end
    #[arg(long, requires = "iface")]
    pub(crate) force: bool,

    /// Print one JSON object per experiment, each on one line, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Compare two reports of the same experiment
///
/// For each method and load, it shows the ratio of the medians of the headline metric, and whether their intervals
/// overlap. Intervals of fewer than six rounds, or of a quick or partial report, prove nothing, so it shows a dash
/// instead. It also lists how the runs differ: kernel, CPUs, versions, scale. Runs on different machines or at
/// different times also differ for reasons that no report records.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer lab compare before/rr.json after/rr.json\n  \
    rxsteer lab compare before/rr.json after/rr.json --json | jq '.rows[] | select(.overlap == false)'")]
pub(crate) struct CompareArgs {
    /// A report that rxsteer lab run --report wrote
    #[arg(value_name = "A.json", value_hint = clap::ValueHint::FilePath)]
    pub(crate) a: std::path::PathBuf,

    /// Another one of the same experiment
    #[arg(value_name = "B.json", value_hint = clap::ValueHint::FilePath)]
    pub(crate) b: std::path::PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure what packets cost on this machine, as a scenario for rxsteer sim
///
/// It measures the time per frame of a busy CPU for paths of different length through a router of veth pairs: without steering, with the
/// kernel's RPS, and with policies of rxsteer. The costs are differences of these times. A cost that was not measured has the default,
/// and a comment that states this.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sudo rxsteer lab calibrate -o machine.toml\n  \
    rxsteer sim machine.toml --set traffic.transit.rate=900kpps --set steering.policy=rps --set costs.set=rps\n  \
    sudo rxsteer lab validate machine.toml")]
pub(crate) struct CalibrateArgs {
    /// The scenario to write
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: std::path::PathBuf,

    /// Rounds: how often each time is measured
    #[arg(long, value_name = "N", default_value = "9", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeat: u16,

    /// One short round, to check that everything works; the figures prove nothing
    #[arg(long, conflicts_with = "repeat")]
    pub(crate) quick: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Predict this machine with rxsteer sim and calibrated costs, then measure it
///
/// The loads differ from those of the calibration. The predictions are written to a file before anything is measured.
/// The report compares predicted with measured figures, and both with a null model, which has the costs of packets
/// and requests without steering, for all methods. Each round measures two calibrated loads again, to show whether
/// the machine is as fast as before.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer lab validate machine.toml --predict-only\n  \
    sudo rxsteer lab validate machine.toml\n  \
    sudo rxsteer lab validate machine.toml --repeat 15 --json >validation.json")]
pub(crate) struct ValidateArgs {
    /// The scenario that rxsteer lab calibrate wrote on this machine
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: std::path::PathBuf,

    /// Where to write the predictions; other predictions there are not replaced [default: FILE with the ending predictions.json]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub(crate) predictions: Option<std::path::PathBuf>,

    /// Write the predictions and measure nothing; needs no root
    #[arg(long)]
    pub(crate) predict_only: bool,

    /// Where to write the plot [default: FILE with the ending svg]
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub(crate) plot: Option<std::path::PathBuf>,

    /// Rounds: how often each prediction is measured
    #[arg(long, value_name = "N", default_value = "7", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) repeat: u16,

    /// A few rows in two short rounds, to check that everything works; the figures prove nothing
    #[arg(long, conflicts_with = "repeat")]
    pub(crate) quick: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
