//! The command line of `rxsteer peers`.

use clap::Args;

/// Have containers' ends of veths complete checksums while it runs
///
/// A container leaves TCP and UDP checksums to its end of the veth, and rxsteer run lets such frames pass: receivers would
/// drop them after a redirect. This finds the other ends in their network namespaces and switches that off (tx-checksum-*, as
/// ethtool -K eth0 tx off does), also of veths that appear later, and switches it on again when it ends.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer peers 'veth*'\n  \
    rxsteer peers 'veth*' --dry-run          which ends are meant, and what is on there?\n  \
    rxsteer peers --restore                  what a killed rxsteer peers left\n  \
    rxsteer peers 'veth*' --dry-run --json | jq '.peers[] | select(.state == \"on\")'\n\n\
    It requires CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_SYS_PTRACE, and the host's PID namespace. Segments are then built by the \
    container's CPU (its tcp-segmentation-offload goes off, too), which costs throughput.\n\n\
    Exit status: 0 it was ended, and all is on again; 1 something could not be switched on again, and stays on record, or with \
    --dry-run: an end can't be switched; 2 it \
    could not run.")]
pub(crate) struct PeersArgs {
    /// Veths of this network namespace, by name or pattern (veth*)
    #[arg(value_name = "IFACE", required_unless_present = "restore", conflicts_with = "restore")]
    pub(crate) interfaces: Vec<String>,

    /// Show the other ends, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Only switch on again what a killed rxsteer peers left
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) restore: bool,

    /// Print one JSON object instead of lines
    #[arg(long, requires = "dry_run")]
    pub(crate) json: bool,
}
