//! The sources of frames, for all commands that run the receive path.

use crate::signals;
use anyhow::Context;
use rxsteer_records::anonymize::Mode;
use rxsteer_user::shown;
use rxsteer_user::source::capture::{CaptureOptions, CaptureSource, RxQueues};
use rxsteer_user::source::synthetic::{SyntheticSource, SyntheticSpec};
use rxsteer_user::source::{IssueKind, Source, SourceIssue};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Captures, or the parameters of generated frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) captures: &'a [PathBuf],
    pub(crate) synthetic: Option<&'a SyntheticSpec>,
    pub(crate) rx_queues: RxQueues,
    /// The number of receiving threads.
    pub(crate) threads: u16,
    /// How often to repeat the input.
    pub(crate) repeat: u32,
}

impl Input<'_> {
    /// One source per RX thread; each reads all input and keeps the frames of its queues.
    pub(crate) fn open(&self) -> anyhow::Result<Vec<Box<dyn Source>>> {
        let mode = |capture: &&PathBuf| {
            let text = capture.to_string_lossy();
            text.parse::<Mode>().is_ok() && !capture.exists()
        };
        if let Some(mode) = self.captures.iter().find(mode) {
            let mode = shown(mode);
            anyhow::bail!(
                "there is no capture '{mode}'; to mask addresses, write --anonymize={mode}, without a space"
            );
        }
        (0..self.threads).map(|thread| self.source(thread)).collect()
    }

    /// Notes before the run.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut times: BTreeMap<PathBuf, (&Path, u32)> = BTreeMap::new();
        for capture in self.captures {
            // A file can have several paths, because of links and dots.
            if let Ok(file) = capture.canonicalize() {
                times.entry(file).or_insert((capture, 0)).1 += 1;
            }
        }
        let again = times.into_values().filter(|(_, times)| *times > 1);
        again
            .map(|(capture, times)| {
                let capture = shown(capture);
                format!("{capture} is named {times} times; its packets count each time")
            })
            .collect()
    }

    fn source(&self, thread: u16) -> anyhow::Result<Box<dyn Source>> {
        let share = (thread, self.threads);
        if let Some(spec) = self.synthetic {
            let queues = match self.rx_queues {
                RxQueues::Hashed(queues) => queues,
                _ => 1,
            };
            let mut spec = spec.clone();
            spec.packets = spec.packets.saturating_mul(u64::from(self.repeat));
            anyhow::ensure!(
                spec.has_times(),
                "{} packets at rate={} last longer than 292 years, the most that rxsteer can count; lower packets= \
                 or raise rate=",
                spec.packets,
                spec.rate
            );
            return Ok(Box::new(SyntheticSource::new(spec, queues, share)));
        }
        let mut options = CaptureOptions::default();
        (options.repeat, options.rx_queues, options.share) = (self.repeat, self.rx_queues, share);
        // Only the error's own text: it already names the cause.
        let source = CaptureSource::open(self.captures, options);
        Ok(Box::new(source.map_err(|error| anyhow::anyhow!("{error}"))?))
    }

    /// The name on which names of output files are based.
    pub(crate) fn name(&self) -> &Path {
        self.captures.first().map_or(Path::new("synthetic"), PathBuf::as_path)
    }
}

/// Refuses an output, named by `option`, that is one of the input files: it would replace that file.
pub(crate) fn refuse_input(
    output: &Path,
    option: &str,
    inputs: impl IntoIterator<Item = impl AsRef<Path>>,
) -> anyhow::Result<()> {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let Some(file) = identity(output) else { return Ok(()) };
    for input in inputs {
        let input = input.as_ref();
        let read = if input == Path::new("-") { Path::new("/dev/stdin") } else { input };
        anyhow::ensure!(
            identity(read) != Some(file),
            "{option} {} is the input {} itself, which would be replaced; name another file",
            shown(output),
            shown(input)
        );
    }
    Ok(())
}

/// Records that were skipped because of their link type. Each RX thread reads the whole input and counts the same.
pub(crate) fn skipped(sources: &[Box<dyn Source>]) -> u64 {
    sources.iter().map(|source| source.skipped_records()).max().unwrap_or(0)
}

/// Each issue once, though every RX thread found it.
pub(crate) fn issues(sources: &mut [Box<dyn Source>], interrupted: bool) -> Vec<SourceIssue> {
    let mut all: Vec<SourceIssue> = Vec::new();
    for source in sources {
        for issue in source.take_issues() {
            if !all.contains(&issue) {
                all.push(issue);
            }
        }
    }
    if interrupted {
        // A pipe that was cut off by the interrupt is not damaged.
        all.retain(|issue| issue.file.is_file() || issue.kind != IssueKind::CutShort);
    }
    all
}

/// A flag that SIGINT, SIGTERM and SIGHUP set, as may other parts of the program. The first signal ends receiving, and
/// the results are shown. Another one ends the process, unless it follows immediately (some senders signal the process
/// and then its group).
pub(crate) fn stop_on_interrupt(sources: &[Box<dyn Source>]) -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let waits = sources.iter().filter_map(|source| source.stop_waiting());
    end_on_signals(waits.chain([stop.clone()]).collect())?;
    Ok(stop)
}

/// Sets `flags` at the first of the signals that end a run, and ends the process at another one.
pub(crate) fn end_on_signals(flags: Vec<Arc<AtomicBool>>) -> anyhow::Result<()> {
    let signals = signals::block()?;
    let wait = move || {
        let mut first: Option<Instant> = None;
        while signals.wait().is_ok() {
            // ORDER: Relaxed; the flag is a request and carries no data.
            for flag in &flags {
                flag.store(true, Ordering::Relaxed);
            }
            let first = *first.get_or_insert_with(Instant::now);
            if first.elapsed() > Duration::from_millis(500) {
                std::process::exit(130);
            }
        }
    };
    let thread = std::thread::Builder::new().name("rxsteer-signal".to_owned()).spawn(wait);
    thread.context("can't wait for signals")?;
    Ok(())
}
