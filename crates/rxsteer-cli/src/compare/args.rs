//! The command line of `rxsteer compare`.

use crate::input_args::{parse_sample, parse_synthetic};
use crate::replay::args::MAX_SECRETS;
use crate::steer_args::{FlowSettings, TunnelKeys};
use crate::words::whole;
use clap::{Args, ValueHint};
use rxsteer_settings::words;
use rxsteer_settings::{CpuChoice, cpus};
use rxsteer_user::core::MAX_RX_QUEUES;
use rxsteer_user::source::synthetic::SyntheticSpec;
use std::path::PathBuf;
use std::time::Duration;

/// Compare policies on your own traffic, and recommend what to do
///
/// It shows none, rps, sparse, rfs, rfs+sparse and rps+balance side by side: how each spreads the packets over the
/// CPUs, and how much traffic fits before a CPU is full. none is the result without steering.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer compare capture.pcap --cpus 4\n  \
    rxsteer compare --iface eth0 --duration 10s            what arrives now (root)\n  \
    rxsteer compare capture.pcap --cpus 8 --rx-queues 4    a NIC that spreads over 4 queues\n  \
    rxsteer compare capture.pcap --cpus 0-7 --app-cpus 4-7 applications on CPUs 4-7\n  \
    rxsteer compare capture.pcap --cpus 4 --json | jq -r '.advice, .commands[]'\n\n\
    Exit status: 0 success; 1 a capture is damaged, a worker died, or a flow was reordered; 2 it could not run; 130 \
    interrupted, without a report.")]
pub(crate) struct CompareArgs {
    /// pcap or pcapng, plain, gzip or zstd; - is standard input
    ///
    /// Several captures are read one after the other.
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath, required_unless_present_any = ["iface", "synthetic"])]
    pub(crate) captures: Vec<PathBuf>,

    /// Capture what this interface receives, instead of reading a capture; requires CAP_NET_RAW
    #[arg(long, value_name = "IFACE", conflicts_with = "captures")]
    pub(crate) iface: Option<String>,

    /// With --iface: capture for this long, or until there are 500 000 frames; 10s by default
    ///
    /// It keeps the first 256 bytes of each frame, in memory.
    #[arg(long, alias = "sample", value_name = "DURATION", value_parser = parse_sample, conflicts_with_all = ["captures", "synthetic"])]
    pub(crate) duration: Option<Duration>,

    /// Generate the frames, as `rxsteer replay --synthetic` does
    #[arg(long, value_name = "SPEC", value_parser = words(SyntheticSpec::KEYS, parse_synthetic), conflicts_with_all = ["captures", "iface"])]
    pub(crate) synthetic: Option<SyntheticSpec>,

    #[command(flatten)]
    pub(crate) choices: Choices,
}

/// Report which policy is best for live traffic, or that none helps
///
/// It copies frames through a packet socket, and replays them under each policy. It steers nothing and attaches no
/// program, so it works with every driver. The report begins with the advice and with how much more traffic fits; the
/// table follows. Ctrl-C ends the measurement; the advice is then about the time so far.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer advise eth0                                    a minute of what arrives (root, or CAP_NET_RAW)\n  \
    rxsteer advise eth0 --duration 10m --cpus 0-3\n  \
    rxsteer advise eth0 --app-cpus 4-7                     applications on CPUs 4-7\n  \
    rxsteer advise eth0 --json | jq -r '.advice, .commands[]'\n\n\
    It keeps at most 500 000 frames, equally many in each second. If frames come faster, it copies all frames at \
    the beginning of each second, and none in the rest of it, which costs nothing. The report shows the share of \
    the time that was copied.\n\n\
    Exit status: 0 success; 1 a worker died, or a flow was reordered; 2 it could not run; 130 interrupted a second time.")]
pub(crate) struct AdviseArgs {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) iface: String,

    /// Watch for this long, up to an hour
    #[arg(long, alias = "for", value_name = "DURATION", value_parser = parse_sample, default_value = "60s")]
    pub(crate) duration: Duration,

    #[command(flatten)]
    pub(crate) choices: Choices,
}

// The options of a comparison. This is no documentation comment: clap would use it as the command's help.
#[derive(Args, Debug)]
pub(crate) struct Choices {
    /// CPUs to spread over: 0-3,8 or a count like 4
    ///
    /// By default the CPUs that this process may use; for an interface, this host's CPUs near it.
    #[arg(long, value_name = "LIST|COUNT", value_parser = cpus)]
    pub(crate) cpus: Option<CpuChoice>,

    /// Compare under COUNT hash secrets, 2 to 1000
    ///
    /// The flow hash has a random secret, as in the kernel, so the result of one replay is partly chance.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = whole::<u32, 2, MAX_SECRETS>)]
    pub(crate) seeds: u32,

    /// RX queues that the NIC spreads the frames over, by the Toeplitz hash, each received on a CPU of --cpus in turn
    ///
    /// By default one; for an interface, as many as it has.
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16, 1, { MAX_RX_QUEUES as u64 }>)]
    pub(crate) rx_queues: Option<u16>,

    /// CPUs of the applications, for rfs: 0-3,8 or a count like 4
    ///
    /// A capture does not show where applications ran. By default, each flow's hash picks one of --cpus for its
    /// application, and the advice does not rely on it.
    #[arg(long, value_name = "LIST|COUNT", value_parser = cpus)]
    pub(crate) app_cpus: Option<CpuChoice>,

    #[command(flatten)]
    pub(crate) flows: FlowSettings,

    #[command(flatten)]
    pub(crate) tunnels: TunnelKeys,

    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}
