//! `--out`: passes packets on to other programs, with one output per CPU.

use crate::advice::policies;
use crate::input::refuse_input;
use crate::output;
use crate::words::suggestion;
use clap::{Args, ValueHint};
use rxsteer_settings::words;
use rxsteer_status::figures::grouped;
use rxsteer_user::PipelineConfig;
use rxsteer_user::core::Policy;
use rxsteer_user::printable;
use rxsteer_user::sink::{SinkDrop, SinkKind, SinkReport, SinkSpec, SinkSpecError, Sinks};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Where packets go beside the report.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OutArgs {
    /// Write the packets, e.g. pcap:parts/%d.pcap
    ///
    /// Each CPU's worker writes the packets that it processes, in order, to its own output; %d stands for the CPU.
    /// pcap:DIR/%d.pcap and pcap:DIR/%d.pcap.zst are files. pipe:PATH%d are named pipes, made if they do not exist;
    /// the run begins when each has a reader. tap:NAME%d are tap interfaces, made for the run. veth:NAME%d are
    /// interfaces that exist. If a pipe or an interface is full, packets wait or are dropped, by the same rule as for
    /// a full backlog.
    #[arg(long, value_name = "KIND:NAME", value_hint = ValueHint::AnyPath, help_heading = "Output",
          value_parser = words(SinkKind::WORDS, parse_out))]
    pub(crate) out: Option<SinkSpec>,
}

fn parse_out(text: &str) -> Result<SinkSpec, String> {
    text.parse().map_err(|error: SinkSpecError| match &error {
        // A file name without the output's kind.
        SinkSpecError::Kind(word) if word.ends_with(".pcap") || word.ends_with(".pcap.zst") => {
            format!("{error}; write pcap:{word}")
        }
        SinkSpecError::Kind(word) => format!("{error}{}", suggestion(word, &SinkKind::WORDS)),
        _ => error.to_string(),
    })
}

impl OutArgs {
    /// The interval at which workers write the waiting packets: one second, so that programs that follow a file also see the
    /// packets of a quiet CPU.
    pub(crate) fn tick(&self) -> Option<Duration> {
        self.out.as_ref().map(|_| Duration::from_secs(1))
    }

    /// The files and pipes to write, one for each worker of `config`.
    pub(crate) fn files(&self, config: &PipelineConfig) -> Vec<PathBuf> {
        let workers = config.workers();
        self.out.iter().flat_map(|spec| spec.files(workers.iter())).collect()
    }

    /// Opens an output for each worker of `config`, if outputs are requested. None may be one of `inputs`.
    pub(crate) fn open(
        &self,
        inputs: impl Iterator<Item = impl AsRef<Path>> + Clone,
        config: &PipelineConfig,
        stop: &Arc<AtomicBool>,
    ) -> anyhow::Result<Option<Sinks>> {
        let Some(spec) = &self.out else { return Ok(None) };
        let workers = config.workers();
        for file in self.files(config) {
            refuse_input(&file, "--out", inputs.clone())?;
        }
        if policies(config).iter().any(Policy::moves_flows) || !config.changes.is_empty() {
            output::note(
                "rxsteer: under this policy a flow can move to another CPU, and then continues in that CPU's \
                 output; a program that follows connections sees only a part of them. --policy rps keeps each flow \
                 in one output.",
            );
        }
        let waiting = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| printable(name)).collect();
            output::note(&format!("rxsteer: waiting for readers of {}", names.join(", ")));
        };
        Ok(Some(Sinks::open(spec, &workers, config.on_full, stop, waiting)?))
    }
}

/// Every output as an object.
pub(crate) fn json(outputs: &[SinkReport]) -> Value {
    let one = |out: &SinkReport| {
        let drops = SinkDrop::ALL.iter().zip(out.drops);
        let dropped: serde_json::Map<_, _> =
            drops.map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect();
        json!({
            "cpu": out.cpu.get(),
            "name": out.name,
            "written": out.written,
            "bytes": out.bytes,
            "dropped": dropped,
            "error": out.error,
        })
    };
    outputs.iter().map(one).collect()
}

/// All outputs in one line of the report.
pub(crate) fn text(outputs: &[SinkReport]) -> String {
    let sum = |of: fn(&SinkReport) -> u64| grouped(outputs.iter().map(of).sum());
    let mut text =
        format!("{} packets ({} bytes) to ", sum(|out| out.written), sum(|out| out.bytes));
    match outputs {
        [one] => text += &printable(&one.name),
        [first, .., last] => {
            let (first, last) = (printable(&first.name), printable(&last.name));
            text += &format!("{} outputs, {first} to {last}", outputs.len());
        }
        [] => text += "no output",
    }
    for reason in SinkDrop::ALL {
        let count: u64 = outputs.iter().map(|out| out.drops[reason as usize]).sum();
        if count > 0 {
            text += &format!("; {} not written {}", grouped(count), reason.help());
        }
    }
    text
}

/// The problems with outputs, one line each.
pub(crate) fn problems<'a>(
    outputs: impl Iterator<Item = &'a SinkReport>,
    can_wait: bool,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut no_room = 0;
    for out in outputs {
        no_room += out.drops[SinkDrop::NoRoom as usize];
        lines.extend(out.error.clone());
    }
    if no_room > 0 {
        lines.push(format!(
            "{no_room} packets were not written because a pipe or an interface was full; {}read faster",
            if can_wait { "use --on-full wait to lose nothing, or " } else { "" }
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_kinds_are_named_with_the_nearest() {
        assert!(parse_out("pacp:x.pcap").unwrap_err().contains("did you mean 'pcap'?"));
        assert!(parse_out("vethh:x").unwrap_err().contains("did you mean 'veth'?"));
    }
}
