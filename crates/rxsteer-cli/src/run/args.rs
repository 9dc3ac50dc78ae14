//! What `rxsteer run`, `status` and `set` are given.

use crate::change_spec::parse_interval;
use crate::hash_key::HashSeed;
use crate::help::words;
use crate::steer_args::{
    CpuChoice, parse_cpu_list, parse_cpus, parse_fallback, parse_policy, parse_rps_map,
};
use crate::words::{suggestion, whole};
use clap::{Args, ValueEnum, ValueHint};
use rxsteer_user::core::config::{DEFAULT_FLOW_LIMIT_BUCKETS, MAX_FLOW_CNT, MAX_SOCK_FLOW_ENTRIES};
use rxsteer_user::core::{CpuSet, Fallback, Policy, QueueName, ThreadClass, ThreadClassError};
use std::path::PathBuf;
use std::time::Duration;

/// The kernel hands frames over eight at a time, so a shorter queue would take none of some lists.
const MIN_QUEUE_SIZE: u64 = 8;
/// The kernel's limit (kernel/bpf/cpumap.c).
pub(super) const MAX_QUEUE_SIZE: u64 = 16_384;
/// The BPF programs have memory for so many buckets of each receiving CPU, which is less than what `replay` takes.
pub(super) const MAX_FLOW_LIMIT: u32 = DEFAULT_FLOW_LIMIT_BUCKETS;
/// Flows that one answer may list.
pub(crate) const MAX_FLOWS_SHOWN: u32 = 1000;

/// Steer received frames of live interfaces, in the kernel, in order
///
/// XDP steers frames before the kernel makes a socket buffer of them. Sockets, forwarding and everything behind are the
/// kernel's own. The interface is as before when rxsteer ends, for whatever reason.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer run eth0\n  \
    rxsteer run eth0 eth1 --policy rps --cpus 2-7\n  \
    rxsteer run 'veth*'                       those there are, and those that appear\n  \
    rxsteer run eth0 --rfs-namespaces all     applications run in containers\n  \
    rxsteer run eth0 eth1 --policy bound:eth0:0=1,eth1:0=2\n  \
    rxsteer run eth0 --policy rps --rps-map eth0:0=0-3 --rps-map eth0:1=4-7\n  \
    rxsteer run eth0 --policy rfs --else local\n  \
    rxsteer run eth0 --shadow --duration 1m   what would it do?\n  \
    rxsteer run eth0 --threads nice:-10       no real-time threads\n  \
    rxsteer run eth0 --config /etc/rxsteer.toml --json > report.json\n\n\
    While it runs: rxsteer status, rxsteer set policy=rps, rxsteer explain FLOW --live. As a service: \
    docs/rxsteer@.service.\n\n\
    With --config, SIGHUP (kill -HUP PID, systemctl reload) makes rxsteer read the file again and change settings as \
    rxsteer set does; without it SIGHUP ends rxsteer. A signal that was ignored at the start (nohup) stays ignored.\n\n\
    Exit status: 0 ended by --duration, SIGTERM, SIGINT or SIGHUP; 1 no interface is left; 2 it could not run, and \
    nothing was attached.")]
pub(crate) struct RunArgs {
    /// Interfaces, by name or pattern (also those that appear later)
    #[arg(value_name = "IFACE", required = true)]
    pub(crate) interfaces: Vec<String>,

    /// none, rps, bound, sparse, rfs or rfs+sparse
    ///
    /// The rule that picks the CPU. By default rfs+sparse, or sparse if the kernel has no tracepoints for rfs. Bindings are
    /// bound:QUEUE=CPU,… or bound:IFACE:QUEUE=CPU,…. sparse and rfs+sparse take the number of slots per CPU: sparse:loops=N.
    #[arg(long, value_parser = words(Policy::NAMES, parse_policy), help_heading = "Steering")]
    pub(crate) policy: Option<Policy>,

    /// CPUs to steer to: 0-3,8 or a count; by default all
    ///
    /// CPU 4 alone is 4-4. All CPUs are those that are online, not isolated, and on the NUMA node of the interfaces.
    #[arg(long, value_name = "LIST|COUNT", value_parser = parse_cpus, allow_hyphen_values = true, help_heading = "Steering")]
    pub(crate) cpus: Option<CpuChoice>,

    /// A CPU map for an interface or an RX queue: IFACE:QUEUE=CPUS, IFACE=CPUS or QUEUE=CPUS, e.g.
    /// eth0:0=0-3; can be given for several, and the most specific holds. Others go by --cpus
    #[arg(long, value_name = "[IFACE:]QUEUE=CPUS", value_parser = parse_rps_map, help_heading = "Steering")]
    pub(crate) rps_map: Vec<(QueueName, CpuSet)>,

    /// Under rfs and sparse, where a flow goes that has neither a desired CPU nor a sparse slot: hash
    /// (its hash picks from the CPU map; the default) or local (it stays on the receiving CPU)
    #[arg(long = "else", value_name = "hash|local", value_parser = words(Fallback::NAMES, parse_fallback), help_heading = "Steering")]
    pub(crate) fallback: Option<Fallback>,

    /// CPUs that rfs may send a flow to because its application runs there: a list like 0-3,8; by
    /// default every CPU that is online
    #[arg(long, value_name = "LIST", value_parser = parse_cpu_list, help_heading = "Steering")]
    pub(crate) rfs_cpus: Option<CpuSet>,

    /// Where XDP takes the frames; auto by default
    #[arg(long, value_enum, help_heading = "Steering")]
    pub(crate) mode: Option<ModeChoice>,

    /// Frames that may wait for one CPU: 8 to 16384, 2048 by default
    #[arg(long, value_name = "FRAMES", value_parser = parse_queue_size, help_heading = "Steering")]
    pub(crate) queue_size: Option<u32>,

    /// Scheduling class of the kernel threads that process the frames: fifo:N (real-time, N from 1 to 99,
    /// before every ordinary process), nice:N (-20 to 19) or other (as ordinary processes); fifo:1 by default,
    /// nice:-13 where nothing bounds real-time threads
    #[arg(long, value_name = "CLASS", value_parser = words(ThreadClass::NAMES, parse_threads), help_heading = "Steering")]
    pub(crate) threads: Option<ThreadClass>,

    /// Decide and count only: every frame goes where it would have gone
    ///
    /// No frame completes there, so what the order guard would refuse can't be counted.
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

    /// Whose sockets give desired CPUs, for rfs: those of this network namespace (own, the
    /// default), or of all namespaces (all), for hosts whose applications run in containers. With all,
    /// a user of another namespace can move a flow by using the same addresses and ports there
    #[arg(long, value_enum, value_name = "WHOSE", help_heading = "Steering")]
    pub(crate) rfs_namespaces: Option<RfsNamespaces>,

    /// Secret of the flow hash, in hex; by default random
    ///
    /// Up to 32 digits.
    #[arg(long, value_name = "HEX", value_parser = |text: &str| text.parse::<HashSeed>(), help_heading = "Steering")]
    pub(crate) hash_seed: Option<HashSeed>,

    /// Steer by the packets inside tunnels
    ///
    /// IPIP, 6in4, GRE, VXLAN, Geneve and GTP-U.
    #[arg(long, help_heading = "Steering")]
    pub(crate) inner: bool,

    /// Do not count flows' packets and bytes
    #[arg(long, help_heading = "Steering")]
    pub(crate) no_flow_stats: bool,

    /// Settings from a TOML file; options override it
    ///
    /// The file can have all settings of this part. Its keys are the names of the options: policy = "rps", cpus = "0-3", queue-size = 512, flow-limit = true, else =
    /// "local", rps-map = { "eth0:0" = "0-3" }. On SIGHUP rxsteer reads it again.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Steering")]
    pub(crate) config: Option<PathBuf>,

    /// End after this long, e.g. 30s or 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,

    /// Listen for status, set and explain at this unix socket
    ///
    /// By default it is in /run/rxsteer, or in $XDG_RUNTIME_DIR/rxsteer.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Print the final report as one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// For tests of the order guard: without it, flows are reordered
    #[arg(long, hide = true)]
    pub(crate) without_order_guard: bool,

    /// For tests: what is delivered is found as where a second has 1000 ticks
    #[arg(long, hide = true)]
    pub(crate) as_with_short_ticks: bool,
}

/// Show what the running instances of rxsteer run do
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer status\n  \
    rxsteer status eth0 --flows 10\n  \
    rxsteer status --json | jq .drops\n  \
    rxsteer status eth0 --flows 10 --reset    show the flows' counts, then count from 0\n\n\
    Exit status: 0 success; 2 no instance runs, or one did not answer.")]
pub(crate) struct StatusArgs {
    /// Only the instance that steers this interface; by default all instances
    #[arg(value_name = "IFACE", conflicts_with = "socket")]
    pub(crate) interface: Option<String>,

    /// Only the instance that listens at this unix socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Also show this many flows, those with most packets first
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = whole::<u32, 0, { MAX_FLOWS_SHOWN as u64 }>)]
    pub(crate) flows: u32,

    /// Then clear the flow statistics; other counters continue
    #[arg(long)]
    pub(crate) reset: bool,

    /// Print one JSON object for each instance instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// Change settings of a running rxsteer run, in order
///
/// There is no gap and no reordering. All given settings change at once; if one of them is wrong, none does.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer set policy=rps\n  \
    rxsteer set eth0 policy=sparse:loops=2 cpus=0-3\n  \
    rxsteer set --socket /run/rxsteer/4711.sock queue-size=512 flow-limit=on\n  \
    rxsteer set rps-map=eth0:0=0-3 rps-map=eth0:1=4-7\n  \
    rxsteer set shadow=off threads=fifo:1\n\n\
    Settings: policy=POLICY, cpus=LIST|COUNT, rps-map=[IFACE:]QUEUE=CPUS (again and again; those given \
    replace all there were) or rps-map=none, else=hash|local, rfs-cpus=LIST|all, queue-size=FRAMES, \
    flow-limit=on|off|BUCKETS, threads=fifo:N|nice:N|other, shadow=on|off.\n\n\
    Exit status: 0 changed; 1 the change is still pending; 2 refused, or withdrawn because it took longer than five \
    seconds: nothing has changed.")]
pub(crate) struct SetArgs {
    /// Settings; if several instances run, first an interface of the one that is meant
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
    /// Native if all interfaces can, else generic
    #[default]
    Auto,
    /// In the driver
    Native,
    /// As socket buffers: slower
    Generic,
}

/// `--rfs-namespaces`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RfsNamespaces {
    /// The one that rxsteer runs in, and whose interfaces it steers
    #[default]
    Own,
    /// Every one
    All,
}

impl RfsNamespaces {
    /// The word for it.
    #[cfg(feature = "xdp")]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::All => "all",
        }
    }
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

    pub(crate) fn mode(&self) -> ModeChoice {
        self.mode.unwrap_or_default()
    }
}

/// How many frames may wait for a CPU.
pub(crate) fn parse_queue_size(text: &str) -> Result<u32, String> {
    whole::<u32, MIN_QUEUE_SIZE, MAX_QUEUE_SIZE>(text)
}

/// The scheduling class of the rings' threads.
pub(crate) fn parse_threads(text: &str) -> Result<ThreadClass, String> {
    text.parse().map_err(|error: ThreadClassError| error.to_string())
}

#[cfg(feature = "xdp")]
pub(super) fn parse_mode(text: &str) -> Result<ModeChoice, String> {
    ModeChoice::from_str(text, false).map_err(|_| {
        format!("there is no mode '{text}'{}", suggestion(text, &["auto", "native", "generic"]))
    })
}

#[cfg(feature = "xdp")]
pub(super) fn parse_rfs_namespaces(text: &str) -> Result<RfsNamespaces, String> {
    RfsNamespaces::from_str(text, false).map_err(|_| {
        format!("it takes own or all, not '{text}'{}", suggestion(text, &["own", "all"]))
    })
}

pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_interval(text)?;
    if duration.is_zero() {
        return Err("it would end at once; write e.g. 30s".to_owned());
    }
    Ok(duration)
}
