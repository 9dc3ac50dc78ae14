//! Outputs for programs that are not handlers. There is one for each CPU, and the CPU's worker writes it in the order of
//! its lists.
//!
//! ```text
//!   worker of CPU 0 ──► out/0.pcap        each flow's packets in their order,
//!   worker of CPU 1 ──► out/1.pcap        and in one file as long as the flow stays on its CPU
//! ```
//!
//! ```
//! use rxsteer_user::sink::Sinks;
//! use rxsteer_user::source::synthetic::SyntheticSource;
//! use rxsteer_user::{OnFull, PipelineConfig, Speed, core::Policy, run};
//! use std::sync::{Arc, atomic::AtomicBool};
//!
//! let folder = tempfile::tempdir()?;
//! let spec = format!("pcap:{}/%d.pcap.zst", folder.path().display()).parse()?;
//! let mut config = PipelineConfig::new(Policy::Rps, "0-1".parse()?);
//! config.on_full = OnFull::Wait;
//! let stop = Arc::new(AtomicBool::new(false));
//! let mut sinks = Sinks::open(&spec, &config.workers(), config.on_full, &stop, |_| {})?;
//! let counts = sinks.counts();
//! let mut source = [SyntheticSource::new("packets=1000,flows=10".parse()?, 1, (0, 1))];
//! let report = run(&config, &mut source, Speed::Max, &stop, |cpu| sinks.take(cpu), |_, _| {})?;
//! drop(report); // and its handlers with it, which finishes the files
//! assert_eq!(counts.report().iter().map(|file| file.written).sum::<u64>(), 1000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For every output, the packets given to it equal those written plus those dropped by reason. A flow that moves to
//! another CPU continues in that CPU's output. So programs that follow connections need a policy under which flows stay:
//! `rps`, `bound` or `none`.

mod counts;
mod interface;
mod open;
mod pcap;
mod spec;
mod stream;
mod write;

#[cfg(test)]
mod tests;

pub use counts::{SinkCounts, SinkDrop, SinkReport};
pub use spec::{SinkKind, SinkSpec, SinkSpecError};
pub use write::Sink;

use crate::config::OnFull;
use crate::printable::shown;
use counts::Counts;
use rxsteer_core::{CpuId, CpuSet};
use rxsteer_packet::LinkType;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Why outputs can't be opened. Each message is one line that includes the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The name is not possible.
    #[error("{0}")]
    Spec(#[from] SinkSpecError),
    /// There are several CPUs, and one name for all.
    #[error(
        "'{0}' names one output, and {1} CPUs have a worker; put %d into the name, which stands for the CPU"
    )]
    OneName(String, usize),
    /// The file can't be created.
    #[error("{}: can't be written: {error}{}", shown(path), advice(error))]
    Create {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// The path of the pipe exists and is not a pipe.
    #[error("{}: is not a pipe; name another file, or a new one, which rxsteer creates", shown(.0))]
    NotAPipe(PathBuf),
    /// The run was interrupted before the pipes had readers.
    #[error(
        "interrupted before any program had opened {0} for reading; start the readers while rxsteer waits, or before"
    )]
    NoReader(String),
    /// An interface can't be created or opened.
    #[error("{}: {message}", shown(Path::new(name)))]
    Interface {
        /// Its name.
        name: String,
        /// The problem, and what to do.
        message: String,
    },
}

impl SinkError {
    fn create(path: &Path, error: io::Error) -> SinkError {
        SinkError::Create { path: path.to_owned(), error }
    }
}

/// What to do about a file that can't be created.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "; create its folder first",
        ErrorKind::PermissionDenied => "; name a folder that you may write to",
        ErrorKind::IsADirectory => "; it is a folder, name a file in it",
        _ => "",
    }
}

/// The outputs of a run, until the workers take them.
#[derive(Debug)]
pub struct Sinks {
    sinks: Vec<(CpuId, Sink)>,
    counts: SinkCounts,
}

impl Sinks {
    /// Opens an output for each of `cpus`. Pass the CPUs of all workers ([`PipelineConfig::workers`]). With
    /// [`OnFull::Wait`] a worker waits for room in a pipe or interface, until `stop` is set.
    ///
    /// Existing files are replaced. A named pipe that does not exist is created, and removed at the end. `open` waits
    /// until each pipe has a reader, or `stop` is set. It calls `waiting` once with the names of the pipes that have no
    /// reader.
    ///
    /// [`PipelineConfig::workers`]: crate::PipelineConfig::workers
    ///
    /// # Errors
    /// [`SinkError`] if an output can't be opened. The outputs that were already opened are closed, and pipes and taps
    /// removed.
    pub fn open(
        spec: &SinkSpec,
        cpus: &CpuSet,
        on_full: OnFull,
        stop: &Arc<AtomicBool>,
        waiting: impl FnOnce(&[&str]),
    ) -> Result<Sinks, SinkError> {
        let cpus: Vec<CpuId> = cpus.iter().collect();
        spec.check(&cpus)?;
        let names: Vec<String> = cpus.iter().map(|cpu| spec.name(*cpu)).collect();
        let opened = open::open(spec, &names, stop, waiting)?;
        let mut sinks = Sinks { sinks: Vec::new(), counts: SinkCounts::default() };
        for ((cpu, name), (out, made)) in cpus.into_iter().zip(names).zip(opened) {
            let counts: Arc<Counts> = Arc::default();
            sinks.counts.per_cpu.push((cpu, name.clone(), counts.clone()));
            let link = spec.kind().is_interface().then_some(LinkType::Ethernet);
            let stop = stop.clone();
            let sink = Sink { name, out, counts, on_full, stop, link, made, waited_at_end: 0 };
            sinks.sinks.push((cpu, sink));
        }
        Ok(sinks)
    }

    /// Takes the output of a CPU, for its worker.
    ///
    /// # Panics
    /// If it was taken before, or `cpu` was not passed to [`Sinks::open`].
    pub fn take(&mut self, cpu: CpuId) -> Sink {
        let at = self.sinks.iter().position(|(of, _)| *of == cpu);
        let at = at.unwrap_or_else(|| panic!("there is no output for CPU {cpu}, or it was taken"));
        self.sinks.swap_remove(at).1
    }

    /// The counts of all outputs, for reports.
    #[must_use]
    pub fn counts(&self) -> SinkCounts {
        self.counts.clone()
    }
}
