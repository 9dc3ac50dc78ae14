//! The cost of flow statistics with a record of the CPUs that used a flow, and with a walk over all possible CPUs.
//!
//! This requires no network and no root. The experiment `forward` measures the effect of statistics on forwarding:
//! `rxsteer run` with and without them.

use super::{Description, Experiment, Load, Method, Metric, Sample, Scale};
use crate::cpu_use::Snapshot;
use crate::error::{LabError, Result};
use crate::flow_costs::{FlowLoad, FlowStore};

pub(super) struct FlowStats;

const METRICS: &[Metric] = &[
    Metric::less("read", "ns/flow"),
    Metric::less("set-up", "ns/flow"),
    Metric::less("update", "ns/packet"),
    Metric::less("clear", "ns/flow"),
    Metric::less("free", "ns/flow"),
];

const WALK: &str = "walk over all possible CPUs";
const USED: &str = "rxsteer, CPUs on record";

/// The number of possible CPUs, and whether two of them use each flow.
const LOADS: [(&str, u16, bool); 8] = [
    ("2 possible CPUs", 2, false),
    ("8,192 possible CPUs", 8192, false),
    ("8,192 possible CPUs, flows on two", 8192, true),
    ("8 possible CPUs", 8, false),
    ("64 possible CPUs", 64, false),
    ("64 possible CPUs, flows on two", 64, true),
    ("512 possible CPUs", 512, false),
    ("2,048 possible CPUs", 2048, false),
];

impl Experiment for FlowStats {
    fn description(&self) -> Description {
        Description {
            name: "flowstats",
            about: "Set-up, update, read, clear and free of a flow's per-CPU statistics, with its CPUs on record and with a walk over all",
            source: "Tonghao Zhang, net: openvswitch: optimize flow-stats: cpu_used_mask (docs/references.md)",
            metrics: METRICS,
        }
    }

    fn programs(&self) -> Option<&'static [&'static str]> {
        None
    }

    fn loads(&self, scale: Scale) -> Vec<Load> {
        let all = LOADS.iter().map(|(name, _, _)| Load::new(name, 256));
        all.take(scale.pick(2, LOADS.len())).collect()
    }

    fn methods(&self, _scale: Scale) -> Vec<Method> {
        vec![Method::Own(WALK), Method::Own(USED), Method::OwnAgain(WALK)]
    }

    fn measure(&self, method: &Method, load: &Load, scale: Scale) -> Result<Sample> {
        let found = LOADS.iter().find(|(name, _, _)| *name == load.name);
        let Some((_, possible, on_two_cpus)) = found else {
            return Err(LabError::Load { why: format!("there is no load {}", load.name) });
        };
        let asked = FlowLoad {
            possible: *possible,
            on_two_cpus: *on_two_cpus,
            flows: load.flows,
            packets: 16,
            passes: scale.pick(5, 25),
        };
        let store =
            if *method == Method::Own(USED) { FlowStore::Used } else { FlowStore::AllPossible };
        let begin = Snapshot::now()?;
        let Some(costs) = asked.measure(store) else {
            return Err(LabError::Load {
                why: format!("the memory for {possible} possible CPUs can't be allocated"),
            });
        };
        let cpus = begin.until(&Snapshot::now()?);
        LabError::check(costs.read_packets == asked.counted(), || {
            format!("{} packets were read of {} counted", costs.read_packets, asked.counted())
        })?;
        let mut checks = vec![format!("{} packets were counted, and read back", asked.counted())];
        if cfg!(debug_assertions) {
            checks.push("a debug build: its figures say nothing about a release build".to_owned());
        }
        let values = vec![
            ("read", costs.read_ns),
            ("set-up", costs.set_up_ns),
            ("update", costs.update_ns),
            ("clear", costs.clear_ns),
            ("free", costs.free_ns),
        ];
        Ok(Sample { values, checks, cpus })
    }
}
