//! Options about flow records: where they go, how many flows are distinguished, and what of their
//! addresses is shown.

use crate::change_spec::parse_interval;
use crate::input::{Input, refuse_input};
use crate::output;
use crate::words::{suggestion, whole};
use anyhow::{anyhow, ensure};
use clap::{Args, ValueHint};
use rxsteer_records::anonymize::{Anonymize, Mode, PseudonymKey};
use rxsteer_records::recording::Recording;
use rxsteer_records::{PartitionBy, Target, View};
use rxsteer_settings::words;
use rxsteer_user::PipelineConfig;
use rxsteer_user::flows::{FlowMask, FlowMaskError, FlowTableConfig, MAX_FLOWS};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Flows distinguished at a time, unless the user says how many.
const DEFAULT_MAX_FLOWS: u32 = 1 << 20;

/// Where the key of pseudonyms can be, beside the command line that every user of the host can
/// read.
const KEY_VARIABLE: &str = "RXSTEER_ANONYMIZE_KEY";

/// Blocks for further CPUs there are at least: few flows may yet run on many CPUs.
const LEAST_BLOCKS: u32 = 1 << 16;

/// Options of every command that keeps flow records.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow records")]
pub(crate) struct FlowTableArgs {
    /// Fields that make a flow, e.g. src or src/24,dst/24
    ///
    /// src, dst, protocol, src-port, dst-port, separated by commas; by default all five. src/24/56 is the network: 24 bits in IPv4, 56 in IPv6.
    #[arg(long, value_name = "FIELDS", value_parser = words(FlowMask::FIELDS, parse_key))]
    pub(crate) key: Option<FlowMask>,

    /// Flows distinguished at a time, 1048576 by default
    ///
    /// A new flow beyond that ends an old one, which continues as another record if it has more packets.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true,
          value_parser = whole::<u32, 1, { MAX_FLOWS as u64 }>)]
    pub(crate) max_flows: Option<u32>,

    /// Mask addresses: =24/48 (the default) or =pseudonym
    ///
    /// BITS/BITS keeps so many bits of IPv4 and of IPv6 addresses. pseudonym replaces addresses by others that share
    /// prefixes as the originals do.
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true,
          default_missing_value = "24/48", value_parser = words(Mode::WORDS, |text: &str| text.parse::<Mode>()))]
    pub(crate) anonymize: Option<Mode>,

    /// The key of pseudonyms, 64 hex digits; by default random
    ///
    /// The same key gives the same pseudonyms. A random key is not kept. In the environment variable
    /// RXSTEER_ANONYMIZE_KEY other users do not see it in the list of processes.
    #[arg(long, value_name = "HEX", value_parser = |text: &str| text.parse::<PseudonymKey>())]
    pub(crate) anonymize_key: Option<PseudonymKey>,
}

impl FlowTableArgs {
    pub(crate) fn view(&self) -> anyhow::Result<View> {
        let key = match (self.anonymize, self.anonymize_key) {
            // Where there are no pseudonyms, the variable is not meant for this run.
            (Some(Mode::Pseudonym), None) => key_in_environment()?,
            (_, key) => key,
        };
        let anonymize = Anonymize::new(self.anonymize, key)?;
        Ok(View { mask: self.mask(), anonymize })
    }

    /// What makes a flow.
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
        // Checked where it was read: a longer one does not fit.
        config.idle_timeout_ns = idle_timeout.map(|timeout| timeout.as_nanos() as u64);
        config.max_blocks = max_flows.max(LEAST_BLOCKS);
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

fn parse_idle_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_interval(text)?;
    if timeout.is_zero() {
        return Err("the timeout must be longer than 0, e.g. 30s".to_owned());
    }
    Ok(timeout)
}

/// The key that the environment has, if it has one. One that is wrong is no reason to take another.
fn key_in_environment() -> anyhow::Result<Option<PseudonymKey>> {
    let Some(text) = std::env::var_os(KEY_VARIABLE) else { return Ok(None) };
    let key = text.to_string_lossy().parse();
    key.map(Some).map_err(|error: String| anyhow!("{KEY_VARIABLE} is wrong: {error}"))
}

/// Options of `replay` about the records it writes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow records")]
pub(crate) struct RecordArgs {
    /// Write flow records: .csv, .jsonl or .parquet
    ///
    /// There is a record per flow and direction. It has packets, bytes, TCP flags, times, and how much each CPU processed. The ending of FILE is the format;
    /// .ndjson is .jsonl.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) flows: Option<PathBuf>,

    /// Make FILE a folder that many runs write Parquet files into, to be queried as one
    ///
    /// hash-prefix makes 256 partitions by the record's hash, hash-prefix:1 makes 16.
    #[arg(long, value_name = "RULE", requires = "flows", value_parser = words(PartitionBy::WORDS, |text: &str| text.parse::<PartitionBy>()))]
    pub(crate) partition_by: Option<PartitionBy>,

    /// End a flow's record when no packet came for longer than this, e.g. 30s
    ///
    /// The packets' own times count. By default a record is the whole flow.
    #[arg(long, value_name = "DURATION", requires = "flows", allow_hyphen_values = true,
          value_parser = parse_idle_timeout)]
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
        let Some(path) = &self.flows else {
            self.check_unused()?;
            return Ok(None);
        };
        // A capture is often named after whose traffic it has.
        let name = self.table.anonymize.is_none().then(|| input.name());
        let target = Target::new(path, self.partition_by, name)?;
        let read = input.captures.iter().map(PathBuf::as_path).chain(settings);
        refuse_input(path, "--flows", read)?;
        let view = self.table.view()?;
        if let Some(note) = target.note() {
            output::note(&format!("rxsteer: {note}"));
        }
        let table = self.table.table(self.flow_idle_timeout);
        Recording::start(target, &table, view, config).map(Some)
    }

    fn check_unused(&self) -> anyhow::Result<()> {
        let FlowTableArgs { key, max_flows, anonymize, anonymize_key } = &self.table;
        for (given, option) in [
            (key.is_some(), "--key"),
            (max_flows.is_some(), "--max-flows"),
            (anonymize.is_some(), "--anonymize"),
            (anonymize_key.is_some(), "--anonymize-key"),
        ] {
            ensure!(
                !given,
                "{option} is an option of flow records; name their file with --flows FILE"
            );
        }
        Ok(())
    }
}
