//! The command line of `rxsteer replay`.

use crate::change_spec::{PlannedChange, parse_interval};
use crate::events_out::EventsArg;
use crate::input_args::{RX_QUEUES, WorkerArgs, parse_rx_queues, parse_synthetic};
use crate::out::OutArgs;
use crate::record_args::RecordArgs;
use crate::steer_args::SteerArgs;
use crate::words::{suggestion, whole};
use clap::{Args, ValueEnum, ValueHint};
use rxsteer_settings::{CpuChoice, backlog, cpu_list, cpus, words};
use rxsteer_user::core::{CpuSet, MAX_RX_QUEUES};
use rxsteer_user::source::capture::RxQueues;
use rxsteer_user::source::synthetic::SyntheticSpec;
use rxsteer_user::{DEFAULT_BACKLOG, MAX_BATCH, Speed};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The most secrets of one command: the figures of all of them are kept.
pub(crate) const MAX_SECRETS: u64 = 1000;

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

    /// Generate frames: key=value,…; "" uses all defaults
    ///
    /// The keys are listed below.
    #[arg(long, value_name = "SPEC", value_parser = words(SyntheticSpec::KEYS, parse_synthetic), conflicts_with = "captures")]
    pub(crate) synthetic: Option<SyntheticSpec>,

    /// Replay under COUNT hash secrets: the range of results
    ///
    /// The flow hash has a random secret, as in the kernel, so the result of one replay is partly chance. With
    /// --seeds the report has the minimum, median and maximum over 2 to 1000 secrets: --hash-seed (random by default)
    /// and those that follow it.
    #[arg(long, value_name = "COUNT", value_parser = whole::<u32, 2, MAX_SECRETS>, conflicts_with_all = ["flows", "ipfix", "out"])]
    pub(crate) seeds: Option<u32>,

    #[command(flatten)]
    pub(crate) steer: SteerArgs,

    /// single, file, interface or a count
    ///
    /// RX queues. single: one for all frames; file: one for each capture; interface: one for each interface of a
    /// capture; a count: the Toeplitz hash spreads frames over this many queues, as in a NIC.
    #[arg(long, value_name = "QUEUES", default_value = "single", value_parser = words(RX_QUEUES, parse_rx_queues), help_heading = "Receiving")]
    pub(crate) rx_queues: RxQueues,

    /// Receiving threads; thread q modulo this count receives RX queue q
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole::<u16, 1, { MAX_RX_QUEUES as u64 }>, help_heading = "Receiving")]
    pub(crate) rx_threads: u16,

    /// CPUs that the receiving threads run on, in turn; by default those of --cpus
    #[arg(long, value_name = "LIST", value_parser = cpu_list, help_heading = "Receiving")]
    pub(crate) rx_cpus: Option<CpuSet>,

    /// max, drained, recorded or e.g. 10x
    ///
    /// max is as fast as possible. drained: a batch of packets enters when all earlier ones are processed, so that
    /// policies that move flows decide as on a system whose CPUs keep up. recorded is the speed of the capture, 10x
    /// ten times that speed.
    #[arg(long, default_value = "max", value_parser = words(SPEED_WORDS, parse_speed), allow_hyphen_values = true, help_heading = "Receiving")]
    pub(crate) speed: Speed,

    /// How many times to read the input
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = whole::<u32, 1, { u32::MAX as u64 }>, help_heading = "Receiving")]
    pub(crate) repeat: u32,

    /// Packets that may wait for one CPU, from each receiving thread
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_BACKLOG, value_parser = backlog, help_heading = "Processing")]
    pub(crate) max_backlog: u32,

    /// When a packet's backlog is full
    ///
    /// By default the packet waits at --speed max and drained, and is dropped at other speeds.
    #[arg(long, value_enum, value_name = "ACTION", help_heading = "Processing")]
    pub(crate) on_full: Option<OnFullChoice>,

    /// Packets to steer at once: the longest list put onto a backlog
    ///
    /// By default 16 for each CPU of --cpus, but at least 64 and at most 256. At --speed drained at most 64.
    #[arg(long, value_name = "PACKETS", value_parser = whole::<u16, 1, { MAX_BATCH as u64 }>, help_heading = "Processing")]
    pub(crate) batch: Option<u16>,

    /// CPUs of the applications: 0-3,8 or a count like 4
    ///
    /// Applications on these CPUs consume the data of flows; a flow's hash picks its application's CPU. rfs follows
    /// the applications, and the report shows how many packets were processed where their application runs.
    #[arg(long, value_name = "LIST|COUNT", value_parser = cpus, help_heading = "Applications")]
    pub(crate) app_cpus: Option<CpuChoice>,

    /// Move each flow's application to the next of --app-cpus after this much capture time, e.g. 10ms
    #[arg(long, value_name = "INTERVAL", value_parser = parse_migration, requires = "app_cpus", help_heading = "Applications")]
    pub(crate) app_migrate: Option<Duration>,

    /// Change settings during the replay
    ///
    /// T is capture time since the first packet (2s, 150ms) or packets received (5000p). SPEC is a list of settings,
    /// separated by commas: policy=, cpus=, rps-map=, rule=, else=, rfs-cpus=, flow-cnt=, sock-flow-entries=, flow-limit= (on,
    /// off, buckets), max-backlog=. The option can be given several times, in order.
    #[arg(long, value_name = "T:SPEC", value_parser = |text: &str| text.parse::<PlannedChange>(), help_heading = "Steering")]
    pub(crate) change_at: Vec<PlannedChange>,

    #[command(flatten)]
    pub(crate) workers: WorkerArgs,

    #[command(flatten)]
    pub(crate) records: RecordArgs,

    #[command(flatten)]
    pub(crate) out: OutArgs,

    /// Listen for rxsteer status at this unix socket
    ///
    /// By default it is PID.sock in /run/rxsteer, or in $XDG_RUNTIME_DIR/rxsteer, where rxsteer status looks. E.g.
    /// --socket /tmp/replay.sock
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "seeds", help_heading = "Output")]
    pub(crate) socket: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) events: EventsArg,

    /// Print one JSON object instead of tables
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// For rxsteer top: end when the process that started this one ends, for whatever reason
    #[arg(long, hide = true)]
    pub(crate) end_with_parent: bool,
}

/// `--on-full`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnFullChoice {
    /// It waits for room: nothing is lost
    Wait,
    /// It is dropped and counted, as on a live system
    Drop,
}

fn parse_migration(text: &str) -> Result<Duration, String> {
    let interval = parse_interval(text)?;
    if interval.is_zero() {
        return Err("the interval must be longer than 0, e.g. 10ms".to_owned());
    }
    Ok(interval)
}

/// The words of `--speed`.
const SPEED_WORDS: [&str; 3] = ["max", "drained", "recorded"];

/// Factors by which the recorded speed can be multiplied.
const SPEEDS: RangeInclusive<f64> = 1e-6..=1e9;

fn parse_speed(text: &str) -> Result<Speed, String> {
    match text {
        "max" => Ok(Speed::Max),
        "drained" => Ok(Speed::Drained),
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
    fn speeds_are_words_or_factors() {
        assert_eq!(parse_speed("10x"), Ok(Speed::Times(10.0)));
        assert_eq!(parse_speed("drained"), Ok(Speed::Drained));
        assert_eq!(parse_speed("recorded"), Ok(Speed::Times(1.0)));
        for bad in ["10", "x", "-1x", "0x", "nanx", "infx", "maximum"] {
            assert!(parse_speed(bad).is_err(), "{bad}");
        }
        for bad in ["inf", "1e10", "0", "-1", "1e-9"] {
            let why = parse_speed(bad).unwrap_err();
            assert!(!why.contains("did you mean"), "{why}");
        }
    }
}
