//! The command line of `rxsteer compare`.

use crate::input_args::{parse_sample, parse_synthetic};
use crate::replay::args::MOST_SECRETS;
use crate::steer_args::{FlowSettings, TunnelKeys};
use crate::words::whole;
use clap::{Args, ValueHint};
use rxsteer_settings::words;
use rxsteer_settings::{CpuChoice, cpus};
use rxsteer_user::core::MAX_RX_QUEUES;
use rxsteer_user::source::synthetic::SyntheticSpec;
use std::path::PathBuf;
use std::time::Duration;

/// Compare the policies on your own traffic, and say what to do
///
/// It shows none, rps, sparse, rfs, rfs+sparse and rps+balance side by side: how each spreads the packets over the CPUs, and how much fits before
/// a CPU is full. none is the result without steering.
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
    /// The first 256 bytes of each frame are kept, in memory.
    #[arg(long, alias = "sample", value_name = "DURATION", value_parser = parse_sample, conflicts_with_all = ["captures", "synthetic"])]
    pub(crate) duration: Option<Duration>,

    /// Generate the frames, as `rxsteer replay --synthetic` does
    #[arg(long, value_name = "SPEC", value_parser = words(SyntheticSpec::KEYS, parse_synthetic), conflicts_with_all = ["captures", "iface"])]
    pub(crate) synthetic: Option<SyntheticSpec>,

    #[command(flatten)]
    pub(crate) choices: Choices,
}

/// Say which policy is better on live traffic, or that none is
///
/// Shadow mode for all policies at once: the frames are copied from a packet socket and replayed under each policy. Nothing is
/// steered and no program is attached, so it works with every driver. The answer comes first, with how much more fits, and the
/// table after it. ctrl-c ends the measurement; the answer is then about the time so far.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer advise eth0                                    a minute of what arrives (root, or CAP_NET_RAW)\n  \
    rxsteer advise eth0 --duration 10m --cpus 0-3\n  \
    rxsteer advise eth0 --app-cpus 4-7                     applications on CPUs 4-7\n  \
    rxsteer advise eth0 --json | jq -r '.advice, .commands[]'\n\n\
    At most 500 000 frames are kept, as many in each second: on a faster interface, only the beginning of each second is copied, with \
    all frames of all flows, and the rest of the second costs nothing. The report says what share of the time that was.\n\n\
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
    /// By default those of this process; for an interface those of this host near it.
    #[arg(long, value_name = "LIST|COUNT", value_parser = cpus)]
    pub(crate) cpus: Option<CpuChoice>,

    /// Compare under COUNT hash secrets, 2 to 1000
    ///
    /// The flow hash has a random secret, in the kernel too, so one replay is one draw.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = whole::<u32, 2, MOST_SECRETS>)]
    pub(crate) seeds: u32,

    /// RX queues that the NIC spreads the frames over, by the Toeplitz hash, each received on a CPU of --cpus in turn
    ///
    /// By default one; for an interface as many as it has.
    #[arg(long, value_name = "COUNT", value_parser = whole::<u16, 1, { MAX_RX_QUEUES as u64 }>)]
    pub(crate) rx_queues: Option<u16>,

    /// CPUs of the applications, for rfs: 0-3,8 or a count like 4
    ///
    /// A capture does not have them. By default they are on all of --cpus, each flow's on one of them by its hash, and the
    /// advice does not rely on it.
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
