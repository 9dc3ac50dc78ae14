//! What a comparison came by.

use crate::abi;

/// What was seen, so that a test shows that it tested something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Packets decided on.
    pub packets: u64,
    /// By the rule that chose the target.
    pub(crate) by_rule: [u64; abi::STEER_RULES as usize],
    /// Went elsewhere than to its target.
    pub deferred: u64,
    /// Went to another CPU than the last of their slot.
    pub moved: u64,
    /// Refused by the flow limit.
    pub dropped: u64,
    /// Went through a second ring.
    pub second_generation: u64,
    /// Went unguarded.
    pub unguarded: u64,
}

impl Seen {
    /// Packets whose target that rule chose, of `enum steer_rule`.
    #[must_use]
    pub fn by(&self, rule: u32) -> u64 {
        self.by_rule[rule as usize]
    }

    /// Counts all of `other` too.
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
    }
}
