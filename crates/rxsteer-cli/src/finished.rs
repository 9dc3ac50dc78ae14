//! A finished run of the receive path, in the form that `replay` and `live` report.

use crate::Outcome;
use crate::hash_key::HashSeed;
use crate::work::Work;
use rxsteer_records::recording::Recorded;
use rxsteer_user::Report;
use rxsteer_user::core::CpuSet;
use rxsteer_user::sink::SinkReport;
use rxsteer_user::source::SourceIssue;
use std::time::Duration;

/// A finished run and what there is to say about it.
pub(crate) struct Run {
    pub(crate) report: Report<Work>,
    pub(crate) issues: Vec<SourceIssue>,
    pub(crate) policy: String,
    pub(crate) cpus: CpuSet,
    pub(crate) hash: &'static str,
    pub(crate) hash_seed: Option<HashSeed>,
    /// Whether the spread is one of many: it depends on the hash, and the secret is random.
    pub(crate) is_a_draw: bool,
    /// Whether the spread depends on the hash alone, not on how fast the workers are.
    pub(crate) repeatable: bool,
    /// What else it was run with.
    pub(crate) settings: serde_json::Value,
    pub(crate) skipped: u64,
    pub(crate) max_backlog: u32,
    /// Changes that were planned, or made by `rxsteer set`.
    pub(crate) changes: usize,
    /// What became of the flow records, where they were asked for.
    pub(crate) recorded: Option<Recorded>,
    /// What became of the packets that were to be written, where that was asked for.
    pub(crate) out: Option<Vec<SinkReport>>,
    pub(crate) elapsed: Duration,
    pub(crate) interrupted: bool,
}

impl Run {
    pub(crate) fn outcome(&self) -> Outcome {
        let worker_died = self.report.per_cpu.iter().any(|cpu| cpu.failure.is_some());
        if self.interrupted {
            Outcome::Interrupted
        } else if !self.issues.is_empty()
            || worker_died
            || self.report.reordered > 0
            || self.recorded.as_ref().is_some_and(|recorded| {
                recorded.failure.is_some() || recorded.ipfix.is_some_and(|(_, [_, lost])| lost > 0)
            })
            || self.out.iter().flatten().any(|out| out.error.is_some())
        {
            Outcome::Findings
        } else {
            Outcome::Success
        }
    }
}
