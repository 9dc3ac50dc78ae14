//! What `rxsteer run`, `status` and `set` are told.

use crate::change_spec::parse_interval;
use crate::hash_key::HashSeed;
use crate::steer_args::{CpuChoice, parse_cpus, parse_policy};
use crate::words::{suggestion, whole};
use clap::{Args, ValueEnum, ValueHint};
use rxsteer_user::core::Policy;
use rxsteer_user::core::config::{DEFAULT_FLOW_LIMIT_BUCKETS, MAX_FLOW_CNT, MAX_SOCK_FLOW_ENTRIES};
use std::path::PathBuf;
use std::time::Duration;

/// The kernel hands frames over eight at a time, so a shorter queue would take none of some lists.
const MIN_QUEUE_SIZE: u64 = 8;
/// The kernel's limit (kernel/bpf/cpumap.c).
const MAX_QUEUE_SIZE: u64 = 16_384;
/// The BPF programs have memory for so many buckets of each receiving CPU, which is less than what `replay` takes.
pub(super) const MAX_FLOW_LIMIT: u32 = DEFAULT_FLOW_LIMIT_BUCKETS;
/// Flows that one answer may list.
pub(crate) const MAX_FLOWS_SHOWN: u32 = 1000;

/// Steer received frames of live interfaces to CPUs, in the kernel, in order
///
/// Frames are steered by XDP before the kernel makes a socket buffer of them; sockets, forwarding and
/// everything behind are the kernel's own. Nothing stays behind when it ends, whatever ends it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer run eth0\n  \
    rxsteer run eth0 eth1 --policy rps --cpus 2-7\n  \
    rxsteer run 'veth*'                       those there are, and those that appear\n  \
    rxsteer run eth0 --shadow --duration 1m   what would it do?\n  \
    rxsteer run eth0 --config /etc/rxsteer.toml --json > report.json\n\n\
    While it runs: rxsteer status, rxsteer set policy=rps, rxsteer explain FLOW --live. As a service: \
    docs/rxsteer.service.\n\n\
    Exit status: 0 ended by --duration, SIGTERM or SIGINT; 1 no interface is left; 2 could not run, and \
    nothing was attached.")]
pub(crate) struct RunArgs {
    /// Interfaces, by name or pattern; of a pattern also those that appear later
    #[arg(value_name = "IFACE", required = true)]
    pub(crate) interfaces: Vec<String>,

    /// Which rule picks the CPU: none, rps, bound:QUEUE=CPU,…, sparse[:loops=N], rfs,
    /// rfs+sparse[:loops=N] (the default)
    #[arg(long, value_parser = parse_policy, help_heading = "Steering")]
    pub(crate) policy: Option<Policy>,

    /// CPUs to steer to: a list like 0-3,8 (CPU 4 alone is 4-4), or a count like 4; by default those
    /// that are online, not isolated, and on the NUMA node of the interfaces
    #[arg(long, value_name = "LIST|COUNT", value_parser = parse_cpus, allow_hyphen_values = true, help_heading = "Steering")]
    pub(crate) cpus: Option<CpuChoice>,

    /// Where frames are taken: in the driver (native), as socket buffers (generic, slower), or native
    /// where all interfaces can (auto, the default)
    #[arg(long, value_enum, help_heading = "Steering")]
    pub(crate) mode: Option<ModeChoice>,

    /// Frames that may wait for one CPU, 8 to 16384; 2048 by default
    #[arg(long, value_name = "FRAMES", value_parser = parse_queue_size, help_heading = "Steering")]
    pub(crate) queue_size: Option<u32>,

    /// Decide and count, but let every frame go where it would have gone. Nothing completes there, so
    /// what the order guard would refuse can't be counted
    #[arg(long, help_heading = "Steering")]
    pub(crate) shadow: bool,

    /// When a queue is half full, drop the flow that has most of the last frames first; with a number
    /// of buckets to count flows in, 1 to 4096, written --flow-limit=N (4096)
    #[arg(long, value_name = "BUCKETS", num_args = 0..=1, require_equals = true,
          default_missing_value = "4096",
          value_parser = whole::<u32, 1, { MAX_FLOW_LIMIT as u64 }>, help_heading = "Steering")]
    pub(crate) flow_limit: Option<u32>,

    /// Slots of each RX queue's flow table (32768 by default, divided by the queues, but at least 1024);
    /// rounded up to a power of two
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 1, { MAX_FLOW_CNT as u64 }>, help_heading = "Steering")]
    pub(crate) flow_cnt: Option<u32>,

    /// Entries of the table of applications' CPUs, for rfs (32768 by default); rounded up to a power of
    /// two
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 1, { MAX_SOCK_FLOW_ENTRIES as u64 }>, help_heading = "Steering")]
    pub(crate) sock_flow_entries: Option<u32>,

    /// The flow hash: symmetric (computed here, the default) or nic (the NIC's own)
    #[arg(long, value_parser = parse_hash, help_heading = "Steering")]
    pub(crate) hash: Option<LiveHash>,

    /// The secret of the symmetric hash, up to 32 hex digits; random by default
    #[arg(long, value_name = "HEX", value_parser = |text: &str| text.parse::<HashSeed>(), help_heading = "Steering")]
    pub(crate) hash_seed: Option<HashSeed>,

    /// Steer by what is inside IPIP, 6in4, GRE, VXLAN, Geneve and GTP-U tunnels
    #[arg(long, help_heading = "Steering")]
    pub(crate) inner: bool,

    /// Do not count flows' packets and bytes
    #[arg(long, help_heading = "Steering")]
    pub(crate) no_flow_stats: bool,

    /// Take the settings above from a TOML file, where they are not given here; its keys are their
    /// names: policy = "rps", cpus = "0-3", queue-size = 512, flow-limit = true
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Steering")]
    pub(crate) config: Option<PathBuf>,

    /// End after this long, e.g. 30s or 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,

    /// Listen for status, set and explain at this unix socket; by default one in /run/rxsteer, or in
    /// $XDG_RUNTIME_DIR/rxsteer
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// At the end print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// For tests of the order guard: without it, flows are reordered
    #[arg(long, hide = true)]
    pub(crate) without_order_guard: bool,

    /// For tests: what is delivered is told as where a second has 1000 ticks
    #[arg(long, hide = true)]
    pub(crate) as_with_short_ticks: bool,
}

/// Show what running instances of `rxsteer run` do
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer status\n  \
    rxsteer status eth0 --flows 10\n  \
    rxsteer status --json | jq .drops\n\n\
    With --json it prints one object for each instance.\n\n\
    Exit status: 0 shown; 2 no instance runs, or one did not answer.")]
pub(crate) struct StatusArgs {
    /// Only the instance that steers this interface; all instances by default
    #[arg(value_name = "IFACE", conflicts_with = "socket")]
    pub(crate) interface: Option<String>,

    /// Only the instance that listens at this unix socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Also show this many flows, those with most packets first
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = whole::<u32, 0, { MAX_FLOWS_SHOWN as u64 }>)]
    pub(crate) flows: u32,

    /// Print one JSON object for each instance instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Change settings of a running `rxsteer run`, without a gap and without reordering
///
/// All settings given change at once; if one of them is wrong, none does.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer set policy=rps\n  \
    rxsteer set eth0 policy=sparse:loops=2 cpus=0-3\n  \
    rxsteer set --socket /run/rxsteer/4711.sock queue-size=512 flow-limit=on\n  \
    rxsteer set shadow=off\n\n\
    Settings: policy=POLICY, cpus=LIST|COUNT, queue-size=FRAMES, flow-limit=on|off|BUCKETS, \
    shadow=on|off.\n\n\
    Exit status: 0 changed; 2 refused, and nothing has changed.")]
pub(crate) struct SetArgs {
    /// Settings, and before them the interface, where several instances run
    #[arg(value_name = "IFACE|SETTING=VALUE", required = true)]
    pub(crate) what: Vec<String>,

    /// The instance that listens at this unix socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Print one JSON object with the settings that hold now
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeChoice {
    /// Native where all interfaces can, else generic
    #[default]
    Auto,
    /// In the driver
    Native,
    /// As socket buffers
    Generic,
}

/// `--hash` of a live interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LiveHash {
    /// The symmetric keyed hash.
    #[default]
    Symmetric,
    /// What the NIC computed.
    Nic,
}

#[cfg(feature = "xdp")]
const _: () = assert!(
    MAX_FLOW_LIMIT == rxsteer_xdp::MAX_FLOW_LIMIT_BUCKETS
        && MAX_QUEUE_SIZE == rxsteer_xdp::MAX_QUEUE_SIZE as u64
        && MIN_QUEUE_SIZE == rxsteer_xdp::MIN_QUEUE_SIZE as u64,
    "options take what the programs take"
);

#[cfg(feature = "xdp")]
impl RunArgs {
    /// Fills what the options leave open with what the file says.
    pub(crate) fn add_file(&mut self) -> anyhow::Result<()> {
        match self.config.clone() {
            None => Ok(()),
            Some(path) => {
                crate::settings_file::read(&path, |file: super::file::RunFile| file.under(self))
            }
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        self.policy.clone().unwrap_or(Policy::RfsSparse(rxsteer_user::core::config::DEFAULT_LOOPS))
    }

    pub(crate) fn mode(&self) -> ModeChoice {
        self.mode.unwrap_or_default()
    }

    pub(crate) fn hash(&self) -> LiveHash {
        self.hash.unwrap_or_default()
    }
}

/// How many frames may wait for a CPU.
pub(crate) fn parse_queue_size(text: &str) -> Result<u32, String> {
    whole::<u32, MIN_QUEUE_SIZE, MAX_QUEUE_SIZE>(text)
}

#[cfg(feature = "xdp")]
pub(super) fn parse_mode(text: &str) -> Result<ModeChoice, String> {
    ModeChoice::from_str(text, false).map_err(|_| {
        format!("there is no mode '{text}'{}", suggestion(text, &["auto", "native", "generic"]))
    })
}

pub(super) fn parse_hash(text: &str) -> Result<LiveHash, String> {
    match text {
        "symmetric" => Ok(LiveHash::Symmetric),
        "nic" => Ok(LiveHash::Nic),
        _ => {
            let hint = suggestion(text, &["symmetric", "nic"]);
            Err(format!("there is no hash '{text}' for live interfaces{hint}"))
        }
    }
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_interval(text)?;
    if duration.is_zero() {
        return Err("it would end at once; write e.g. 30s".to_owned());
    }
    Ok(duration)
}
