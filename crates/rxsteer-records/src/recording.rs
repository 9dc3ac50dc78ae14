//! The records of one replay, from its workers to their file.

use crate::collecting::{Collecting, Consumer};
use crate::{Sink, Target, View};
use rxsteer_core::CpuId;
use rxsteer_flows::{FlowCounts, FlowRecord, FlowTableConfig};
use rxsteer_user::{FlowStats, OnFull, PipelineConfig, WhenFull};
use std::sync::Arc;

/// Records on their way into a file.
pub struct Recording {
    collecting: Collecting<Writing>,
    /// For each worker, until it takes it.
    stats: Vec<(CpuId, FlowStats)>,
    target: Target,
}

/// What became of the records of a run.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The name of the file, or a pattern that the files have; `None` where there is none.
    pub file: Option<String>,
    /// Why there is none, where something went wrong.
    pub failure: Option<Arc<anyhow::Error>>,
    /// Records that are there.
    pub records: u64,
    /// Counts of the flow table.
    pub counts: FlowCounts,
    /// Packets processed that are in no flow: not IP, or malformed.
    pub without_flow: u64,
}

struct Writing {
    /// What takes the records; once a write has failed, the error in its place. What was written until
    /// then has gone by that, and takes no room on a full disk.
    sink: anyhow::Result<Box<dyn Sink>>,
    view: View,
    records: u64,
}

impl Consumer for Writing {
    fn take(&mut self, record: &FlowRecord) {
        let Ok(sink) = &mut self.sink else { return };
        match sink.write(&self.view.row(record)) {
            Ok(()) => self.records += 1,
            Err(error) => self.sink = Err(error),
        }
    }
}

impl Recording {
    /// Begins to write to `target` what the workers of `config` will count.
    pub fn start(
        target: Target,
        table: &FlowTableConfig,
        view: View,
        config: &PipelineConfig,
    ) -> anyhow::Result<Recording> {
        let writing = Writing { sink: Ok(target.open(view.mask)?), view, records: 0 };
        let collecting = Collecting::start(table, writing)?;
        let stats = stats(&collecting, config)?;
        Ok(Recording { collecting, stats, target })
    }

    /// What counts for the worker of `cpu`.
    pub fn stats(&mut self, cpu: CpuId) -> Option<FlowStats> {
        take(&mut self.stats, cpu)
    }

    /// Writes what is left, and completes the file; `used` is what the workers counted by. That
    /// records could not be written is part of what became of them: the run has its report all the
    /// same.
    pub fn finish(self, used: Vec<FlowStats>) -> anyhow::Result<Recorded> {
        let without_flow = used.iter().map(FlowStats::without_flow).sum();
        drop((used, self.stats));
        let (writing, counts) = self.collecting.finish()?;
        let failure = writing.sink.and_then(Sink::close).err().map(Arc::new);
        let records = if failure.is_some() { 0 } else { writing.records };
        let file = if failure.is_some() { None } else { self.target.written(records) };
        Ok(Recorded { file, failure, records, counts, without_flow })
    }
}

/// Flow statistics for each worker of `config`. Where packets may not be lost, workers wait for
/// records to be taken.
pub fn stats<C: Consumer>(
    collecting: &Collecting<C>,
    config: &PipelineConfig,
) -> anyhow::Result<Vec<(CpuId, FlowStats)>> {
    let when_full = match config.on_full {
        OnFull::Wait => WhenFull::Wait,
        OnFull::Drop => WhenFull::Refuse,
    };
    let stats = |cpu| -> anyhow::Result<(CpuId, FlowStats)> {
        Ok((cpu, FlowStats::new(collecting.writer(cpu)?, when_full)))
    };
    config.workers().iter().map(stats).collect()
}

/// Takes out what is for `cpu`.
pub fn take<T>(from: &mut Vec<(CpuId, T)>, cpu: CpuId) -> Option<T> {
    let index = from.iter().position(|(of, _)| *of == cpu)?;
    Some(from.swap_remove(index).1)
}
