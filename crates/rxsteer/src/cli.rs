//! The command line.

use crate::hash_key::{HashChoice, HashSeed};
use crate::words::suggestion;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use rxsteer_user::core::config::parse_queue_setting;
use rxsteer_user::core::{CpuId, CpuSet, MAX_RX_QUEUES, Policy, PolicyError};
use rxsteer_user::source::capture::RxQueues;
use rxsteer_user::source::synthetic::{SpecError, SyntheticSpec};
use rxsteer_user::{DEFAULT_BACKLOG, DEFAULT_BATCH, MAX_BACKLOG, MAX_BATCH, Speed};
use std::path::PathBuf;

/// Which CPU should process a received packet? rxsteer decides, keeps flows in order, and shows it.
#[derive(Debug, Parser)]
#[command(
    name = "rxsteer",
    version,
    max_term_width = 100,
    after_help = "Examples:\n  \
        rxsteer replay capture.pcap --cpus 4          how would this spread over 4 CPUs?\n  \
        rxsteer demo                                  the same on built-in traffic\n  \
        rxsteer replay --help                         everything that can be set\n\n\
        Exit status: 0 fine, 1 ran and found something wrong, 2 could not run, 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send the frames of captures (or synthetic ones) through the receive path
    Replay(Box<ReplayArgs>),
    /// Show what steering does, on built-in traffic: two queues, four CPUs, three policies
    Demo(DemoArgs),
    /// Write the man pages
    #[command(after_help = "Example:\n  rxsteer man ./man && man -l ./man/rxsteer-replay.1")]
    Man {
        /// Directory to write them to; made if it is not there
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
#[command(after_help = "Example:\n  rxsteer demo --json | jq '.runs[].imbalance'")]
pub(crate) struct DemoArgs {
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer replay capture.pcapng --cpus 8\n  \
    rxsteer replay a.pcap b.pcap.gz --rx-queues file --policy bound:0=1,1=2\n  \
    rxsteer replay --synthetic flows=10000,share=zipf:1.1 --cpus 0-3 --json\n  \
    tcpdump -i eth0 -U -w - | rxsteer replay - --cpus 4\n  \
    rxsteer replay capture.pcap --rx-queues 4 --rx-threads 2 --rps-map 0=0-1 --inner\n  \
    rxsteer replay --synthetic flood=spoofed:0.9 --hash toeplitz --cpus 8\n  \
    rxsteer replay capture.pcap --speed recorded --on-full drop --work-ns 2000\n\n\
    Keys of --synthetic: packets (1e6), flows (1000), share (equal, zipf:EXPONENT), size (60, \
    60-1514, imix), protocol (tcp, udp, mixed), ip (4, 6, mixed), flood (none, spoofed:SHARE, \
    same-hash:SHARE), rate (frames per second of capture time, 1e6), seed (1).\n\n\
    Exit status: 0 fine; 1 a capture is damaged, a worker died, or a flow was reordered; 2 could \
    not run; 130 interrupted, with what was done so far.")]
pub(crate) struct ReplayArgs {
    /// Captures: pcap or pcapng, also in gzip or zstd, one after the other; - is standard input
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath, required_unless_present = "synthetic")]
    pub(crate) captures: Vec<PathBuf>,

    /// Make the frames instead: key=value, separated by commas; "" takes every default
    #[arg(long, value_name = "SPEC", value_parser = parse_synthetic, conflicts_with = "captures")]
    pub(crate) synthetic: Option<SyntheticSpec>,

    /// Which rule picks the CPU: none (the receiving one), rps (flow hash to CPU map), or
    /// bound:QUEUE=CPU,… (RX queue to CPU)
    #[arg(long, default_value = "rps", value_parser = parse_policy)]
    pub(crate) policy: Policy,

    /// CPUs to steer to: a list like 0-3,8 (CPU 4 alone is 4-4), or a count like 4; all this process
    /// may use by default
    #[arg(long, value_name = "LIST|COUNT", value_parser = parse_cpus, allow_hyphen_values = true)]
    pub(crate) cpus: Option<CpuChoice>,

    /// RX queues: single, file (each file one), interface (each one of a file), or a number (spread
    /// by the Toeplitz hash, as a NIC does)
    #[arg(long, value_name = "MODE|COUNT", default_value = "single", value_parser = parse_rx_queues)]
    pub(crate) rx_queues: RxQueues,

    /// Receiving threads; RX queue q is received by thread q modulo this
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = whole::<u16, 1, { MAX_RX_QUEUES as u64 }>)]
    pub(crate) rx_threads: u16,

    /// CPUs the receiving threads run on, in turn; those of --cpus by default
    #[arg(long, value_name = "LIST", value_parser = parse_cpu_list)]
    pub(crate) rx_cpus: Option<CpuSet>,

    /// A CPU map for one RX queue, e.g. 1=4-7; can be given for several
    #[arg(long, value_name = "QUEUE=CPUS", value_parser = parse_rps_map)]
    pub(crate) rps_map: Vec<(u16, CpuSet)>,

    /// How fast: max, recorded (as captured), or a factor of that like 10x
    #[arg(long, default_value = "max", value_parser = parse_speed, allow_hyphen_values = true)]
    pub(crate) speed: Speed,

    /// How often to go through the input
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = whole::<u32, 1, { u32::MAX as u64 }>)]
    pub(crate) repeat: u32,

    /// Packets that may wait for one CPU, from each receiving thread
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_BACKLOG, value_parser = whole::<u32, 1, { MAX_BACKLOG as u64 }>)]
    pub(crate) max_backlog: u32,

    /// A packet whose backlog is full waits (loses nothing) or is dropped (as on a live system);
    /// by default it waits at --speed max and is dropped otherwise
    #[arg(long, value_enum)]
    pub(crate) on_full: Option<OnFullChoice>,

    /// Packets decided on at once: the longest list that is handed over
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_BATCH as u16, value_parser = whole::<u16, 1, { MAX_BATCH as u64 }>)]
    pub(crate) batch: u16,

    /// The flow hash: symmetric, toeplitz, or toeplitz:HEXKEY (40 bytes or more)
    #[arg(long, value_name = "HASH", default_value = "symmetric", value_parser = |text: &str| text.parse::<HashChoice>())]
    pub(crate) hash: HashChoice,

    /// The secret of the symmetric hash, up to 32 hex digits; random by default
    #[arg(long, value_name = "HEX", value_parser = |text: &str| text.parse::<HashSeed>())]
    pub(crate) hash_seed: Option<HashSeed>,

    /// Steer by what is inside IPIP, 6in4, GRE, VXLAN, Geneve and GTP-U tunnels
    #[arg(long)]
    pub(crate) inner: bool,

    /// Let every packet cost this much processing time, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = 0, value_parser = whole::<u32, 0, 1_000_000_000>)]
    pub(crate) work_ns: u32,

    /// Leave it to the scheduler where threads run
    #[arg(long)]
    pub(crate) no_pin: bool,

    /// Print one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--on-full`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnFullChoice {
    /// Wait for a place: nothing is lost
    Wait,
    /// Drop and count, as a live system does
    Drop,
}

/// A whole number from `MIN` to `MAX`.
fn whole<T: TryFrom<u64>, const MIN: u64, const MAX: u64>(text: &str) -> Result<T, String> {
    text.parse::<u64>()
        .ok()
        .filter(|number| (MIN..=MAX).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("it takes a whole number from {MIN} to {MAX}"))
}

fn parse_synthetic(text: &str) -> Result<SyntheticSpec, String> {
    text.parse().map_err(|error: SpecError| match &error {
        SpecError::UnknownKey(key) => {
            format!("{error}{}", suggestion(key, &SyntheticSpec::KEYS))
        }
        _ => error.to_string(),
    })
}

fn parse_policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error: PolicyError| match &error {
        PolicyError::UnknownName(name) => format!("{error}{}", suggestion(name, &Policy::NAMES)),
        _ => error.to_string(),
    })
}

/// `--cpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CpuChoice {
    /// These.
    List(CpuSet),
    /// So many; holds CPUs 0 up to that.
    Count(CpuSet),
}

impl CpuChoice {
    /// The CPUs that are meant: of a count the first ones this process may use, if it may use so
    /// many, else CPUs 0 up to that.
    pub(crate) fn cpus(&self, allowed: Option<CpuSet>) -> CpuSet {
        match (self, allowed) {
            (CpuChoice::Count(first), Some(allowed)) if first.len() <= allowed.len() => {
                CpuSet::new(allowed.iter().take(first.len())).unwrap_or_else(|| first.clone())
            }
            (CpuChoice::List(cpus) | CpuChoice::Count(cpus), _) => cpus.clone(),
        }
    }
}

/// A list of CPUs; a lone number is a count.
fn parse_cpus(text: &str) -> Result<CpuChoice, String> {
    match text.trim().parse::<u64>() {
        Ok(count) => {
            u16::try_from(count).ok().and_then(CpuSet::first).map(CpuChoice::Count).ok_or_else(
                || {
                    format!(
                        "a count of CPUs is 1 to {}, not {count} (CPU 0 alone is written 0-0)",
                        u32::from(CpuId::MAX.get()) + 1
                    )
                },
            )
        }
        Err(_) => parse_cpu_list(text).map(CpuChoice::List),
    }
}

fn parse_cpu_list(text: &str) -> Result<CpuSet, String> {
    text.parse().map_err(|error: rxsteer_user::core::CpuSetError| error.to_string())
}

fn parse_rps_map(text: &str) -> Result<(u16, CpuSet), String> {
    let (queue, cpus) = parse_queue_setting(text)
        .map_err(|text| format!("'{text}' is not QUEUE=CPUS; write e.g. 1=4-7"))?;
    Ok((queue, parse_cpu_list(cpus)?))
}

fn parse_rx_queues(text: &str) -> Result<RxQueues, String> {
    match text {
        "single" => Ok(RxQueues::Single),
        "file" => Ok(RxQueues::PerFile),
        "interface" => Ok(RxQueues::PerInterface),
        _ => match text.parse::<u16>() {
            Ok(queues) if (1..=MAX_RX_QUEUES).contains(&queues) => Ok(RxQueues::Hashed(queues)),
            Ok(_) => Err(format!("a count of RX queues is 1 to {MAX_RX_QUEUES}")),
            Err(_) => Err(format!(
                "there is no mode '{text}', and it is no count{}",
                suggestion(text, &["single", "file", "interface"])
            )),
        },
    }
}

fn parse_speed(text: &str) -> Result<Speed, String> {
    match text {
        "max" => Ok(Speed::Max),
        "recorded" => Ok(Speed::Times(1.0)),
        _ => text
            .strip_suffix('x')
            .and_then(|factor| factor.parse::<f64>().ok())
            .filter(|factor| (1e-6..=1e9).contains(factor))
            .map(Speed::Times)
            .ok_or_else(|| {
                let hint = match text.parse::<f64>() {
                    Ok(factor) if factor > 0.0 => format!("; did you mean '{text}x'?"),
                    _ => suggestion(text, &["max", "recorded"]),
                };
                format!("'{text}' is no speed{hint} (a factor is written like 0.5x or 10x)")
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_lone_number_is_a_count_of_cpus() {
        let meant = |text: &str, allowed: &str| {
            parse_cpus(text).unwrap().cpus(allowed.parse().ok()).to_string()
        };
        assert_eq!(meant("4", "0-1"), "0-3");
        assert_eq!(meant("2", "8-11"), "8-9");
        assert_eq!(meant("2", ""), "0-1");
        assert_eq!(meant("4-4", "0-1"), "4");
        assert!(parse_cpus("0").unwrap_err().contains("0-0"));
        assert!(parse_cpus("").unwrap_err().contains("empty"));
        assert!(parse_cpus("70000").is_err());
    }

    #[test]
    fn speeds_are_words_or_factors() {
        assert_eq!(parse_speed("10x"), Ok(Speed::Times(10.0)));
        assert_eq!(parse_speed("recorded"), Ok(Speed::Times(1.0)));
        for bad in ["10", "x", "-1x", "0x", "nanx", "infx", "maximum"] {
            assert!(parse_speed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn misspelt_words_are_named_with_the_nearest() {
        assert!(parse_policy("rsp").unwrap_err().contains("did you mean 'rps'"));
        assert!(parse_synthetic("flow=1").unwrap_err().contains("did you mean 'flows'"));
        assert!(parse_rx_queues("files").unwrap_err().contains("did you mean 'file'"));
    }
}
