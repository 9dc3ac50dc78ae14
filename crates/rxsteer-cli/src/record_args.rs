//! Options about flow records: where they are written, which fields distinguish flows, and how addresses are masked.

mod rotate;

use crate::change_spec::parse_interval;
use crate::input::{Input, refuse_input};
use crate::output;
use crate::output::json::object;
use crate::words::{suggestion, whole};
use anyhow::{anyhow, bail};
use clap::{Args, ValueHint};
use rxsteer_records::anonymize::{Anonymize, Mode, PseudonymKey};
use rxsteer_records::ipfix::Ipfix;
use rxsteer_records::outputs::Outputs;
use rxsteer_records::recording::Recording;
use rxsteer_records::{Interface, PartitionBy, Target, View};
use rxsteer_settings::words;
use rxsteer_user::PipelineConfig;
use rxsteer_user::flows::{FlowMask, FlowMaskError, FlowTableConfig, MAX_FLOWS};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rotate::IDLE_TIMEOUT;
pub(crate) use rotate::RotateArgs;

/// The number of flows distinguished at a time, by default.
const DEFAULT_MAX_FLOWS: u32 = 1 << 20;

/// The environment variable for the key of pseudonyms: every user of the host can read the command line.
const KEY_VARIABLE: &str = "RXSTEER_ANONYMIZE_KEY";

/// The least number of blocks for further CPUs: even few flows may run on many CPUs.
const MIN_BLOCKS: u32 = 1 << 16;

/// Options of every command that keeps flow records.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow records")]
pub(crate) struct FlowTableArgs {
    /// Fields that make a flow, e.g. src or src/24,dst/24
    ///
    /// src, dst, protocol, src-port, dst-port, separated by commas; by default all five. src/24/56 is the network: 24 bits in IPv4, 56 in IPv6.
    #[arg(long, value_name = "FIELDS", value_parser = words(FlowMask::FIELDS, parse_key))]
    pub(crate) key: Option<FlowMask>,

    /// Flows tracked at a time, 1048576 by default
    ///
    /// A new flow beyond this limit ends an old flow's record; later packets of the old flow begin another record.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = whole::<u32, 1, { MAX_FLOWS as u64 }>)]
    pub(crate) max_flows: Option<u32>,

    #[command(flatten)]
    pub(crate) anonymize: AnonymizeArgs,
}

/// What of addresses is shown.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow records")]
pub(crate) struct AnonymizeArgs {
    /// Mask addresses: =24/48 (the default) or =pseudonym
    ///
    /// BITS/BITS keeps this many leading bits of IPv4 and of IPv6 addresses. pseudonym replaces addresses by others;
    /// addresses that share a prefix still share one.
    #[arg(id = "anonymize", long, value_name = "MODE", num_args = 0..=1, require_equals = true,
          default_missing_value = "24/48", value_parser = words(Mode::WORDS, |text: &str| text.parse::<Mode>()))]
    pub(crate) mode: Option<Mode>,

    /// The key of pseudonyms, 64 hex digits; by default random
    ///
    /// The same key gives the same pseudonyms. rxsteer does not store a random key. To keep a key out of the process
    /// list, set it in RXSTEER_ANONYMIZE_KEY.
    #[arg(id = "anonymize_key", long = "anonymize-key", value_name = "HEX", value_parser = |text: &str| text.parse::<PseudonymKey>())]
    pub(crate) key: Option<PseudonymKey>,
}

impl AnonymizeArgs {
    fn masking(&self) -> anyhow::Result<Anonymize> {
        let key = match (self.mode, self.key) {
            // Without pseudonyms, the variable is not meant for this run.
            (Some(Mode::Pseudonym), None) => key_in_environment()?,
            (_, key) => key,
        };
        Anonymize::new(self.mode, key)
    }
}

impl FlowTableArgs {
    pub(crate) fn view(&self) -> anyhow::Result<View> {
        let anonymize = self.anonymize.masking()?;
        Ok(View { mask: self.mask(), anonymize, interfaces: Vec::new() })
    }

    /// The fields that distinguish flows.
    pub(crate) fn mask(&self) -> FlowMask {
        self.key.unwrap_or_default()
    }

    /// Flows distinguished at a time.
    pub(crate) fn max_flows(&self) -> u32 {
        self.max_flows.unwrap_or(DEFAULT_MAX_FLOWS)
    }

    pub(crate) fn table(&self, idle_timeout: Option<Duration>) -> FlowTableConfig {
        let max_flows = self.max_flows();
        let mut config = FlowTableConfig::new(max_flows);
        // Checked when it was parsed: a longer one does not fit.
        config.idle_timeout_ns = idle_timeout.map(|timeout| timeout.as_nanos() as u64);
        config.max_blocks = max_flows.max(MIN_BLOCKS);
        config.mask = self.mask();
        config
    }
}

fn parse_key(text: &str) -> Result<FlowMask, String> {
    text.parse().map_err(|error: FlowMaskError| match &error {
        FlowMaskError::Field(name) => format!("{error}{}", suggestion(name, &FlowMask::FIELDS)),
        _ => error.to_string(),
    })
}

/// `HOST:PORT` of a collector. Whether the host exists shows when records are sent.
fn parse_collector(text: &str) -> Result<String, String> {
    let is_right = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|n| n > 0));
    if is_right {
        Ok(text.to_owned())
    } else {
        Err(format!("'{text}' is not a collector: expected HOST:PORT, e.g. 192.0.2.1:4739"))
    }
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_interval(text)?;
    if timeout.is_zero() {
        return Err("the timeout must be longer than 0, e.g. 30s".to_owned());
    }
    Ok(timeout)
}

fn parse_rotation(text: &str) -> Result<Duration, String> {
    let every = parse_interval(text)?;
    if every.subsec_nanos() != 0 || every.is_zero() {
        return Err("expected whole seconds, at least 1s, e.g. 10m".to_owned());
    }
    Ok(every)
}

/// A number of bytes: 4096, 64KiB, 100MiB, 1GiB, or with only k, M or G, which mean the same.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "kib" => Some(1 << 10),
        "m" | "mib" => Some(1 << 20),
        "g" | "gib" => Some(1 << 30),
        _ => None,
    };
    let size = digits.parse::<u64>().ok().zip(factor).and_then(|(n, factor)| n.checked_mul(factor));
    size.filter(|size| *size >= 4096).ok_or_else(|| {
        format!("'{text}' is not a size of at least 4KiB; write bytes or a unit, e.g. 64KiB, 100MiB or 1GiB")
    })
}

/// The key in the environment, if it is set. If it is invalid, no other key is used instead.
fn key_in_environment() -> anyhow::Result<Option<PseudonymKey>> {
    let Some(text) = std::env::var_os(KEY_VARIABLE) else { return Ok(None) };
    let key = text.to_string_lossy().parse();
    key.map(Some).map_err(|error: String| anyhow!("{KEY_VARIABLE} is invalid: {error}"))
}

/// Where flow records go.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow records")]
pub(crate) struct OutputArgs {
    /// Write flow records: .csv, .jsonl or .parquet
    ///
    /// There is one record per flow and direction. It has packets, bytes, TCP flags, times, and how much each CPU
    /// processed. The ending of FILE selects the format; .ndjson is the same as .jsonl.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) flows: Option<PathBuf>,

    /// Make FILE a folder of Parquet files, which many runs write and one query reads
    ///
    /// hash-prefix makes 256 partitions by the record's hash, hash-prefix:1 makes 16.
    #[arg(long, value_name = "RULE", value_parser = words(PartitionBy::WORDS, |text: &str| text.parse::<PartitionBy>()))]
    pub(crate) partition_by: Option<PartitionBy>,

    /// Send flow records to this collector by IPFIX (RFC 7011) over UDP, e.g. 192.0.2.1:4739
    ///
    /// Per-CPU counts and moves are rxsteer's own elements (docs/flows.md); a collector that does not support them
    /// skips them.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_collector)]
    pub(crate) ipfix: Option<String>,
}

impl OutputArgs {
    /// Whether records are asked for.
    pub(crate) fn is_some(&self) -> bool {
        self.flows.is_some() || self.ipfix.is_some()
    }

    /// The files for the records of `input`, if they are asked for. `name` must not be given where names must not
    /// reveal the input.
    fn target(&self, name: Option<&Path>) -> anyhow::Result<Option<Target>> {
        let Some(path) = &self.flows else {
            anyhow::ensure!(
                self.partition_by.is_none(),
                "--partition-by divides a folder of files; name the folder with --flows FOLDER"
            );
            return Ok(None);
        };
        Target::new(path, self.partition_by, name).map(Some)
    }

    fn collector(&self, mask: &FlowMask) -> anyhow::Result<Option<Ipfix>> {
        let connect = |to: &String| Ipfix::connect(to, mask, std::process::id(), report);
        self.ipfix.as_ref().map(connect).transpose()
    }
}

/// Reports something about records.
fn report(text: &str) {
    output::note(&format!("rxsteer: {text}"));
}

fn check_unused(options: &[(bool, &str)]) -> anyhow::Result<()> {
    refuse_given(
        options,
        "an option of flow records; name their file with --flows FILE, or a collector with --ipfix",
    )
}

/// Refuses the first option that is given: why it has no meaning here.
fn refuse_given(options: &[(bool, &str)], why: &str) -> anyhow::Result<()> {
    match options.iter().find(|(is_given, _)| *is_given) {
        None => Ok(()),
        Some((_, option)) => bail!("{option} is {why}"),
    }
}

/// Options of `replay` about the records it writes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow records")]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// End a flow's record when no packet came for longer than this, e.g. 30s
    ///
    /// The packets' timestamps count. By default a record covers the whole flow; for live traffic the default is 15s.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_timeout)]
    pub(crate) flow_idle_timeout: Option<Duration>,

    #[command(flatten)]
    pub(crate) table: FlowTableArgs,
}

impl RecordArgs {
    /// Begins to write records of what the workers of `config` will count of `input`, if they are asked for; or
    /// says what is wrong, before anything runs. `settings` is a file that is read, too.
    pub(crate) fn start(
        &self,
        input: &Input<'_>,
        settings: Option<&Path>,
        config: &PipelineConfig,
    ) -> anyhow::Result<Option<Recording>> {
        if !self.output.is_some() {
            self.check_unused()?;
            return Ok(None);
        }
        let read = input.captures.iter().map(PathBuf::as_path).chain(settings);
        self.refuse_read(read)?;
        // A capture is often named after whose traffic it has.
        let name = self.table.anonymize.mode.is_none().then(|| input.name());
        let view = self.table.view()?;
        let target = self.output.target(name)?;
        // Packets of captures may have been recorded before; live ones never were.
        if let Some(note) = target.as_ref().and_then(Target::note) {
            report(&note);
        }
        let outputs = Outputs::once(target, view.mask, self.output.collector(&view.mask)?)?;
        let table = self.table.table(self.flow_idle_timeout);
        Recording::start(outputs, &table, view, config, None).map(Some)
    }

    /// The same for packets of live interfaces, in the order of their RX queues.
    pub(crate) fn start_live(
        &self,
        rotate: &RotateArgs,
        interfaces: Vec<Interface>,
        settings: Option<&Path>,
        config: &PipelineConfig,
    ) -> anyhow::Result<Option<Recording>> {
        if !self.output.is_some() {
            self.check_unused()?;
            rotate.check_unused()?;
            return Ok(None);
        }
        self.refuse_read(settings.into_iter())?;
        let names = self.table.anonymize.mode.is_none().then(|| names(&interfaces));
        let view = View { interfaces, ..self.table.view()? };
        let outputs = rotate.outputs(&self.output, view.mask, names.as_deref())?;
        let mut table = self.table.table(Some(self.flow_idle_timeout.unwrap_or(IDLE_TIMEOUT)));
        table.active_timeout_ns = Some(rotate.active_timeout().as_nanos() as u64);
        Recording::start(outputs, &table, view, config, Some(unix_ns)).map(Some)
    }

    /// What records depend on, for a report.
    pub(crate) fn settings(&self, is_live: bool) -> Map<String, Value> {
        let is_given = self.output.is_some();
        let idle = self.flow_idle_timeout.or((is_given && is_live).then_some(IDLE_TIMEOUT));
        let settings = json!({
            "max_flows": is_given.then(|| self.table.max_flows()),
            "flow_idle_timeout_ns": idle.map(|idle| idle.as_nanos() as u64),
            "key": is_given.then(|| self.table.mask().to_string()),
            "anonymize": self.table.anonymize.mode.map(|mode| mode.to_string()),
            "partition_by": self.output.partition_by.map(|rule| rule.to_string()),
        });
        object(settings)
    }

    fn refuse_read<'a>(&self, read: impl Iterator<Item = &'a Path>) -> anyhow::Result<()> {
        match &self.output.flows {
            Some(path) => refuse_input(path, "--flows", read),
            None => Ok(()),
        }
    }

    fn check_unused(&self) -> anyhow::Result<()> {
        let FlowTableArgs { key, max_flows, anonymize } = &self.table;
        check_unused(&[
            (self.output.partition_by.is_some(), "--partition-by"),
            (self.flow_idle_timeout.is_some(), "--flow-idle-timeout"),
            (key.is_some(), "--key"),
            (max_flows.is_some(), "--max-flows"),
            (anonymize.mode.is_some(), "--anonymize"),
            (anonymize.key.is_some(), "--anonymize-key"),
        ])
    }
}

/// The names of interfaces, each once.
fn names(interfaces: &[Interface]) -> String {
    let mut names: Vec<&str> = interfaces.iter().map(|interface| &*interface.name).collect();
    names.dedup();
    names.join("+")
}

/// The clock of live packets.
fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Options of `run` about the records it writes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow records")]
#[cfg_attr(
    not(feature = "xdp"),
    allow(dead_code, reason = "they are parsed, and `run` is refused")
)]
pub(crate) struct RunRecordArgs {
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(flatten)]
    pub(crate) rotate: RotateArgs,

    /// End a flow's record when no packet came for this long; 15s by default
    #[arg(long, value_name = "DURATION", value_parser = parse_timeout)]
    pub(crate) flow_idle_timeout: Option<Duration>,

    #[command(flatten)]
    pub(crate) anonymize: AnonymizeArgs,
}

#[cfg(feature = "xdp")]
impl RunRecordArgs {
    /// The outputs for records of what is received on interfaces named like `names`, and what records show; if records
    /// are asked for.
    pub(crate) fn open(&self, names: &str) -> anyhow::Result<Option<(Outputs, View)>> {
        let Some(anonymize) = self.check()? else { return Ok(None) };
        let names = self.anonymize.mode.is_none().then_some(names);
        let view = View { mask: FlowMask::ALL, anonymize, interfaces: Vec::new() };
        let outputs = self.rotate.outputs(&self.output, view.mask, names)?;
        Ok(Some((outputs, view)))
    }

    /// How addresses are shown, if records are asked for; refuses what is wrong on every host.
    pub(crate) fn check(&self) -> anyhow::Result<Option<Anonymize>> {
        if self.output.is_some() {
            return self.anonymize.masking().map(Some);
        }
        self.rotate.check_unused()?;
        check_unused(&[
            (self.output.partition_by.is_some(), "--partition-by"),
            (self.flow_idle_timeout.is_some(), "--flow-idle-timeout"),
            (self.anonymize.mode.is_some(), "--anonymize"),
            (self.anonymize.key.is_some(), "--anonymize-key"),
        ])?;
        Ok(None)
    }

    /// Also refuses files that can't be here. Nothing is opened.
    pub(crate) fn check_here(&self) -> anyhow::Result<()> {
        self.check()?;
        self.rotate.target(&self.output, None).map(drop)
    }

    /// Each option by its name, and whether `now` has the same value.
    pub(crate) fn same(&self, now: &RunRecordArgs) -> [(&'static str, bool); 9] {
        let ((was, is), (turns, now_turns)) =
            ((&self.output, &now.output), (&self.rotate, &now.rotate));
        [
            ("flows", was.flows == is.flows),
            ("partition-by", was.partition_by == is.partition_by),
            ("ipfix", was.ipfix == is.ipfix),
            ("flows-rotate", turns.flows_rotate == now_turns.flows_rotate),
            ("flows-rotate-size", turns.flows_rotate_size == now_turns.flows_rotate_size),
            ("flow-active-timeout", turns.flow_active_timeout == now_turns.flow_active_timeout),
            ("flow-idle-timeout", self.flow_idle_timeout == now.flow_idle_timeout),
            ("anonymize", self.anonymize.mode == now.anonymize.mode),
            ("anonymize-key", self.anonymize.key == now.anonymize.key),
        ]
    }

    /// The idle and the active timeout.
    pub(crate) fn timeouts(&self) -> (Duration, Duration) {
        (self.flow_idle_timeout.unwrap_or(IDLE_TIMEOUT), self.rotate.active_timeout())
    }
}
