//! The command line of `rxsteer peers`.

use clap::Args;

/// Turn off checksum offload at containers' ends of veth pairs
///
/// A container leaves TCP and UDP checksums to its end of the veth pair (checksum offload). rxsteer run does not
/// steer such frames, because receivers would drop them after a redirect. rxsteer peers finds the other ends in their
/// network namespaces, also those of veths that appear later, and turns the offload off (tx-checksum-*, as ethtool -K
/// eth0 tx off does). When it ends, it turns the offload on again.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer peers 'veth*'\n  \
    rxsteer peers 'veth*' --dry-run          which ends are found, and what is on there?\n  \
    rxsteer peers --restore                  what a killed rxsteer peers left\n  \
    rxsteer peers 'veth*' --dry-run --json | jq '.peers[] | select(.state == \"on\")'\n\n\
    It requires CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_SYS_PTRACE, and the host's PID namespace. The container's CPU \
    then builds the segments (its tcp-segmentation-offload goes off, too), which costs throughput.\n\n\
    Exit status: 0 it was ended, and all offloads are on again; 1 an offload could not be turned on again, and \
    stays on record, or with --dry-run: an end can't be switched; 2 it could not run.")]
pub(crate) struct PeersArgs {
    /// Veths of this network namespace, by name or pattern (veth*)
    #[arg(value_name = "IFACE", required_unless_present = "restore", conflicts_with = "restore")]
    pub(crate) interfaces: Vec<String>,

    /// Show the other ends, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Only turn on again what a killed rxsteer peers left
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) restore: bool,

    /// Print one JSON object instead of lines
    #[arg(long, requires = "dry_run")]
    pub(crate) json: bool,
}
