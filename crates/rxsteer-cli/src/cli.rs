//! The command line.

use crate::auto::AutoArgs;
use crate::change_spec::{PlannedChange, parse_interval};
use crate::compare::args::{AdviseArgs, CompareArgs};
use crate::config::ConfigArgs;
use crate::events_out::EventsArg;
use crate::explain::flow::FlowArg;
use crate::flows::top::Measure;
use crate::host::args::HostArgs;
use crate::lab::args::LabArgs;
use crate::live::args::LiveArgs;
use crate::out::OutArgs;
use crate::peers::args::PeersArgs;
use crate::record_args::{FlowTableArgs, RecordArgs};
use crate::replay::seeds::MOST_SECRETS;
use crate::run::args::{RunArgs, SetArgs, StatusArgs};
use crate::serve::ServeArgs;
use crate::sim::args::SimArgs;
use crate::steer_args::SteerArgs;
use crate::top::TopArgs;
use crate::words::{suggestion, whole};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use rxsteer_settings::words;
use rxsteer_settings::{CpuChoice, backlog, cpu_list, cpus};
use rxsteer_user::core::{CpuSet, MAX_RX_QUEUES};
use rxsteer_user::source::capture::RxQueues;
use rxsteer_user::source::synthetic::{SpecError, SyntheticSpec};
use rxsteer_user::{DEFAULT_BACKLOG, DEFAULT_BATCH, MAX_BATCH, Speed};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

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

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer check                 the host, and a line for each NIC\n  \
    rxsteer check eth0            everything about one interface\n  \
    rxsteer check --sample 1s     and whether a CPU is short of time for receiving\n  \
    rxsteer check 'veth*' --json | jq '.interfaces[] | {name, can_run}'\n\n\
    check changes nothing and needs no privilege. With the privileges of rxsteer run it also loads the BPF programs, \
    attaches them to no interface of yours, and unloads them.\n\n\
    Exit status: 0 rxsteer run would work (without IFACE: on at least one interface); 1 something prevents it; 2 check \
    could not run.")]
pub(crate) struct CheckArgs {
    /// Interfaces, by name or pattern (veth*)
    ///
    /// Without one, check reports on the host and has a line for each NIC.
    #[arg(value_name = "IFACE")]
    pub(crate) interfaces: Vec<String>,

    /// Also measure for this long how busy the CPUs are with receiving, e.g. 1s
    #[arg(long, value_name = "DURATION", value_parser = parse_sample)]
    pub(crate) sample: Option<Duration>,

    /// If the kernel refuses the BPF programs, first print its whole message
    #[arg(long, conflicts_with = "json")]
    pub(crate) kernel_log: bool,

    /// Print one JSON object on one line, with all facts, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The upper bound of --sample.
const LONGEST_SAMPLE: Duration = Duration::from_secs(3600);

pub(crate) fn parse_sample(text: &str) -> Result<Duration, String> {
    let time = parse_interval(text)?;
    if time.is_zero() || time > LONGEST_SAMPLE {
        return Err("a sample lasts more than 0 and at most an hour, e.g. 1s".to_owned());
    }
    Ok(time)
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  rxsteer demo --json | jq '.runs[].imbalance'")]
pub(crate) struct DemoArgs {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer replay capture.pcapng --cpus 8\n  \
    rxsteer replay capture.pcapng --cpus 8 --seeds 20       the range over 20 hash secrets\n  \
    rxsteer replay a.pcap b.pcap.gz --rx-queues file --policy bound:0=1,1=2\n  \
    rxsteer replay --synthetic flows=10000,share=zipf:1.1 --cpus 0-3 --json\n  \
    tcpdump -i eth0 -U -w - | rxsteer replay - --cpus 4\n  \
    rxsteer replay capture.pcap --rx-queues 4 --rx-threads 2 --rps-map 0=0-1 --inner\n  \
    rxsteer replay --synthetic flood=spoofed:0.9 --hash toeplitz --cpus 8\n  \
    rxsteer replay capture.pcap --speed recorded --on-full drop --work-ns 2000\n  \
    rxsteer replay capture.pcap --policy rfs+sparse --app-cpus 0-3 --app-migrate 100ms\n  \
    rxsteer replay capture.pcap --change-at 2s:policy=sparse,cpus=0-1 --change-at 5s:cpus=0-3\n  \
    rxsteer replay capture.pcap --flows flows.csv --anonymize\n  \
    rxsteer replay capture.pcap --flows networks.csv --key src/24,dst/24\n  \
    rxsteer replay capture.pcap --flows all-flows --partition-by hash-prefix\n  \
    rxsteer replay capture.pcap --cpus 4 --out pcap:parts/%d.pcap.zst\n\n\
    Keys of --synthetic: packets (1e6), flows (1000), share (equal, zipf:EXPONENT), size (60, \
    60-1514, imix), protocol (tcp, udp, mixed), ip (4, 6, mixed), flood (none, spoofed:SHARE, \
    same-hash:SHARE), rate (frames per second of capture time, 1e6), seed (1).\n\n\
    Exit status: 0 success; 1 a capture is damaged, a worker died, a flow was reordered, or flow records \
    or packets could not be written; 2 it could not run; 130 interrupted, the report covers what was done until then.")]
pub(crate) struct ReplayArgs {
    /// pcap or pcapng, plain, gzip or zstd; - is standard input
    ///
    /// Several captures are read one after the other.
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath, required_unless_present = "synthetic")]
    pub(crate) captures: Vec<PathBuf>,

    /// Generate frames: key=value,…; "" takes all defaults
    ///
    /// The keys are listed below.
    #[arg(long, value_name = "SPEC", value_parser = words(SyntheticSpec::KEYS, parse_synthetic), conflicts_with = "captures")]
    pub(crate) synthetic: Option<SyntheticSpec>,

    /// Replay under COUNT hash secrets: the range of results
    ///
    /// The flow hash has a random secret, in the kernel too, so one replay is one draw. With --seeds the report has the
    /// minimum, median and maximum over 2 to 1000 secrets: --hash-seed (random by default) and those that follow it.
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 2, MOST_SECRETS>, conflicts_with_all = ["flows", "out"])]
    pub(crate) seeds: Option<u32>,

    #[command(flatten)]
    pub(crate) steer: SteerArgs,

    /// single, file, interface or a count
    ///
    /// RX queues. single: one for all frames; file: one for each capture; interface: one for each interface of a capture; a count:
    /// frames are spread over so many by the Toeplitz hash, as a NIC does.
    #[arg(long, value_name = "QUEUES", default_value = "single", value_parser = words(RX_QUEUES, parse_rx_queues), help_heading = "Receiving")]
    pub(crate) rx_queues: RxQueues,

    /// Receiving threads; thread q modulo this count receives RX queue q
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole::<u16, 1, { MAX_RX_QUEUES as u64 }>, help_heading = "Receiving")]
    pub(crate) rx_threads: u16,

    /// CPUs that the receiving threads run on, in turn; by default those of --cpus
    #[arg(long, value_name = "LIST", value_parser = cpu_list, help_heading = "Receiving")]
    pub(crate) rx_cpus: Option<CpuSet>,

    /// max, recorded or a factor like 10x
    ///
    /// recorded is the speed of the capture, 10x ten times that speed.
    #[arg(long, default_value = "max", value_parser = words(SPEED_WORDS, parse_speed), allow_hyphen_values = true, help_heading = "Receiving")]
    pub(crate) speed: Speed,

    /// Times that the input is read
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = whole::<u32, 1, { u32::MAX as u64 }>, help_heading = "Receiving")]
    pub(crate) repeat: u32,

    /// Packets that may wait for one CPU, from each receiving thread
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_BACKLOG, value_parser = backlog, help_heading = "Processing")]
    pub(crate) max_backlog: u32,

    /// When a packet's backlog is full
    ///
    /// By default the packet waits at --speed max and is dropped at other speeds.
    #[arg(long, value_enum, value_name = "ACTION", help_heading = "Processing")]
    pub(crate) on_full: Option<OnFullChoice>,

    /// Packets that are decided at once: the longest list that is handed over
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_BATCH as u16, value_parser = whole::<u16, 1, { MAX_BATCH as u64 }>, help_heading = "Processing")]
    pub(crate) batch: u16,

    /// CPUs of the applications: 0-3,8 or a count like 4
    ///
    /// Applications on these CPUs consume the data of flows, each flow on one of them, by its hash. rfs learns it, and the
    /// report shows how much was processed where its application runs.
    #[arg(long, value_name = "LIST|COUNT", value_parser = cpus, help_heading = "Applications")]
    pub(crate) app_cpus: Option<CpuChoice>,

    /// Each flow's application moves to the next of --app-cpus after this much capture time, e.g. 10ms
    #[arg(long, value_name = "INTERVAL", value_parser = parse_migration, requires = "app_cpus", help_heading = "Applications")]
    pub(crate) app_migrate: Option<Duration>,

    /// Change settings during the replay
    ///
    /// T is capture time since the first packet (2s, 150ms) or packets received (5000p). SPEC is a list of settings,
    /// separated by commas: policy=, cpus=, rps-map=, else=, rfs-cpus=, flow-cnt=, sock-flow-entries=, flow-limit= (on,
    /// off, buckets), max-backlog=. The option can be given several times, in order.
    #[arg(long, value_name = "T:SPEC", value_parser = |text: &str| text.parse::<PlannedChange>(), help_heading = "Steering")]
    pub(crate) change_at: Vec<PlannedChange>,

    /// Processing time of each packet, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole::<u32, 0, 1_000_000_000>, help_heading = "Processing")]
    pub(crate) work_ns: u32,

    /// Do not pin threads to their CPUs
    #[arg(long, help_heading = "Processing")]
    pub(crate) no_pin: bool,

    #[command(flatten)]
    pub(crate) records: RecordArgs,

    #[command(flatten)]
    pub(crate) out: OutArgs,

    /// Listen for rxsteer status at this unix socket
    ///
    /// By default it is PID.sock in /run/rxsteer, or in $XDG_RUNTIME_DIR/rxsteer, where rxsteer status looks. Such as:
    /// --socket /tmp/replay.sock
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "seeds", help_heading = "Output")]
    pub(crate) socket: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) events: EventsArg,

    /// Print one JSON object instead of tables
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer flows capture.pcap\n  \
    rxsteer flows a.pcap b.pcap.gz --top 20 --by packets --anonymize\n  \
    rxsteer flows capture.pcap --key src                       the top sources\n  \
    rxsteer flows capture.pcap --key dst-port,protocol         the top services\n  \
    rxsteer flows capture.pcap --key src/24/56,dst-port        by network and service\n  \
    rxsteer flows capture.pcap --inner --policy sparse --cpus 4 --json | jq '.top[].cpus'\n  \
    tcpdump -i eth0 -c 100000 -w - | rxsteer flows -\n\n\
    All flows as a file: rxsteer replay CAPTURE --flows FILE.\n\n\
    Exit status: 0 success; 1 a capture is damaged or a worker died; 2 it could not run; 130 \
    interrupted, the report covers what was read until then.")]
pub(crate) struct FlowsArgs {
    /// pcap or pcapng, plain, gzip or zstd; - is standard input
    ///
    /// Several captures are read one after the other.
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath, required_unless_present = "synthetic")]
    pub(crate) captures: Vec<PathBuf>,

    /// Generate the frames, as `rxsteer replay --synthetic` does
    #[arg(long, value_name = "SPEC", value_parser = words(SyntheticSpec::KEYS, parse_synthetic), conflicts_with = "captures")]
    pub(crate) synthetic: Option<SyntheticSpec>,

    /// Flows to show
    #[arg(long, value_name = "COUNT", default_value_t = 10, allow_negative_numbers = true, value_parser = whole::<u32, 1, 100_000>, help_heading = "Output")]
    pub(crate) top: u32,

    /// What the size of a flow is
    #[arg(long, value_enum, default_value_t = Measure::Bytes, help_heading = "Output")]
    pub(crate) by: Measure,

    #[command(flatten)]
    pub(crate) table: FlowTableArgs,

    #[command(flatten)]
    pub(crate) steer: SteerArgs,

    /// Print one JSON object instead of a table
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer explain 10.0.0.1:40000-192.0.2.7:443/tcp --cpus 0-3 --hash-seed 2a\n  \
    rxsteer explain '[2001:db8::1]:5000-[2001:db8::2]:53/udp' --policy sparse --cpus 4\n  \
    rxsteer explain --frame 100 capture.pcap --policy rfs+sparse --cpus 0-3 --app-cpu 2\n  \
    rxsteer explain 10.0.0.1:40000-192.0.2.7:443/tcp --live     where is it now, and why?\n\n\
    With --frame, the frames before it are decided first, each processed at once, so that sparse slots and flow tables \
    are as they would be.\n\n\
    Exit status: 0 success; 2 it could not run.")]
pub(crate) struct ExplainArgs {
    /// A flow like 10.0.0.1:40000-192.0.2.7:443/tcp, or a capture
    ///
    /// A flow is SOURCE:PORT-DESTINATION:PORT/PROTOCOL. With --frame a capture is named. Protocols with ports are tcp, udp, sctp and dccp. Others (icmp, icmpv6, esp, gre or a number) are written without
    /// ports: 10.0.0.1-10.0.0.2/icmp.
    #[arg(value_name = "FLOW|CAPTURE", value_hint = ValueHint::FilePath)]
    pub(crate) what: String,

    /// Ask rxsteer run where the flow is now, and why
    ///
    /// Its settings and hash secret apply.
    #[arg(long, conflicts_with_all = ["frame", "policy", "cpus", "rps_map", "fallback", "rfs_cpus", "rx_devices", "sock_flow_entries",
        "flow_cnt", "flow_limit", "hash", "hash_seed", "inner", "key_tunnels", "rule", "config", "rx_queues", "rx_queue", "rx_cpus", "app_cpu"])]
    pub(crate) live: bool,

    /// With --live: the instance at this unix socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, requires = "live")]
    pub(crate) socket: Option<PathBuf>,

    /// Explain this frame of the capture, counted from 1
    #[arg(long, value_name = "NUMBER", value_parser = whole::<u64, 1, { u64::MAX }>)]
    pub(crate) frame: Option<u64>,

    #[command(flatten)]
    pub(crate) steer: SteerArgs,

    /// single, file, interface or a count
    #[arg(long, value_name = "QUEUES", default_value = "single", value_parser = words(RX_QUEUES, parse_rx_queues), help_heading = "Receiving")]
    pub(crate) rx_queues: RxQueues,

    /// RX queue that the flow arrives on
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = 0,
        conflicts_with = "frame",
        help_heading = "Receiving"
    )]
    pub(crate) rx_queue: u16,

    /// CPUs that receive the RX queues, in turn; by default the lowest of --cpus
    #[arg(long, value_name = "LIST", value_parser = cpu_list, help_heading = "Receiving")]
    pub(crate) rx_cpus: Option<CpuSet>,

    /// CPU of the flow's application, its desired CPU under rfs
    #[arg(long, value_name = "CPU", value_parser = whole::<u16, 0, 8191>, help_heading = "Applications")]
    pub(crate) app_cpu: Option<u16>,

    /// Print one JSON object instead of text
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

impl ExplainArgs {
    /// The flow, where no frame is asked for.
    pub(crate) fn flow(&self) -> Result<FlowArg, String> {
        self.what.parse()
    }
}

/// `--on-full`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnFullChoice {
    /// It waits for room: nothing is lost
    Wait,
    /// It is dropped and counted, as on a live system
    Drop,
}

pub(crate) fn parse_synthetic(text: &str) -> Result<SyntheticSpec, String> {
    text.parse().map_err(|error: SpecError| match &error {
        SpecError::UnknownKey(key) => {
            format!("{error}{}", suggestion(key, &SyntheticSpec::KEYS))
        }
        _ => error.to_string(),
    })
}

fn parse_migration(text: &str) -> Result<Duration, String> {
    let interval = parse_interval(text)?;
    if interval.is_zero() {
        return Err("the interval must be longer than 0, e.g. 10ms".to_owned());
    }
    Ok(interval)
}

/// The words of `--rx-queues`.
const RX_QUEUES: [&str; 3] = ["single", "file", "interface"];

fn parse_rx_queues(text: &str) -> Result<RxQueues, String> {
    match text {
        "single" => Ok(RxQueues::Single),
        "file" => Ok(RxQueues::PerFile),
        "interface" => Ok(RxQueues::PerInterface),
        _ => match text.parse::<u16>() {
            Ok(queues) if (1..=MAX_RX_QUEUES).contains(&queues) => Ok(RxQueues::Hashed(queues)),
            Ok(_) => Err(format!("a count of RX queues is 1 to {MAX_RX_QUEUES}")),
            Err(_) => Err(format!(
                "'{text}' is neither a mode nor a count{}",
                suggestion(text, &RX_QUEUES)
            )),
        },
    }
}

/// The words of `--speed`.
const SPEED_WORDS: [&str; 2] = ["max", "recorded"];

/// Factors that recorded speed can be multiplied by.
const SPEEDS: RangeInclusive<f64> = 1e-6..=1e9;

fn parse_speed(text: &str) -> Result<Speed, String> {
    match text {
        "max" => Ok(Speed::Max),
        "recorded" => Ok(Speed::Times(1.0)),
        _ => text
            .strip_suffix('x')
            .and_then(|factor| factor.parse::<f64>().ok())
            .filter(|factor| SPEEDS.contains(factor))
            .map(Speed::Times)
            .ok_or_else(|| {
                let hint = match text.parse::<f64>() {
                    Ok(factor) if SPEEDS.contains(&factor) => format!("; did you mean '{text}x'?"),
                    _ => suggestion(text, &SPEED_WORDS),
                };
                format!("'{text}' is not a speed{hint} (a factor is written like 0.5x or 10x, from 0.000001x to 1000000000x)")
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        crate::help::command().debug_assert();
    }

    #[test]
    fn speeds_are_words_or_factors() {
        assert_eq!(parse_speed("10x"), Ok(Speed::Times(10.0)));
        assert_eq!(parse_speed("recorded"), Ok(Speed::Times(1.0)));
        for bad in ["10", "x", "-1x", "0x", "nanx", "infx", "maximum"] {
            assert!(parse_speed(bad).is_err(), "{bad}");
        }
        for bad in ["inf", "1e10", "0", "-1", "1e-9"] {
            let why = parse_speed(bad).unwrap_err();
            assert!(!why.contains("did you mean"), "{why}");
        }
    }

    #[test]
    fn misspelt_words_are_named_with_the_nearest() {
        assert!(parse_synthetic("flow=1").unwrap_err().contains("did you mean 'flows'"));
        assert!(parse_rx_queues("files").unwrap_err().contains("did you mean 'file'"));
    }
}
