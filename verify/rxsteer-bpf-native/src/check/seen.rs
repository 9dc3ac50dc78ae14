//! What a comparison covered.

use crate::abi;

/// Counts of what was covered, so that a test can assert that it tested something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Packets that were decided on.
    pub packets: u64,
    /// Packets by the rule that chose the target.
    pub(crate) by_rule: [u64; abi::STEER_RULES as usize],
    /// Packets that did not go to their target.
    pub deferred: u64,
    /// Packets that went to another CPU than the last packet of their slot.
    pub moved: u64,
    /// Packets that the flow limit refused.
    pub dropped: u64,
    /// Packets that went through a second ring.
    pub second_generation: u64,
    /// Packets that were unguarded.
    pub unguarded: u64,
    /// Buckets that moved.
    pub bucket_moves: u64,
}

/// The packets of each run of a comparison: `short` in every test run, ten times as many if `RXSTEER_LIVE=full` is set
/// (`cargo xtask live --full`).
#[must_use]
pub fn packets(short: u64) -> u64 {
    match std::env::var_os("RXSTEER_LIVE").is_some_and(|how| how == "full") {
        true => 10 * short,
        false => short,
    }
}

impl Seen {
    /// Packets whose target was chosen by `rule`, a value of `enum steer_rule`.
    #[must_use]
    pub fn by(&self, rule: u32) -> u64 {
        self.by_rule[rule as usize]
    }

    /// The same counts for each million packets.
    #[must_use]
    pub fn of_a_million(&self) -> Seen {
        let of = |count: u64| count * 1_000_000 / self.packets.max(1);
        Seen {
            packets: of(self.packets),
            by_rule: self.by_rule.map(of),
            deferred: of(self.deferred),
            moved: of(self.moved),
            dropped: of(self.dropped),
            second_generation: of(self.second_generation),
            unguarded: of(self.unguarded),
            bucket_moves: of(self.bucket_moves),
        }
    }

    /// Adds all counts of `other`.
    pub fn add(&mut self, other: &Seen) {
        self.packets += other.packets;
        for (mine, theirs) in self.by_rule.iter_mut().zip(other.by_rule) {
            *mine += theirs;
        }
        self.deferred += other.deferred;
        self.moved += other.moved;
        self.dropped += other.dropped;
        self.second_generation += other.second_generation;
        self.unguarded += other.unguarded;
        self.bucket_moves += other.bucket_moves;
    }
}
