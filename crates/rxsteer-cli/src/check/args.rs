//! The command line of `rxsteer check`.

use crate::input_args::parse_sample;
use clap::Args;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer check                 the host, and a line for each NIC\n  \
    rxsteer check eth0            everything about one interface\n  \
    rxsteer check --duration 1s   and whether a CPU is short of time for receiving\n  \
    rxsteer check 'veth*' --json | jq '.interfaces[] | {name, can_run}'\n\n\
    check changes nothing and needs no privilege. With the privileges that rxsteer run requires, it also loads the \
    BPF programs and unloads them; it does not attach them to your interfaces.\n\n\
    Exit status: 0 rxsteer run would work (without IFACE: on at least one interface); 1 something prevents it; 2 check \
    could not run.")]
pub(crate) struct CheckArgs {
    /// Interfaces, by name or pattern (veth*)
    ///
    /// Without one, check reports on the host and has a line for each NIC.
    #[arg(value_name = "IFACE")]
    pub(crate) interfaces: Vec<String>,

    /// Also measure for this long how busy the CPUs are with receiving, e.g. 1s
    #[arg(long, alias = "sample", value_name = "DURATION", value_parser = parse_sample)]
    pub(crate) duration: Option<Duration>,

    /// If the kernel refuses the BPF programs, first print its whole message
    #[arg(long, conflicts_with = "json")]
    pub(crate) kernel_log: bool,

    /// Print one JSON object on one line, with all facts, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
