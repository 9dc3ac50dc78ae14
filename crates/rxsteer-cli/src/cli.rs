//! The command line: all commands. The options of a command are in its own file, or in `args.rs` of its folder.

use crate::auto::AutoArgs;
use crate::check::args::CheckArgs;
use crate::compare::args::{AdviseArgs, CompareArgs};
use crate::config::ConfigArgs;
use crate::demo::DemoArgs;
use crate::explain::args::ExplainArgs;
use crate::flows::args::FlowsArgs;
use crate::host::args::HostArgs;
use crate::lab::args::LabArgs;
use crate::live::args::LiveArgs;
use crate::peers::args::PeersArgs;
use crate::replay::args::ReplayArgs;
use crate::run::args::{RunArgs, StatusArgs};
use crate::serve::ServeArgs;
use crate::set::SetArgs;
use crate::sim::args::SimArgs;
use crate::top::TopArgs;
use clap::{Parser, Subcommand, ValueHint};
use std::path::PathBuf;

/// Decides which CPU processes a received packet, and keeps flows in order
#[derive(Debug, Parser)]
#[command(
    name = "rxsteer",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  \
        rxsteer compare capture.pcap --cpus 4  which policy spreads this over 4 CPUs?\n  \
        rxsteer host recommend eth0            does steering help here, and how?\n\n\
        rxsteer COMMAND -h is a summary; rxsteer COMMAND --help explains all options.\n\
        Exit status: 0 success, 1 findings, 2 it could not run, 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send captured or synthetic frames through the receive path
    Replay(Box<ReplayArgs>),
    Compare(Box<CompareArgs>),
    Advise(Box<AdviseArgs>),
    /// Show the largest flows, and the CPUs that processed them
    Flows(Box<FlowsArgs>),
    Live(Box<LiveArgs>),
    /// Show what steering does, on built-in traffic
    Demo(DemoArgs),
    /// Explain one decision: which CPU, why, what would move the flow
    Explain(Box<ExplainArgs>),
    /// Check what this host and its interfaces can do
    Check(CheckArgs),
    Host(HostArgs),
    Run(Box<RunArgs>),
    Auto(Box<AutoArgs>),
    Status(StatusArgs),
    Top(TopArgs),
    Serve(ServeArgs),
    Set(SetArgs),
    Peers(PeersArgs),
    Config(ConfigArgs),
    Sim(Box<SimArgs>),
    Lab(LabArgs),
    /// Write the man pages
    #[command(after_help = "Example:\n  rxsteer man ./man && man -l ./man/rxsteer-replay.1")]
    Man {
        /// Folder to write them to; created if it does not exist
        #[arg(value_hint = ValueHint::DirPath)]
        dir: PathBuf,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  rxsteer completions bash > /etc/bash_completion.d/rxsteer")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[cfg(test)]
mod tests {
    #[test]
    fn command_line_is_consistent() {
        crate::help::command().debug_assert();
    }
}
