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

/// A finished run, with everything for its report.
pub(crate) struct Run {
    pub(crate) report: Report<Work>,
    pub(crate) issues: Vec<SourceIssue>,
    pub(crate) policy: String,
    pub(crate) cpus: CpuSet,
    pub(crate) hash: &'static str,
    pub(crate) hash_seed: Option<HashSeed>,
    /// Whether the spread is one of many possible ones: it depends on the hash, and the secret is random.
    pub(crate) is_a_draw: bool,
    /// Whether the spread depends only on the hash, not on the speed of the workers.
    pub(crate) repeatable: bool,
    /// The other settings of the run.
    pub(crate) settings: serde_json::Value,
    pub(crate) skipped: u64,
    pub(crate) max_backlog: u32,
    /// The number of changes that were planned, or made by `rxsteer set`.
    pub(crate) changes: usize,
    /// The results for the flow records, if they were requested.
    pub(crate) recorded: Option<Recorded>,
    /// The results for the packets that were written, if that was requested.
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
