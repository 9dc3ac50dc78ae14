//! What `rxsteer run`, `status` and `set` are told.

use crate::change_spec::parse_interval;
use crate::hash_key::HashSeed;
use crate::settings_file::{self, WrongKey, cpus_text, fill, flow_limit};
use crate::steer_args::{CpuChoice, parse_cpus, parse_policy};
use crate::words::{suggestion, whole};
use clap::{Args, ValueEnum, ValueHint};
use rxsteer_user::core::Policy;
use rxsteer_user::core::config::{MAX_FLOW_CNT, MAX_FLOW_LIMIT_BUCKETS, MAX_SOCK_FLOW_ENTRIES};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::Duration;

/// The kernel hands frames over eight at a time, so a shorter queue would take none of some lists.
const MIN_QUEUE_SIZE: u64 = 8;
/// The kernel's limit (kernel/bpf/cpumap.c).
const MAX_QUEUE_SIZE: u64 = 16_384;
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
    /// of buckets to count flows in, written --flow-limit=N (4096)
    #[arg(long, value_name = "BUCKETS", num_args = 0..=1, require_equals = true,
          default_missing_value = "4096",
          value_parser = whole::<u32, 1, { MAX_FLOW_LIMIT_BUCKETS as u64 }>, help_heading = "Steering")]
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

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RunFile {
    policy: Option<String>,
    cpus: Option<toml::Value>,
    mode: Option<String>,
    #[serde(alias = "queue_size")]
    queue_size: Option<u32>,
    shadow: Option<bool>,
    #[serde(alias = "flow_limit")]
    flow_limit: Option<toml::Value>,
    #[serde(alias = "flow_cnt")]
    flow_cnt: Option<u32>,
    #[serde(alias = "sock_flow_entries")]
    sock_flow_entries: Option<u32>,
    hash: Option<String>,
    #[serde(alias = "hash_seed")]
    hash_seed: Option<String>,
    inner: Option<bool>,
    #[serde(alias = "no_flow_stats")]
    no_flow_stats: Option<bool>,
}

impl RunArgs {
    /// Fills what the options leave open with what the file says.
    pub(crate) fn add_file(&mut self) -> anyhow::Result<()> {
        match self.config.clone() {
            None => Ok(()),
            Some(path) => settings_file::read(&path, |file: RunFile| file.under(self)),
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

impl RunFile {
    fn under(&self, args: &mut RunArgs) -> Result<(), WrongKey> {
        fill(&mut args.policy, "policy", self.policy.as_deref(), parse_policy)?;
        fill(&mut args.cpus, "cpus", cpus_text(self.cpus.as_ref())?.as_deref(), parse_cpus)?;
        fill(&mut args.mode, "mode", self.mode.as_deref(), parse_mode)?;
        let number = |value: Option<u32>| value.map(|number| number.to_string());
        let queue_size = number(self.queue_size);
        fill(&mut args.queue_size, "queue-size", queue_size.as_deref(), parse_queue_size)?;
        args.flow_limit = args.flow_limit.or(flow_limit(self.flow_limit.as_ref())?);
        let flow_cnt = number(self.flow_cnt);
        let slots = whole::<u32, 1, { MAX_FLOW_CNT as u64 }>;
        fill(&mut args.flow_cnt, "flow-cnt", flow_cnt.as_deref(), slots)?;
        let entries = number(self.sock_flow_entries);
        let sized = whole::<u32, 1, { MAX_SOCK_FLOW_ENTRIES as u64 }>;
        fill(&mut args.sock_flow_entries, "sock-flow-entries", entries.as_deref(), sized)?;
        fill(&mut args.hash, "hash", self.hash.as_deref(), parse_hash)?;
        fill(&mut args.hash_seed, "hash-seed", self.hash_seed.as_deref(), str::parse)?;
        args.shadow |= self.shadow.unwrap_or(false);
        args.inner |= self.inner.unwrap_or(false);
        args.no_flow_stats |= self.no_flow_stats.unwrap_or(false);
        Ok(())
    }
}

/// How many frames may wait for a CPU.
pub(crate) fn parse_queue_size(text: &str) -> Result<u32, String> {
    whole::<u32, MIN_QUEUE_SIZE, MAX_QUEUE_SIZE>(text)
}

fn parse_mode(text: &str) -> Result<ModeChoice, String> {
    ModeChoice::from_str(text, false).map_err(|_| {
        format!("there is no mode '{text}'{}", suggestion(text, &["auto", "native", "generic"]))
    })
}

fn parse_hash(text: &str) -> Result<LiveHash, String> {
    match text {
        "symmetric" => Ok(LiveHash::Symmetric),
        "nic" => Ok(LiveHash::Nic),
        _ => {
            let hint = suggestion(text, &["symmetric", "nic"]);
            Err(format!("there is no hash '{text}' for live interfaces{hint}"))
        }
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_interval(text)?;
    if duration.is_zero() {
        return Err("it would end at once; write e.g. 30s".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
    }

    fn run(options: &[&str]) -> RunArgs {
        Cli::try_parse_from([&["rxsteer", "eth0"], options].concat()).expect("right options").run
    }

    fn with_file(options: &[&str], text: &str) -> Result<RunArgs, String> {
        let mut args = run(options);
        let file: RunFile = toml::from_str(text).map_err(|error| error.to_string())?;
        file.under(&mut args).map_err(|(key, why)| format!("{key}: {why}"))?;
        Ok(args)
    }

    #[test]
    fn a_file_says_what_options_can() {
        let text = "policy = 'sparse:loops=2'\ncpus = '0-1'\nmode = 'generic'\nqueue_size = 64\n\
                    shadow = true\nflow-limit = 8\nflow_cnt = 16\nsock-flow-entries = 32\n\
                    hash = 'nic'\nhash-seed = '2a'\ninner = true\nno-flow-stats = true\n";
        let args = with_file(&[], text).unwrap();
        assert_eq!((args.policy(), args.mode()), (Policy::Sparse(2), ModeChoice::Generic));
        assert_eq!(args.cpus, Some(CpuChoice::List("0-1".parse().unwrap())));
        assert_eq!((args.queue_size, args.flow_limit), (Some(64), Some(8)));
        assert_eq!((args.flow_cnt, args.sock_flow_entries), (Some(16), Some(32)));
        assert_eq!((args.hash(), args.hash_seed), (LiveHash::Nic, Some(HashSeed(0x2a))));
        assert!(args.shadow && args.inner && args.no_flow_stats);
    }

    #[test]
    fn an_option_beats_the_file_and_mistakes_are_named() {
        let args = with_file(&["--policy", "none"], "policy = 'rfs'\nqueue-size = 8").unwrap();
        assert_eq!((args.policy(), args.queue_size), (Policy::None, Some(8)));
        for (text, part) in [
            ("polciy = 'rfs'", "unknown field `polciy`"),
            ("policy = 'rsp'", "did you mean 'rps'"),
            ("mode = 'natve'", "did you mean 'native'"),
            ("hash = 'nick'", "did you mean 'nic'"),
            ("queue-size = 16385", "queue-size: it takes a whole number from 8 to 16384"),
            ("queue-size = 0", "from 8 to 16384"),
            ("flow-cnt = 0", "flow-cnt: "),
            ("cpus = '3-1'", "cpus: "),
        ] {
            let error = with_file(&[], text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn by_default_applications_are_followed() {
        assert_eq!(run(&[]).policy().to_string(), "rfs+sparse");
        assert!(parse_duration("0s").is_err());
    }
}
