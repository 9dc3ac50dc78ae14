//! The command line of `rxsteer host`.

use crate::change_spec::parse_interval;
use crate::input_args::parse_sample;
use clap::{Args, Subcommand, ValueHint};
use rxsteer_settings::cpus_listed;
use rxsteer_user::core::CpuSet;
use std::path::PathBuf;
use std::time::Duration;

/// Show and set the kernel's own steering: RPS, RFS, XPS, flow limit
///
/// It works on any interface (WireGuard, PPP, tun, Wi-Fi) and kernel, without XDP.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer host show eth0                            what is set, by whom, what it does\n  \
    rxsteer host recommend eth0                       what should be set, and why?\n  \
    rxsteer host apply eth0 --cpus 0-3 --dry-run      what would be written?\n  \
    rxsteer host apply eth0 --cpus 0-3 --rfs --verify 30s\n  \
    rxsteer host restore                              all as before\n\n\
    docs/host.md explains what each setting does, when it hurts, and what to use instead.")]
pub(crate) struct HostArgs {
    /// Read and write below this folder instead of / (a recorded tree)
    #[arg(long, global = true, value_name = "DIR", default_value = "/", hide_default_value = true, value_hint = ValueHint::DirPath)]
    pub(crate) root: PathBuf,

    #[command(subcommand)]
    pub(crate) command: HostCommand,
}

/// The commands of the group.
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    Show(ShowArgs),
    Recommend(RecommendArgs),
    Apply(ApplyArgs),
    Restore(RestoreArgs),
}

/// Show CPUs, queues, interrupts and the kernel's steering settings
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer host show\n  \
    rxsteer host show eth0 --duration 1s\n  \
    rxsteer host show 'eth*' --json | jq '.interfaces[].rx[] | {queue, rps_cpus}'\n\n\
    It changes nothing and requires no privilege.\n\n\
    Exit status: 0 success; 2 it could not run.")]
pub(crate) struct ShowArgs {
    /// Interfaces, by name or pattern (veth*); by default the NICs
    #[arg(value_name = "IFACE")]
    pub(crate) interfaces: Vec<String>,

    /// Measure softnet counters for this long, e.g. 1s, instead of showing them since boot
    #[arg(long, alias = "sample", value_name = "DURATION", value_parser = parse_sample)]
    pub(crate) duration: Option<Duration>,

    /// Print one JSON object, with all facts, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure an interface, and recommend what to do
///
/// It recommends one of these, with the reason: leave the interface alone; let the NIC spread flows (RSS); use the
/// kernel's own RPS and RFS, on certain CPUs; use rxsteer run, with a certain policy; or do not steer, because
/// one flow is most of the traffic. Run it under the usual load.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer host recommend eth0\n  \
    rxsteer host recommend                            each NIC\n  \
    rxsteer host recommend wg0 --duration 30s --capture\n  \
    rxsteer host recommend eth0 --json | jq '.interfaces[] | {name, rule, commands}'\n\n\
    It changes nothing. Without --capture it requires no privilege.\n\n\
    Exit status: 0 success; 2 it could not run; 130 interrupted.")]
pub(crate) struct RecommendArgs {
    /// Interfaces, by name or pattern (veth*); by default the NICs
    #[arg(value_name = "IFACE")]
    pub(crate) interfaces: Vec<String>,

    /// Measure for this long
    #[arg(long, alias = "sample", value_name = "DURATION", value_parser = parse_sample, default_value = "10s")]
    pub(crate) duration: Duration,

    /// Also capture up to 5000 frames of each interface: flows, tunnels, the largest flow; requires CAP_NET_RAW
    #[arg(long)]
    pub(crate) capture: bool,

    /// Print one JSON object, with the facts and what was measured, instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Set the kernel's own steering of interfaces, so that it can be undone
///
/// It records the old values before it writes new ones, and reads each back. If the kernel refuses a value or changes
/// it, everything is undone. rxsteer host restore restores the old values.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer host apply eth0 --dry-run                 the exact writes, and nothing else\n  \
    rxsteer host apply eth0 --cpus 0-3 --rfs --yes\n  \
    rxsteer host apply eth0 --cpus 1-3 --verify 30s   undo it if it is worse\n  \
    rxsteer host apply eth0 --cpus 1-3 --confirm 1m   undo it unless you press Enter\n  \
    rxsteer host apply eth0 --cpus 0-3 --yes --persist   again at each boot\n  \
    rxsteer host apply eth0 --off                     no RPS and RFS by the kernel\n  \
    rxsteer host apply 'veth*' --cpus 0-3             several at once\n\n\
    The kernel reorders flows that move while its masks change; rxsteer run does not.\n\n\
    Exit status: 0 it is set; 1 the kernel refused it, it was worse, or it was not confirmed, and it is undone; 2 \
    it could not run, and nothing was changed.")]
pub(crate) struct ApplyArgs {
    /// Interfaces, by name or pattern (veth*), which are set together or not at all; by default the NICs
    #[arg(value_name = "IFACE")]
    pub(crate) interfaces: Vec<String>,

    /// CPUs that process its packets: a list like 0-3,8; CPU 4 alone is 4-4
    ///
    /// By default those that are online, not isolated, and share a last-level cache with the CPU of its interrupt (or
    /// its NUMA node).
    #[arg(long, value_name = "LIST", value_parser = cpus_listed)]
    pub(crate) cpus: Option<CpuSet>,

    /// RFS: packets go where their application runs
    ///
    /// It sets rps_sock_flow_entries to 32768, unless it is larger, and rps_flow_cnt to that number divided by the
    /// number of RX queues.
    #[arg(long)]
    pub(crate) rfs: bool,

    /// Turn the kernel's RPS and RFS of this interface off, as rxsteer run requires
    #[arg(long, conflicts_with_all = ["cpus", "rfs", "persist"])]
    pub(crate) off: bool,

    /// XPS: each CPU sends by its own TX queues
    #[arg(long)]
    pub(crate) xps: bool,

    /// When a backlog is half full, drop packets of a flow that has more than half of the last 128
    ///
    /// On the CPUs of its interrupts.
    #[arg(long)]
    pub(crate) flow_limit: bool,

    /// Print the writes, without making them
    #[arg(long, conflicts_with_all = ["yes", "verify", "confirm"])]
    pub(crate) dry_run: bool,

    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,

    /// Measure old and new in turns for this long, e.g. 30s; undo it if it is worse
    ///
    /// Worse means more drops or squeezes, more time in softirqs for each packet, or a busier busiest CPU, in nearly
    /// all of six turns each. The CPU masks change six times during the measurement, and flows that move then may be
    /// reordered.
    #[arg(long, value_name = "DURATION", value_parser = parse_verify)]
    pub(crate) verify: Option<Duration>,

    /// Undo it unless Enter is pressed within this time, e.g. 1m; also when the terminal is lost
    #[arg(long, value_name = "DURATION", value_parser = parse_sample)]
    pub(crate) confirm: Option<Duration>,

    /// Also set it at each boot, and when the interface or a queue appears
    ///
    /// It writes a systemd .link file if that can express the settings, else a unit and a udev rule. It shows the
    /// files first.
    #[arg(long)]
    pub(crate) persist: bool,
}

/// Restore all that rxsteer host apply set, byte for byte
///
/// It works after any number of applies, even if one was killed. It leaves values that something else has set since,
/// and names them. It removes the files of --persist.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer host restore\n  \
    rxsteer host restore --yes --json | jq '.values[] | select(.outcome != \"restored\")'\n\n\
    Interfaces of other network namespaces are restored there: ip netns exec NAME rxsteer host restore.\n\n\
    Exit status: 0 all of this network namespace is as before; 1 something could not be restored, or something else set it since; \
    2 it could not run.")]
pub(crate) struct RestoreArgs {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,

    /// Show what would be restored, and change nothing
    #[arg(long, conflicts_with_all = ["yes", "json"])]
    pub(crate) dry_run: bool,

    /// Print one JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// A turn needs enough ticks of the CPU's clock (10 ms each) to be conclusive.
const SHORTEST_VERIFY: Duration = Duration::from_secs(3);
const LONGEST_VERIFY: Duration = Duration::from_secs(3600);

pub(crate) fn parse_verify(text: &str) -> Result<Duration, String> {
    let time = parse_interval(text)?;
    if !(SHORTEST_VERIFY..=LONGEST_VERIFY).contains(&time) {
        return Err("expected 3 s to an hour, e.g. 30s".to_owned());
    }
    Ok(time)
}
