//! Passes the records of flows that workers count to the outputs.

use crate::collecting::{Clock, Collecting, Consumer};
use crate::outputs::{Outcome, Outputs};
use crate::{View, Written};
use rxsteer_core::CpuId;
use rxsteer_flows::{FlowCounts, FlowRecord, FlowTable, FlowTableConfig};
use rxsteer_user::{FlowStats, OnFull, PipelineConfig, WhenFull};
use std::net::SocketAddr;
use std::sync::Arc;

/// The records of a run that are being written to a file.
pub struct Recording {
    collecting: Collecting<Writing>,
    /// For each worker, its statistics until the worker takes them.
    stats: Vec<(CpuId, FlowStats)>,
    view: Arc<View>,
}

/// The flows that a recording counts now, and which parts of them may be shown.
#[derive(Clone)]
pub struct LiveFlows {
    /// The flows.
    pub table: Arc<FlowTable>,
    /// Which parts of their keys are shown.
    pub view: Arc<View>,
}

/// The result of recording a run.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The name of the file, or a pattern for several files; `None` if there is no file.
    pub file: Option<String>,
    /// The error that prevented the file.
    pub failure: Option<Arc<anyhow::Error>>,
    /// The number of records in the file.
    pub records: u64,
    /// Records of live traffic that could not be written, and their packets.
    pub lost: Written,
    /// The collector's address, and the records sent to it and refused by the network.
    pub ipfix: Option<(SocketAddr, [u64; 2])>,
    /// The counts of the flow table.
    pub counts: FlowCounts,
    /// Processed packets that belong to no flow: not IP, or malformed.
    pub without_flow: u64,
}

struct Writing {
    outputs: Outputs,
    view: Arc<View>,
}

impl Consumer for Writing {
    fn take(&mut self, record: &FlowRecord) {
        self.outputs.take(&self.view.row(record));
    }

    fn tick(&mut self) {
        self.outputs.tick();
    }
}

impl Recording {
    /// Starts to write what the workers of `config` count to `outputs`. `clock` is the clock of live packets: timeouts
    /// by it also end flows that get no more packets.
    pub fn start(
        outputs: Outputs,
        table: &FlowTableConfig,
        view: View,
        config: &PipelineConfig,
        clock: Option<Clock>,
    ) -> anyhow::Result<Recording> {
        let view = Arc::new(view);
        let writing = Writing { outputs, view: view.clone() };
        let collecting = Collecting::start(table, writing, clock)?;
        let stats = stats(&collecting, config)?;
        Ok(Recording { collecting, stats, view })
    }

    /// The flows that are counted now.
    #[must_use]
    pub fn flows(&self) -> LiveFlows {
        LiveFlows { table: self.collecting.table(), view: self.view.clone() }
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
        let Outcome { file, failure, records, lost, ipfix } = writing.outputs.finish();
        let ipfix = ipfix.map(|(to, counts)| (to, [counts.records(), counts.lost()]));
        let failure = failure.map(Arc::new);
        Ok(Recorded { file, failure, records, lost, ipfix, counts, without_flow })
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
