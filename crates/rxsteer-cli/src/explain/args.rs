//! The command line of `rxsteer explain`.

use super::flow::FlowArg;
use crate::input_args::{RX_QUEUES, parse_rx_queues};
use crate::steer_args::SteerArgs;
use crate::words::whole;
use clap::{Args, ValueHint};
use rxsteer_settings::{cpu_list, words};
use rxsteer_user::core::CpuSet;
use rxsteer_user::shown;
use rxsteer_user::source::capture::RxQueues;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer explain 10.0.0.1:40000-192.0.2.7:443/tcp --cpus 0-3 --hash-seed 2a\n  \
    rxsteer explain '[2001:db8::1]:5000-[2001:db8::2]:53/udp' --policy sparse --cpus 4\n  \
    rxsteer explain --frame 100 capture.pcap --policy rfs+sparse --cpus 0-3 --app-cpu 2\n  \
    rxsteer explain 10.0.0.1:40000-192.0.2.7:443/tcp --live     where is it now, and why?\n\n\
    With --frame, explain first steers the frames before it, and processes each at once, so that sparse slots and \
    flow tables are as they would be.\n\n\
    Exit status: 0 success; 2 it could not run.")]
pub(crate) struct ExplainArgs {
    /// A flow like 10.0.0.1:40000-192.0.2.7:443/tcp, or a capture
    ///
    /// A flow is SOURCE:PORT-DESTINATION:PORT/PROTOCOL. With --frame, name a capture. Protocols with ports are tcp, udp, sctp and dccp. Others (icmp, icmpv6, esp, gre or a number) are written without
    /// ports: 10.0.0.1-10.0.0.2/icmp.
    #[arg(value_name = "FLOW|CAPTURE", value_hint = ValueHint::FilePath)]
    pub(crate) what: OsString,

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
    /// The flow, if no frame is given.
    pub(crate) fn flow(&self) -> Result<FlowArg, String> {
        match self.what.to_str() {
            Some(text) => text.parse(),
            None => {
                Err(format!("'{}' is not a flow: it is not UTF-8", shown(Path::new(&self.what))))
            }
        }
    }
}
