//! The command lines of `rxsteer run` and `status`.

use crate::change_spec::parse_interval;
use crate::events_out::EventsArg;
use crate::listen::Listen;
use crate::record_args::RunRecordArgs;
use crate::settings_file;
use crate::steer_args::{FlowSettings, TunnelKeys, note_covered};
use crate::words::whole;
use clap::{Args, ValueEnum, ValueHint};
use rxsteer_settings::{Options, Rules, Steering, Tables, switch, words};
use rxsteer_status::protocol::MAX_FLOWS;
use rxsteer_user::core::limits::{MAX_KERNEL_FLOW_LIMIT_BUCKETS, MAX_QUEUE_SIZE, MIN_QUEUE_SIZE};
use rxsteer_user::core::{ThreadClass, ThreadClassError};
use std::path::PathBuf;
use std::time::Duration;

/// Steer received frames of live interfaces, in the kernel, in order
///
/// XDP programs steer frames before the kernel makes socket buffers of them. The kernel itself does everything after
/// that: protocols, forwarding, sockets. When rxsteer ends, even by kill -9, the kernel detaches the programs.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer run eth0\n  \
    rxsteer run eth0 eth1 --policy rps --cpus 2-7\n  \
    rxsteer run 'veth*'                       all veths, also those that appear later\n  \
    rxsteer run eth0 --rfs-namespaces all     if applications run in containers\n  \
    rxsteer run eth0 eth1 --policy bound:eth0:0=1,eth1:0=2\n  \
    rxsteer run eth0 --policy rps --rps-map eth0:0=0-3 --rps-map eth0:1=4-7\n  \
    rxsteer run eth0 --policy rfs --else local\n  \
    rxsteer run eth0 --rule 'tcp dst-port 22 -> local' --rule 'vlan 7 -> 2-3'\n  \
    rxsteer run eth0 --shadow --duration 1m   what would it do?\n  \
    rxsteer run wg0 --fallback                the kernel's own steering where XDP can't\n  \
    rxsteer run eth0 --threads nice:-10       no real-time threads\n  \
    rxsteer run eth0 --flows flows.csv --flows-rotate 10m\n  \
    rxsteer run eth0 --ipfix 192.0.2.1:4739   flow records to a collector\n  \
    rxsteer run eth0 --listen 127.0.0.1:9817  metrics, and a page at http://127.0.0.1:9817/\n  \
    rxsteer run eth0 --config /etc/rxsteer/rxsteer.toml --json > report.json\n  \
    rxsteer run 'veth*' --events /var/log/rxsteer.jsonl\n\n\
    While it runs: rxsteer status, rxsteer set policy=rps, rxsteer explain FLOW --live. As a service: \
    packaging/systemd/rxsteer@.service.\n\n\
    With --config, SIGHUP (kill -HUP PID, systemctl reload) makes rxsteer read the file again and change settings as \
    rxsteer set does; without it SIGHUP ends rxsteer. A signal that was ignored at the start (nohup) stays ignored.\n\n\
    Exit status: 0 ended by --duration, SIGTERM, SIGINT or SIGHUP; 1 no interface is left, or the report could not be written; 2 it could not run, and \
    nothing was attached.")]
pub(crate) struct RunArgs {
    /// Interfaces, by name or pattern (also those that appear later)
    #[arg(value_name = "IFACE", required = true)]
    pub(crate) interfaces: Vec<String>,

    /// End after this long, e.g. 30s or 10m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,

    /// Listen for status, set and explain at this unix socket
    ///
    /// By default it is in /run/rxsteer, or in $XDG_RUNTIME_DIR/rxsteer.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Where native XDP can't steer, use the kernel's RPS and RFS until rxsteer ends
    ///
    /// rxsteer translates the policy to RPS and RFS, and prints what the kernel can't do, such as sparse and the
    /// order guard. It tries generic mode only if --mode names it. rxsteer status shows what is set. After a kill,
    /// rxsteer host restore undoes it.
    #[arg(long = "fallback")]
    pub(crate) to_kernel: bool,

    /// Print the final report as one JSON object instead of tables
    #[arg(long)]
    pub(crate) json: bool,

    /// For tests of the order guard: without it, flows are reordered
    #[arg(long, hide = true)]
    pub(crate) without_order_guard: bool,

    /// For tests: what is delivered is found as where a second has 1000 ticks
    #[arg(long, hide = true)]
    pub(crate) as_with_short_ticks: bool,

    /// For rxsteer auto: end when the process that started this one ends, for whatever reason
    #[arg(long, hide = true)]
    pub(crate) end_with_parent: bool,

    #[command(flatten, next_help_heading = "Steering")]
    pub(crate) options: Options<RunSettings>,

    /// Settings from a TOML file; options override it
    ///
    /// The file can set all options of the groups Steering and Flow records, and --listen and --events. Its keys are
    /// the names of the options: policy = "rps", cpus = "0-3", queue-size = 512, flow-limit = true, else = "local",
    /// rps-map = { "eth0:0" = "0-3" }. On SIGHUP rxsteer reads the file again.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Steering")]
    pub(crate) config: Option<PathBuf>,
}

/// All settings, as far as they are given.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RunSettings {
    #[command(flatten)]
    pub(crate) live: LiveSettings,

    #[command(flatten)]
    pub(crate) fixed: FixedSettings,
}

/// Those that can change while frames flow: by `rxsteer set`, and when the file is read again.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct LiveSettings {
    #[command(flatten)]
    pub(crate) steering: Steering<MAX_KERNEL_FLOW_LIMIT_BUCKETS>,

    #[command(flatten)]
    pub(crate) rules: Rules,

    #[command(flatten)]
    pub(crate) kernel: KernelSettings,
}

/// Those of them that the in-kernel path alone has.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(crate) struct KernelSettings {
    /// Frames that may wait for one CPU: 8 to 16384, 2048 by default
    #[arg(long, value_name = "FRAMES", value_parser = whole::<u32, { MIN_QUEUE_SIZE as u64 }, { MAX_QUEUE_SIZE as u64 }>)]
    pub(crate) queue_size: Option<u32>,

    /// Scheduling class of the kernel threads that process the frames: fifo:N (real-time, N from 1 to 99, ahead of
    /// every ordinary process), nice:N (-20 to 19) or other (like ordinary processes); fifo:1 by default, or nice:-13
    /// if the kernel does not limit real-time threads
    #[arg(long, value_name = "CLASS", value_parser = words(ThreadClass::NAMES, parse_threads))]
    pub(crate) threads: Option<ThreadClass>,

    /// Decide and count only: every frame is processed as without rxsteer
    ///
    /// rxsteer does not see these frames complete, so it can't count the moves that the order guard would defer.
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", value_parser = switch)]
    pub(crate) shadow: Option<bool>,
}

/// Those that hold from the start to the end.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FixedSettings {
    /// Where XDP takes the frames; auto by default
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeChoice>,

    #[command(flatten)]
    pub(crate) tables: Tables,

    /// Sockets that set desired CPUs for rfs: those of this network namespace (own, the default), or of all
    /// namespaces (all), for hosts whose applications run in containers. With all, a user of another namespace can
    /// move a flow by using the same addresses and ports there
    #[arg(long, value_enum, value_name = "WHOSE")]
    pub(crate) rfs_namespaces: Option<RfsNamespaces>,

    #[command(flatten)]
    pub(crate) flows: FlowSettings,

    #[command(flatten)]
    pub(crate) tunnels: TunnelKeys,

    /// Do not count flows' packets and bytes
    #[arg(long, value_name = "on|off", num_args = 0..=1, require_equals = true,
          default_missing_value = "on", value_parser = switch)]
    pub(crate) no_flow_stats: Option<bool>,

    #[command(flatten)]
    pub(crate) listen: Listen,

    #[command(flatten)]
    pub(crate) events: EventsArg,

    #[command(flatten)]
    pub(crate) records: RunRecordArgs,
}

impl RunArgs {
    /// The settings of the options, and those of the file that no option sets.
    pub(crate) fn settings(&self) -> anyhow::Result<RunSettings> {
        let mut settings: RunSettings =
            settings_file::settings(&self.options, self.config.as_deref())?;
        // Generic mode costs more than the kernel's own steering.
        if self.to_kernel && settings.fixed.mode() == ModeChoice::Auto {
            settings.fixed.mode = Some(ModeChoice::Native);
        }
        note_covered(&settings.live.rules);
        Ok(settings)
    }
}

#[cfg(feature = "xdp")]
impl RunArgs {
    /// Refuses flow records where they are not possible.
    pub(crate) fn check_records(&self, settings: &RunSettings) -> anyhow::Result<()> {
        settings.fixed.check_records()?;
        anyhow::ensure!(
            !(self.to_kernel && settings.fixed.records.output.is_some()),
            "the kernel's own steering counts no flows, so with --fallback there can be no flow records; leave out \
             --fallback, or --flows and --ipfix"
        );
        Ok(())
    }
}

impl FixedSettings {
    /// Refuses flow records if flows are not counted.
    #[cfg(feature = "xdp")]
    pub(crate) fn check_records(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.flow_stats() || !self.records.output.is_some(),
            "--flows and --ipfix use the flow statistics; leave out --no-flow-stats"
        );
        Ok(())
    }

    pub(crate) fn mode(&self) -> ModeChoice {
        self.mode.unwrap_or_default()
    }

    pub(crate) fn rfs_namespaces(&self) -> RfsNamespaces {
        self.rfs_namespaces.unwrap_or_default()
    }

    pub(crate) fn flow_stats(&self) -> bool {
        !self.no_flow_stats.unwrap_or(false)
    }
}

/// Show what rxsteer run, live and replay do while they run
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    rxsteer status\n  \
    rxsteer status eth0 --flows 10\n  \
    rxsteer status --interval 1s              again each second, until Ctrl-C\n  \
    rxsteer status --json | jq .drops\n  \
    rxsteer status --json --interval 5s | jq .rates.totals\n  \
    rxsteer status eth0 --flows 10 --reset    show the flows' counts, then count from 0\n\n\
    Exit status: 0 success; 1 with --interval: no instance is left; 2 no instance runs, or one did not answer.")]
pub(crate) struct StatusArgs {
    /// Only the instances on this interface; by default all instances
    #[arg(value_name = "IFACE", conflicts_with = "socket")]
    pub(crate) interface: Option<String>,

    /// Only the instance that listens at this unix socket
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,

    /// Also show this many flows, those with most packets first
    #[arg(long, value_name = "COUNT", default_value_t = 0, value_parser = whole::<u32, 0, { MAX_FLOWS as u64 }>)]
    pub(crate) flows: u32,

    /// Then clear the flow statistics; other counters continue
    #[arg(long, conflicts_with = "interval")]
    pub(crate) reset: bool,

    /// Repeat after each interval, with rates per second, until Ctrl-C
    ///
    /// Without it, the tables show rates over half a second, and JSON has no rates.
    #[arg(long, value_name = "DURATION", value_parser = parse_pause)]
    pub(crate) interval: Option<Duration>,

    /// Print one JSON object for each instance instead of tables; with --interval one line each, with rates
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeChoice {
    /// Native if all interfaces support it, else generic
    #[default]
    Auto,
    /// In the driver
    Native,
    /// In the stack, on socket buffers; slower
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
    /// Its name.
    #[cfg(feature = "xdp")]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::All => "all",
        }
    }
}

/// The scheduling class of the rings' threads.
fn parse_threads(text: &str) -> Result<ThreadClass, String> {
    text.parse().map_err(|error: ThreadClassError| error.to_string())
}

/// The shortest `--interval`: a reading takes some hundredths of a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

fn parse_pause(text: &str) -> Result<Duration, String> {
    match parse_interval(text)? {
        pause if pause < SHORTEST_PAUSE => Err("it must be at least 100ms, e.g. 1s".to_owned()),
        pause => Ok(pause),
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration = parse_interval(text)?;
    if duration.is_zero() {
        return Err("it would end at once; write e.g. 30s".to_owned());
    }
    Ok(duration)
}
