//! The records of one replay, from the workers to the file.

use crate::collecting::{Collecting, Consumer};
use crate::{Sink, Target, View};
use rxsteer_core::CpuId;
use rxsteer_flows::{FlowCounts, FlowRecord, FlowTableConfig};
use rxsteer_user::{FlowStats, OnFull, PipelineConfig, WhenFull};
use std::sync::Arc;

/// The records of a run that are being written to a file.
pub struct Recording {
    collecting: Collecting<Writing>,
    /// For each worker, its statistics until the worker takes them.
    stats: Vec<(CpuId, FlowStats)>,
    target: Target,
}

/// The result of recording a run.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The name of the file, or a pattern for several files; `None` if there is no file.
    pub file: Option<String>,
    /// The error because of which there is no file.
    pub failure: Option<Arc<anyhow::Error>>,
    /// The number of records in the file.
    pub records: u64,
    /// The counts of the flow table.
    pub counts: FlowCounts,
    /// Processed packets that belong to no flow: not IP, or malformed.
    pub without_flow: u64,
}

struct Writing {
    /// The sink for the records, or the error after a write has failed. A failure drops the sink, which removes
    /// the file, so it takes no room on a full disk.
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
    /// Starts writing to `target` what the workers of `config` count.
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

    /// The statistics for the worker of `cpu`.
    pub fn stats(&mut self, cpu: CpuId) -> Option<FlowStats> {
        take(&mut self.stats, cpu)
    }

    /// Writes the remaining records and completes the file; `used` are the statistics of the workers. A failure to
    /// write records is part of the result, not an error: the report of the run is still valid.
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

/// Flow statistics for each worker of `config`. If packets must not be lost, workers wait until records are taken.
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

/// Removes and returns the entry of `cpu`.
pub fn take<T>(from: &mut Vec<(CpuId, T)>, cpu: CpuId) -> Option<T> {
    let index = from.iter().position(|(of, _)| *of == cpu)?;
    Some(from.swap_remove(index).1)
}
