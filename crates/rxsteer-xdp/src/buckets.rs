//! The buckets of policies with `balance`, as the status shows them.

use rxsteer_core::explain::Reason;
use rxsteer_core::{CpuId, Move};
use std::collections::VecDeque;
use std::time::SystemTime;

/// The buckets of a path, and what moved.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    /// The CPU of each bucket; empty until the policy has buckets.
    pub table: Vec<CpuId>,
    /// Moves of buckets by load since the start.
    pub moved: u64,
    /// The last moves with their times, the latest first.
    pub latest: VecDeque<(SystemTime, Move)>,
    /// If the load cannot be measured, the reason; buckets do not move then.
    pub problem: Option<String>,
}

impl Buckets {
    /// The last move of the bucket that the hash picked, if it is among the latest.
    pub(crate) fn move_of(&self, reason: &Reason) -> Option<(SystemTime, Move)> {
        let Reason::Bucket { index, .. } = reason else { return None };
        self.latest.iter().find(|(_, one)| usize::from(one.bucket) == *index).copied()
    }
}
