//! When records and files of live traffic are completed: options of `run` and `live`.

use super::{
    OutputArgs, check_unused, parse_rotation, parse_size, parse_timeout, refuse_given, report,
};
use clap::Args;
use rxsteer_records::files::Rotation;
use rxsteer_records::outputs::Outputs;
use rxsteer_records::{PartitionBy, Target};
use rxsteer_user::flows::FlowMask;
use std::path::Path;
use std::time::Duration;

/// When the records of live traffic end, and their files.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Flow records")]
pub(crate) struct RotateArgs {
    /// Begin a new file at each multiple of this time, e.g. 10m; for a folder, 10m by default
    ///
    /// A file's name has FILE, the time when the file was begun, and a number: flows-20261123T151000Z-000001.csv.
    #[arg(long, value_name = "DURATION", value_parser = parse_rotation)]
    pub(crate) flows_rotate: Option<Duration>,

    /// Begin a new file when the current one has this size, e.g. 100MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) flows_rotate_size: Option<u64>,

    /// Write a record of a flow after this long, and continue the flow in another record; 30m by default
    #[arg(long, alias = "active-timeout", value_name = "DURATION", value_parser = parse_timeout)]
    pub(crate) flow_active_timeout: Option<Duration>,
}

/// The idle timeout of live traffic, and the active one, where none is given: those of Cisco's routers, which others
/// follow.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How often a data set of live traffic gets files, unless the user says otherwise.
const ROTATE: Duration = Duration::from_secs(600);

impl RotateArgs {
    pub(super) fn active_timeout(&self) -> Duration {
        self.flow_active_timeout.unwrap_or(ACTIVE_TIMEOUT)
    }

    /// The rotation of files; `is_data_set`: of a folder of files.
    fn rotation(&self, is_data_set: bool) -> Rotation {
        let by_default = is_data_set && self.flows_rotate_size.is_none();
        let every = self.flows_rotate.or(by_default.then_some(ROTATE));
        Rotation { every, size: self.flows_rotate_size }
    }

    pub(super) fn check_unused(&self) -> anyhow::Result<()> {
        let RotateArgs { flows_rotate, flows_rotate_size, flow_active_timeout } = self;
        check_unused(&[
            (flows_rotate.is_some(), "--flows-rotate"),
            (flows_rotate_size.is_some(), "--flows-rotate-size"),
            (flow_active_timeout.is_some(), "--flow-active-timeout"),
        ])
    }

    /// The files for records of the live traffic of `names`, and when the next one begins.
    pub(super) fn target(
        &self,
        output: &OutputArgs,
        names: Option<&str>,
    ) -> anyhow::Result<(Option<Target>, Rotation)> {
        let files = [
            (self.flows_rotate.is_some(), "--flows-rotate"),
            (self.flows_rotate_size.is_some(), "--flows-rotate-size"),
        ];
        if output.flows.is_none() {
            refuse_given(&files, "an option of files; name one with --flows FILE")?;
        }
        let mut output = output.clone();
        // Live traffic has no end, so a folder can only be a data set.
        if let Some(path) = &output.flows
            && (path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/"))
            && output.partition_by.is_none()
        {
            output.partition_by = PartitionBy::WORDS[0].parse().ok();
        }
        let target = output.target(names.map(Path::new))?;
        Ok((target, self.rotation(output.partition_by.is_some())))
    }

    /// The outputs for them.
    pub(super) fn outputs(
        &self,
        output: &OutputArgs,
        mask: FlowMask,
        names: Option<&str>,
    ) -> anyhow::Result<Outputs> {
        let (target, rotation) = self.target(output, names)?;
        let collector = output.collector(&mask)?;
        Outputs::live(target, mask, collector, rotation, report)
    }
}
