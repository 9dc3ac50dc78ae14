//! The command line of `rxsteer flows`.

use super::top::Measure;
use crate::input_args::parse_synthetic;
use crate::record_args::FlowTableArgs;
use crate::steer_args::SteerArgs;
use crate::words::whole;
use clap::{Args, ValueHint};
use rxsteer_settings::words;
use rxsteer_user::source::synthetic::SyntheticSpec;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer flows capture.pcap\n  \
    rxsteer flows a.pcap b.pcap.gz --top 20 --by packets --anonymize\n  \
    rxsteer flows capture.pcap --key src                       the top sources\n  \
    rxsteer flows capture.pcap --key dst-port,protocol         the top services\n  \
    rxsteer flows capture.pcap --key src/24/56,dst-port        by network and service\n  \
    rxsteer flows capture.pcap --inner --policy sparse --cpus 4 --json | jq '.largest_flows[].cpus'\n  \
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

    /// Measure of a flow's size
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
