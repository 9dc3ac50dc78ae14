//! The records of one replay, from its workers to their file.

use super::{Sink, Target, View};
use crate::collecting::{Collecting, Consumer};
use rxsteer_user::core::CpuId;
use rxsteer_user::flows::{FlowCounts, FlowRecord, FlowTableConfig};
use rxsteer_user::{FlowStats, OnFull, PipelineConfig, WhenFull};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Records on their way into a file.
pub(crate) struct Recording {
    collecting: Collecting<Writing>,
    /// For each worker, until it takes it.
    stats: Vec<(CpuId, FlowStats)>,
    file: String,
}

/// What became of the records of a run.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    /// The name of the file, or a pattern that the files have.
    pub(crate) file: String,
    pub(crate) records: u64,
    pub(crate) counts: FlowCounts,
    /// Packets processed that are in no flow: not IP, or malformed.
    pub(crate) without_flow: u64,
}

struct Writing {
    sink: Box<dyn Sink>,
    view: View,
    records: u64,
}

impl Consumer for Writing {
    fn take(&mut self, record: &FlowRecord) -> anyhow::Result<()> {
        self.records += 1;
        self.sink.write(&self.view.row(record))
    }
}

impl Recording {
    /// Begins to write to `target` what the workers of `config` will count.
    pub(crate) fn start(
        target: &Target,
        table: &FlowTableConfig,
        view: View,
        config: &PipelineConfig,
        stop: Arc<AtomicBool>,
    ) -> anyhow::Result<Recording> {
        let writing = Writing { sink: target.open(view.mask)?, view, records: 0 };
        let collecting = Collecting::start(table, writing, stop)?;
        let stats = stats(&collecting, config)?;
        Ok(Recording { collecting, stats, file: target.shown() })
    }

    /// What counts for the worker of `cpu`.
    pub(crate) fn stats(&mut self, cpu: CpuId) -> Option<FlowStats> {
        take(&mut self.stats, cpu)
    }

    /// Writes what is left, and completes the file; `used` is what the workers counted by.
    pub(crate) fn finish(self, used: Vec<FlowStats>) -> anyhow::Result<Recorded> {
        let without_flow = used.iter().map(FlowStats::without_flow).sum();
        drop((used, self.stats));
        let (writing, counts) = self.collecting.finish()?;
        writing.sink.close()?;
        Ok(Recorded { file: self.file, records: writing.records, counts, without_flow })
    }
}

/// Flow statistics for each worker of `config`. Where packets may not be lost, workers wait for
/// records to be taken.
pub(crate) fn stats<C: Consumer>(
    collecting: &Collecting<C>,
    config: &PipelineConfig,
) -> anyhow::Result<Vec<(CpuId, FlowStats)>> {
    let when_full = match config.on_full {
        OnFull::Wait => WhenFull::Wait,
        OnFull::Drop => WhenFull::Refuse,
    };
    let stats = |cpu| -> anyhow::Result<(CpuId, FlowStats)> {
        Ok((cpu, FlowStats::new(collecting.writer(cpu)?, config.dissect, when_full)))
    };
    config.workers().iter().map(stats).collect()
}

/// Takes out what is for `cpu`.
pub(crate) fn take<T>(from: &mut Vec<(CpuId, T)>, cpu: CpuId) -> Option<T> {
    let index = from.iter().position(|(of, _)| *of == cpu)?;
    Some(from.swap_remove(index).1)
}
