//! The options of `rxsteer live`.

use crate::change_spec::parse_interval;
use crate::events_out::EventsArg;
use crate::input_args::WorkerArgs;
use crate::listen::Listen;
use crate::out::OutArgs;
use crate::record_args::{RecordArgs, RotateArgs};
use crate::steer_args::SteerArgs;
use crate::words::whole;
use clap::{Args, ValueEnum, ValueHint};
use rxsteer_settings::{CpuChoice, backlog, cpu_list, cpus};
use rxsteer_user::DEFAULT_BACKLOG;
use rxsteer_user::core::CpuSet;
use std::path::PathBuf;
use std::time::Duration;

/// Limits of `--ring-size`, in MiB: two blocks, and what fits into a signed size in the kernel.
const MIN_RING: u64 = 1;
const MAX_RING: u64 = 1024;

/// Receive from live interfaces, and show how packets are steered
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer live eth0 --cpus 0-3\n  \
    rxsteer live eth0 eth1 --policy sparse --cpus 0-7 --duration 10s\n  \
    rxsteer live eth0 --filter 'tcp port 443' --count 100000 --json | tail -1\n  \
    rxsteer live wg0 --promiscuous --flows flows.csv\n  \
    rxsteer live eth0 --flows all-flows/ --flows-rotate 10m\n  \
    rxsteer live eth0 --bridge eth1 --policy sparse --cpus 0-3\n  \
    rxsteer live eth0 --cpus 0-3 --out tap:worker%d\n  \
    rxsteer live eth0 --cpus 0-3 --listen 127.0.0.1:9817\n  \
    rxsteer live eth0 --cpus 0-1 --standby 0-3     then: rxsteer set cpus=0-3\n\n\
    With packet sockets (--io packet, the default) the host still receives all packets: rxsteer gets copies, taken \
    before the firewall. With AF_XDP sockets (--io xdp), rxsteer receives the packets instead of the host. RX \
    queues are numbered through all interfaces, in the order in which these are named; an interface has at most as \
    many packet sockets as there are CPUs to receive on. Ctrl-C ends it and prints the report. While it runs: \
    rxsteer status, rxsteer set policy=sparse.\n\n\
    Exit status: 0 success; 1 an interface went away, a worker died, a flow was reordered, or flow records or packets \
    could not be written; 2 it could not run.")]
pub(crate) struct LiveArgs {
    /// Interfaces that exist at the start, by name or pattern
    #[arg(value_name = "IFACE", required = true)]
    pub(crate) interfaces: Vec<String>,

    /// How to receive packets
    #[arg(long, value_enum, value_name = "WAY", default_value_t = Io::Auto, help_heading = "Receiving")]
    pub(crate) io: Io,

    /// Bridge: forward packets between the first interface and this one
    ///
    /// Each flow leaves in order. The bridge uses AF_XDP sockets. With --io packet it uses packet sockets, which work
    /// on every interface, but the host still receives the packets. E.g. --bridge eth1
    #[arg(long, value_name = "IFACE", help_heading = "Receiving")]
    pub(crate) bridge: Option<String>,

    /// Refuse drivers that can't receive into this program's memory without copying (AF_XDP)
    #[arg(long, help_heading = "Receiving")]
    pub(crate) zero_copy: bool,

    /// Poll the driver itself for this many microseconds when no packets have arrived (AF_XDP), e.g. 50
    ///
    /// It saves interrupts where the driver supports it, and keeps the receiving CPU busy.
    #[arg(long, value_name = "US", value_parser = whole::<u32, 1, 1_000_000>, help_heading = "Receiving")]
    pub(crate) busy_poll: Option<u32>,

    #[command(flatten)]
    pub(crate) steer: SteerArgs,

    /// End after this long, e.g. 10s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, help_heading = "Receiving")]
    pub(crate) duration: Option<Duration>,

    /// End after this many packets
    #[arg(long, value_name = "PACKETS", value_parser = whole::<u64, 1, { u64::MAX }>, help_heading = "Receiving")]
    pub(crate) count: Option<u64>,

    /// Only packets that match this tcpdump expression (pcap-filter(7))
    ///
    /// rxsteer starts tcpdump to compile it, and the kernel runs it.
    #[arg(long, value_name = "EXPR", help_heading = "Receiving")]
    pub(crate) filter: Option<String>,

    /// Receive frames for other addresses, too
    #[arg(long, help_heading = "Receiving")]
    pub(crate) promiscuous: bool,

    /// Also receive packets that this host sends
    #[arg(long, help_heading = "Receiving")]
    pub(crate) outgoing: bool,

    /// Steer by the kernel's hash of each packet, which is the NIC's if the NIC reports one
    ///
    /// The two directions of a connection can then go to different CPUs.
    #[arg(long, help_heading = "Receiving", conflicts_with_all = ["hash", "hash_seed", "inner", "key_tunnels"])]
    pub(crate) nic_hash: bool,

    /// Copy packets out of the ring, for handlers that keep them long
    #[arg(long, help_heading = "Receiving")]
    pub(crate) copy: bool,

    /// Memory for packets of each interface, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = whole::<u64, MIN_RING, MAX_RING>, help_heading = "Receiving")]
    pub(crate) ring_size: u64,

    /// CPUs that receive the interfaces' packets, in turn; by default those of --cpus
    ///
    /// Without --cpus, and with at least four CPUs for each RX queue, the first CPUs only receive, one for each RX queue.
    #[arg(long, value_name = "LIST", value_parser = cpu_list, help_heading = "Receiving")]
    pub(crate) rx_cpus: Option<CpuSet>,

    /// CPUs that also get a worker, so that rxsteer set can use them later
    ///
    /// CPUs of --cpus, --rx-cpus, maps and rules always have one. An idle worker keeps the memory of its backlogs,
    /// and an output of --out. A list like 0-3,8, or a count like 4; CPU 4 alone is 4-4.
    #[arg(long, value_name = "LIST|COUNT", value_parser = cpus, help_heading = "Processing")]
    pub(crate) standby: Option<CpuChoice>,

    /// Packets that may wait for one CPU, from each receiving thread
    #[arg(long, value_name = "PACKETS", default_value_t = DEFAULT_BACKLOG, value_parser = backlog, help_heading = "Processing")]
    pub(crate) max_backlog: u32,

    #[command(flatten)]
    pub(crate) workers: WorkerArgs,

    #[command(flatten)]
    pub(crate) records: RecordArgs,

    #[command(flatten)]
    pub(crate) rotate: RotateArgs,

    #[command(flatten)]
    pub(crate) out: OutArgs,

    /// Listen for rxsteer status at this unix socket
    ///
    /// By default it is PID.sock in /run/rxsteer, or in $XDG_RUNTIME_DIR/rxsteer, where rxsteer status looks. E.g.
    /// --socket /tmp/live.sock
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub(crate) socket: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) listen: Listen,

    #[command(flatten)]
    pub(crate) events: EventsArg,

    /// Print JSON lines: one each second, the last one is the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// `--io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Io {
    /// packet, or xdp with --bridge
    Auto,
    /// Packet sockets (AF_PACKET): copies of packets, from any interface
    Packet,
    /// AF_XDP sockets: rxsteer receives packets instead of the host
    Xdp,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = parse_interval(text)?;
    if time.is_zero() {
        return Err("the duration must be longer than 0, e.g. 10s".to_owned());
    }
    Ok(time)
}
