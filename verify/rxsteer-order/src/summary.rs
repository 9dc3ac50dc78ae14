//! What runs covered.

use rxsteer_core::Drops;

/// Counts of one run, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// Packets received.
    pub received: u64,
    /// Packets that got room in a backlog.
    pub accepted: u64,
    /// Packets completed.
    pub completed: u64,
    /// Packets refused, by reason.
    pub drops: Drops,
    /// Accepted packets that were lost with their worker, and counted as completed.
    pub lost: u64,
    /// How often a batch had to wait for room.
    pub waits: u64,
    /// Packets that were accepted for another CPU than the previous packet of their flow.
    pub moves: u64,
    /// Decisions that deferred a flow: it stayed where its packets were.
    pub deferred: u64,
    /// Packets whose target is the CPU where their application runs.
    pub rfs: u64,
    /// Packets whose target is the CPU of their sparse slot.
    pub in_slots: u64,
    /// How often an application's flow was recorded or forgotten.
    pub records: u64,
    /// Plans published.
    pub changes: u64,
    /// Moves of buckets published.
    pub bucket_moves: u64,
    /// Plans adopted, by each producer; a plan may be replaced before it is adopted.
    pub adopted: u64,
    /// Transitions that took some time.
    pub transitions: u64,
    /// Of these, those that ended while packets were received.
    pub ended: u64,
    /// CPUs lost, and their backlogs taken over.
    pub cpu_losses: u64,
    /// CPUs that came back, and took their backlogs back.
    pub cpu_returns: u64,
    /// Backlogs whose count of completed packets wrapped.
    pub wraps: u64,
    /// Runs with such a backlog.
    pub wrapped_runs: u64,
}

impl Summary {
    /// Adds another's counts.
    pub fn merge(&mut self, other: &Summary) {
        self.drops.merge(&other.drops);
        for (mine, (_, theirs)) in self.counts_mut().into_iter().zip(other.counts()) {
            *mine += theirs;
        }
    }

    /// Every count except the drops, with its name.
    #[must_use]
    pub fn counts(&self) -> [(&'static str, u64); 20] {
        [
            ("runs", self.runs),
            ("received", self.received),
            ("accepted", self.accepted),
            ("completed", self.completed),
            ("lost", self.lost),
            ("waits", self.waits),
            ("moves", self.moves),
            ("deferred", self.deferred),
            ("rfs", self.rfs),
            ("in_slots", self.in_slots),
            ("records", self.records),
            ("changes", self.changes),
            ("bucket_moves", self.bucket_moves),
            ("adopted", self.adopted),
            ("transitions", self.transitions),
            ("ended", self.ended),
            ("cpu_losses", self.cpu_losses),
            ("cpu_returns", self.cpu_returns),
            ("wraps", self.wraps),
            ("wrapped_runs", self.wrapped_runs),
        ]
    }

    fn counts_mut(&mut self) -> [&mut u64; 20] {
        [
            &mut self.runs,
            &mut self.received,
            &mut self.accepted,
            &mut self.completed,
            &mut self.lost,
            &mut self.waits,
            &mut self.moves,
            &mut self.deferred,
            &mut self.rfs,
            &mut self.in_slots,
            &mut self.records,
            &mut self.changes,
            &mut self.bucket_moves,
            &mut self.adopted,
            &mut self.transitions,
            &mut self.ended,
            &mut self.cpu_losses,
            &mut self.cpu_returns,
            &mut self.wraps,
            &mut self.wrapped_runs,
        ]
    }
}
